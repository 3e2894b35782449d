"""Intervals of figures of a whole experiment: against intervals of shares and means, their draws, and the reasons."""

import math
from collections.abc import Callable
from dataclasses import replace
from time import sleep
from typing import Any

import numpy as np
import pytest

from evalflows.stats import resampling
from evalflows.stats.arrays import FloatArray
from evalflows.stats.classification import Classification, ClassificationFigure
from evalflows.stats.means import mean_estimate
from evalflows.stats.paired import paired_difference
from evalflows.stats.proportions import one_sided_p, score_interval, t_quantile
from evalflows.stats.regression import Regression
from evalflows.stats.resampling import Resampled, Statistic, figure_difference, figure_interval, resampled

WITHIN = (0.0, 1.0)
F1 = ClassificationFigure("f1", 1)


def mean_of(values: Any) -> Statistic:
    def mean(weights: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            return np.asarray((weights @ np.asarray(values, dtype=float) / weights.sum(axis=1))[:, None])

    return mean


def found(values: Any, units: Any = None, **settings: Any) -> Resampled:
    places = np.arange(len(values)) if units is None else np.asarray(units)
    return resampled(mean_of(values), places, **settings)[0]


def whole_counts(n_units: int) -> FloatArray:
    """How often each unit is drawn, shape (n_units, 2000)."""
    return np.array([figure.resamples for figure in resampled(lambda weights: weights, np.arange(n_units))])


def test_a_share_has_nearly_wilsons_interval_and_a_mean_nearly_that_of_t() -> None:
    rng = np.random.default_rng(0)
    values = (rng.random(400) < 0.7).astype(float)
    share, quantile = found(values), t_quantile(0.95, 199)
    estimate = figure_interval(share, bounds=WITHIN)
    wanted = score_interval(values.mean(), 400, quantile)
    assert (estimate.low, estimate.high) == pytest.approx(wanted, abs=0.006)
    assert (estimate.value, estimate.n, estimate.n_clusters, estimate.reason) == (values.mean(), 400, None, None)
    assert estimate.standard_error == pytest.approx(math.sqrt(values.var() / 400), rel=0.06)

    numbers = rng.lognormal(size=300)
    ours, theirs = figure_interval(found(numbers)), mean_estimate(numbers)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=0.06)
    # Between one bound and none, the ends are asymmetric; the mirror image has the mirrored interval.
    above = figure_interval(found(numbers), bounds=(0.0, math.inf))
    below = figure_interval(found(-numbers), bounds=(-math.inf, 0.0))
    assert above.low is not None and above.high is not None and above.value is not None
    assert above.high - above.value > above.value - above.low > 0
    assert (below.low, below.high) == pytest.approx((-above.high, -above.low))


