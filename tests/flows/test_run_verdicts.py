"""From a run to its verdicts: differences, intervals, missing values, repetitions, composites, run-level scores."""

from typing import Any

import pytest
from catalog_rows import rows
from planted_difference import ROWS, N, always, number, often, spec, targets

from evalflows import run
from evalflows.specs.reference import refer
from evalflows.stats.means import mean_estimate
from evalflows.stats.paired import paired_difference

pytestmark = pytest.mark.usefixtures("without_prefect")


def test_a_planted_difference_is_found_with_the_statistics_own_figures() -> None:
    run(spec())
    good, bad = ([1.0 if (i % 4 == 0) is flip else 0.0 for i in range(N)] for flip in (False, True))
    wanted = paired_difference(bad, good, binary=True)
    ((conclusion, difference, low, high, p, n, baseline),) = rows(
        """select conclusion, difference, difference_low, difference_high, p_value, n_pairs, baseline
           from results where metric = 'exact_match' and baseline is not null"""
    )
    assert (conclusion, baseline, n) == ("worse", "often", N)
    assert (difference, low, high, p) == (wanted.difference, wanted.low, wanted.high, wanted.p_value)
    mean = mean_estimate(good, binary=True)
    assert rows("select mean, ci_low, ci_high from results where metric = 'exact_match' and target = 'often'") == [
        (mean.mean, mean.low, mean.high)
    ]


@pytest.mark.slow
def test_missing_values_that_could_change_the_conclusion_make_it_inconclusive() -> None:
    def fails_on_half(outputs: dict[str, Any], reference_outputs: dict[str, Any], example: Any) -> bool:
        if number(example.id) % 2:
            raise RuntimeError("judge is down")
        return bool(outputs["output"] == reference_outputs["answer"])

    run(
        spec(
            name="turned",
            targets=targets(always=always, seldom=lambda question: "no"),
            evaluators=["exact_match", {"use": refer(fails_on_half), "name": "half"}],
        )
    )
    ((conclusion, reason, low, n_missing),) = rows(
        "select conclusion, reason, worst_case_low, candidate_missing from verdicts where metric = 'half'"
    )
    assert (conclusion, low, n_missing) == ("not_enough_evidence", -1.0, N // 2)
    assert reason.startswith(f"{N // 2} pairs with a missing value could change the conclusion")


@pytest.mark.slow
def test_repetitions_are_averaged_within_an_example() -> None:
    calls: list[str] = []

    def every_second_time(question: str) -> str:
        calls.append(question)
        return question.upper() if calls.count(question) % 2 else "no"

    run(spec(targets=targets(target=every_second_time), repetitions=2, max_concurrency=1))
    assert rows("select n_examples, mean, method from estimates where metric = 'exact_match'")[0][:2] == (N, 0.5)


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
