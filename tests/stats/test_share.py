"""share_estimate and combined_share: against the score test and effective sample sizes; coverage."""

import warnings
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats import combined_share, mean_estimate, share_estimate
from evalflows.stats.clusters import clustering_of, degrees_of_freedom

ANSWERS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["a", "b", "c", None])), max_size=30)


def inverted(share: float, n: float, quantile: float) -> tuple[float, float]:
    """The shares that the score test accepts: |share - p| <= quantile sqrt(p (1 - p) / n); by bisection."""

    def end(inside: float, outside: float) -> float:
        for _ in range(100):
            middle = (inside + outside) / 2
            held = abs(share - middle) <= quantile * (middle * (1 - middle) / n) ** 0.5 + 1e-15
            inside, outside = (middle, outside) if held else (inside, middle)
        return inside

    return end(share, 0.0), end(share, 1.0)


def test_without_clusters_it_is_wilson_as_published() -> None:
    result = share_estimate([True] * 81 + [False] * 182)
    assert (result.low, result.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)  # Newcombe 1998
    assert (result.method, result.share, result.n, result.n_clusters) == ("wilson", 81 / 263, 263, None)


@pytest.mark.parametrize(("yes", "n"), [(0, 1), (1, 1), (0, 20), (20, 20), (7, 20)])
def test_without_clusters_it_inverts_the_score_test_even_for_equal_values(yes: int, n: int) -> None:
    result = share_estimate([1] * yes + [0] * (n - yes), confidence_level=0.9)
    assert (result.low, result.high) == pytest.approx(inverted(yes / n, n, NormalDist().inv_cdf(0.95)), abs=1e-9)
    assert result.reason is None


def worth(values: Any, clusters: Sequence[int], two_added: Callable[..., Any]) -> float:
    """Return the effective sample size implied by the standard error after adding a 0 and a 1."""
    found, n = two_added(values, clusters, (0.0, 1.0), 22.0, 1.0), len(values)
    return float(found.mean * (1 - found.mean) / found.error**2 * n / (n + 2 * found.weight))


def test_the_effective_size_follows_from_the_standard_error(
    t_bisected: Callable[[Any, Any], Any],
    sandwich_error: Callable[[Any, Sequence[int]], float],
    two_added: Callable[..., Any],
) -> None:
    rng = np.random.default_rng(20)
    fewer = 0
    for _ in range(30):
        clusters = np.repeat(np.arange(12), rng.integers(1, 7, 12)).tolist()
        values = (rng.random(len(clusters)) < rng.beta(1, 1, 12)[clusters]).astype(float)
        share = values.mean()
        effective = min(len(values), share * (1 - share) / sandwich_error(values, clusters) ** 2)
        effective = min(effective, worth(values, clusters, two_added))
        result = share_estimate(values, clusters)
        df = degrees_of_freedom(values, clustering_of(clusters, values.size))
        expected = inverted(share, effective, float(t_bisected(0.95, df)))
        assert (result.low, result.high) == pytest.approx(expected, abs=1e-9)
        assert (result.method, result.n_clusters) == ("cluster-robust wilson", 12)
        fewer += effective < len(values)
    assert fewer >= 20


