"""Better or not: the difference between two runs over the examples that both have, and how sure that is."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray, checked_level, finite_vector, mean_of, same_length
from stats.clusters import Clustering, clustering_of, is_rounding, no_spread, standard_error, too_few
from stats.distributions import clipped, t_interval, t_p_value
from stats.proportions import bonett_price_interval, exact_mcnemar_p


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Candidate minus baseline over the pairs, in the unit of the values."""

    candidate_mean: float | None  # the three are None without pairs
    baseline_mean: float | None
    difference: float | None
    low: float | None  # None with a reason, as is `high`
    high: float | None
    p_value: float | None  # two-sided, of no difference; None with fewer than two pairs or clusters
    level: float  # how often such intervals cover the true difference, 0 to 1
    method: str  # of the interval; of the p-value. One name where both are the same thing
    n_pairs: int
    n_clusters: int | None  # None where no clusters were given
    seed: int | None  # None where chance had no part
    reason: str | None  # why there is no interval; None if there is one


class _Inference(NamedTuple):
    method: str
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    reason: str | None = None


def paired_difference(
    candidate: ArrayLike,
    baseline: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    level: float = 0.95,
    binary: bool = False,
    seed: int = 0,
) -> PairedDifference:
    """How far the mean of `candidate` is above that of `baseline`, both of shape (n,), matched by position, finite.

    Interval and p are those of Student's paired t (Student 1908); for 0 and 1, said by `binary`, the adjusted Wald
    interval (Bonett & Price 2012) and the exact test of the pairs that differ (McNemar 1947). With `clusters`, n
    hashables, both are cluster-robust t with G - 1 degrees of freedom (Cameron & Miller 2015; Miller 2024), and for
    0 and 1 the interval goes no further than -1 to 1. A pair whose cluster is None is alone; if all are, the method is
    that without clusters.

    Without spread among the differences (for 0 and 1: with clusters only) there is no interval, and p is that of
    flipping the signs of all pairs, or clusters, in all ways (Fisher 1935): 1.0 if there is no difference, else
    2 ** (1 - their number). With fewer than two pairs or clusters, there is neither.

    Nothing here draws by chance, so that `seed` is of no effect and not in the result; it is for methods that do.

    Raises ValueError for a nan or inf, a shape other than (n,), sides or clusters of another length, a nan among the
    clusters, a level not between 0 and 1, and with `binary` for a value other than 0 and 1.
    """
    level = checked_level(level)
    ours, theirs = (finite_vector(*side, binary=binary) for side in (("candidate", candidate), ("baseline", baseline)))
    n = same_length(ours, theirs)
    clustering = clustering_of(clusters, n)
    found = _inference(ours, theirs, clustering, level=level, binary=binary)
    return PairedDifference(
        candidate_mean=mean_of(ours) if n else None,
        baseline_mean=mean_of(theirs) if n else None,
        difference=mean_of(ours - theirs) if n else None,
        low=found.interval[0] if found.interval else None,
        high=found.interval[1] if found.interval else None,
        p_value=found.p_value,
        level=level,
        method=found.method,
        n_pairs=n,
        n_clusters=None if clusters is None else clustering.count,
        seed=None,
        reason=found.reason,
    )


def _inference(
    ours: FloatArray, theirs: FloatArray, clustering: Clustering, *, level: float, binary: bool
) -> _Inference:
    method = _method(clustering, binary=binary)
    if few := too_few(ours.size, clustering, "pair"):
        return _Inference(method, reason=few)
    if binary and clustering.all_alone:
        gained, lost = int(np.sum(ours > theirs)), int(np.sum(ours < theirs))
        interval = bonett_price_interval(gained, lost, ours.size, level=level)
        return _Inference(method, interval, exact_mcnemar_p(gained, lost))
    differences, scale = ours - theirs, float(max(np.abs(ours).max(), np.abs(theirs).max()))
    if error := standard_error(differences, clustering, scale=scale):
        difference, df = mean_of(differences), clustering.count - 1
        interval = t_interval(difference, error, df=df, level=level)
        interval = clipped(interval, -1.0, 1.0) if binary else interval
        return _Inference(method, interval, t_p_value(difference, error, df=df))
    return _without_spread(differences, clustering, scale=scale)


def _method(clustering: Clustering, *, binary: bool) -> str:
    if not clustering.all_alone:
        return "cluster-robust t"
    return "bonett-price; exact mcnemar" if binary else "t; t"


def _without_spread(differences: FloatArray, clustering: Clustering, *, scale: float) -> _Inference:
    """p by exact sign-flip: of 2 ** G ways, only all as found and all flipped are as far from 0 as what was found."""
    flipped = "exact sign-flip" if clustering.all_alone else "exact sign-flip of clusters"
    no_difference = is_rounding(abs(mean_of(differences)), scale)
    p_value = 1.0 if no_difference else math.ldexp(1.0, 1 - clustering.count)
    reason = no_spread(differences, clustering, "difference", scale=scale)
    return _Inference(f"no interval; {flipped}", None, p_value, reason)
