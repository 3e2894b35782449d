"""Ranges of ranks: which ranks of an entry its rating's differences from the others allow."""

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import checked_confidence_level
from evalflows.stats.distributions import t_p_values
from evalflows.stats.multiplicity import Adjustment, adjusted


def rank_ranges(
    ratings: ArrayLike,
    covariance: ArrayLike,
    *,
    df: float,
    confidence_level: float = 0.95,
    adjustment: Adjustment = "holm",
) -> list[tuple[int, int]]:
    """Return the best and the worst rank of each of K entries, 1 for the highest rating.

    `ratings`, shape (K,), have the covariance matrix `covariance`, shape (K, K). The differences of all two entries are
    tested by Student's t with `df` degrees of freedom, and the p-values adjusted together. An entry's best rank is 1
    plus the number of entries significantly above it, its worst rank K minus those significantly below it. If no
    difference is falsely called significant, which by Holm's method holds at the confidence level, all ranges contain
    the entry's true rank at once (Mohamad, Goeman & van Zwet 2019, with Tukey's test in place of Holm's).

    Raise ValueError for shapes that do not fit and a confidence level not between 0 and 1.
    """
    values, matrix = np.asarray(ratings, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    if values.ndim != 1 or matrix.shape != (values.size, values.size):
        raise ValueError(f"covariance: got shape {matrix.shape}, wanted {(values.size, values.size)}")
    above, below = np.triu_indices(values.size, k=1)
    variances = np.diag(matrix)[above] + np.diag(matrix)[below] - 2 * matrix[above, below]
    differences, errors = values[above] - values[below], np.sqrt(np.maximum(variances, 0.0))
    p_values = np.where(errors > 0, t_p_values(differences / np.where(errors > 0, errors, 1.0), df), 1.0)
    is_significant = adjusted(p_values, adjustment) <= 1 - checked_confidence_level(confidence_level)
    is_higher = np.zeros(matrix.shape, dtype=bool)  # [i, j]: i is significantly above j
    is_higher[above, below] = is_significant & (differences > 0)
    is_higher[below, above] = is_significant & (differences < 0)
    best, worst = 1 + is_higher.sum(axis=0), values.size - is_higher.sum(axis=1)
    return list(zip(best.tolist(), worst.tolist(), strict=True))
