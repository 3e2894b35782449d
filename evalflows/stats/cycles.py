"""Systems that beat each other in a circle."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def cycles(net: ArrayLike) -> list[tuple[int, ...]]:
    """Return intransitive cycles among entries: one for each strongly connected component of the "beats" graph.

    `net`, shape (K, K), holds at [i, j] the wins of entry i over entry j minus those of j over i; 0 if they are level
    or were never compared. The components are Tarjan's (1972). Each is represented by a shortest cycle through its
    smallest entry, which comes first: (0, 2, 1) means that 0 beats 2, 2 beats 1 and 1 beats 0. Ties go to the first
    cycle in tuple order. Cycles are sorted by their first entry. Without cycles the entries can be ranked so that no
    entry beats one ranked above it.

    Raise ValueError for another shape, nan or inf, and if [j, i] is not minus [i, j].
    """
    beats = _beats(net)
    count, component = _components(beats)
    groups = [np.flatnonzero(component == number) for number in range(count)]
    return sorted(_shortest(beats, group.tolist()) for group in groups if group.size > 1)


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


def _components(beats: NDArray[np.bool_]) -> tuple[int, NDArray[Any]]:
    """Return the number of strongly connected components, and the component of each entry, shape (K,)."""
    if not beats.size:
        return 0, np.zeros(0, dtype=np.intp)
    # Imported late, as in stats.distributions.
    from scipy.sparse import csgraph  # type: ignore[import-untyped, unused-ignore]

    count, component = csgraph.connected_components(beats.astype(np.int8), directed=True, connection="strong")
    return int(count), np.asarray(component)


def _shortest(beats: NDArray[np.bool_], group: list[int]) -> tuple[int, ...]:
    """Search breadth first from the smallest entry, smaller entries first; return the first path that closes."""
    start, seen = group[0], {group[0]}
    paths: list[tuple[int, ...]] = [(start,)]
    for path in paths:  # grows during the loop
        if beats[path[-1], start]:
            return path
        successors = [entry for entry in group if beats[path[-1], entry] and entry not in seen]
        seen.update(successors)
        paths.extend((*path, entry) for entry in successors)
    raise AssertionError("a strongly connected component has a path back from each of its entries")
