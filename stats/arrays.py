"""Validation shared by the functions in stats: finite vectors and confidence levels. Anything else is a ValueError."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

LARGEST = 1e200
"""Largest accepted size. Beyond it, sums and quantiles times standard errors could overflow; no score is that large."""


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
        place = int(wrong.argmax())
        raise ValueError(f"{name}[{place}]: got {float(array[place])!r}, wanted {wanted}")


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
    return min(max(float(array.mean()), float(array.min())), float(array.max()))
