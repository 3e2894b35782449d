"""Better or not where there are no pairs: the difference between two runs over different examples."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray, checked_level, finite_vector, mean_of
from stats.clusters import (
    Clustering,
    clustering_of,
    degrees_of_freedom,
    few_clusters,
    is_rounding,
    standard_error,
    too_few,
)
from stats.distributions import clipped
from stats.mean import cluster_wilson_interval
from stats.proportions import exact_fisher_p, newcombe_interval, recovered_interval
from stats.ranks import rank_sum
from stats.skewness import skewed_t_interval, skewed_t_p_value, skewness_of_mean

UnpairedMethod = Literal["auto", "t", "mann-whitney"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedDifference:
    """Candidate minus baseline, of examples that are not the same, in the unit of the values."""

    candidate_mean: float | None  # None without values, as is the next; the third where either is
    baseline_mean: float | None
    difference: float | None
    low: float | None  # None with a reason, as is `high`; of the difference, but where there is a shift of that
    high: float | None
    p_value: float | None  # two-sided, of no difference; None where a side has fewer than two values or clusters
    level: float  # how often such intervals cover the true difference, 0 to 1
    method: str  # of the interval; of the p-value. One name where both are the same thing
    n_candidate: int
    n_baseline: int
    n_candidate_clusters: int | None  # None where no clusters were given for that side
    n_baseline_clusters: int | None
    reason: str | None  # why there is no interval; None if there is one
    standard_error: float | None  # of the difference; None where the interval does not rest on it
    shift: float | None  # between the distributions, by Hodges & Lehmann; None but for method "mann-whitney"
    warning: str | None  # why the interval says less than it seems to; None if nothing speaks against it


class _Inference(NamedTuple):
    method: str
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    reason: str | None = None
    standard_error: float | None = None
    shift: float | None = None
    warning: str | None = None


class _Side(NamedTuple):
    values: FloatArray  # shape (n,)
    clustering: Clustering
    name: str


def unpaired_difference(
    candidate: ArrayLike,
    baseline: ArrayLike,
    candidate_clusters: Sequence[Hashable] | None = None,
    baseline_clusters: Sequence[Hashable] | None = None,
    *,
    level: float = 0.95,
    binary: bool = False,
    method: UnpairedMethod = "auto",
) -> UnpairedDifference:
    """How far the mean of `candidate`, shape (n,), is above that of `baseline`, shape (m,): independent examples.

    By "auto", interval and p are Welch's t (Welch 1947), corrected for skew (Hall 1992; Zhou & Dinh 2005;
    `stats.skewness`); for 0 and 1, said by `binary`, the hybrid score interval
    (Newcombe 1998, method 10) and Fisher's exact test (Fisher 1935). With clusters, n hashables of the candidate's
    examples and m of the baseline's, each side has its cluster-robust standard error and degrees of freedom, as in
    `mean_estimate`, joined as Welch does; for 0 and 1 the interval joins both sides' `cluster_wilson_interval` (Zou &
    Donner 2008). An example whose cluster is None is alone; a side without clusters is all alone. "t" is plain t, for
    0 and 1 too. "mann-whitney" is by rank, without clusters: low and high are then those of the shift (Hodges & Lehmann
    1963), which is also in the result, not of the difference of means.

    Without spread on both sides (for 0 and 1: but with Newcombe's interval) p is that of dealing the examples, or
    clusters, anew in all ways: 1.0 if there is no difference; there is no interval but that of shares. Neither interval
    nor p where a side has fewer than two values or clusters, or a cluster is on both: such sides are not independent.

    Raises ValueError for a nan or inf, a shape other than (n,), clusters of another length, a nan among them, a level
    not between 0 and 1, an unknown method, "mann-whitney" with clusters, and with `binary` for a value other than 0
    and 1.
    """
    level = checked_level(level)
    ours, theirs = (
        _Side(values, clustering_of(clusters, values.size), name)
        for name, values, clusters in (
            ("candidate", finite_vector("candidate", candidate, binary=binary), candidate_clusters),
            ("baseline", finite_vector("baseline", baseline, binary=binary), baseline_clusters),
        )
    )
    _refuse(ours, theirs, method)
    shared = _shared(candidate_clusters, baseline_clusters)
    found = _inference(ours, theirs, method, shared, level=level, binary=binary)
    means = [mean_of(side.values) if side.values.size else None for side in (ours, theirs)]
    return UnpairedDifference(
        candidate_mean=means[0],
        baseline_mean=means[1],
        difference=None if means[0] is None or means[1] is None else means[0] - means[1],
        low=found.interval[0] if found.interval else None,
        high=found.interval[1] if found.interval else None,
        p_value=found.p_value,
        level=level,
        method=found.method,
        n_candidate=ours.values.size,
        n_baseline=theirs.values.size,
        n_candidate_clusters=None if candidate_clusters is None else ours.clustering.count,
        n_baseline_clusters=None if baseline_clusters is None else theirs.clustering.count,
        reason=found.reason,
        standard_error=found.standard_error,
        shift=found.shift,
        warning=found.warning,
    )


def _refuse(ours: _Side, theirs: _Side, method: str) -> None:
    if method not in get_args(UnpairedMethod):
        raise ValueError(f"method: got {method!r}, wanted one of {', '.join(get_args(UnpairedMethod))}")
    if method == "mann-whitney" and not _all_alone(ours, theirs):
        raise ValueError("method: got 'mann-whitney' and clusters, wanted 't' with these")


def _all_alone(ours: _Side, theirs: _Side) -> bool:
    return ours.clustering.all_alone and theirs.clustering.all_alone


def _shared(ours: Sequence[Hashable] | None, theirs: Sequence[Hashable] | None) -> int:
    """How many clusters are on both sides."""
    return len(({*(ours or ())} & {*(theirs or ())}) - {None})


def _inference(
    ours: _Side, theirs: _Side, method: UnpairedMethod, shared: int, *, level: float, binary: bool
) -> _Inference:
    shares = binary and method == "auto"
    alone = _all_alone(ours, theirs)
    name = "skew-corrected welch t" if method == "auto" else "welch t"
    name = name if alone else f"cluster-robust {name}"
    if shares:
        name = "newcombe; exact fisher" if alone else "cluster-robust newcombe; cluster-robust welch t"
    if method == "mann-whitney":
        name = "hodges-lehmann, of the shift; mann-whitney"
    for side in (ours, theirs):
        if few := too_few(side.values.size, side.clustering, "value"):
            return _Inference(name, reason=f"{side.name}: {few}")
    if shared:
        return _Inference(name, reason=f"{shared} clusters are on both sides: these are not independent")
    if shares and alone:
        return _of_shares(ours, theirs, name, level)
    if method == "mann-whitney":
        return _by_rank(ours, theirs, level)
    found = _welch(ours, theirs, name, level, corrects_skew=method == "auto" and not shares)
    if not shares:
        return found._replace(interval=clipped(found.interval, -1.0, 1.0)) if binary and found.interval else found
    ends = [cluster_wilson_interval(side.values, side.clustering, level=level) for side in (ours, theirs)]
    interval = recovered_interval(mean_of(ours.values), ends[0], mean_of(theirs.values), ends[1])
    return found._replace(interval=interval, reason=None, standard_error=None, warning=_few(ours, theirs))


def _of_shares(ours: _Side, theirs: _Side, name: str, level: float) -> _Inference:
    counts = (int(ours.values.sum()), ours.values.size, int(theirs.values.sum()), theirs.values.size)
    return _Inference(name, newcombe_interval(*counts, level=level), exact_fisher_p(*counts))


def _by_rank(ours: _Side, theirs: _Side, level: float) -> _Inference:
    found = rank_sum(ours.values, theirs.values, level=level)
    name = f"hodges-lehmann, of the shift; {'exact' if found.exact else 'normal'} mann-whitney"
    if np.ptp(np.concatenate([ours.values, theirs.values])) == 0:
        return _Inference(name, None, 1.0, "all values are equal: no spread to reckon an interval from", shift=0.0)
    if found.low is None or found.high is None:
        few = f"{ours.values.size} and {theirs.values.size} values: too few for an interval of {level:g} by ranks"
        return _Inference(name, None, found.p_value, few, shift=found.shift)
    beside = not found.low <= mean_of(ours.values) - mean_of(theirs.values) <= found.high
    warning = f"the interval is that of the shift, {found.shift:.3g}: the difference of means lies outside of it"
    return _Inference(
        name, (found.low, found.high), found.p_value, shift=found.shift, warning=warning if beside else None
    )


def _welch(ours: _Side, theirs: _Side, name: str, level: float, *, corrects_skew: bool) -> _Inference:
    scale = float(max(np.abs(ours.values).max(), np.abs(theirs.values).max()))
    errors = [standard_error(side.values, side.clustering, scale=scale) for side in (ours, theirs)]
    difference, error = mean_of(ours.values) - mean_of(theirs.values), math.hypot(*errors)
    if not error:
        return _without_spread(ours, theirs, difference, scale)
    of_sides = [degrees_of_freedom(side.values, side.clustering) for side in (ours, theirs)]
    df = 1 / sum((one / error) ** 4 / each for one, each in zip(errors, of_sides, strict=True))
    skewness = 0.0
    if corrects_skew:
        one, other = (skewness_of_mean(side.values, side.clustering, error) for side in (ours, theirs))
        skewness = one - other
    return _Inference(
        name,
        skewed_t_interval(difference, error, skewness, df=df, level=level),
        skewed_t_p_value(difference, error, skewness, df=df),
        standard_error=error,
        warning=_few(ours, theirs),
    )


def _without_spread(ours: _Side, theirs: _Side, difference: float, scale: float) -> _Inference:
    """p of dealing the units anew: only as found, and if the sides are of one size, the other way round, is as far."""
    counts = ours.clustering.count, theirs.clustering.count
    ways = 2 if counts[0] == counts[1] else 1
    p_value = 1.0 if is_rounding(abs(difference), scale) else ways / math.comb(sum(counts), counts[0])
    reason = "neither side has any spread: none to reckon an interval from"
    return _Inference("no interval; exact permutation", None, p_value, reason)


def _few(ours: _Side, theirs: _Side) -> str | None:
    found = [f"{side.name}: {few}" for side in (ours, theirs) if (few := few_clusters(side.clustering))]
    return "; ".join(found) or None
