"""Optimal one-to-one assignment between two lists."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def best_pairs(worth: FloatArray) -> list[tuple[int, int]]:
    """Return the pairs (row, column) with the largest total worth, with each row and each column in at most one pair.

    `worth` has shape (n, m) and no negative values; pairs worth 0 are left out. Exact, in O(n² m) for n <= m: the
    Hungarian method with shortest augmenting paths (Kuhn 1955; Jonker & Volgenant 1987).
    """
    if worth.size == 0:
        return []
    if worth.shape[0] > worth.shape[1]:
        return sorted((row, column) for column, row in best_pairs(worth.T))
    cost = worth.max() - worth
    columns, rows = cost.shape[1], cost.shape[0]
    of_row, of_column = np.zeros(rows), np.zeros(columns)  # the dual prices
    taken = np.full(columns, -1)  # the row assigned to each column
    for row in range(rows):
        _place(row, cost, of_row, of_column, taken)
    pairs = sorted((int(row), column) for column, row in enumerate(taken) if row >= 0)
    return [(row, column) for row, column in pairs if worth[row, column] > 0]


def _place(row: int, cost: FloatArray, of_row: FloatArray, of_column: FloatArray, taken: NDArray[np.int_]) -> None:
    """Assign a column to one more row along the cheapest augmenting path. Changes the arrays in place."""
    columns = taken.size
    least, before = np.full(columns, np.inf), np.full(columns, -1)
    done = np.zeros(columns, dtype=bool)
    at, last, walked = row, -1, 0.0
    while True:
        reduced = walked + cost[at] - of_row[at] - of_column
        closer = ~done & (reduced < least)
        least[closer], before[closer] = reduced[closer], last
        last = int(np.where(done, np.inf, least).argmin())
        walked = float(least[last])
        if taken[last] < 0:
            break
        done[last], at = True, int(taken[last])
    of_row[row] += walked
    of_row[taken[done]] += walked - least[done]
    of_column[done] -= walked - least[done]
    while last >= 0:
        previous = int(before[last])
        taken[last] = row if previous < 0 else taken[previous]
        last = previous
