"""Pairing calls one to one, against every way to pair them."""

from itertools import permutations

import numpy as np
import pytest

from evalflows.evaluators.agents.trajectory import FloatArray, best_pairs


def most(worth: FloatArray) -> float:
    """The largest sum, by trying every way to give each row a column of its own."""
    if worth.shape[0] > worth.shape[1]:
        worth = worth.T
    rows = range(worth.shape[0])
    return max(sum(worth[row, way[row]] for row in rows) for way in permutations(range(worth.shape[1]), len(rows)))


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (4, 4), (3, 6)])
@pytest.mark.parametrize("kind", ["shares", "0 or 1"])
def test_no_other_pairing_is_worth_more(shape: tuple[int, int], kind: str) -> None:
    rng = np.random.default_rng(11)
    for _ in range(40):
        drawn = {
            "shares": rng.random(shape),
            "0 or 1": (rng.random(shape) < 0.4).astype(float),
        }[kind]
        pairs = best_pairs(drawn)
        assert sum(drawn[pair] for pair in pairs) == pytest.approx(most(drawn))
        assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
        assert all(drawn[pair] > 0 for pair in pairs)


def test_pairs_worth_nothing_are_left_out_and_no_call_pairs_with_none() -> None:
    assert best_pairs(np.array([[0.0, 0.5], [0.0, 0.0]])) == [(0, 1)]
    assert best_pairs(np.zeros((0, 3))) == best_pairs(np.zeros((3, 0))) == best_pairs(np.zeros((2, 2))) == []
