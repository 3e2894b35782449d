"""Two other intervals for a mean in clusters, written for comparison: CR2 with Satterthwaite's df, and a bootstrap."""

import math

import numpy as np

from evalflows.stats.arrays import FloatArray
from evalflows.stats.proportions import t_quantile

RESAMPLES = 399
"""Resamples of the bootstrap; 95 % of them lie between the 10th and the 390th."""

Interval = tuple[float, float]


def cr2_interval(sums: FloatArray, sizes: FloatArray) -> Interval:
    """Return the 95 % interval with the bias-reduced CR2 error and its degrees of freedom (Bell & McCaffrey 2002).

    `sums` and `sizes` are those of the clusters, both of shape (G,). Independent values are the working model.
    """
    n = sizes.sum()
    mean, kept = sums.sum() / n, 1 - sizes / n
    error = math.sqrt(float(np.sum((sums - sizes * mean) ** 2 / kept))) / n
    half = t_quantile(0.95, satterthwaite_df(sizes)) * error
    return mean - half, mean + half


def satterthwaite_df(sizes: FloatArray) -> float:
    """Return the degrees of freedom of CR2's variance of a mean with these cluster sizes, shape (G,)."""
    parts = sizes / sizes.sum()
    scale = 1 / np.sqrt(1 - parts)
    covariance = (np.diag(parts) - np.outer(parts, parts)) * np.outer(scale, scale)
    return float(np.trace(covariance) ** 2 / np.sum(covariance**2))


def bootstrap_interval(rng: np.random.Generator, sums: FloatArray, sizes: FloatArray) -> Interval:
    """Return the 95 % percentile interval of the mean over resampled clusters."""
    count = sizes.size
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES).astype(np.float64)
    means = np.sort((drawn @ sums) / (drawn @ sizes))
    return float(means[9]), float(means[-10])
