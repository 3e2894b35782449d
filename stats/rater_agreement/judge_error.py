"""The error of a judge against human labels: bias, variance, correlation and confusion matrix."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, finite_vector
from evalflows.stats.clusters import is_rounding
from evalflows.stats.differences.paired import paired_difference
from evalflows.stats.share import ShareEstimate, share_estimate
from evalflows.stats.weights.inverse_probability import linearised


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeError:
    """How far a judge's values lie above people's, in the unit of the values."""

    bias: float | None  # the mean of judge minus person; None without items
    low: float | None  # of the bias; None with a reason, like `high`
    high: float | None
    variance: float | None  # of judge minus person; None with fewer than two items
    correlation: float | None  # Spearman's, -1 to 1; None with a reason
    confidence_level: float  # the confidence level, 0 to 1
    method: str  # of the bias and its interval
    n: int
    n_clusters: int | None  # None without clusters
    reason: str | None  # why there is no interval; None if there is one
    correlation_reason: str | None  # why there is no correlation; None if there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """The confusion matrix of a judge against people."""

    labels: tuple[Hashable, ...]  # K, in order of first occurrence, people's before the judge's
    counts: tuple[tuple[int, ...], ...]  # (K, K): people's labels in rows, the judge's in columns
    found: tuple[ShareEstimate, ...]  # K, recall: of the items with this label from people, the share the judge agrees
    right: tuple[ShareEstimate, ...]  # K, precision: of the items with this label from the judge, the same of people
    n: int


def judge_error(
    judge: ArrayLike,
    people: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    weights: ArrayLike | None = None,
    confidence_level: float = 0.95,
    binary: bool = False,
) -> JudgeError:
    """Return the bias of a judge against people, the variance of its error, and their rank correlation.

    `judge` and `people`, shape (n,), are the values that each gives the same items, matched by position; `binary`
    asserts that all of them are 0 or 1. The bias has the interval of `paired_difference`, cluster-robust with
    `clusters`, n hashables. With `weights`, shape (n,), the inverse sampling probabilities, it is weighted. The
    correlation is Spearman's, with average ranks for ties (Spearman 1904); it is missing if one side is constant.

    Raise ValueError for what `paired_difference` refuses, and for weights of another shape or not above 0.
    """
    judged, labels = finite_vector("judge", judge, binary=binary), finite_vector("people", people, binary=binary)
    if judged.size != labels.size:
        raise ValueError(f"judge: got {judged.size} values, wanted as many as people's {labels.size}")
    if weights is not None:
        weighted = linearised(judged - labels, weights)
        estimate = paired_difference(weighted, np.zeros(weighted.size), clusters, confidence_level=confidence_level)
    else:
        estimate = paired_difference(judged, labels, clusters, confidence_level=confidence_level, binary=binary)
    correlation, why_not = _spearman(judged, labels)
    return JudgeError(
        bias=estimate.difference,
        low=estimate.low,
        high=estimate.high,
        variance=float(np.var(judged - labels, ddof=1)) if judged.size > 1 else None,
        correlation=correlation,
        confidence_level=estimate.confidence_level,
        method=f"{estimate.method.partition(';')[0]}{'' if weights is None else ', weighted'}",
        n=judged.size,
        n_clusters=estimate.n_clusters,
        reason=estimate.reason,
        correlation_reason=why_not,
    )


def confusion(
    judge: Sequence[Hashable],
    people: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    *,
    labels: Sequence[Hashable] = (),
    confidence_level: float = 0.95,
) -> Confusion:
    """Return the confusion matrix of a judge's labels against people's.

    `judge` and `people` are n labels each, of any hashable type, matched by position; `labels` come first in the
    matrix, in this order, even if they do not occur. The shares have Wilson's interval (`share_estimate`), or its
    cluster version with `clusters`. For the labels 1 and 0, `found` holds the sensitivity and the specificity, `right`
    the precision of yes and of no.

    Raise ValueError if the lengths differ, if a label is None or nan, and for what `share_estimate` refuses.
    """
    if len(judge) != len(people):
        raise ValueError(f"judge: got {len(judge)} labels, wanted as many as people's {len(people)}")
    for name, rater in (("judge", judge), ("people", people)):
        for place, label in enumerate(rater):
            if label is None or label != label:
                raise ValueError(f"{name}[{place}]: got {label!r}, wanted a label")
    all_labels = tuple(dict.fromkeys([*labels, *people, *judge]))
    number = {label: place for place, label in enumerate(all_labels)}
    rows, columns = (np.array([number[label] for label in rater], dtype=np.intp) for rater in (people, judge))
    counts = np.zeros((len(all_labels), len(all_labels)), dtype=int)
    np.add.at(counts, (rows, columns), 1)
    groups = None if clusters is None else list(clusters)
    return Confusion(
        labels=all_labels,
        counts=tuple(tuple(row) for row in counts.tolist()),
        found=tuple(_share_of(rows == k, columns == k, groups, confidence_level) for k in range(len(all_labels))),
        right=tuple(_share_of(columns == k, rows == k, groups, confidence_level) for k in range(len(all_labels))),
        n=len(people),
    )


def _share_of(
    among: np.ndarray[tuple[int], np.dtype[np.bool_]],
    yes: np.ndarray[tuple[int], np.dtype[np.bool_]],
    clusters: list[Hashable] | None,
    confidence_level: float,
) -> ShareEstimate:
    places = np.flatnonzero(among)
    groups = None if clusters is None else [clusters[place] for place in places]
    return share_estimate(yes[places].astype(np.float64), groups, confidence_level=confidence_level)


def _spearman(judged: FloatArray, labels: FloatArray) -> tuple[float | None, str | None]:
    n, sides = judged.size, (("the judge", judged), ("people", labels))
    if n < 2:
        return None, f"{n or 'no'} item{'' if n == 1 else 's'}: a correlation needs at least 2"
    if constant := next((name for name, values in sides if not np.ptp(values)), None):
        return None, f"{constant} gave all {n} items the same value: no order to compare"
    first, second = (_ranks(values) - (n + 1) / 2 for _, values in sides)
    rho = float(first @ second / np.sqrt((first @ first) * (second @ second)))
    return (round(rho) if is_rounding(1 - abs(rho), 1.0) else rho), None


def _ranks(values: FloatArray) -> FloatArray:
    """Return the ranks from 1; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places], dtype=np.float64)
