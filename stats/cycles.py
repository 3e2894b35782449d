"""Who beats whom in a circle: what no ranking can show."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def cycles(net: ArrayLike) -> list[tuple[int, ...]]:
    """The cycles of "beats" among entries: one for each group in which chains of them lead from each to each.

    `net`, of shape (K, K), holds at [i, j] the wins of entry i over entry j less those of j over i; 0 where they are
    level or never met. The groups are the strongly connected parts of the graph of who beats whom (Tarjan 1972). Of
    each, a shortest cycle through its smallest number, which it starts with: (0, 2, 1) says that 0 beats 2, 2 beats 1
    and 1 beats 0; of several, the first in the order of tuples. Cycles come in the order of their starts; without any,
    the entries can be ranked such that none beats one above it.

    Raises ValueError for another shape, for a nan or inf, and where [j, i] is not minus [i, j].
    """
    beats = _beats(net)
    count, part = _parts(beats)
    groups = [np.flatnonzero(part == number) for number in range(count)]
    found = [_shortest(beats, group.tolist()) for group in groups if group.size > 1]
    return sorted(found)


def _beats(net: ArrayLike) -> NDArray[np.bool_]:
    array = np.asarray(net, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"net: got shape {array.shape}, wanted a row and a column for each entry")
    wrong = ~np.isfinite(array) | (array != -array.T)
    if wrong.any():
        i, j = (int(place) for place in np.argwhere(wrong)[0])
        got = f"{float(array[i, j])!r} against {float(array[j, i])!r}"
        raise ValueError(f"net[{i}, {j}]: got {got}, wanted a finite number and its opposite")
    return np.asarray(array > 0)


def _parts(beats: NDArray[np.bool_]) -> tuple[int, NDArray[Any]]:
    """How many strongly connected parts there are, and the part of each entry, shape (K,)."""
    if not beats.size:
        return 0, np.zeros(0, dtype=np.intp)
    # Late, as in stats.distributions.
    from scipy.sparse import csgraph  # type: ignore[import-untyped, unused-ignore]

    count, part = csgraph.connected_components(beats.astype(np.int8), directed=True, connection="strong")
    return int(count), np.asarray(part)


def _shortest(beats: NDArray[np.bool_], group: list[int]) -> tuple[int, ...]:
    """Breadth first from the smallest number, smaller numbers first: what comes back first is the cycle."""
    start, seen = group[0], {group[0]}
    ways: list[tuple[int, ...]] = [(start,)]
    for way in ways:  # which grows meanwhile
        if beats[way[-1], start]:
            return way
        onward = [entry for entry in group if beats[way[-1], entry] and entry not in seen]
        seen.update(onward)
        ways.extend((*way, entry) for entry in onward)
    raise AssertionError("a strongly connected part has a way back from each of its entries")
