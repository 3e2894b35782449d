"""Whether a likelihood has a maximum, against linear programs that look for a way to go up without end."""

import numpy as np
import pytest
from scipy.optimize import linprog  # type: ignore[import-untyped, unused-ignore]

from stats.arrays import FloatArray
from stats.clusters import clustering_of
from stats.tournament import Judgements, Tournament, has_maximum, tournament


def of_random(rng: np.random.Generator, entries: int, n: int) -> Tournament:
    first = rng.integers(0, entries, n)
    second = (first + rng.integers(1, entries, n)) % entries
    judgements = Judgements(first=first, second=second, points=rng.choice([0, 0, 0.5, 1, 1], n), weights=np.ones(n))
    return tournament(judgements, clustering_of(None, n), entries)


def bounded(played: Tournament, wins: FloatArray, losses: FloatArray, order_term: bool) -> bool:
    """No direction but 0 in which no result becomes less likely: the design has full rank, and the best one gains 0."""
    unit = np.eye(played.entries)
    design = (unit[played.first] - unit[played.second])[:, :-1]
    if order_term:
        design = np.column_stack([design, np.ones(len(design))])
    rows = np.vstack([design[wins > 0], -design[losses > 0]])
    if not len(rows) or np.linalg.matrix_rank(rows) < rows.shape[1]:
        return False
    best = linprog(-rows.sum(axis=0), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=(-1, 1))
    return bool(-best.fun < 1e-9)


@pytest.mark.parametrize("order_term", [False, True])
def test_the_circles_say_what_the_linear_program_says(order_term: bool) -> None:
    rng, found = np.random.default_rng(60), []
    for _ in range(300):
        entries = int(rng.integers(2, 6))
        played = of_random(rng, entries, int(rng.integers(1, 5 * entries)))
        wins, losses = played.wins.sum(axis=0), played.losses.sum(axis=0)
        has = bool(has_maximum(played, wins[None], losses[None], order_term=order_term)[0])
        assert has == bounded(played, wins, losses, order_term)
        found.append(has)
    assert 30 < sum(found) < 270


def test_many_at_once_are_as_one_by_one() -> None:
    rng = np.random.default_rng(61)
    played = of_random(rng, 4, 30)
    kept = rng.random((40, 30)) < 0.3
    wins, losses = kept @ played.wins, kept @ played.losses
    for order_term in (False, True):
        whole = has_maximum(played, wins, losses, order_term=order_term)
        each = zip(wins[:, None], losses[:, None], strict=True)
        one_by_one = [has_maximum(played, *one, order_term=order_term)[0] for one in each]
        assert whole.tolist() == one_by_one and 0 < sum(one_by_one) < 40


def test_judgements_are_counted_by_cell_and_cluster() -> None:
    judgements = Judgements(
        first=np.array([0, 1, 0, 0]),
        second=np.array([1, 0, 2, 1]),
        points=np.array([1.0, 1.0, 0.5, 0.0]),
        weights=np.array([1.0, 2.0, 3.0, 4.0]),
    )
    played = tournament(judgements, clustering_of("aaba", 4), 3)
    assert list(zip(played.first, played.second, strict=True)) == [(0, 1), (0, 2), (1, 0)]
    assert played.wins.tolist() == [[1.0, 0.0, 2.0], [0.0, 1.5, 0.0]]
    assert played.losses.tolist() == [[4.0, 0.0, 0.0], [0.0, 1.5, 0.0]]
    assert (played.pairs(), played.in_both_orders(), played.apart()) == ([(0, 1), (0, 2)], True, None)
    turned = tournament(judgements.in_one_order(), clustering_of("aaba", 4), 3)
    assert turned.wins.tolist() == [[1.0, 0.0], [0.0, 1.5]]
    assert turned.losses.tolist() == [[6.0, 0.0], [0.0, 1.5]]
    assert not turned.in_both_orders()
