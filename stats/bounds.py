"""What missing values could have done: how far a difference could lie to either side, whatever they would have been."""

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import LARGEST, FloatArray, mean_of, refuse_where, same_length, vector
from stats.weights import linearised


def worst_case_difference(
    candidate: ArrayLike, baseline: ArrayLike, lowest: float, highest: float, weights: ArrayLike | None = None
) -> tuple[float, float]:
    """The smallest and the largest mean of candidate minus baseline that the missing values allow.

    `candidate` and `baseline` are of shape (n,), matched by position, nan where a value is missing; `lowest` and
    `highest` are the bounds of the metric, whichever of them is the good one. The first figure has every missing value
    of the candidate at `lowest` and of the baseline at `highest`, the second the other way round (bounds without
    assumptions: Manski 1989). With nothing missing, both are the difference. All in the unit of the values. With
    `weights`, of shape (n,), the means are weighted by them.

    Raises ValueError without pairs, for sides of other lengths or of a shape other than (n,), for values outside the
    bounds, and for bounds that are not finite or not in order.
    """
    if not -LARGEST <= lowest < highest <= LARGEST:
        raise ValueError(f"bounds: got {lowest!r} to {highest!r}, wanted two finite numbers, the lower one first")
    ours, theirs = vector("candidate", candidate), vector("baseline", baseline)
    if not same_length(ours, theirs):
        raise ValueError("candidate: got no values, wanted at least one pair")
    for name, side in (("candidate", ours), ("baseline", theirs)):
        refuse_where(name, side, (side < lowest) | (side > highest), f"{lowest} to {highest}, or nan where missing")
    low, high = (
        _filled(ours, first) - _filled(theirs, second) for first, second in ((lowest, highest), (highest, lowest))
    )
    if weights is not None:
        low, high = linearised(low, weights), linearised(high, weights)
    return mean_of(low), mean_of(high)


def _filled(values: FloatArray, missing: float) -> FloatArray:
    return np.where(np.isnan(values), missing, values)
