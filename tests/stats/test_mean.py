"""mean_estimate: methods against published values, coverage, and reasons for missing intervals."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats.clusters import clustering_of, degrees_of_freedom
from evalflows.stats.means import CORRECTED, mean_estimate
from evalflows.stats.proportions import clopper_pearson_interval


def test_clustered_intervals_match_the_sandwich_with_satterthwaite_df(
    t_bisected: Callable[[Any, Any], Any], sandwich_error: Callable[[Any, Sequence[int]], float]
) -> None:
    rng = np.random.default_rng(8)
    clusters = [
        [0, 0, 1, *rng.integers(0, n // 3, n - 3).tolist()] for n in rng.integers(60, 160, 50).tolist()
    ]  # none has a quarter
    samples = [rng.normal(size=len(labels)) + rng.normal(size=len(labels))[labels] for labels in clusters]
    df = [
        degrees_of_freedom(sample, clustering_of(labels, len(labels)))
        for sample, labels in zip(samples, clusters, strict=True)
    ]
    quantiles = t_bisected(0.95, df)
    for labels, sample, quantile in zip(clusters, samples, quantiles, strict=True):
        result, error, mean = mean_estimate(sample, labels), sandwich_error(sample, labels), float(sample.mean())
        sums = np.bincount(labels, weights=sample - mean)
        g = np.unique(labels).size
        skewness = np.sum((sums / error / sample.size) ** 3) * g**2 / ((g - 1) * (g - 2)) if g > 2 else 0.0
        x = quantile + abs(skewness) / 6
        longer = x + abs(skewness) * x**2 / 3 + 5 * skewness**2 * x**3 / 27
        below, above = (quantile, longer) if skewness > 0 else (longer, quantile)
        assert (result.low, result.high) == pytest.approx((mean - below * error, mean + above * error), abs=1e-8)
        assert (result.method, result.n_clusters) == (f"cluster-robust {CORRECTED}", len(set(labels)))


def test_exact_gives_clopper_pearson_for_binary_values_without_clusters_only() -> None:
    values = [1] * 24 + [0] * 6
    result, plain = mean_estimate(values, binary=True, exact=True), mean_estimate(values, binary=True)
    assert (result.low, result.high) == clopper_pearson_interval(24, 30, confidence_level=0.95)
    assert result.low is not None and plain.low is not None and result.low < plain.low
    assert (result.method, result.mean, result.reason) == ("clopper-pearson", 0.8, None)
    assert mean_estimate([1], binary=True, exact=True).reason == "1 value: an interval needs at least 2"
    clusters = [k // 3 for k in range(30)]
    for labels, binary in ((clusters, True), (None, False), (clusters, False)):
        assert mean_estimate(values, labels, binary=binary, exact=True) == mean_estimate(values, labels, binary=binary)


def test_intervals_are_longer_on_the_side_of_the_tail() -> None:
    values = np.array([0.1] * 12 + [0.2] * 10 + [0.4] * 5 + [3.0, 0.9, 0.6])
    result, mirrored = mean_estimate(values), mean_estimate(-values)
    half = 2.0452296 * values.std(ddof=1) / 30**0.5  # of 29 degrees of freedom, by tables
    assert result.low == pytest.approx(values.mean() - half, abs=1e-6)
    assert result.high is not None and result.high > values.mean() + 1.3 * half
    assert (mirrored.low, mirrored.high) == pytest.approx((-result.high, -result.low))  # type: ignore[operator]


def test_binary_values_with_clusters_have_wilson_of_the_effective_size(
    t_bisected: Callable[[Any, Any], Any],
    sandwich_error: Callable[[Any, Sequence[int]], float],
    two_added: Callable[..., Any],
) -> None:
    rng = np.random.default_rng(21)
    for _ in range(20):
        clusters = np.repeat(np.arange(12), 4).tolist()
        values = (rng.random(48) < rng.beta(1, 1, 12)[clusters]).astype(float)
        share, t = values.mean(), float(t_bisected(0.95, 11.0))
        more = two_added(values, clusters, (0.0, 1.0), 22.0, 1.0)
        among_more = more.mean * (1 - more.mean) / more.error**2 * 48 / (48 + 2 * more.weight)
        n = min(48.0, share * (1 - share) / sandwich_error(values, clusters) ** 2, among_more)
        result = mean_estimate(values, clusters, binary=True)
        for end in (result.low, result.high):  # where the score test is about to reject
            assert end is not None
            assert abs(share - end) == pytest.approx(t * (end * (1 - end) / n) ** 0.5, abs=1e-9)
        assert result.method == "cluster-robust wilson"


def test_binary_clusters_that_are_all_right_count_at_most_once_each() -> None:
    values, clusters = [1] * 60, [k // 3 for k in range(60)]
    result, alone = mean_estimate(values, clusters, binary=True), mean_estimate(values, binary=True)
    t = 2.0930240544082634  # of 19 degrees of freedom, by tables
    assert result.low is not None and (result.high, result.low < 20 / (20 + t * t)) == (1.0, True)
    # Nothing is known of the clusters' likeness, so that the 0 and the 1 weigh as much as a cluster of 3: 22 of them.
    # p (1 - p) = 21 / 22^2, variance 20 / 19 (21 / 22^3).
    worth = 21 / 22**2 / (20 / 19 * 21 / 22**3) * 20 / 22
    assert result.low == pytest.approx(worth / (worth + t * t), abs=1e-9)
    assert result.low is not None and alone.low is not None and result.low < alone.low


@pytest.mark.parametrize(("n", "clusters"), [(50, None), (100, [k // 2 for k in range(100)])])
def test_equal_values_with_bounds_have_an_interval_from_the_largest_missed_share(n: int, clusters: Any) -> None:
    result = mean_estimate([0.75] * n, clusters, bounds=(0, 1))
    others = 1 - 0.025 ** (1 / 50)
    assert result.low == pytest.approx(0.75 * (1 - others), abs=1e-12)
    assert result.high == pytest.approx(0.75 + 0.25 * others, abs=1e-12)
    assert result.method == ("clopper-pearson" if clusters is None else "clopper-pearson of clusters")
    assert mean_estimate([0.75] * n, clusters, bounds=(0, np.inf)).low is None


def test_bounds_clip_the_interval_and_reject_values_outside() -> None:
    result = mean_estimate([0.0, 0.1, 0.9], bounds=(0, 1), rare_values=False)
    assert (result.low, result.high) == (0.0, 1.0)
    with pytest.raises(ValueError, match=r"values\[1\]: got 1.5, wanted 0.0 to 1.0"):
        mean_estimate([0.1, 1.5], bounds=(0, 1))
    with pytest.raises(ValueError, match=r"bounds: got 1\.0 to 0\.0"):
        mean_estimate([0.1, 0.5], bounds=(1, 0))


def test_student_sleep_data_as_published() -> None:
    # Student 1908, the second drug; R's t.test(sleep$extra[11:20])
    result = mean_estimate([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    assert (result.mean, result.low) == pytest.approx((2.33, 0.8976775), abs=5e-7)
    assert result.high is not None and 3.7623225 < result.high < 4.0  # published for t; longer on the side of the tail


@pytest.mark.parametrize(("values", "mean"), [([], None), ([0.25], 0.25)])
@pytest.mark.parametrize("binary", [False, True])
def test_fewer_than_two_have_no_interval(values: list[float], mean: float | None, binary: bool) -> None:
    result = mean_estimate([round(value) for value in values] if binary else values, binary=binary)
    assert result.mean == (mean if mean is None or not binary else 0.0)
    assert (result.low, result.high, result.n) == (None, None, len(values))
    assert result.reason == f"{len(values) or 'no'} value{'' if values else 's'}: an interval needs at least 2"


@settings(max_examples=40)
@given(st.lists(st.floats(-1e200, 1e200), max_size=8), st.floats(0.001, 0.999), st.booleans())
def test_finite_input_gives_finite_floats_without_a_warning(
    assert_plain: Callable[[Any], None], values: list[float], confidence_level: float, clustered: bool
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = mean_estimate(
            values, [k // 2 for k in range(len(values))] if clustered else None, confidence_level=confidence_level
        )
    assert_plain(result)
    assert result.low is None or result.low <= result.mean <= result.high  # type: ignore[operator]


@pytest.mark.parametrize("clusters", [None, [k // 3 for k in range(90)]])
def test_the_standard_error_is_that_of_the_interval(
    clusters: Any, sandwich_error: Callable[[Any, Sequence[int]], float]
) -> None:
    rng = np.random.default_rng(41)
    numbers, yes = rng.normal(size=90), rng.random(90) < 0.7
    of_numbers = mean_estimate(numbers, clusters)
    assert of_numbers.standard_error == pytest.approx(sandwich_error(numbers, clusters or range(90)))
    of_yes, wide = mean_estimate(yes, clusters, binary=True), mean_estimate(yes, clusters, binary=True, exact=True)
    assert of_yes.low is not None and of_yes.high is not None and of_yes.standard_error is not None
    assert 2 * 1.98 * of_yes.standard_error == pytest.approx(of_yes.high - of_yes.low, rel=0.05)
    assert (wide.standard_error is None) is (clusters is None), "Clopper and Pearson's interval has none"


def test_the_standard_error_is_missing_with_the_interval_and_above_0_for_equal_values() -> None:
    assert mean_estimate([1.0]).standard_error is None and mean_estimate([1.0, 1.0]).standard_error is None
    always = mean_estimate([1] * 50, binary=True)
    assert always.standard_error == pytest.approx((52 / 54 * 2 / 54 / 54) ** 0.5)
    assert mean_estimate([0.5] * 50, bounds=(0, 1)).standard_error is None, "the interval is exact"


def test_a_rescaled_mean_is_that_of_the_rescaled_values() -> None:
    share = mean_estimate([1, 0, 0, 1, 1, 0, 1], binary=True).rescaled(-1.0, 3.0)
    plain = mean_estimate([1, 0, 0, 1, 1, 0, 1], binary=True)
    assert plain.low is not None and plain.standard_error is not None
    assert (share.mean, share.low) == pytest.approx((-1 + 4 * 4 / 7, -1 + 4 * plain.low))
    assert share.standard_error == pytest.approx(4 * plain.standard_error)
    assert mean_estimate([], binary=True).rescaled(-1.0, 3.0) == mean_estimate([], binary=True)
