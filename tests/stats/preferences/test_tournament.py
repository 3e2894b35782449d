"""Tournament: connected entries, components and orders."""

import itertools
from typing import Any

import numpy as np
import pytest

from evalflows.stats.ratings import Tournament, checked_tournament, guards_of


def tournament(first: Any, second: Any, points: Any, entries: int, known: Any = None) -> Tournament:
    return checked_tournament(first, second, points, None, known, entries=entries)


def test_components_are_entries_that_beat_each_other_even_indirectly() -> None:
    rng = np.random.default_rng(60)
    for _ in range(30):
        first = rng.integers(0, 6, 9)
        second = (first + rng.integers(1, 6, 9)) % 6
        points = rng.choice([0.0, 0.3, 1.0], 9, p=[0.45, 0.1, 0.45])
        beats = np.eye(6, dtype=bool)
        for i, j, won in zip(first, second, points, strict=True):
            beats[i, j] |= won > 0
            beats[j, i] |= won < 1
        reached = np.linalg.matrix_power(beats, 6)
        group = tournament(first, second, points, 6).components()
        for i, j in itertools.combinations(range(6), 2):
            assert (group[i] == group[j]) == (reached[i, j] and reached[j, i])


def test_the_guarded_entries_are_those_outside_the_largest_component() -> None:
    played = tournament([0, 1, 2, 3], [1, 2, 0, 0], [1, 1, 1, 1], 4)
    guards = guards_of(played, order_term=False, always=False)
    assert (guards.entries.tolist(), guards.order) == ([3], False)
    assert guards.average.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    two_pairs = tournament([0, 0, 2, 2, 0], [1, 1, 3, 3, 2], [1, 0, 1, 0, 1], 4)
    assert guards_of(two_pairs, order_term=False, always=False).entries.tolist() == [0, 1, 2, 3]


def test_only_known_orders_count() -> None:
    both = [0, 1, 0], [1, 0, 2], [1, 0, 0.5]
    assert tournament(*both, 3).in_both_orders()
    assert not tournament(*both, 3, [1, 0, 1]).in_both_orders()
    assert tournament(*both, 3).order_is_identified()
    assert not tournament([0, 0], [1, 2], [1, 0], 3).order_is_identified()
    round_about = tournament([0, 1, 2], [1, 2, 0], [1, 0, 1], 3)
    assert round_about.order_is_identified() and not round_about.in_both_orders()
