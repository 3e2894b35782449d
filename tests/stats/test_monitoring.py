"""Means of windows from sums, as from the values themselves; and the change detector."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from evalflows.stats.arrays import FloatArray
from evalflows.stats.means import mean_estimate
from evalflows.stats.monitoring import (
    BETWEEN,
    EFFECT,
    EFFECT_BETWEEN,
    Variation,
    WindowSums,
    change_evidence,
    difference_interval,
    variation_of,
    window_mean,
)
from evalflows.stats.proportions import clopper_pearson_interval, newcombe_interval


def sums(values: FloatArray, clusters: FloatArray | None = None, weights: FloatArray | None = None) -> WindowSums:
    numbers = np.arange(values.size) if clusters is None else clusters.astype(int)
    w = np.ones(values.size) if weights is None else weights
    totals, sizes = (np.bincount(numbers, weights=part) for part in (w * values, w))
    return WindowSums(
        n=values.size,
        clusters=int((sizes > 0).sum()),
        weight=float(sizes.sum()),
        total=float(totals.sum()),
        total_squares=float(totals @ totals),
        products=float(totals @ sizes),
        weight_squares=float(sizes @ sizes),
        lowest=float(values.min(initial=math.inf)),
        highest=float(values.max(initial=-math.inf)),
        is_binary=bool(np.isin(values, (0, 1)).all()),
    )


def test_the_interval_of_yes_and_no_is_exact() -> None:
    values = np.repeat([1.0, 0.0], [120, 30])
    ours = window_mean(sums(values), confidence_level=0.99)
    exact = clopper_pearson_interval(120, 150, confidence_level=0.99)
    assert (ours.mean, ours.low, ours.high, ours.method) == pytest.approx((0.8, *exact, "exact"))
    for share in (0.0, 1.0):
        all_same = window_mean(sums(np.full(40, share)))
        assert (all_same.low, all_same.high) == clopper_pearson_interval(int(40 * share), 40, confidence_level=0.95)


def test_clusters_of_equal_values_count_once() -> None:
    values = np.repeat(np.repeat([1.0, 0.0], [30, 10]), 5)
    ours = window_mean(sums(values, np.repeat(np.arange(40.0), 5)))
    low, high = clopper_pearson_interval(30, 40, confidence_level=0.95)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.01) and ours.method == "cluster-robust exact"


def test_the_standard_error_is_that_of_the_values() -> None:
    rng = np.random.default_rng(1)
    clusters = np.sort(rng.integers(0, 40, 200)).astype(float)
    values = rng.normal(size=200) + rng.normal(size=40)[clusters.astype(int)]
    for given in (None, clusters):
        ours = window_mean(sums(values, given))
        theirs = mean_estimate(values, None if given is None else given.tolist())
        assert ours.mean == pytest.approx(theirs.mean) and ours.standard_error == pytest.approx(theirs.standard_error)
        assert ours.method == ("t" if given is None else "cluster-robust t")


def test_weights_are_as_good_as_repeated_values_for_the_mean() -> None:
    values = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
    weighted = window_mean(sums(values, weights=np.array([1.0, 4.0, 4.0, 1.0, 1.0])))
    assert weighted.mean == pytest.approx(3 / 11)
    assert weighted.low is not None and weighted.high is not None and weighted.high - weighted.low > 0.6


def test_values_that_do_not_vary_need_a_range() -> None:
    same = sums(np.full(50, 3.0))
    assert (window_mean(same).low, window_mean(same).reason_code) == (None, "no_spread")
    ranged = window_mean(same, bounds=(1.0, 5.0))
    assert ranged.low is not None and ranged.low < 3.0 < (ranged.high or 0)
    assert window_mean(sums(np.array([1.0]))).reason_code == "too_few"
    assert window_mean(sums(np.array([]))).mean is None


def by_integration(x: FloatArray, start: int, n: float, u: float, margin: float) -> float:
    """The e-value of a change at `start`, from its definition: densities of the windows' contrasts, mixed over the
    effects and the variances between windows."""
    since = np.arange(x.size) >= start

    def density(effect: float, ratio: float) -> float:
        residuals, variance = x + np.where(since, margin + effect, 0.0), u / n * (1 + ratio)
        of_ratio = 1 if ratio else BETWEEN.size - 1
        return float(of_ratio * variance ** ((1 - x.size) / 2) * math.exp(-residuals.var() * x.size / (2 * variance)))

    def mixed(ratio: float) -> float:
        scale = math.sqrt(EFFECT**2 * u + EFFECT_BETWEEN**2 * ratio * u / n)
        prior = stats.halfnorm(scale=scale).pdf
        return float(integrate.quad(lambda effect: prior(effect) * density(effect, ratio), 0, 20 * scale, limit=200)[0])

    return sum(map(mixed, BETWEEN)) / sum(density(0.0, ratio) for ratio in BETWEEN)


@pytest.mark.parametrize("margin", [0.0, 0.02])
def test_the_evidence_is_the_largest_mixture_likelihood_ratio(margin: float) -> None:
    x = np.array([0.8, 0.801, 0.799, 0.8, 0.8, 0.802, 0.798, 0.76, 0.77])
    n, u = 400.0, 0.16
    found = change_evidence(x, np.full(9, n), np.full(9, u), horizon=28, margin=margin)
    assert np.isnan(found.e_values[:5]).all()
    ratios = [by_integration(x, start, n, u, margin) for start in range(5, 9)]
    assert found.e_values[-1] == pytest.approx(max(ratios), rel=1e-6)
    assert found.starts[-1] == 5 + int(np.argmax(ratios)) == 7
    assert found.levels[-1] == pytest.approx(0.765) and found.baselines[-1] == pytest.approx(x[:7].mean())


def test_the_detector_looks_only_back() -> None:
    rng = np.random.default_rng(2)
    x, n, u = rng.normal(0.8, 0.01, 40), np.full(40, 1000.0), np.full(40, 0.16)
    whole = change_evidence(x, n, u, horizon=10)
    for until in (8, 20, 39):
        part = change_evidence(x[:until], n[:until], u[:until], horizon=10)
        assert np.array_equal(part.e_values, whole.e_values[:until], equal_nan=True)
        late = change_evidence(x[:until], n[:until], u[:until], horizon=10, wanted=until - 2)
        assert late.e_values[-2:] == pytest.approx(part.e_values[-2:]) and np.isnan(late.e_values[:-2]).all()


def test_windows_that_vary_more_than_their_samples_raise_less_evidence() -> None:
    calm = np.array([*[0.8] * 14, 0.78])
    rough = np.array([*[0.78, 0.82] * 7, 0.78])
    n, u = np.full(15, 3300.0), np.full(15, 0.16)
    assert change_evidence(calm, n, u, horizon=28).e_values[-1] > 5
    assert change_evidence(rough, n, u, horizon=28).e_values[-1] < 2
    alike = change_evidence(rough, n, u, horizon=28, varies=False)
    assert alike.e_values[-1] > 5, "they are said not to vary"


def test_equal_windows_are_no_evidence_and_a_failure_after_them_is_some() -> None:
    x, n, u = np.array([*[1.0] * 10, 0.9]), np.full(11, 50.0), np.array([*[0.0] * 10, 0.09])
    found = change_evidence(x, n, u, horizon=28, width=1.0)
    assert found.e_values[9] < 1 and found.e_values[10] > 30
    assert np.isnan(change_evidence(x, n, np.zeros(11), horizon=28).e_values).all(), "no variance is known"


def test_a_difference_of_shares_is_newcombes() -> None:
    first, second = (np.repeat([1.0, 0.0], [yes, 60 - yes]) for yes in (30, 45))
    found = difference_interval(mean_estimate(first, binary=True), mean_estimate(second, binary=True), Variation(), 2)
    assert found == pytest.approx(newcombe_interval(30, 60, 45, 60, confidence_level=0.95))


@pytest.mark.parametrize("margin", [0.0, 0.01])
def test_shares_are_compared_as_angles(margin: float) -> None:
    x, n = np.array([0.99, 0.991, 0.989, 0.99, 0.992, 0.97]), 1000
    found = change_evidence(x, np.full(6, n), x * (1 - x), horizon=28, margin=margin, yes_no=True)
    y = np.arcsin(np.sqrt((n * x + 0.375) / (n + 0.75)))
    angle = y[:5].mean() - math.asin(math.sqrt(math.sin(y[:5].mean()) ** 2 - margin))
    assert found.e_values[5] == pytest.approx(by_integration(y, 5, n + 0.5, 0.25, angle), rel=1e-6)
    assert (found.levels[5], found.baselines[5]) == (0.97, pytest.approx(x[:5].mean()))
    assert found.level_errors[5] == pytest.approx(math.sqrt(0.97 * 0.03 / n), rel=0.3)


def test_a_design_effect_divides_the_numbers() -> None:
    x, n = np.array([*[0.9] * 9, 0.85]), np.full(10, 1000.0)
    alone, alike = (change_evidence(x, n, by * x * (1 - x), horizon=28, yes_no=True).e_values[-1] for by in (1, 4))
    quarter = change_evidence(x, n / 4, x * (1 - x), horizon=28, yes_no=True).e_values[-1]
    assert alike == pytest.approx(quarter, rel=0.01) and alone > 3 * alike


def test_windows_that_vary_beyond_chance_widen_the_difference() -> None:
    rng = np.random.default_rng(3)
    true = 0.8 + 0.03 * rng.standard_normal(400)
    x = rng.binomial(1000, true) / 1000
    n, u = np.full(400, 1000.0), x * (1 - x)
    varied = variation_of(x, n, u, 1.0)
    assert varied.sd == pytest.approx(0.03, rel=0.1) and varied.windows == 400
    assert variation_of(x[:4], n[:4], u[:4]).sd == 0.0, "too few tell nothing"
    assert variation_of(np.full(9, 0.8), np.full(9, 1000.0), np.full(9, 0.16)).sd == 0.0
    first, second = (window_mean(sums(np.repeat([1.0, 0.0], [yes, 1000 - yes]))) for yes in (760, 800))
    assert first.mean is not None and second.mean is not None
    calm, rough = (difference_interval(first, second, Variation(sd, 14), 2) for sd in (0.0, 0.03))
    assert calm is not None and rough is not None and calm[1] < 0 < rough[1]
    assert (rough[1] + 0.04) ** 2 == pytest.approx((calm[1] + 0.04) ** 2 + 2 * (2.160 * 0.03) ** 2, rel=1e-3)
