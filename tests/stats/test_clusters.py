"""Clusterings and cluster-robust standard errors."""

import numpy as np
import pytest

from evalflows.stats.arrays import mean_of, percentile_interval
from evalflows.stats.clusters import (
    DOMINATING,
    clustering_of,
    degrees_of_freedom,
    intraclass_correlation,
    no_spread,
    standard_error,
)
from evalflows.stats.proportions import t_quantiles


def test_none_is_its_own_cluster_and_equal_keys_share_one() -> None:
    clustering = clustering_of(["a", None, ("b", 1), "a", None, ("b", 1)], 6)
    assert clustering.numbers.tolist() == [0, 1, 2, 0, 3, 2]
    assert (clustering.count, clustering.all_singletons) == (4, False)


def test_the_standard_error_matches_statsmodels() -> None:
    import statsmodels.api as regression

    rng = np.random.default_rng(14)
    for _ in range(50):
        n = int(rng.integers(6, 80))
        clusters = [0, 1, *rng.integers(0, max(2, n // 3), n - 2).tolist()]
        values = rng.normal(size=n) + rng.normal(size=n)[clusters]
        fit = regression.OLS(values, np.ones(n)).fit(cov_type="cluster", cov_kwds={"groups": np.array(clusters)})
        clustering = clustering_of(clusters, n)
        found, parts = standard_error(values, clustering, scale=10), np.bincount(clusters) / n
        if parts.max() < DOMINATING:
            assert found == pytest.approx(fit.bse[0], abs=1e-9)
            continue
        sums = np.bincount(clusters, weights=values - values.mean())
        assert found == pytest.approx(np.sqrt(np.sum(sums**2 / (1 - parts)[: sums.size])) / n), "CR2"


@pytest.mark.parametrize(("share", "alike"), [(0.3, 0.05), (0.6, 0.0), (0.6, 0.3)])
def test_a_dominating_cluster_is_covered_by_an_interval_of_use(share: float, alike: float) -> None:
    rng, rows, n = np.random.default_rng(18), 1500, 200
    clusters = np.repeat(np.arange(20), [int(share * n), *np.diff(np.linspace(0, n - int(share * n), 20).astype(int))])
    shared, own = rng.standard_normal((rows, 20))[:, clusters], rng.standard_normal((rows, n))
    values, clustering = np.sqrt(alike) * shared + np.sqrt(1 - alike) * own, clustering_of(clusters.tolist(), n)
    half = t_quantiles(0.95, degrees_of_freedom(values, clustering)) * standard_error(values, clustering, scale=1.0)
    assert np.mean(np.abs(values.mean(axis=1)) <= half) >= 0.94
    true_error = np.sqrt(alike * np.sum((np.bincount(clusters) / n) ** 2) + (1 - alike) / n)
    assert half.mean() <= 4 * true_error, "CR1 with the estimated correlation: up to 6"


def brute_force_df(clusters: list[int], alike: float) -> float:
    """Return Satterthwaite's degrees of freedom, 2 E[V]^2 / Var[V] of V = y' B y, by matrices."""
    n, together = len(clusters), np.equal.outer(clusters, clusters).astype(float)
    centring, parts = np.eye(n) - 1 / n, together.mean(axis=1)
    form, is_dominated = centring @ together @ centring, parts.max() >= DOMINATING
    if is_dominated:
        form, alike = centring @ (together / (1 - parts)) @ centring, 0.0
    covariance = np.where(np.eye(n) > 0, 1.0, alike * together)
    product = form @ covariance
    return float(np.trace(product) ** 2 / np.trace(product @ product))


def test_degrees_of_freedom_match_satterthwaite() -> None:
    rng = np.random.default_rng(15)
    fewer = 0
    for _ in range(50):
        n = int(rng.integers(6, 60))
        clusters = [0, 0, 1, *rng.integers(0, max(2, n // 3), n - 3).tolist()]
        values, clustering = rng.normal(size=n) + rng.normal(size=n)[clusters], clustering_of(clusters, n)
        expected = brute_force_df(clusters, intraclass_correlation(values, clustering))
        assert degrees_of_freedom(values, clustering) == pytest.approx(expected, rel=1e-9)
        fewer += expected < clustering.count - 1
    assert fewer >= 45


def test_intraclass_correlation_is_estimated_and_0_without_correlation() -> None:
    rng = np.random.default_rng(17)
    clusters = np.repeat(np.arange(2000), rng.integers(1, 6, 2000))
    of_clusters, alone = rng.normal(size=2000)[clusters], rng.normal(size=clusters.size)
    clustering = clustering_of(clusters.tolist(), clusters.size)
    result = intraclass_correlation(of_clusters * 0.3**0.5 + alone * 0.7**0.5, clustering)
    assert result == pytest.approx(0.3, abs=0.05)
    assert intraclass_correlation(alone, clustering) < 0.05
    assert intraclass_correlation(np.ones(clusters.size), clustering) == 0.0
    assert intraclass_correlation(of_clusters, clustering) == pytest.approx(1.0)


@pytest.mark.parametrize("size", [1e-300, 1e-9, 1.0, 1e9, 1e190])
def test_the_standard_error_scales_with_the_values(size: float) -> None:
    values, clustering = np.array([1.0, 2.0, 4.0]), clustering_of(None, 3)
    expected = size * standard_error(values, clustering, scale=4)
    assert standard_error(size * values, clustering, scale=4 * size) == pytest.approx(expected)


def test_rounding_is_not_variation() -> None:
    differences = np.array([0.3 - 0.2, 0.4 - 0.3, 0.7 - 0.6])
    assert len({*differences.tolist()}) > 1
    assert standard_error(differences, clustering_of(None, 3), scale=0.7) == 0.0
    values, clusters = np.repeat([0.1 + 0.2, 0.3], 100_000), np.repeat([0, 1], 100_000).tolist()
    assert standard_error(values, clustering_of(clusters, 200_000), scale=0.3) == 0.0


def test_clusters_with_equal_means_have_no_variation() -> None:
    values, clustering = np.array([0.0, 1.0, 1.0, 0.0]), clustering_of("aabb", 4)
    assert standard_error(values, clustering, scale=1) == 0.0
    assert no_spread(values, clustering, "value", scale=1).startswith("the mean value of all 2 clusters is the same")
    assert no_spread(np.ones(4), clustering, "value", scale=1).startswith("all 4 values are equal")


def test_the_mean_of_equal_numbers_is_exact() -> None:
    assert np.full(3, 0.1).mean() != 0.1  # because of rounding
    assert mean_of(np.full(3, 0.1)) == 0.1


def test_a_percentile_interval_leaves_out_as_many_below_as_above() -> None:
    assert percentile_interval(np.arange(1001) / 1000, 0.9) == pytest.approx((0.05, 0.95))
