"""From a run to its verdicts: differences, intervals, missing values, clusters, repetitions."""

from typing import Any

import pytest
from catalog_rows import rows
from planted_difference import ROWS, N, always, number, often, seldom, spec, targets, verdict

from evalflows import run
from evalflows.specs.reference import refer
from evalflows.stats import mean_estimate, paired_difference

pytestmark = pytest.mark.usefixtures("prefect_api")


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
def test_the_baseline_need_not_be_the_first_target() -> None:
    run(spec(baseline="seldom"))
    assert verdict("exact_match")[0] == "better"


@pytest.mark.slow
def test_identical_targets_show_no_significant_difference() -> None:
    run(spec(targets=targets(one=often, two=often)))
    conclusion, reason, difference = verdict("exact_match")
    assert (conclusion, difference) == ("not_enough_evidence", 0.0)
    assert reason == f"no significant difference ({N} pairs)"


@pytest.mark.slow
def test_lower_is_better_for_measures() -> None:
    run(spec(targets=targets(long=lambda question: "word " * (9 + number(question) % 3), short=often)))
    assert verdict("length")[0] == "better"
    assert verdict("tokens")[0] == "not_enough_evidence"


@pytest.mark.slow
def test_missing_values_that_could_change_the_conclusion_make_it_inconclusive() -> None:
    def fails_on_half(outputs: dict[str, Any], reference_outputs: dict[str, Any], example: Any) -> bool:
        if number(example.id) % 2:
            raise RuntimeError("judge is down")
        return bool(outputs["output"] == reference_outputs["answer"])

    run(spec(evaluators=[{"use": refer(fails_on_half), "name": "half"}]))
    conclusion, reason, difference = verdict("half")
    assert (conclusion, difference) == ("not_enough_evidence", 0.0)
    ((low, high, n_missing),) = rows(
        "select worst_case_low, worst_case_high, candidate_missing from verdicts where metric = 'half'"
    )
    assert (low, high, n_missing) == (-0.5, 0.5, N // 2)

    run(
        spec(
            name="turned",
            targets=targets(always=always, seldom=lambda question: "no"),
            evaluators=["exact_match", {"use": refer(fails_on_half), "name": "half"}],
        )
    )
    ((conclusion, reason),) = rows(
        "select conclusion, reason from results where metric = 'half' and experiment = 'turned-seldom'"
    )
    assert conclusion == "not_enough_evidence"
    assert (
        reason == f"{N // 2} pairs with a missing value could change the conclusion (worst-case interval -1 to +0.302)"
    )  # the ends of the intervals then


@pytest.mark.slow
def test_clustered_examples_use_a_clustered_test() -> None:
    clustered = [row | {"cluster": f"c{i % 5}"} for i, row in enumerate(ROWS)]
    run(spec(dataset={"rows": clustered}))
    ((method, clusters),) = rows("select method, n_clusters from verdicts where metric = 'exact_match'")
    assert "cluster" in method and clusters == 5


@pytest.mark.slow
def test_repetitions_are_averaged_within_an_example() -> None:
    calls: list[str] = []

    def every_second_time(question: str) -> str:
        calls.append(question)
        return question.upper() if calls.count(question) % 2 else "no"

    run(spec(targets=targets(target=every_second_time), repetitions=2, max_concurrency=1))
    assert rows("select n_examples, mean, method from estimates where metric = 'exact_match'")[0][:2] == (N, 0.5)


@pytest.mark.slow
def test_intervals_stay_within_the_bounds_of_their_metric() -> None:
    few = ROWS[1:6]
    run(spec(dataset={"rows": few}, targets=targets(often=often, seldom=seldom), repetitions=3))
    outside = rows(
        """select metric, ci_low, ci_high, difference_low, difference_high from results
           where (metric = 'exact_match' and (ci_low < 0 or ci_high > 1 or abs(difference_low) > 1))
              or (metric in ('latency', 'length') and ci_low < 0)"""
    )
    assert outside == []
    assert rows("select ci_high from results where metric = 'exact_match' and target = 'often'") == [(1.0,)]
