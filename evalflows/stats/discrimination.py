"""How well a judge tells right answers from wrong ones."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, mean_of, refuse_where
from evalflows.stats.clusters import clustering_of, standard_error
from evalflows.stats.proportions import IntervalEstimate, clipped, newcombe_interval, t_interval

NEWCOMBE, WELCH = "newcombe", "welch t"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrimination(IntervalEstimate):
    """Two shares and their difference with its interval, Youden's J: 1 is perfect discrimination, 0 none."""

    rate_right: float | None  # share of right answers judged right; None without right answers, likewise below
    rate_wrong: float | None  # share of wrong answers judged right
    difference: float | None  # the first minus the second
    method: str  # of the interval: "newcombe" or "welch t"
    n_right: int  # answers known right
    n_wrong: int  # answers known wrong


def discrimination(right: ArrayLike, wrong: ArrayLike, *, confidence_level: float = 0.95) -> Discrimination:
    """Return how much higher a judge scores right answers than wrong ones, with a two-sided interval.

    `right` and `wrong`, shapes (n,) and (m,), are its scores, 0 to 1, for answers known to be right and known to be
    wrong. If all scores are 0 or 1 the interval is the hybrid score interval (Newcombe 1998, method 10), else the t
    interval for unequal variances (Welch 1947), clipped to -1 to 1. There is no interval with fewer than two scores on
    either side, or if scores other than 0 and 1 are constant on both sides.

    Raise ValueError for a score outside 0 to 1, another shape, and a level not between 0 and 1.
    """
    confidence_level, right, wrong = (
        checked_confidence_level(confidence_level),
        _scores("right", right),
        _scores("wrong", wrong),
    )
    method = NEWCOMBE if _all_binary(right) and _all_binary(wrong) else WELCH
    interval, reason = _interval(right, wrong, method, confidence_level)
    rate_right, rate_wrong = (mean_of(scores) if scores.size else None for scores in (right, wrong))
    return Discrimination(
        rate_right=rate_right,
        rate_wrong=rate_wrong,
        difference=None if rate_right is None or rate_wrong is None else rate_right - rate_wrong,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        confidence_level=confidence_level,
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
    right: FloatArray, wrong: FloatArray, method: str, confidence_level: float
) -> tuple[tuple[float, float] | None, str | None]:
    if min(right.size, wrong.size) < 2:
        return None, f"{right.size} right and {wrong.size} wrong answers: an interval needs at least 2 of each"
    if method == NEWCOMBE:
        return newcombe_interval(
            int(right.sum()), right.size, int(wrong.sum()), wrong.size, confidence_level=confidence_level
        ), None
    return _welch_interval(right, wrong, confidence_level)


def _welch_interval(
    right: FloatArray, wrong: FloatArray, confidence_level: float
) -> tuple[tuple[float, float] | None, str | None]:
    errors = [float(standard_error(side, clustering_of(None, side.size), scale=1.0)) for side in (right, wrong)]
    error = math.hypot(*errors)
    if not error:
        return None, "scores are constant over right and over wrong answers: no spread to compute an interval from"
    # The degrees of freedom of Welch & Satterthwaite: 1 / df is the sum of these parts.
    parts = [(of_side / error) ** 4 / (side.size - 1) for of_side, side in zip(errors, (right, wrong), strict=True)]
    interval = t_interval(mean_of(right) - mean_of(wrong), error, df=1 / sum(parts), confidence_level=confidence_level)
    return clipped(interval, -1.0, 1.0), None
