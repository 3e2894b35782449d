"""How good: the mean over the examples of a run, and how sure that is."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray, checked_level, finite_vector, mean_of
from stats.clusters import Clustering, clustering_of, no_spread, standard_error, too_few
from stats.distributions import clipped, t_interval
from stats.proportions import wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanEstimate:
    """A mean and its interval, in the unit of the values."""

    mean: float | None  # None without examples
    low: float | None  # None with a reason, as is `high`
    high: float | None
    level: float  # how often such intervals cover the true mean, 0 to 1
    method: str  # of the interval: "t", "wilson" or "cluster-robust t"
    n: int  # examples
    n_clusters: int | None  # None where no clusters were given
    reason: str | None  # why there is no interval; None if there is one


def mean_estimate(
    values: ArrayLike, clusters: Sequence[Hashable] | None = None, *, level: float = 0.95, binary: bool = False
) -> MeanEstimate:
    """The mean of `values`, shape (n,), one finite number per example, and a two-sided interval for it.

    Student's t (Student 1908); for 0 and 1, said by `binary`, the score interval (Wilson 1927). With `clusters`, n
    hashables, the cluster-robust standard error and t with G - 1 degrees of freedom (Cameron & Miller 2015; Miller
    2024), and for 0 and 1 no further than 0 to 1. An example whose cluster is None is alone; if all are, the interval
    is that without clusters. No interval with fewer than two examples or clusters, or without spread.

    Raises ValueError for a nan or inf, a shape other than (n,), another number of clusters, a nan among them, a level
    not between 0 and 1, and with `binary` for a value other than 0 and 1.
    """
    level, numbers = checked_level(level), finite_vector("values", values, binary=binary)
    clustering = clustering_of(clusters, numbers.size)
    interval, reason = _interval(numbers, clustering, level=level, binary=binary)
    return MeanEstimate(
        mean=mean_of(numbers) if numbers.size else None,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        level=level,
        method=_method(clustering, binary=binary),
        n=numbers.size,
        n_clusters=None if clusters is None else clustering.count,
        reason=reason,
    )


def _method(clustering: Clustering, *, binary: bool) -> str:
    if not clustering.all_alone:
        return "cluster-robust t"
    return "wilson" if binary else "t"


def _interval(
    values: FloatArray, clustering: Clustering, *, level: float, binary: bool
) -> tuple[tuple[float, float] | None, str | None]:
    """The interval, or why there is none."""
    if few := too_few(values.size, clustering, "value"):
        return None, few
    if binary and clustering.all_alone:
        return wilson_interval(int(values.sum()), values.size, level=level), None
    scale = float(np.abs(values).max())
    error = standard_error(values, clustering, scale=scale)
    if not error:
        return None, no_spread(values, clustering, "value", scale=scale)
    interval = t_interval(mean_of(values), error, df=clustering.count - 1, level=level)
    return clipped(interval, 0.0, 1.0) if binary else interval, None
