"""Drawing what was sampled again: how often each cluster is in each of many resamples."""

from collections.abc import Iterator

import numpy as np

from stats.arrays import FloatArray

AT_ONCE = 2_000_000
"""Numbers that one block of resamples may hold."""


def checked_resamples(resamples: int) -> int:
    """How many resamples. Raises ValueError for what is no whole number of at least 1."""
    if isinstance(resamples, bool) or not isinstance(resamples, int | np.integer) or resamples < 1:
        raise ValueError(f"resamples: got {resamples!r}, wanted a whole number of at least 1")
    return int(resamples)


def drawn_counts(count: int, resamples: int, seed: int) -> Iterator[FloatArray]:
    """Blocks of rows, shape (some, count): how often each of `count` clusters was drawn, `count` times in all.

    The rows of all blocks are `resamples` (Efron 1979); the same seed gives the same.
    """
    rng, even = np.random.default_rng(seed), np.full(count, 1 / count)
    while resamples > 0:
        some = min(resamples, max(1, AT_ONCE // count))
        yield rng.multinomial(count, even, size=some).astype(np.float64)
        resamples -= some


def percentile_interval(values: FloatArray, level: float) -> tuple[float, float]:
    """What all but a tail of either side of the resampled values, shape (R,), lie within (Efron 1979)."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
