"""Where the variance of a difference comes from."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import LARGEST, FloatArray, mean_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Variances of the paired difference of one example, in the square of the unit of the values."""

    between: float | None  # of the true difference between examples; None with a reason, like `within`
    within: float | None  # of one repetition of both sides: with K of each, the variance is between + within / K
    observed: float | None  # of the differences of means; None with fewer than two examples
    n: int  # examples with at least one repetition on both sides
    method: str
    reason: str | None  # why `between` and `within` are None; None if they are not


class _Side(NamedTuple):
    means: FloatArray  # shape (n,): of each example
    noise: float | None  # variance of one repetition; None where no example has two
    share: float  # the mean of 1 / K


def difference_components(candidate: ArrayLike, baseline: ArrayLike) -> Components:
    """Split the variance of the paired difference into variance between examples and between repetitions.

    `candidate`, shape (n, K), and `baseline`, shape (n, K2), are the repetitions of the same examples, row by row, nan
    if missing; rows with no value on one side are dropped. The noise of a side is the pooled variance of its
    repetitions within examples, `within` is the sum of both sides' noise, and `between` is the variance of the
    differences of means minus the contribution of noise, each side's noise times its mean of 1 / K: the ANOVA
    estimators (Searle, Casella & McCulloch 1992, chapter 3; Miller 2024, on resampling). Examples count as independent,
    and so does the noise of the two sides. If no example has two repetitions on a side, there are no components; with
    fewer than two examples there is no `observed`.

    Raise ValueError for an inf, for arrays that are not two-dimensional, and for different numbers of examples.
    """
    candidate_rows, baseline_rows = _rows("candidate", candidate), _rows("baseline", baseline)
    if (count := len(candidate_rows)) != len(baseline_rows):
        raise ValueError(f"candidate: got {count} examples, wanted as many as the baseline's {len(baseline_rows)}")
    both = ~(np.isnan(candidate_rows).all(axis=1) | np.isnan(baseline_rows).all(axis=1))
    n = int(both.sum())
    if n < 2:
        return _components(n, None, reason=f"{n or 'no'} example{'' if n == 1 else 's'}: a variance needs at least 2")
    sides = _side(candidate_rows[both]), _side(baseline_rows[both])
    differences = sides[0].means - sides[1].means
    observed = float(((differences - mean_of(differences)) ** 2).sum()) / (n - 1)
    for name, side in zip(("candidate", "baseline"), sides, strict=True):
        if side.noise is None:
            return _components(n, observed, reason=f"no example with 2 repetitions of the {name}: its noise is unknown")
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
        between=None if between is None else max(between, 0.0),  # negative by chance if it is small
        within=within,
        observed=observed,
        n=n,
        method="anova",
        reason=reason,
    )


def _rows(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"{name}: got shape {array.shape}, wanted one row per example, one column per repetition")
    if (np.abs(array) > LARGEST).any():
        raise ValueError(f"{name}: got a number that is not finite, wanted finite numbers, or nan if missing")
    return array


def _side(rows: FloatArray) -> _Side:
    """Summarise rows with at least one number each. Equal numbers get variance 0, despite rounding of their mean."""
    present = ~np.isnan(rows)
    counts = present.sum(axis=1)
    filled = np.where(present, rows, np.nanmin(rows, axis=1, keepdims=True))
    lowest, highest = filled.min(axis=1), np.nanmax(rows, axis=1)
    means = np.clip(np.nansum(rows, axis=1) / counts, lowest, highest)
    squares = float((np.where(present, rows - means[:, None], 0.0) ** 2).sum())
    free = int(counts.sum()) - len(rows)
    return _Side(means=means, noise=squares / free if free else None, share=float((1 / counts).mean()))
