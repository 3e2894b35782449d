"""How a judge errs where people have spoken: by how much, to which side, and what it takes for what."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray, finite_vector
from stats.clusters import is_rounding
from stats.paired import paired_difference
from stats.share import ShareEstimate, share_estimate
from stats.weights import linearised


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeError:
    """What a judge gives above what people give, in the unit of the values."""

    bias: float | None  # the mean of judge minus person; None without items
    low: float | None  # of the bias; None with a reason, as is `high`
    high: float | None
    variance: float | None  # of judge minus person; None with fewer than two items
    correlation: float | None  # Spearman's, -1 to 1; None with a reason
    level: float  # how often such intervals cover the true bias, 0 to 1
    method: str  # of the bias and its interval
    n: int
    n_clusters: int | None  # None where no clusters were given
    reason: str | None  # why there is no interval; None if there is one
    correlation_reason: str | None  # why there is no correlation; None if there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """What a judge says, by what people say."""

    labels: tuple[Hashable, ...]  # K of them, as they first come, people's before the judge's
    counts: tuple[tuple[int, ...], ...]  # (K, K): a row for each label of people, a column for each of the judge
    found: tuple[ShareEstimate, ...]  # K: of the items that people give this label, the share that the judge gives it
    right: tuple[ShareEstimate, ...]  # K: of the items that the judge gives this label, the share that people give it
    n: int


def judge_error(
    judge: ArrayLike,
    people: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    weights: ArrayLike | None = None,
    level: float = 0.95,
    binary: bool = False,
) -> JudgeError:
    """The bias of a judge against people, the variance of its error, and how far it orders items as people do.

    `judge` and `people`, of shape (n,), are what both give the same items, matched by position; `binary` says that all
    of it is 0 and 1. The bias has the interval of `paired_difference`, cluster-robust with `clusters`, n hashables;
    with `weights`, shape (n,), one over the chance with which each was drawn, it is weighted. The correlation is that
    of ranks, ties sharing the mean of theirs (Spearman 1904); there is none where one side is constant.

    Raises ValueError for what `paired_difference` refuses, and for weights of another shape or not above 0.
    """
    ours, theirs = finite_vector("judge", judge, binary=binary), finite_vector("people", people, binary=binary)
    if ours.size != theirs.size:
        raise ValueError(f"judge: got {ours.size} values, wanted as many as people's {theirs.size}")
    if weights is not None:
        weighted = linearised(ours - theirs, weights)
        found = paired_difference(weighted, np.zeros(weighted.size), clusters, level=level)
    else:
        found = paired_difference(ours, theirs, clusters, level=level, binary=binary)
    correlation, why_not = _spearman(ours, theirs)
    return JudgeError(
        bias=found.difference,
        low=found.low,
        high=found.high,
        variance=float(np.var(ours - theirs, ddof=1)) if ours.size > 1 else None,
        correlation=correlation,
        level=found.level,
        method=f"{found.method.partition(';')[0]}{'' if weights is None else ', weighted'}",
        n=ours.size,
        n_clusters=found.n_clusters,
        reason=found.reason,
        correlation_reason=why_not,
    )


def confusion(
    judge: Sequence[Hashable],
    people: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    *,
    labels: Sequence[Hashable] = (),
    level: float = 0.95,
) -> Confusion:
    """Which labels a judge gives to items that people give each label.

    `judge` and `people` are n labels each, of any hashable kind, matched by position; `labels` come first, in this
    order, whether they occur or not. The shares have Wilson's interval (`share_estimate`), with `clusters` that of
    clusters. Of labels 1 and 0, `found` is the sensitivity and the specificity, `right` the precision of yes and of no.

    Raises ValueError for sides of other lengths, a None or nan among the labels, and what `share_estimate` refuses.
    """
    if len(judge) != len(people):
        raise ValueError(f"judge: got {len(judge)} labels, wanted as many as people's {len(people)}")
    for name, side in (("judge", judge), ("people", people)):
        for place, label in enumerate(side):
            if label is None or label != label:
                raise ValueError(f"{name}[{place}]: got {label!r}, wanted a label")
    every = tuple(dict.fromkeys([*labels, *people, *judge]))
    number = {label: place for place, label in enumerate(every)}
    theirs, ours = (np.array([number[label] for label in side], dtype=np.intp) for side in (people, judge))
    counts = np.zeros((len(every), len(every)), dtype=int)
    np.add.at(counts, (theirs, ours), 1)
    groups = None if clusters is None else list(clusters)
    return Confusion(
        labels=every,
        counts=tuple(tuple(row) for row in counts.tolist()),
        found=tuple(_share_of(theirs == k, ours == k, groups, level) for k in range(len(every))),
        right=tuple(_share_of(ours == k, theirs == k, groups, level) for k in range(len(every))),
        n=len(people),
    )


def _share_of(
    among: np.ndarray[tuple[int], np.dtype[np.bool_]],
    yes: np.ndarray[tuple[int], np.dtype[np.bool_]],
    clusters: list[Hashable] | None,
    level: float,
) -> ShareEstimate:
    places = np.flatnonzero(among)
    some = None if clusters is None else [clusters[place] for place in places]
    return share_estimate(yes[places].astype(np.float64), some, level=level)


def _spearman(ours: FloatArray, theirs: FloatArray) -> tuple[float | None, str | None]:
    if ours.size < 2:
        return None, f"{ours.size or 'no'} item{'' if ours.size == 1 else 's'}: a correlation needs at least 2"
    if constant := next((name for name, side in (("the judge", ours), ("people", theirs)) if not np.ptp(side)), None):
        return None, f"{constant} gave all {ours.size} items the same: no order to compare"
    first, second = (_ranks(side) - (ours.size + 1) / 2 for side in (ours, theirs))
    found = float(first @ second / np.sqrt((first @ first) * (second @ second)))
    return (round(found) if is_rounding(1 - abs(found), 1.0) else found), None


def _ranks(values: FloatArray) -> FloatArray:
    """From 1, the mean of their ranks for values that are the same."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places], dtype=np.float64)
