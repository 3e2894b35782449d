"""Composites, run-level scores and measures of a run."""

from typing import Any

import pytest
from catalog_rows import rows
from planted_difference import ROWS, N, always, often, spec, targets

from evalflows import run
from evalflows.specs.reference import refer

pytestmark = pytest.mark.usefixtures("prefect_api")


@pytest.mark.slow
def test_composites_weight_scaled_metrics_and_run_level_scores_see_all_items() -> None:
    def share_of_long(outputs: list[Any], item_results: list[Any]) -> dict[str, Any]:
        assert len(outputs) == N and [item.item.id for item in item_results] == [row["id"] for row in ROWS]
        assert item_results[1].evaluations["quality"].value == pytest.approx((3 * 1.0 + 0.8) / 4)
        return {"key": "long", "score": sum(len(output["output"]) > 3 for output in outputs) / N}

    run(
        spec(
            targets=targets(target=often),
            composites=[{"name": "quality", "weights": {"exact_match": 3, "length": 1}}],
            metrics={"length": {"higher_is_better": False, "range": [0, 10]}},
            summary_evaluators=[{"use": refer(share_of_long), "name": "summary"}],
        )
    )
    assert rows(
        "select value, metadata ->> '$.parts.length' from scores where metric = 'quality' and example_id = 'q1'"
    ) == [(pytest.approx(0.95), "0.8")]
    assert rows("select subject_kind, mean, scored from metric_summary where metric = 'long'") == [
        ("experiment", 0.25, 1)
    ]
    assert rows("select state, reason from experiments") == [("completed", None)]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [1, 5])
def test_copies_of_a_yes_no_metric_have_its_verdict(sizes: int) -> None:
    """Composites of it alone, and the same as numbers, of 0 and 1, or of 0 and 100 with and without a range."""

    def is_right(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
        return bool(outputs["output"] == reference_outputs["answer"])

    def as_number(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> float:
        return 1.0 if is_right(outputs, reference_outputs) else 0.0

    def in_per_cent(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> float:
        return 100.0 * as_number(outputs, reference_outputs)

    names = {"as_number": as_number, "per_cent": in_per_cent, "ranged": in_per_cent}
    run(
        spec(
            dataset={"rows": [row | {"cluster": f"c{place // sizes}"} for place, row in enumerate(ROWS)]},
            targets=targets(often=often, mostly=lambda question: question.upper() if int(question[1:]) % 7 else "no"),
            evaluators=["exact_match", *({"use": refer(use), "name": name} for name, use in names.items())],
            composites=[{"name": "copy", "weights": {"exact_match": 0.3}}, {"name": "scaled", "weights": ["ranged"]}],
            metrics={"ranged": {"range": [0, 100]}},
        )
    )
    found = {
        metric: (conclusion, p, method, *(end / unit for end in ends))
        for metric, conclusion, p, method, *ends in rows(
            "select metric, conclusion, p_value, method, difference, ci_low, ci_high, candidate_mean from verdicts"
        )
        if (unit := 100 if metric in ("per_cent", "ranged") else 1)
        and metric in (*names, "exact_match", "copy", "scaled")
    }
    assert found["exact_match"][2].startswith("bonett" if sizes == 1 else "cluster-robust bonett")
    assert len(found) == 6 and all(copy[:3] == found["exact_match"][:3] for copy in found.values())
    for copy in found.values():
        assert copy[3:] == pytest.approx(found["exact_match"][3:], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "status", "value"), [("fail", "failed", None), ("leave_out", "scored", 1.0), ("worst", "scored", 0.5)]
)
def test_a_missing_part_is_handled_by_the_policy(policy: str, status: str, value: float | None) -> None:
    def raises(outputs: dict[str, Any]) -> bool:
        raise RuntimeError("down")

    run(
        spec(
            targets=targets(target=always),
            evaluators=["exact_match", {"use": refer(raises), "name": "raises"}],
            composites=[{"name": "both", "weights": {"exact_match": 1, "raises": 1}, "missing": policy}],
        )
    )
    assert rows("select distinct status, value from scores where metric = 'both'") == [(status, value)]


def test_length_latency_cost_and_tokens_are_measured() -> None:
    run(spec(targets=targets(target=often)))
    measured = dict(rows("select metric, mean from metric_summary where evaluator = 'measured'"))
    assert measured["length"] == pytest.approx(sum(len(often(str(row["inputs"]["question"]))) for row in ROWS) / N)  # type: ignore[index]
    assert measured["latency"] > 0
    assert (measured["cost"], measured["tokens"]) == (None, None), "not known is not zero"
