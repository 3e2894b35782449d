"""Arrays of numbers, their validation, means and resamples, which all of stats shares."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

LARGEST = 1e200
"""Largest accepted size. Beyond it, sums and quantiles times standard errors could overflow; no score is that large."""

MAX_BLOCK_SIZE = 2_000_000
"""The largest size of a block of resamples, in numbers."""

ROUNDING = 1e-12
"""Deviations up to this fraction of the numbers they were computed from are rounding: 0.3 - 0.2 is not 0.4 - 0.3."""


def finite_vector(name: str, values: ArrayLike, *, binary: bool = False) -> FloatArray:
    """Return `values` as floats, shape (n,). `name` is their name in error messages.

    Raise ValueError for another shape, for nan and inf, for sizes above LARGEST, and with `binary` for anything but 0
    and 1.
    """
    array = vector(name, values)
    refuse_where(name, array, ~(np.abs(array) <= LARGEST), "a finite number")  # nan compares false
    if binary:
        refuse_where(name, array, (array != 0) & (array != 1), "0 or 1")
    return array


def vector(name: str, values: ArrayLike) -> FloatArray:
    """Return `values` as floats, shape (n,), finite or not. Raise ValueError for another shape."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name}: got shape {array.shape}, wanted one number per example")
    return array


def refuse_where(name: str, array: FloatArray, wrong: NDArray[np.bool_], wanted: str) -> None:
    """Raise ValueError about the first element where `wrong`, shape (n,), is true."""
    if wrong.any():
        index = int(wrong.argmax())
        raise ValueError(f"{name}[{index}]: got {float(array[index])!r}, wanted {wanted}")


def vector_of_size(name: str, values: ArrayLike, n: int) -> FloatArray:
    """Return a finite vector with one value for each of n points. Raise ValueError for another length."""
    array = finite_vector(name, values)
    if array.size != n:
        raise ValueError(f"{name}: got {array.size} values, wanted {n}, as many as points")
    return array


def same_length(candidate: FloatArray, baseline: FloatArray) -> int:
    """Return the number of pairs. Raise ValueError if the two vectors differ in length."""
    if candidate.size != baseline.size:
        raise ValueError(f"candidate: got {candidate.size} values, wanted as many as the baseline's {baseline.size}")
    return candidate.size


def checked_confidence_level(confidence_level: float) -> float:
    """Return the confidence level as a float. Raise ValueError unless it is between 0 and 1."""
    if not 0 < confidence_level < 1:
        raise ValueError(f"confidence_level: got {confidence_level!r}, wanted a number between 0 and 1")
    return float(confidence_level)


def mean_of(array: FloatArray) -> float:
    """Return the mean of at least one number, clipped to their range: the mean of equal numbers is exact."""
    return float(means_of(array))


def means_of(rows: FloatArray) -> FloatArray:
    """Return the same of each row, shape (..., n)."""
    return np.asarray(rows.mean(axis=-1).clip(rows.min(axis=-1), rows.max(axis=-1)))


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


def is_rounding(size: float, scale: float) -> bool:
    """Return whether a difference of this size, between numbers computed from numbers of size `scale`, is only
    rounding."""
    return bool(size <= ROUNDING * scale)
