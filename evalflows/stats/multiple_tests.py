"""Adjust p-values for multiple comparisons."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where

Adjustment = Literal["holm", "benjamini_hochberg", "none"]


def adjusted(p_values: ArrayLike, method: Adjustment = "holm") -> FloatArray:
    """Return the adjusted p-values of m tests, shape (m,), in the same order, each at most 1.

    "holm" (Holm 1979) controls the family-wise error rate for any dependence between the tests. "benjamini_hochberg"
    (Benjamini & Hochberg 1995) controls the false discovery rate for independent or positively dependent tests, and has
    more power. "none" returns them unchanged. The adjustment keeps the order of the p-values; m may be 0.

    Raise ValueError for a p-value that is not from 0 to 1, another shape, or an unknown method.
    """
    numbers = finite_vector("p_values", p_values)
    refuse_where("p_values", numbers, (numbers < 0) | (numbers > 1), "0 to 1")
    if method not in get_args(Adjustment):
        raise ValueError(f"method: got {method!r}, wanted one of {', '.join(get_args(Adjustment))}")
    if method == "none" or not numbers.size:
        return numbers.copy()
    order = np.argsort(numbers, kind="stable")
    result = np.empty_like(numbers)
    result[order] = np.minimum((_holm if method == "holm" else _benjamini_hochberg)(numbers[order]), 1.0)
    return result


def _holm(rising: FloatArray) -> FloatArray:
    """Multiply the smallest by m, the next by m - 1, and so on; then make them non-decreasing."""
    return np.maximum.accumulate(rising * np.arange(rising.size, 0, -1))


def _benjamini_hochberg(rising: FloatArray) -> FloatArray:
    """Multiply the smallest by m, the next by m / 2, and so on; then make them non-decreasing from the end."""
    m = rising.size
    scaled = rising * (m / np.arange(1, m + 1))
    return np.asarray(np.minimum.accumulate(scaled[::-1])[::-1], dtype=np.float64)
