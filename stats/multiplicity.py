"""Many tests at once: p-values made larger, so that looking at many does not find by chance what is not there."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray, finite_vector, refuse_where

Adjustment = Literal["holm", "benjamini_hochberg", "none"]


def adjusted(p_values: ArrayLike, how: Adjustment = "holm") -> FloatArray:
    """The p-values of m tests, shape (m,), 0 to 1 each, made to be read together; in the same order, at most 1.

    "holm" (Holm 1979): to call found what is at most a level errs at all, in any of the m, no more often than that
    level, however the tests hang together. "benjamini_hochberg" (Benjamini & Hochberg 1995): of what is called found,
    no larger share than that level is false on average, if the tests are independent or hang together positively;
    it finds more. "none" leaves them. A smaller p never becomes larger than a larger one. Without tests, no numbers.

    Raises ValueError for a p that is not from 0 to 1, another shape, and another way.
    """
    numbers = finite_vector("p_values", p_values)
    refuse_where("p_values", numbers, (numbers < 0) | (numbers > 1), "0 to 1")
    if how not in get_args(Adjustment):
        raise ValueError(f"how: got {how!r}, wanted one of {', '.join(get_args(Adjustment))}")
    if how == "none" or not numbers.size:
        return numbers.copy()
    order = np.argsort(numbers, kind="stable")
    found = np.empty_like(numbers)
    found[order] = np.minimum((_holm if how == "holm" else _benjamini_hochberg)(numbers[order]), 1.0)
    return found


def _holm(rising: FloatArray) -> FloatArray:
    """The smallest times m, the next times m - 1, and so on; none below the one before it."""
    return np.maximum.accumulate(rising * np.arange(rising.size, 0, -1))


def _benjamini_hochberg(rising: FloatArray) -> FloatArray:
    """The smallest times m, the next times m / 2, and so on; none above the one after it."""
    m = rising.size
    scaled = rising * (m / np.arange(1, m + 1))
    return np.asarray(np.minimum.accumulate(scaled[::-1])[::-1], dtype=np.float64)
