"""Where the spread of paired differences comes from: how examples differ, and how repetitions of one do."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import LARGEST, FloatArray, mean_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Variances of the paired difference of one example, in the square of the unit of the values."""

    between: float | None  # of the true difference from example to example; None with a reason, as is `within`
    within: float | None  # what one repetition of both sides adds: with K of each, between + within / K
    observed: float | None  # of the differences of means as they are; None with fewer than two examples
    truncated: bool  # whether `between` came out below 0, as it does by chance where it is small, and was made 0
    n: int  # examples with at least one repetition on both sides
    method: str
    reason: str | None  # why there are no parts; None if there are


class _Side(NamedTuple):
    means: FloatArray  # shape (n,): of each example
    noise: float | None  # variance of one repetition; None where no example has two
    share: float  # the mean of 1 / K


def difference_components(candidate: ArrayLike, baseline: ArrayLike) -> Components:
    """Splits the variance of the paired difference into that of examples and that of repetitions.

    `candidate`, shape (n, K), and `baseline`, shape (n, K2), are the repetitions of the same examples, row by row, nan
    where one is missing; a row with none on either side is left out. The noise of a side is the pooled variance of its
    repetitions within their examples, `within` the sum of both sides' noise, and `between` the variance of the
    differences of means less what noise adds to them, noise of the candidate times the mean of 1 / K and so for the
    baseline: the ANOVA estimators (Searle, Casella & McCulloch 1992, chapter 3; Miller 2024, on resampling). Examples
    count as independent, and so does the noise of both sides. With one repetition only on a side there are no parts,
    and no `observed` with fewer than two examples.

    Raises ValueError for an inf, for arrays that are not of two dimensions, and for sides of other lengths.
    """
    ours, theirs = _rows("candidate", candidate), _rows("baseline", baseline)
    if len(ours) != len(theirs):
        raise ValueError(f"candidate: got {len(ours)} examples, wanted as many as the baseline's {len(theirs)}")
    both = ~(np.isnan(ours).all(axis=1) | np.isnan(theirs).all(axis=1))
    n = int(both.sum())
    if n < 2:
        return _components(n, None, reason=f"{n or 'no'} example{'' if n == 1 else 's'}: a variance needs at least 2")
    sides = _side(ours[both]), _side(theirs[both])
    differences = sides[0].means - sides[1].means
    observed = float(((differences - mean_of(differences)) ** 2).sum()) / (n - 1)
    for name, side in zip(("candidate", "baseline"), sides, strict=True):
        if side.noise is None:
            return _components(n, observed, reason=f"no example with 2 repetitions of the {name}: nothing shows noise")
    return _split(n, observed, sides)


def _split(n: int, observed: float, sides: tuple[_Side, _Side]) -> Components:
    noises = [side.noise or 0.0 for side in sides]
    between = observed - sum(noise * side.share for noise, side in zip(noises, sides, strict=True))
    return _components(n, observed, between=between, within=sum(noises))


def _components(
    n: int,
    observed: float | None,
    *,
    between: float | None = None,
    within: float | None = None,
    reason: str | None = None,
) -> Components:
    return Components(
        between=None if between is None else max(between, 0.0),
        within=within,
        observed=observed,
        truncated=between is not None and between < 0,
        n=n,
        method="anova",
        reason=reason,
    )


def _rows(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"{name}: got shape {array.shape}, wanted one row per example, one column per repetition")
    if (np.abs(array) > LARGEST).any():
        raise ValueError(f"{name}: got a number that is not finite, wanted finite ones, or nan where missing")
    return array


def _side(rows: FloatArray) -> _Side:
    """Of rows with at least one number each. Equal numbers have no variance, whatever rounding makes of their mean."""
    given = ~np.isnan(rows)
    counts = given.sum(axis=1)
    filled = np.where(given, rows, np.nanmin(rows, axis=1, keepdims=True))
    lowest, highest = filled.min(axis=1), np.nanmax(rows, axis=1)
    means = np.clip(np.nansum(rows, axis=1) / counts, lowest, highest)
    squares = float((np.where(given, rows - means[:, None], 0.0) ** 2).sum())
    free = int(counts.sum()) - len(rows)
    return _Side(means=means, noise=squares / free if free else None, share=float((1 / counts).mean()))
