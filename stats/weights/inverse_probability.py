"""Values that were drawn with different chances: how their mean is that of all, and how sure it is."""

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where


def linearised(values: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Values of shape (n,) whose plain mean is the weighted mean of `values`, and whose spread is that mean's.

    The weights, of shape (n,) and above 0, are one over the chance with which each was drawn. The weighted mean m is
    the ratio estimator sum(w x) / sum(w) (Hajek 1971); each value becomes m + n w (x - m) / sum(w), its linearised
    form (Woodruff 1971), so that what knows plain means gives the standard error and the interval. The mean of
    differences of two such vectors of the same weights is the weighted mean of differences. Weights that are all the
    same change nothing.

    Raises ValueError for other shapes, and for a weight that is not above 0.
    """
    numbers, given = finite_vector("values", values), finite_vector("weights", weights)
    if given.size != numbers.size:
        raise ValueError(f"weights: got {given.size}, wanted as many as the {numbers.size} values")
    refuse_where("weights", given, given <= 0, "more than 0")
    if not numbers.size or np.ptp(given) == 0:
        return numbers
    mean = np.average(numbers, weights=given)
    return np.asarray(mean + numbers.size * given * (numbers - mean) / given.sum(), dtype=np.float64)