def test_f1_of_one_label_has_nearly_the_interval_of_the_share_that_it_is_a_function_of() -> None:
    for right, wrong, rest in ((30, 20, 150), (45, 5, 100), (95, 5, 900)):
        expected = np.repeat([1, 1, 0, 0], [right, wrong - wrong // 2, wrong // 2, rest])
        got = np.repeat([1, 0, 1, 0], [right, wrong - wrong // 2, wrong // 2, rest])
        (figure,) = resampled(Classification(expected, got, 2, [F1]), np.arange(len(expected)))
        estimate = figure_interval(figure, bounds=WITHIN)
        ends = [2 * j / (1 + j) for j in score_interval(right / (right + wrong), right + wrong, 1.96)]
        assert estimate.low is not None and estimate.high is not None
        assert estimate.low <= ends[0] + 0.005 and estimate.high >= ends[1] - 0.005
        assert estimate.high - estimate.low <= 1.35 * (ends[1] - ends[0])


def test_differences_of_yes_no_pairs_have_nearly_the_variance_of_bonett_and_price() -> None:
    for gained, lost in ((5, 20), (8, 0), (6, 6), (1, 0)):
        candidate = np.repeat([1.0, 0.0, 1.0, 0.0], [gained, lost, 100, 50])
        baseline = np.repeat([0.0, 1.0, 1.0, 0.0], [gained, lost, 100, 50])
        ours = figure_difference(found(candidate), found(baseline), bounds=WITHIN)
        theirs = paired_difference(candidate, baseline, binary=True)
        assert ours.difference == pytest.approx(theirs.difference)
        assert ours.standard_error == pytest.approx(theirs.standard_error, rel=0.05)
        assert (ours.n_pairs, ours.tested_low, ours.tested_high) == (len(candidate), ours.low, ours.high)


@pytest.mark.parametrize("bounds", [WITHIN, (0.0, math.inf), (-math.inf, 1.0), (-math.inf, math.inf)])
def test_intervals_widen_with_the_level_stay_within_bounds_and_agree_with_p(
    bounds: tuple[float, float], assert_plain: Callable[[Any], None]
) -> None:
    rng = np.random.default_rng(1)
    levels = [0.5, 0.9, 0.95, 0.999, 0.9999, 1 - 1e-9]
    for size, quality in ((2, 0.5), (12, 0.9), (60, 0.6), (500, 0.97)):
        baseline = np.r_[1.0, 0.0, rng.random(size - 2) < quality]
        candidate = np.where(rng.random(size) < 0.8, baseline, rng.random(size) < quality + 0.02)
        sides = found(candidate), found(baseline)
        single = [figure_interval(sides[1], bounds=bounds, confidence_level=level) for level in levels]
        both = [figure_difference(*sides, bounds=bounds, confidence_level=level) for level in levels]
        for results in (single, both[: 0 if both[0].reason else None]):
            for result in results:
                assert_plain(result)
            ends = np.array([(result.low, result.high) for result in results], dtype=float).reshape(-1, 2)
            assert (np.diff(ends[:, 0]) <= 0).all() and (np.diff(ends[:, 1]) >= 0).all()
        for estimate in single:
            assert estimate.low is not None and estimate.high is not None and estimate.value is not None
            assert bounds[0] <= estimate.low < estimate.value < estimate.high <= bounds[1]
        for level, result in zip(levels, both, strict=True):
            if result.low is not None and result.high is not None and result.p_value is not None:
                assert abs(result.low) <= bounds[1] - bounds[0] and result.p_value == both[0].p_value
                assert (result.p_value <= 1 - level) == (result.low > 0 or result.high < 0)

        def interval_at(level: float, figure: Resampled = sides[1]) -> tuple[float, float]:
            estimate = figure_interval(figure, bounds=bounds, confidence_level=level)
            assert estimate.low is not None and estimate.high is not None
            return estimate.low, estimate.high

        assert 0 < one_sided_p(interval_at, 0.2).p_above <= 0.5


def test_draws_depend_on_the_number_of_units_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[FloatArray] = []

    def statistic(weights: FloatArray) -> FloatArray:
        seen.append(weights)
        return weights[:, :1]

    units, repeated = np.arange(450), np.repeat(np.arange(450), 3)
    resampled(statistic, units, n_resamples=50)
    whole = [np.concatenate(seen)]
    for size in (450 * 7, 450 * 100):
        monkeypatch.setattr(resampling, "MAX_BLOCK_SIZE", size)
        seen.clear()
        resampled(statistic, units, n_resamples=50)
        assert max(map(len, seen)) == size // 450 or size == 450 * 100
        whole.append(np.concatenate(seen))
    seen.clear()
    resampled(statistic, repeated, n_resamples=50)
    whole.append(np.concatenate(seen)[:, ::3])
    assert all(np.array_equal(whole[0], other) for other in whole[1:])
    one, left_out, drawn = whole[0][0], whole[0][1:201], whole[0][201:]
    assert (one == 1).all() and set(left_out.sum(axis=1)) == {447.0, 448.0}
    assert (left_out.sum(axis=0) == 199).all()  # each unit is in one group
    assert drawn.shape == (50, 450) and (drawn.sum(axis=1) == 450).all()
    assert abs(np.corrcoef(left_out.argmin(axis=1), np.arange(200))[0, 1]) < 0.5  # neighbours are in different groups


def test_clusters_widen_and_time_limits_leave_the_same_resamples_out() -> None:
    rng = np.random.default_rng(2)
    values = np.repeat(rng.random(60) < 0.6, 5).astype(float)
    alone, together = found(values), found(values, np.repeat(np.arange(60), 5))
    widths = []
    for figure in (alone, together):
        estimate = figure_interval(figure, bounds=WITHIN)
        assert estimate.low is not None and estimate.high is not None
        widths.append(estimate.high - estimate.low)
    assert widths[1] > 1.8 * widths[0]
    estimate = figure_interval(together, bounds=WITHIN)
    assert (estimate.n, estimate.n_clusters, estimate.method) == (60, 60, "cluster jackknife and bootstrap, wilson")
    answered = np.arange(0, 300, 3)  # of the units that are drawn, some have no answer
    (some,) = resampled(mean_of(values[answered]), answered, n_units=300)
    wanted = (values * np.isin(np.arange(300), answered) @ whole_counts(300)) / (
        np.isin(np.arange(300), answered) @ whole_counts(300)
    )
    assert some.n == 300 and some.resamples[:20] == pytest.approx(wanted[:20])

    def slow(weights: FloatArray) -> FloatArray:
        sleep(0.02)
        return mean_of(values)(weights)

    (brief,) = resampled(slow, np.arange(300), seconds=0.1)
    assert len(brief.left_out) == 200 and 0 < len(brief.resamples) < 300
    assert np.array_equal(brief.resamples, alone.resamples[: len(brief.resamples)])
    difference = figure_difference(brief, alone, bounds=WITHIN)
    assert difference.reason_code == "no_spread" and difference.p_value == 1
    other = found(1 - values)
    assert figure_difference(other, brief, bounds=WITHIN).low is not None
    (never,) = resampled(slow, np.arange(300), seconds=0)
    assert len(never.resamples) == 0 and figure_interval(never, bounds=WITHIN).low is not None


def test_figures_that_are_not_smooth_have_the_variance_of_the_bootstrap() -> None:
    values = np.repeat([3.0, 4.0, 5.0], [30, 25, 46])  # leaving out one answer never changes their median

    def median(weights: FloatArray) -> FloatArray:
        return values[(weights.cumsum(axis=1) >= weights.sum(axis=1, keepdims=True) / 2).argmax(axis=1)][:, None]

    (figure,) = resampled(median, np.arange(101))
    estimate = figure_interval(figure, bounds=(1.0, 5.0))
    assert np.ptp(figure.left_out) == 0 and estimate.standard_error == pytest.approx(figure.resamples.std())
    assert estimate.low is not None and estimate.high is not None and estimate.low < 4 < estimate.high <= 5
    assert figure_interval(replace(figure, resamples=figure.resamples[:100])).reason_code == "no_spread"


def test_there_is_no_interval_without_units_spread_or_definition(assert_plain: Callable[[Any], None]) -> None:
    labels = np.array([1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    of_two = Classification(labels, labels[::-1], 2, [ClassificationFigure("recall", 1)])
    one_class = Classification(labels * 0, labels, 2, [ClassificationFigure("mcc")])
    numbers = Regression(np.array([1.0, 2.0, 2.0]), np.array([1.0, 1.0, 2.0]), ["pearson"])
    cases: list[tuple[Resampled, str, str]] = [
        (found(np.empty(0)), "undefined for these 0 examples", "too_few"),
        (found([0.5]), "1 example: an interval needs at least 2", "too_few"),
        (found([0.2, 0.4], [0, 0]), "1 cluster: an interval needs at least 2", "too_few"),
        (found([0.3] * 8), "leaving out any example changes nothing", "no_spread"),
        (found([0.3] * 8, np.arange(8) // 2), "leaving out any cluster changes nothing", "no_spread"),
        (resampled(of_two, np.arange(10))[0], "too few examples: the figure is undefined without", "too_few"),
        (resampled(one_class, np.arange(10))[0], "undefined for these 10 examples", "too_few"),
        (resampled(numbers, np.arange(3))[0], "too few examples", "too_few"),
    ]
    for figure, reason, code in cases:
        estimate, difference = figure_interval(figure), figure_difference(figure, figure)
        assert_plain(estimate)
        assert estimate.reason is not None and reason in estimate.reason and estimate.reason_code == code
        assert estimate.standard_error is None and difference.low is None
        assert difference.reason_code in (code, "no_spread")
        assert difference.p_value == (1.0 if difference.reason_code == "no_spread" else None)
    for wrong in ({"bounds": (1.0, 0.0)}, {"bounds": (0.5, 1.0)}, {"confidence_level": 1.0}):
        with pytest.raises(ValueError, match=r"bounds|figure|confidence_level"):
            figure_interval(found([0.2, 0.4, 0.3]), **wrong)
    with pytest.raises(ValueError, match="got 3 units, wanted as many as the baseline's 2"):
        figure_difference(found([1, 0, 1]), found([1, 0]))
