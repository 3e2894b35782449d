"""From differences to conclusions: what is adjusted, what a margin does, what is missing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evalflows.analysis.verdicts import DifferenceTest, Verdict, classify
from evalflows.specs.gate import Adjustment
from evalflows.stats.paired import PairedDifference, paired_difference
from evalflows.store.records import Reason


def difference(mean: float, n: int = 100, spread: float = 0.2, **changes: Any) -> PairedDifference:
    noise = np.linspace(-1, 1, n)
    values = mean + spread * noise / noise.std()
    return replace(paired_difference(values, np.zeros(n)), **changes)


def verdict(test: DifferenceTest, adjustment: Adjustment = "holm") -> Verdict:
    (undecided,) = classify([test], adjustment)
    return undecided


def test_a_difference_that_is_sure_is_better_or_worse_the_way_the_metric_goes() -> None:
    assert verdict(DifferenceTest(estimate=difference(0.1))).conclusion == "better"
    assert verdict(DifferenceTest(estimate=difference(-0.1))).conclusion == "worse"
    assert verdict(DifferenceTest(estimate=difference(0.1), higher_is_better=False)).conclusion == "worse"
    assert verdict(DifferenceTest(estimate=difference(-0.1), higher_is_better=False)).conclusion == "better"


@pytest.mark.parametrize(
    ("mean", "margin", "conclusion"),
    [
        (0.10, 0.2, "better"),  # though within the margin
        (0.00, 0.2, "equivalent"),
        (0.02, 0.05, "no_worse"),
        (-0.02, 0.05, "not_enough_evidence"),
        (-0.06, 0.2, "equivalent"),  # though surely lower
        (-0.10, 0.05, "worse"),
        (-0.06, 0.05, "worse"),  # that it is lower is sure, by how much is not
    ],
)
def test_with_a_margin_small_differences_do_not_matter(mean: float, margin: float, conclusion: str) -> None:
    assert verdict(DifferenceTest(estimate=difference(mean), margin=margin)).conclusion == conclusion
    test_of_lower_is_better = DifferenceTest(estimate=difference(-mean), margin=margin, higher_is_better=False)
    assert verdict(test_of_lower_is_better).conclusion == conclusion


def test_what_is_within_the_margin_and_surely_lower_says_both() -> None:
    found = verdict(DifferenceTest(estimate=difference(-0.06), margin=0.2))
    assert (found.conclusion, found.reason_code) == ("equivalent", "worse_within_margin")
    assert found.reason == "significantly worse, but not by more than the margin"
    assert verdict(DifferenceTest(estimate=difference(0.0), margin=0.2)).reason is None


def test_of_twenty_metrics_one_that_looks_like_something_is_nothing() -> None:
    interim_analyses, nothing = difference(0.05), [difference(0.001) for _ in range(19)]
    assert interim_analyses.p_value is not None and interim_analyses.p_value < 0.05
    assert verdict(DifferenceTest(estimate=interim_analyses)).conclusion == "better"
    first, *_ = classify([DifferenceTest(estimate=each) for each in (interim_analyses, *nothing)], "holm")
    assert first.conclusion == "not_enough_evidence"
    assert first.p_adjusted == pytest.approx(20 * interim_analyses.p_value)
    assert first.reason_code == "not_significant_after_adjustment"
    assert "after Holm over 20 comparisons: not significant" in (first.reason or "")
    alone, *_ = classify([DifferenceTest(estimate=each) for each in (interim_analyses, *nothing)], "none")
    assert (alone.conclusion, alone.p_adjusted) == ("better", pytest.approx(interim_analyses.p_value))


def test_what_looks_better_and_is_called_no_worse_says_why() -> None:
    looks_better, nothing = difference(0.05), [difference(0.001) for _ in range(9)]
    tests = [DifferenceTest(estimate=each, margin=0.03) for each in (looks_better, *nothing)]
    first, second, *_ = classify(tests, "holm")
    assert (first.conclusion, first.reason_code) == ("no_worse", "not_significant_after_adjustment")
    assert (second.conclusion, second.reason) == ("not_enough_evidence", "no significant difference (100 pairs)")
    assert verdict(DifferenceTest(estimate=difference(0.02), margin=0.05)).reason is None, "its interval includes 0"


def test_what_cannot_decide_is_not_counted() -> None:
    """Nor does it make others less sure: an unfit judge, and what has no p-value."""
    interim_analyses = difference(0.05)
    exclusion = [
        DifferenceTest(estimate=difference(0.3), exclusion=Reason("judge_failed_validation", "no judge"))
        for _ in range(9)
    ]
    none = DifferenceTest(estimate=difference(0.0, low=None, high=None, p_value=None, reason="1 pair"))
    first, *others = classify([DifferenceTest(estimate=interim_analyses), *exclusion, none], "holm")
    assert (first.conclusion, first.p_adjusted) == ("better", pytest.approx(interim_analyses.p_value))
    assert {(each.conclusion, each.reason, each.p_adjusted) for each in others} == {
        ("not_enough_evidence", "no judge", None),
        ("not_enough_evidence", "1 pair", None),
    }


def test_the_worst_case_is_that_of_the_interval() -> None:
    """Had the missing gone against it, the difference would still be above 0, but not surely."""
    worst = difference(0.02)
    assert worst.difference is not None and worst.difference > 0 > (worst.low or 0)
    undecided = verdict(DifferenceTest(estimate=difference(0.1), lowest=worst, highest=difference(0.2), n_missing=5))
    assert undecided.conclusion == "not_enough_evidence"
    assert (undecided.reason or "").startswith("5 pairs with a missing value")
    for lowest, n_missing in ((difference(0.06), 5), (worst, 0)):
        test = DifferenceTest(estimate=difference(0.1), lowest=lowest, highest=difference(0.2), n_missing=n_missing)
        assert verdict(test).conclusion == "better"


def test_without_bounds_what_is_missing_could_be_anything() -> None:
    undecided = verdict(DifferenceTest(estimate=difference(0.1), n_missing=1))
    assert undecided.conclusion == "not_enough_evidence"
    assert undecided.reason == "1 pair with a missing value, and no declared range bounds the metric"


@pytest.mark.parametrize(
    ("lowest", "highest", "margin", "why"),
    [
        (-0.1, 0.03, None, "missing_could_flip"),  # they could make it worse,
        (-0.03, 0.1, None, "missing_could_flip"),  # or better,
        (-0.03, 0.03, None, "no_significant_difference"),  # or neither
        (-0.03, 0.03, 0.05, "missing_could_flip"),  # without them it is within the margin
    ],
)
def test_missing_values_leave_no_difference_open_where_they_could_make_it_one(
    lowest: float, highest: float, margin: float | None, why: str
) -> None:
    cases = {"lowest": difference(lowest), "highest": difference(highest), "margin": margin}
    assert verdict(DifferenceTest(estimate=difference(0.0), n_missing=5, **cases)).reason_code == why
