"""What every function here takes: vectors of finite numbers, and a level between 0 and 1. All else is a ValueError."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

LARGEST = 1e200
"""Beyond it, sums and quantiles times standard errors would overflow; no score is that large."""


def finite_vector(name: str, values: ArrayLike, *, binary: bool = False) -> FloatArray:
    """`values` as floats, shape (n,). Raises ValueError for another shape, for nan and inf, for more than LARGEST in
    size, and with `binary` for anything but 0 and 1; `name` is what the error calls them.
    """
    array = vector(name, values)
    refuse_where(name, array, ~(np.abs(array) <= LARGEST), "a finite number")  # nan compares false
    if binary:
        refuse_where(name, array, (array != 0) & (array != 1), "0 or 1")
    return array


def vector(name: str, values: ArrayLike) -> FloatArray:
    """`values` as floats, shape (n,), whatever they are. Raises ValueError for another shape."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name}: got shape {array.shape}, wanted one number per example")
    return array


def refuse_where(name: str, array: FloatArray, wrong: NDArray[np.bool_], wanted: str) -> None:
    """Raises ValueError about the first element at which `wrong`, shape (n,), holds."""
    if wrong.any():
        place = int(wrong.argmax())
        raise ValueError(f"{name}[{place}]: got {float(array[place])!r}, wanted {wanted}")


def same_length(candidate: FloatArray, baseline: FloatArray) -> int:
    """How many pairs there are. Raises ValueError where the sides are not of one length."""
    if candidate.size != baseline.size:
        raise ValueError(f"candidate: got {candidate.size} values, wanted as many as the baseline's {baseline.size}")
    return candidate.size


def checked_level(level: float) -> float:
    """The confidence level as a float. Raises ValueError outside 0 to 1."""
    if not 0 < level < 1:
        raise ValueError(f"level: got {level!r}, wanted a number between 0 and 1")
    return float(level)


def mean_of(array: FloatArray) -> float:
    """The mean of at least one number. Rounding does not take it outside their range: equal numbers are their mean."""
    return min(max(float(array.mean()), float(array.min())), float(array.max()))
