"""share_estimate and combined_share: against the score test and effective sample sizes; coverage."""

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from evalflows.stats.clusters import clustering_of, degrees_of_freedom
from evalflows.stats.means import combined_share, share_estimate


def inverted(share: float, n: float, quantile: float) -> tuple[float, float]:
    """The shares that the score test accepts: |share - p| <= quantile sqrt(p (1 - p) / n); by bisection."""

    def end(inside: float, outside: float) -> float:
        for _ in range(100):
            middle = (inside + outside) / 2
            held = abs(share - middle) <= quantile * (middle * (1 - middle) / n) ** 0.5 + 1e-15
            inside, outside = (middle, outside) if held else (inside, middle)
        return inside

    return end(share, 0.0), end(share, 1.0)


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


@pytest.mark.parametrize(
    ("values", "clusters", "share", "reason"),
    [
        ([], None, None, "no values: an interval needs at least 1"),
        ([1, 0], "aa", 0.5, "all 2 values are in one cluster: an interval needs at least 2 clusters"),
    ],
)
def test_too_few_have_no_interval(values: Any, clusters: Any, share: float | None, reason: str) -> None:
    result = share_estimate(values, clusters)
    assert (result.share, result.low, result.high, result.reason) == (share, None, None, reason)


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


def test_the_standard_error_exists_with_the_interval_and_combines_like_independent_shares() -> None:
    first, second = share_estimate([1] * 30 + [0] * 10), share_estimate([1, 0] * 25, [k // 2 for k in range(50)])
    assert first.standard_error == pytest.approx((32 / 44 * 12 / 44 / 44) ** 0.5)
    assert first.standard_error is not None and second.standard_error is not None
    combined = combined_share([first, second], [3, 1])
    expected = ((0.75 * first.standard_error) ** 2 + (0.25 * second.standard_error) ** 2) ** 0.5
    assert combined.standard_error == pytest.approx(expected)
    assert share_estimate([]).standard_error is None and combined_share([first, share_estimate([])], [1, 1]).low is None
    assert combined_share([first, share_estimate([])], [1, 1]).standard_error is None
