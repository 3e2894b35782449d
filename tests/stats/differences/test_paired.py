"""paired_difference: intervals and p-values against published formulas, and the cases without an interval."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pytest

from evalflows.stats.clusters import clustering_of, degrees_of_freedom
from evalflows.stats.paired import PairedDifference, paired_difference
from evalflows.stats.proportions import t_interval, t_p_value, tango_interval

FIRST_DRUG = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND_DRUG = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def of_counts(gained: int, lost: int, n: int, **settings: Any) -> PairedDifference:
    """Return the difference of n binary pairs with these numbers of discordant pairs."""
    candidate, baseline = np.zeros(n), np.zeros(n)
    candidate[:gained], baseline[gained : gained + lost] = 1, 1
    return paired_difference(candidate, baseline, binary=True, **settings)


class Plain(NamedTuple):
    low: float
    high: float
    p_value: float


def plain_t(candidate: Any, baseline: Any, clusters: Any = None) -> Plain:
    """Return interval and p without the correction for skew, from the same standard error."""
    estimate = paired_difference(candidate, baseline, clusters)
    assert estimate.standard_error is not None and estimate.difference is not None
    differences = np.subtract(candidate, baseline).astype(float)
    df = degrees_of_freedom(differences, clustering_of(clusters, differences.size))
    interval = t_interval(estimate.difference, estimate.standard_error, df=df, confidence_level=0.95)
    return Plain(*interval, t_p_value(estimate.difference, estimate.standard_error, df=df))


def flipped(differences: Any, clusters: Sequence[int]) -> float:
    """Return the p-value of sign flips of clusters, by enumerating all 2 ** G."""
    sums = np.bincount(clusters, weights=differences)
    signs = 1 - 2 * (np.arange(2**sums.size)[:, None] >> np.arange(sums.size) & 1)
    return float(np.mean(np.abs(signs @ sums) >= abs(sums.sum()) - 1e-9))


def test_student_sleep_data_as_published() -> None:
    # Student 1908; R's t.test(extra ~ group, data = sleep, paired = TRUE)
    estimate = paired_difference(FIRST_DRUG, SECOND_DRUG)
    by_t = plain_t(FIRST_DRUG, SECOND_DRUG)
    assert (estimate.difference, by_t.low, by_t.high) == pytest.approx((-1.58, -2.4598858, -0.7001142), abs=5e-8)
    assert by_t.p_value == pytest.approx(0.002833, abs=5e-7)
    assert (estimate.candidate_mean, estimate.baseline_mean) == pytest.approx((0.75, 2.33))


def test_intervals_match_the_sandwich_with_clusters_and_student_t_without(
    t_bisected: Callable[[Any, Any], Any],
    t_probability: Callable[[Any, Any], Any],
    sandwich_error: Callable[[Any, Sequence[int]], float],
) -> None:
    rng = np.random.default_rng(11)
    clusters = [[0, 0, 1, *rng.integers(0, n // 3, n - 3).tolist()] for n in rng.integers(60, 160, 25).tolist()]
    clusters += [[*range(n)] for n in rng.integers(3, 100, 25).tolist()]
    sides = [rng.normal(0.2, 1, (2, len(labels))) + rng.normal(size=(2, len(labels)))[:, labels] for labels in clusters]
    df = np.array(
        [
            degrees_of_freedom(ours - theirs, clustering_of(labels, len(labels)))
            for (ours, theirs), labels in zip(sides, clusters, strict=True)
        ]
    )
    errors = [sandwich_error(ours - theirs, labels) for (ours, theirs), labels in zip(sides, clusters, strict=True)]
    estimate = [plain_t(*both, labels) for both, labels in zip(sides, clusters, strict=True)]
    centres, halves = np.array([np.mean(ours - theirs) for ours, theirs in sides]), t_bisected(0.95, df) * errors
    assert [interval.low for interval in estimate] == pytest.approx(centres - halves, abs=1e-9)
    assert [interval.high for interval in estimate] == pytest.approx(centres + halves, abs=1e-9)
    assert [interval.p_value for interval in estimate] == pytest.approx(
        1 - t_probability(centres / errors, df), abs=1e-9
    )
    assert df[25:].tolist() == [len(labels) - 1 for labels in clusters[25:]]


def test_t_intervals_are_corrected_for_skew() -> None:
    rng = np.random.default_rng(14)
    tail, even = rng.lognormal(size=20), np.linspace(-1, 2, 20)
    for differences, clusters in ((tail, None), (-tail, None), (tail, [k // 2 for k in range(20)])):
        zeros = np.zeros(20)
        estimate, plain = paired_difference(differences, zeros, clusters), plain_t(differences, zeros, clusters)
        assert estimate.low is not None and estimate.high is not None
        assert estimate.low <= plain.low and plain.high <= estimate.high and estimate.p_value >= plain.p_value  # type: ignore[operator]
        assert estimate.high - estimate.low > 1.05 * (plain.high - plain.low)
        assert estimate.method == ("skew-corrected t" if clusters is None else "cluster-robust skew-corrected t")
    estimate = paired_difference(even, np.zeros(20))
    assert (estimate.low, estimate.high, estimate.p_value) == pytest.approx(plain_t(even, np.zeros(20)), abs=1e-12)


def test_binary_pairs_use_bonett_price_and_tango_with_mcnemar() -> None:
    estimate = of_counts(26, 4, 48)  # ci.prop.ps(.05, 12, 4, 26, 6) of Bonett's R package statpsych
    low, high = tango_interval(26, 4, 48, confidence_level=0.95)
    assert (estimate.low, estimate.high) == pytest.approx((min(low, 0.2548067), max(high, 0.6251933)), abs=5e-8)
    outside = Fraction(2 * sum(comb(30, k) for k in range(5)), 2**30)
    assert estimate.p_value == pytest.approx(float(outside), rel=1e-9)
    assert (estimate.method, estimate.difference) == ("bonett-price and tango; exact mcnemar", pytest.approx(22 / 48))


@pytest.mark.parametrize("step", [0.0, 0.25, -3.0])
@pytest.mark.parametrize("n", [2, 5, 10])
def test_equal_differences_have_the_exact_sign_flip_p(step: float, n: int) -> None:
    baseline = np.linspace(0, 1, n)
    estimate = paired_difference(baseline + step, baseline)
    assert estimate.p_value == pytest.approx(flipped(np.full(n, step), range(n)), abs=1e-12)
    assert (estimate.low, estimate.high, estimate.method) == (None, None, "no interval; exact sign-flip")
    assert (
        estimate.reason
        == f"all {n} differences are equal: no variation to compute an interval from, and no range is declared"
    )


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("candidate", [[1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0]])
def test_equal_clusters_have_the_exact_sign_flip_p(candidate: list[int], binary: bool) -> None:
    estimate = paired_difference(candidate, [0] * 6, "aabbcc", binary=binary)
    assert estimate.p_value == flipped(candidate, [0, 0, 1, 1, 2, 2])
    if not binary:
        assert (estimate.low, estimate.high, estimate.method) == (
            None,
            None,
            "no interval; exact sign-flip of clusters",
        )
        return
    mean, others = sum(candidate) / 6, 1 - 0.025 ** (1 / 3)
    assert (estimate.low, estimate.high) == pytest.approx((mean - others * (1 + mean), mean + others * (1 - mean)))
    assert estimate.method == "clopper-pearson of clusters; exact sign-flip of clusters"


def test_equal_scores_on_200_examples_have_a_narrow_interval() -> None:
    scores = np.linspace(0, 1, 200)
    estimate = paired_difference(scores, scores, bounds=(0, 1))
    others = 1 - 0.025 ** (1 / 200)  # 1.8 %
    assert (estimate.low, estimate.high) == (pytest.approx(-others), pytest.approx(others))
    assert (estimate.p_value, estimate.reason, estimate.method) == (1.0, None, "clopper-pearson; exact sign-flip")
    assert paired_difference(scores, scores, bounds=(0, np.inf)).low is None


def test_bounds_of_the_values_clip_the_differences() -> None:
    candidate, baseline = [5.0, 1.0, 5.0], [1.0, 1.0, 3.0]
    estimate, free = paired_difference(candidate, baseline, bounds=(1, 5)), paired_difference(candidate, baseline)
    assert free.high is not None and free.high > 4 and (estimate.tested_low, estimate.tested_high) == (free.low, 4.0)


def test_rounding_is_neither_variation_nor_a_difference() -> None:
    estimate = paired_difference([0.1 + 0.2, 0.3, 0.7 + 0.1], [0.3, 0.3, 0.8])
    assert estimate.difference is not None and 0 < abs(estimate.difference) < 1e-15
    assert (estimate.p_value, estimate.low) == (1.0, None)
    same_step = paired_difference([0.3, 0.4, 0.7], [0.2, 0.3, 0.6])
    assert (same_step.p_value, same_step.low) == (0.25, None)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    ("n", "clusters", "reason"),
    [
        (0, None, "no pairs: an interval needs at least 2"),
        (1, None, "1 pair: an interval needs at least 2"),
        (3, "aaa", "all 3 pairs are in one cluster: an interval needs at least 2 clusters"),
    ],
)
def test_too_few_pairs_have_neither_interval_nor_p(n: int, clusters: Any, reason: str, binary: bool) -> None:
    estimate = paired_difference([1] * n, [0] * n, clusters, binary=binary)
    assert (estimate.low, estimate.high, estimate.p_value, estimate.reason) == (None, None, None, reason)
    assert (estimate.difference, estimate.candidate_mean, estimate.baseline_mean) == (
        (1, 1, 0) if n else (None, None, None)
    )
    assert estimate.n_clusters == (None if clusters is None else len({*clusters}))
