"""slice_contrasts: what it finds, what it must not, and that its figures are those of their definition."""

import numpy as np
import pytest

from evalflows.stats.slice_contrasts import slice_contrasts


def slices(rng: np.random.Generator, n: int, fields: int = 20) -> np.ndarray:
    return np.array([rng.integers(0, 4, n) == value for _ in range(fields) for value in range(4)]).T


def test_a_planted_loss_is_found_among_many_slices_and_metrics() -> None:
    rng = np.random.default_rng(1)
    members = slices(rng, 600)
    lost = rng.random((2, 600)) < 0.04
    lost[1] |= members[:, 7] & (rng.random(600) < 0.25)
    differences = -lost.astype(float)
    differences[1, :10] = np.nan
    found = [one for one in slice_contrasts(differences, members) if one.p_adjusted <= 0.05]
    assert [(one.metric, one.slice) for one in found] == [(1, 7)]
    (one,) = found
    known, inside = differences[1, 10:], members[10:, 7]
    assert (one.n, one.within, one.outside) == (
        inside.sum(),
        pytest.approx(known[inside].mean()),
        pytest.approx(known[~inside].mean()),
    )
    assert one.low < one.estimate < one.high < 0, "the interval says the same as the p-value"
    more = slice_contrasts(differences, np.hstack([members, slices(rng, 600)]), n_first=80)
    assert next(each.p_adjusted for each in more if (each.metric, each.slice) == (1, 7)) == pytest.approx(
        one.p_adjusted / 0.8
    )
    assert all((each.low > 0 or each.high < 0) == (each.p_adjusted <= 0.05) for each in more)


@pytest.mark.parametrize("world", ["equal", "a hard slice", "a loss everywhere", "clusters"])
def test_without_a_departing_slice_hardly_anything_is_named(world: str) -> None:
    """In a hard slice answers change often, in both directions; nothing happens elsewhere."""
    rng, named, draws, n = np.random.default_rng(5), 0, 30, 300
    for draw in range(draws):
        members, clusters = slices(rng, n, 10), None
        chance = np.where(members[:, 0], 0.5, 1.0) if world == "a hard slice" else rng.beta(2, 1, n)
        baseline, candidate = rng.random((2, n)) < (chance if world != "a loss everywhere" else [[0.95], [0.75]])
        differences = candidate.astype(float) - baseline
        if world == "clusters":  # of which slices are made up, so that the rows of one are no evidence on their own
            clusters = rng.integers(0, 60, n)
            members[:, :20] = slices(rng, 60, 5)[clusters]
            differences = rng.normal(0, 0.3, 60)[clusters] + rng.normal(0, 0.1, n)
        found = slice_contrasts(
            differences[None], members, clusters=None if clusters is None else clusters.tolist(), seed=draw
        )
        named += any(one.p_adjusted <= 0.05 for one in found)
    assert named <= 5, "at 5 %, more than 5 of 30 are seen in one of 300 cases"


def test_slices_of_few_examples_or_clusters_are_left_out() -> None:
    members = np.array([[place < 19, place < 20, place < 60] for place in range(100)])
    differences = np.where(np.arange(100) % 3, 0.0, 1.0)[None]
    assert [one.slice for one in slice_contrasts(differences, members)] == [1, 2]
    clusters = [place // 10 for place in range(100)]
    assert slice_contrasts(differences, members, clusters=clusters) == [], "none has 10 clusters on both sides"
    assert slice_contrasts(np.full((1, 100), np.nan), members) == []
    (one, other) = slice_contrasts(np.zeros((1, 100)), members)
    assert (one.p_adjusted, other.p_adjusted) == (1.0, 1.0)
