"""The worlds in clusters and the references that intervals are compared with, against brute force."""

import numpy as np
import pytest

from benchmarks.simulation.cluster_worlds import Clusters, ClusterWorld, Mechanism, paired_world
from benchmarks.simulation.clusters import BOTH
from benchmarks.simulation.references import bootstrap_interval, cr2_interval, satterthwaite_df


def bell_mccaffrey(values, clusters):  # type: ignore[no-untyped-def]
    """The error and the degrees of freedom of CR2 for a mean, with all matrices, for independent errors."""
    n = len(values)
    x = np.ones((n, 1))
    residual_maker = np.eye(n) - x @ x.T / n
    columns, error = [], 0.0
    for cluster in sorted({*clusters}):
        own = np.flatnonzero(np.array(clusters) == cluster)
        eigenvalues, vectors = np.linalg.eigh(residual_maker[np.ix_(own, own)])
        inverse_root = vectors @ np.diag(eigenvalues**-0.5) @ vectors.T
        error += (x[own, 0] @ inverse_root @ (residual_maker @ values)[own]) ** 2 / n**2
        columns.append(residual_maker[:, own] @ inverse_root @ x[own] / n)
    joined = np.hstack(columns)
    eigenvalues = np.linalg.eigvalsh(joined.T @ joined)
    return error**0.5, eigenvalues.sum() ** 2 / (eigenvalues**2).sum()


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [1, 2, 9, 4, 1, 6]])
def test_cr2_and_its_degrees_of_freedom_are_those_of_the_matrices(sizes: list[int]) -> None:
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    values = (np.random.default_rng(1).random(clusters.size) < 0.4).astype(float)
    error, df = bell_mccaffrey(values, clusters.tolist())
    low, high = cr2_interval(np.bincount(clusters, weights=values), np.array(sizes, dtype=float))
    assert satterthwaite_df(np.array(sizes, dtype=float)) == pytest.approx(df)
    assert (low + high) / 2 == pytest.approx(values.mean())
    one_sided = np.sort(np.random.default_rng(2).standard_t(df, 400_000))[390_000]
    assert (high - low) / 2 / error == pytest.approx(one_sided, rel=0.02)


@pytest.mark.slow
def test_the_bootstrap_resamples_whole_clusters() -> None:
    sizes, sums = np.array([4.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 2.0]), np.array([3.0, 1.0, 1.0, 0.0, 5.0, 2.0, 4.0, 1.0])
    rng = np.random.default_rng(3)
    drawn = np.random.default_rng(4).integers(0, 8, (200_000, 8))
    expected = np.quantile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), (0.025, 0.975))
    ends = np.mean([bootstrap_interval(rng, sums, sizes) for _ in range(200)], axis=0)
    assert ends == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("mechanism", BOTH)
def test_a_world_has_the_shares_and_the_correlation_it_declares(mechanism: Mechanism) -> None:
    world = ClusterWorld(clusters=Clusters(4000, 6, 0.3), mechanism=mechanism, first=0.2, second=0.1)
    rng = np.random.default_rng(5)
    draws = [world.draw(rng) for _ in range(4)]
    grouped = np.concatenate([rng.permuted(draw.values(1.0, -1.0, 0.0).reshape(4000, 6), axis=1) for draw in draws])
    assert np.mean(grouped == 1) == pytest.approx(0.2, abs=0.01)
    assert np.mean(grouped == -1) == pytest.approx(0.1, abs=0.01)
    assert np.corrcoef(grouped[:, 0], grouped[:, 1])[0, 1] == pytest.approx(0.3, abs=0.04)  # four errors of 16,000


def test_a_draw_has_its_values_cluster_by_cluster() -> None:
    draw = ClusterWorld(clusters=Clusters(5, 20, 0.2, geometric=True), mechanism="copied", first=0.4, second=0.3).draw(
        np.random.default_rng(6)
    )
    values, clusters = draw.values(1.0, -1.0, 0.0), np.array(draw.clusters)
    assert np.bincount(clusters).tolist() == draw.sizes.tolist()
    assert [np.sum(values[clusters == k] == 1) for k in range(5)] == draw.first.tolist()
    assert [np.sum(values[clusters == k] == -1) for k in range(5)] == draw.second.tolist()


def test_the_effective_number_and_the_loss_follow_from_the_design_effect() -> None:
    even = Clusters(30, 10, 0.1)
    assert even.effective(0.2) == pytest.approx(300 * 0.2 / 1.9)
    world = paired_world(even, "copied", 0.2, with_loss=True)
    assert world.second - world.first == pytest.approx(2.5 * (0.2 * 1.9 / 300) ** 0.5)
    assert paired_world(even, "copied", 0.2, with_loss=False).second == 0.1
    assert paired_world(Clusters(10, 10, 0.5), "copied", 0.02, with_loss=True).second == pytest.approx(0.019)
