"""cycles: against enumeration of all cycles."""

from itertools import combinations, permutations
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats.ratings import cycles


def net_of(entries: int, *beats: tuple[int, int]) -> Any:
    net = np.zeros((entries, entries))
    for winner, loser in beats:
        net[winner, loser], net[loser, winner] = 1.5, -1.5
    return net


def around(net: Any, way: tuple[int, ...]) -> bool:
    return all(net[i, j] > 0 for i, j in zip(way, (*way[1:], way[0]), strict=True))


def all_ways_round(net: Any) -> list[tuple[int, ...]]:
    """Return for each component the first shortest cycle through its smallest entry, by enumeration."""
    entries = range(len(net))
    ways = [way for k in range(3, len(net) + 1) for way in permutations(entries, k) if around(net, way)]
    together = {entry: {entry} | {each for way in ways if entry in way for each in way} for entry in entries}
    for _ in entries:
        together = {entry: set().union(*(together[each] for each in group)) for entry, group in together.items()}
    starts = sorted({min(group) for group in together.values() if len(group) > 1})
    return [min((way for way in ways if way[0] == start), key=lambda way: (len(way), way)) for start in starts]


def test_a_ranking_has_no_cycles() -> None:
    assert cycles(net_of(6, *combinations(range(6), 2))) == []
    assert cycles(np.zeros((4, 4))) == cycles(np.zeros((0, 0))) == cycles([[0.0]]) == []


@settings(max_examples=100)
@given(
    st.integers(1, 5).flatmap(lambda k: st.tuples(st.just(k), st.lists(st.integers(-1, 1), min_size=10, max_size=10)))
)
def test_cycles_match_enumeration(drawn: tuple[int, list[int]]) -> None:
    entries, signs = drawn
    net = np.zeros((entries, entries))
    for (i, j), sign in zip(combinations(range(entries), 2), signs, strict=False):
        net[i, j], net[j, i] = sign, -sign
    result = cycles(net)
    assert result == all_ways_round(net)
    assert all(type(entry) is int for way in result for entry in way)


def test_a_large_cycle_is_found_quickly() -> None:
    n = 300
    assert cycles(net_of(n, *((k, (k + 1) % n) for k in range(n)))) == [tuple(range(n))]
