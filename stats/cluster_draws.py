"""Cluster bootstrap: how often each cluster is drawn in each resample."""

from collections.abc import Iterator

import numpy as np

from evalflows.stats.arrays import FloatArray

MAX_BLOCK_SIZE = 2_000_000
"""The largest size of a block of resamples, in numbers."""


def checked_resamples(resamples: int) -> int:
    """Return the number of resamples. Raise ValueError unless it is a whole number of at least 1."""
    if isinstance(resamples, bool) or not isinstance(resamples, int | np.integer) or resamples < 1:
        raise ValueError(f"resamples: got {resamples!r}, wanted a whole number of at least 1")
    return int(resamples)


def drawn_counts(count: int, resamples: int, seed: int) -> Iterator[FloatArray]:
    """Yield blocks of resamples, shape (block size, count): how often each of `count` clusters was drawn.

    Each row is one of `resamples` draws of `count` clusters with replacement (Efron 1979). The seed determines them.
    """
    rng, equal = np.random.default_rng(seed), np.full(count, 1 / count)
    while resamples > 0:
        some = min(resamples, max(1, MAX_BLOCK_SIZE // count))
        yield rng.multinomial(count, equal, size=some).astype(np.float64)
        resamples -= some


def percentile_interval(values: FloatArray, confidence_level: float) -> tuple[float, float]:
    """Percentile bootstrap interval of the resampled values, shape (R,) (Efron 1979)."""
    low, high = np.quantile(values, [(1 - confidence_level) / 2, (1 + confidence_level) / 2])
    return float(low), float(high)
