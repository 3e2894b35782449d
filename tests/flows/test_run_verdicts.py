"""From a run to its verdicts: differences, intervals, missing values, clusters, repetitions."""

from typing import Any

import pytest
from catalog_rows import rows
from planted_difference import N, always, number, spec, targets

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
