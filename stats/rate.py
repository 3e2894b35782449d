"""Whether a judge tells right from wrong: what it gives to answers known right against answers known wrong."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray, checked_level, finite_vector, mean_of, refuse_where
from stats.clusters import clustering_of, standard_error
from stats.distributions import clipped, t_interval
from stats.proportions import newcombe_interval

NEWCOMBE, WELCH = "newcombe", "welch t"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrimination:
    """Two shares and their difference, as parts of 1: 1 tells right from wrong always, 0 not at all."""

    rate_right: float | None  # share of right answers judged right; None without any, as below
    rate_wrong: float | None  # share of wrong answers judged right
    difference: float | None  # the first minus the second
    low: float | None  # of the difference; None with a reason, as is `high`
    high: float | None
    level: float  # how often such intervals cover the true difference, 0 to 1
    method: str  # of the interval: "newcombe" or "welch t"
    n_right: int  # answers known right
    n_wrong: int  # answers known wrong
    reason: str | None  # why there is no interval; None if there is one


def discrimination(right: ArrayLike, wrong: ArrayLike, *, level: float = 0.95) -> Discrimination:
    """How much more often, or more, a judge approves of right answers than of wrong ones, and an interval for that.

    `right` and `wrong`, of shapes (n,) and (m,), are the scores from 0 to 1 that it gave to answers known right and
    to answers known wrong. If all of them are 0 or 1 the interval is the hybrid score interval (Newcombe 1998, method
    10), else that of t for unequal variances (Welch 1947), no further than -1 to 1. None with fewer than two scores on
    either side, or where the scores, not 0 or 1, are equal within both sides.

    Raises ValueError for a score that is not from 0 to 1, another shape, and a level not between 0 and 1.
    """
    level, right, wrong = checked_level(level), _scores("right", right), _scores("wrong", wrong)
    method = NEWCOMBE if _all_binary(right) and _all_binary(wrong) else WELCH
    interval, reason = _interval(right, wrong, method, level)
    rate_right, rate_wrong = (mean_of(scores) if scores.size else None for scores in (right, wrong))
    return Discrimination(
        rate_right=rate_right,
        rate_wrong=rate_wrong,
        difference=None if rate_right is None or rate_wrong is None else rate_right - rate_wrong,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        level=level,
        method=method,
        n_right=right.size,
        n_wrong=wrong.size,
        reason=reason,
    )


def _scores(name: str, values: ArrayLike) -> FloatArray:
    scores = finite_vector(name, values)
    refuse_where(name, scores, (scores < 0) | (scores > 1), "0 to 1")
    return scores


def _all_binary(scores: FloatArray) -> bool:
    return bool(np.all((scores == 0) | (scores == 1)))


def _interval(
    right: FloatArray, wrong: FloatArray, method: str, level: float
) -> tuple[tuple[float, float] | None, str | None]:
    """The interval, or why there is none."""
    if min(right.size, wrong.size) < 2:
        return None, f"{right.size} right and {wrong.size} wrong answers: an interval needs at least 2 of each"
    if method == NEWCOMBE:
        return newcombe_interval(int(right.sum()), right.size, int(wrong.sum()), wrong.size, level=level), None
    return _welch_interval(right, wrong, level)


def _welch_interval(
    right: FloatArray, wrong: FloatArray, level: float
) -> tuple[tuple[float, float] | None, str | None]:
    errors = [standard_error(side, clustering_of(None, side.size), scale=1.0) for side in (right, wrong)]
    error = math.hypot(*errors)
    if not error:
        return None, "the right answers all have one score, and so the wrong ones: no spread to reckon an interval from"
    # The degrees of freedom of Welch & Satterthwaite: 1 / df is the sum of these parts.
    parts = [(one / error) ** 4 / (side.size - 1) for one, side in zip(errors, (right, wrong), strict=True)]
    interval = t_interval(mean_of(right) - mean_of(wrong), error, df=1 / sum(parts), level=level)
    return clipped(interval, -1.0, 1.0), None
