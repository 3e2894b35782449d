"""judge_error and confusion: by hand, against scipy, and missing estimates."""

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from evalflows.stats.judge_error import confusion, judge_error
from evalflows.stats.means import linearised, mean_estimate
from evalflows.stats.paired import paired_difference
from evalflows.stats.proportions import wilson_interval


def test_a_generous_judge_by_hand() -> None:
    """Four values 0.5 above people's, four equal: a bias of 0.25, and a variance of 8 times 1/16 over 7."""
    people = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    judge = [value + (0.5 if place % 2 else 0.0) for place, value in enumerate(people)]
    result = judge_error(judge, people)
    assert (result.bias, result.variance) == pytest.approx((0.25, 8 / 16 / 7))
    paired = paired_difference(judge, people)
    assert (result.low, result.high, result.n) == (paired.low, paired.high, 8)


@pytest.mark.parametrize("step", [0.01, 1.0])
def test_the_correlation_matches_scipy_with_and_without_ties(step: float) -> None:
    rng = np.random.default_rng(2)
    people = np.round(rng.normal(size=60) / step) * step
    judge = np.round((people + rng.normal(size=60)) / step) * step
    assert judge_error(judge, people).correlation == pytest.approx(scipy_stats.spearmanr(judge, people).statistic)


def test_weights_give_the_weighted_mean() -> None:
    rng = np.random.default_rng(4)
    judge, people, weights = rng.normal(size=50), rng.normal(size=50), rng.uniform(1, 4, 50)
    result, mean = judge_error(judge, people, weights=weights), mean_estimate(linearised(judge - people, weights))
    assert (result.bias, result.low, result.high) == pytest.approx((mean.mean, mean.low, mean.high))
    assert result.method.endswith("weighted")


@pytest.mark.parametrize(
    ("judge", "people", "bias", "why", "why_none"),
    [
        ([], [], None, "no pairs", "no items: a correlation needs at least 2"),
        ([1.0], [0.0], 1.0, "1 pair", "1 item: a correlation needs at least 2"),
        ([1.0, 1.0], [0.0, 1.0], 0.5, None, "the judge gave all 2 items the same value"),
        ([0.0, 1.0], [1.0, 1.0], -0.5, None, "people gave all 2 items the same value"),
        ([2.0, 3.0], [1.0, 2.0], 1.0, "all 2 differences are equal", None),
    ],
)
def test_missing_estimates_have_a_reason(judge: Any, people: Any, bias: Any, why: Any, why_none: Any) -> None:
    result = judge_error(judge, people)
    assert result.bias == bias
    assert (result.low is None, result.correlation is None) == (why is not None, why_none is not None)
    for said, begins in ((result.reason, why), (result.correlation_reason, why_none)):
        assert (said is None) == (begins is None)
        assert said is None or said.startswith(begins)


# confusion


def test_a_binary_confusion_matrix_by_hand() -> None:
    people, judge = [1.0] * 30 + [0.0] * 20, [1.0] * 27 + [0.0] * 3 + [1.0] * 4 + [0.0] * 16
    result = confusion(judge, people, labels=[1.0, 0.0])
    assert (result.labels, result.counts, result.n) == ((1.0, 0.0), ((27, 3), (4, 16)), 50)
    sensitivity, specificity = result.found
    assert (sensitivity.share, specificity.share) == (0.9, 0.8)
    assert (sensitivity.low, sensitivity.high) == pytest.approx(wilson_interval(27, 30, confidence_level=0.95))
    assert (specificity.low, specificity.high) == pytest.approx(wilson_interval(16, 20, confidence_level=0.95))
    assert [share.share for share in result.right] == pytest.approx([27 / 31, 16 / 19])


def test_labels_keep_their_order_with_given_ones_first() -> None:
    result = confusion(["b", "x"], ["a", "b"], labels=["tie"])
    assert result.labels == ("tie", "a", "b", "x")
    assert result.counts == ((0, 0, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 0))
    assert result.found[0].share is None and result.found[0].reason == "no values: an interval needs at least 1"