@pytest.mark.parametrize("values", [[1] * 12, [0] * 12, [0, 1] * 6])
def test_equal_clusters_count_at_most_once_each(
    values: list[int], t_bisected: Callable[[Any, Any], Any], two_added: Callable[..., Any]
) -> None:
    clusters = [k // 2 for k in range(12)]
    result, effective = share_estimate(values, clusters), min(6.0, worth(values, clusters, two_added))
    assert 4 < effective <= 6
    expected = inverted(float(np.mean(values)), effective, float(t_bisected(0.95, 5.0)))
    assert (result.low, result.high) == pytest.approx(expected, abs=1e-9)


def test_copies_within_clusters_change_almost_nothing(two_added: Callable[..., Any]) -> None:
    """Ten copies of 12 answers are worth 11, because of the factor G / (G - 1), or a little less with a 0 and a 1."""
    once = [1] * 9 + [0] * 3
    copies, naive = share_estimate(once * 10, [*range(12)] * 10), share_estimate(once * 10)
    assert copies.low is not None and naive.low is not None and copies.low < 0.5 < naive.low
    effective = worth(np.array(once * 10, dtype=float), [*range(12)] * 10, two_added)
    assert 10.5 < effective < 11
    assert (copies.low, copies.high) == pytest.approx(inverted(0.75, effective, 2.200985), abs=1e-6)


def test_negative_intraclass_correlation_does_not_increase_the_effective_size() -> None:
    """All clusters but the last have one of each, so they vary less than independent values; n is the limit."""
    values, clusters = [0, 1] * 9 + [1, 1], [k // 2 for k in range(20)]
    result = share_estimate(values, clusters)
    assert (result.low, result.high) == pytest.approx(inverted(11 / 20, 20, 2.262157), abs=1e-6)


def test_singleton_clusters_are_counted_but_change_nothing() -> None:
    alone, plain = share_estimate([0, 1, 1], "abc"), share_estimate([0, 1, 1])
    assert (alone.low, alone.high, alone.method) == (plain.low, plain.high, "wilson")
    assert (alone.n_clusters, plain.n_clusters) == (3, None)


@pytest.mark.parametrize(
    ("values", "clusters", "share", "reason"),
    [
        ([], None, None, "no values: an interval needs at least 1"),
        ([], [], None, "no values: an interval needs at least 1"),
        ([1, 0], "aa", 0.5, "all 2 values are in one cluster: an interval needs at least 2 clusters"),
    ],
)
def test_too_few_have_no_interval(values: Any, clusters: Any, share: float | None, reason: str) -> None:
    result = share_estimate(values, clusters)
    assert (result.share, result.low, result.high, result.reason) == (share, None, None, reason)


@pytest.mark.parametrize(
    ("values", "clusters", "confidence_level", "said"),
    [
        ([0, 0.5], None, 0.95, r"yes\[1\]: got 0.5, wanted 0 or 1"),
        ([0, float("nan")], None, 0.95, "yes"),
        ([[0, 1]], None, 0.95, "shape"),
        ([0, 1], "a", 0.95, "clusters: got 1"),
        ([0, 1], None, 95, "confidence_level"),
    ],
)
def test_bad_input_is_refused(values: Any, clusters: Any, confidence_level: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        share_estimate(values, clusters, confidence_level=confidence_level)


@settings(deadline=None)
@given(ANSWERS, st.booleans())
def test_swapping_yes_and_no_mirrors_the_interval(
    assert_plain: Callable[[Any], None], rows: list[Any], clustered: bool
) -> None:
    values, clusters = [value for value, _ in rows], [key for _, key in rows] if clustered else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        original, other = share_estimate(values, clusters), share_estimate([1 - value for value in values], clusters)
    assert_plain(original)
    assert original.reason == other.reason
    if original.low is not None and original.high is not None and original.share is not None:
        assert (1 - original.high, 1 - original.low) == pytest.approx((other.low, other.high), abs=1e-9)
        assert 0 <= original.low <= original.share <= original.high <= 1 and original.high - original.low > 0.01


@settings(deadline=None)
@given(ANSWERS)
def test_intervals_widen_with_the_confidence_level(rows: list[Any]) -> None:
    wide, narrow = (
        share_estimate([v for v, _ in rows], [k for _, k in rows], confidence_level=confidence_level)
        for confidence_level in (0.99, 0.9)
    )
    assert wide.low is None or wide.low <= narrow.low <= narrow.high <= wide.high  # type: ignore[operator]


def covered(clusters: list[int], p: float, together: float, runs: int, estimate: Any = share_estimate) -> float:
    """Return how often the interval contains p; `together` is the intraclass correlation."""
    rng, hits, count = np.random.default_rng(21), 0, max(clusters) + 1
    for _ in range(runs):
        whole = (rng.random(count) < p)[clusters]
        values = np.where((rng.random(count) < together)[clusters], whole, rng.random(len(clusters)) < p)
        result = estimate(values, clusters)
        hits += result.low is not None and result.low <= p <= result.high
    return hits / runs


@pytest.mark.parametrize("together", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("p", [0.5, 0.8, 0.95])
def test_intervals_cover_for_clusters_of_two_with_any_correlation(p: float, together: float) -> None:
    assert covered(np.repeat(np.arange(30), 2).tolist(), p, together, 500) >= 0.92


def test_intervals_cover_with_few_clusters_of_unequal_sizes() -> None:
    sizes = [1, 1, 2, 2, 3, 3, 4, 4, 5, 6]
    assert covered(np.repeat(np.arange(10), sizes).tolist(), 0.8, 0.6, 800) >= 0.93


def test_intervals_cover_where_the_t_interval_does_not() -> None:
    """With a share near 1, t intervals are missing or too short."""

    def by_t(values: Any, clusters: Any) -> Any:
        return mean_estimate(values, clusters)

    clusters = np.repeat(np.arange(30), 2).tolist()
    assert covered(clusters, 0.98, 0.5, 400, by_t) < 0.7
    assert covered(clusters, 0.98, 0.5, 400) >= 0.93


def test_two_shares_combine_to_newcombes_interval_of_a_difference() -> None:
    # 1 - p is the share of no: half the difference of two shares is a mean of p and of 1 - q, less a half
    first, second = [1.0] * 56 + [0.0] * 14, [1.0] * 48 + [0.0] * 32  # Newcombe 1998, example (a)
    result = combined_share([share_estimate(first), share_estimate([1 - value for value in second])], [1, 1])
    assert result.low is not None and result.high is not None and result.share is not None
    assert (2 * result.share - 1, 2 * result.low - 1, 2 * result.high - 1) == pytest.approx(
        (0.2, 0.0524, 0.3339), abs=5e-5
    )
    assert (result.n, result.reason) == (150, None)


def test_parts_count_by_their_weights_not_their_sizes() -> None:
    few, many = share_estimate([1.0, 0.0]), share_estimate([0.0] * 100)
    result = combined_share([few, many], [3, 1])
    assert result.share == pytest.approx(0.375)
    alone = combined_share([few], [7])
    assert (alone.share, alone.low, alone.high) == pytest.approx((few.share, few.low, few.high))


def test_a_part_without_an_interval_passes_on_its_reason() -> None:
    one_cluster = share_estimate([1.0, 0.0], ["a", "a"])
    result = combined_share([share_estimate([1.0]), one_cluster], [1, 1])
    assert (result.share, result.low, result.high, result.reason) == (0.75, None, None, one_cluster.reason)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([1], "weights: got 1 for 2 parts"),
        ([1, -1], r"weights\[1\]: got -1.0, wanted at least 0"),
        ([0, 0], "weights: got only 0"),
    ],
)
def test_bad_weights_are_refused(weights: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        combined_share([share_estimate([1.0]), share_estimate([0.0])], weights)


def test_the_standard_error_exists_with_the_interval_and_combines_like_independent_shares() -> None:
    first, second = share_estimate([1] * 30 + [0] * 10), share_estimate([1, 0] * 25, [k // 2 for k in range(50)])
    assert first.standard_error == pytest.approx((32 / 44 * 12 / 44 / 44) ** 0.5)
    assert first.standard_error is not None and second.standard_error is not None
    combined = combined_share([first, second], [3, 1])
    expected = ((0.75 * first.standard_error) ** 2 + (0.25 * second.standard_error) ** 2) ** 0.5
    assert combined.standard_error == pytest.approx(expected)
    assert share_estimate([]).standard_error is None and combined_share([first, share_estimate([])], [1, 1]).low is None
    assert combined_share([first, share_estimate([])], [1, 1]).standard_error is None
