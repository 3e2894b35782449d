"""Composites, run-level scores and measures of a run."""

from typing import Any

import pytest
from catalog_rows import rows
from planted_difference import ROWS, N, always, often, spec, targets

from evalflows import run
from evalflows.specs.reference import refer

pytestmark = pytest.mark.usefixtures("without_prefect")


@pytest.mark.slow
def test_composites_weight_scaled_metrics_and_run_level_scores_see_all_items() -> None:
    def share_of_long(outputs: list[Any], item_results: list[Any]) -> dict[str, Any]:
        assert len(outputs) == N and [item.item.id for item in item_results] == [row["id"] for row in ROWS]
        assert item_results[1].evaluations["quality"].value == pytest.approx((3 * 1.0 + 0.8) / 4)
        return {"key": "long", "score": sum(len(output["output"]) > 3 for output in outputs) / N}

    run(
        spec(
            targets=targets(target=often),
            composites=[{"name": "quality", "weights": {"exact_match": 3, "answer_length": 1}}],
            metrics={"answer_length": {"higher_is_better": False, "range": [0, 10]}},
            summary_evaluators=[{"use": refer(share_of_long), "name": "summary"}],
        )
    )
    assert rows(
        "select value, metadata ->> '$.parts.answer_length' from scores where metric = 'quality' and example_id = 'q1'"
    ) == [(pytest.approx(0.95), "0.8")]
    assert rows("select subject_kind, mean, scored from metric_summary where metric = 'long'") == [
        ("experiment", 0.25, 1)
    ]
    assert rows("select state, reason from experiments") == [("completed", None)]


@pytest.mark.slow
def test_a_missing_part_is_handled_by_the_policy() -> None:
    def raises(outputs: dict[str, Any]) -> bool:
        raise RuntimeError("down")

    both, policies = {"exact_match": 1, "raises": 1}, ("fail", "leave_out", "worst")
    composites = [{"name": policy, "weights": both, "missing": policy} for policy in policies]
    evaluators = ["exact_match", {"use": refer(raises), "name": "raises"}]
    run(spec(targets=targets(target=always), evaluators=evaluators, composites=composites))
    query = f"select distinct metric, status, value from scores where metric in {policies} order by 1"
    assert rows(query) == [("fail", "failed", None), ("leave_out", "scored", 1.0), ("worst", "scored", 0.5)]
