"""Inverse-probability weights: the mean of values sampled with unequal probabilities, and its standard error."""

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where


def linearised(values: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Return linearised values, shape (n,), whose plain mean and standard error are those of the weighted mean.

    `weights`, shape (n,), above 0, are the inverse sampling probabilities of `values`, shape (n,). The weighted mean m
    is the ratio estimator sum(w x) / sum(w) (Hajek 1971); each value becomes m + n w (x - m) / sum(w), its Taylor
    linearisation (Woodruff 1971), in the unit of the values. So methods for plain means give the weighted mean's
    standard error and interval. For two vectors linearised with the same weights, the mean of their differences is the
    weighted mean of differences. Equal weights leave the values unchanged.

    Raise ValueError for other shapes, a nan or inf, and a weight that is not above 0.
    """
    numbers, sampling_weights = finite_vector("values", values), finite_vector("weights", weights)
    if sampling_weights.size != numbers.size:
        raise ValueError(f"weights: got {sampling_weights.size}, wanted one for each of {numbers.size} values")
    refuse_where("weights", sampling_weights, sampling_weights <= 0, "more than 0")
    if not numbers.size or np.ptp(sampling_weights) == 0:
        return numbers
    mean = np.average(numbers, weights=sampling_weights)
    return np.asarray(
        mean + numbers.size * sampling_weights * (numbers - mean) / sampling_weights.sum(), dtype=np.float64
    )
