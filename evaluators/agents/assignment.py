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
    row_prices, column_prices = np.zeros(rows), np.zeros(columns)  # the dual prices
    row_of_column = np.full(columns, -1)  # the row assigned to each column
    for row in range(rows):
        _assign_row(row, cost, row_prices, column_prices, row_of_column)
    pairs = sorted((int(row), column) for column, row in enumerate(row_of_column) if row >= 0)
    return [(row, column) for row, column in pairs if worth[row, column] > 0]


def _assign_row(
    row: int, cost: FloatArray, row_prices: FloatArray, column_prices: FloatArray, row_of_column: NDArray[np.int_]
) -> None:
    """Assign a column to one more row along the cheapest augmenting path. Change the arrays in place."""
    columns = row_of_column.size
    shortest, previous_column = np.full(columns, np.inf), np.full(columns, -1)
    visited = np.zeros(columns, dtype=bool)
    current_row, column, distance = row, -1, 0.0
    while True:
        reduced = distance + cost[current_row] - row_prices[current_row] - column_prices
        closer = ~visited & (reduced < shortest)
        shortest[closer], previous_column[closer] = reduced[closer], column
        column = int(np.where(visited, np.inf, shortest).argmin())
        distance = float(shortest[column])
        if row_of_column[column] < 0:
            break
        visited[column], current_row = True, int(row_of_column[column])
    row_prices[row] += distance
    row_prices[row_of_column[visited]] += distance - shortest[visited]
    column_prices[visited] -= distance - shortest[visited]
    while column >= 0:
        previous = int(previous_column[column])
        row_of_column[column] = row if previous < 0 else row_of_column[previous]
        column = previous
