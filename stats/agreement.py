"""Whether two raters agree: how often, and how much more often than by chance."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stats.arrays import FloatArray, checked_level
from stats.cluster_draws import checked_resamples, drawn_counts, percentile_interval
from stats.clusters import Clustering, clustering_of, is_rounding, too_few
from stats.distributions import clipped, normal_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A share of agreement, 0 to 1, and kappa: 1 is full agreement, 0 as much as by chance, below 0 less."""

    share: float | None  # of items on which both agree; None without items
    kappa: float | None  # None with a reason, as are the three below
    standard_error: float | None  # of kappa
    low: float | None
    high: float | None
    level: float  # how often such intervals cover the true kappa, 0 to 1
    method: str  # of kappa and of its interval
    n: int  # items
    n_labels: int  # different labels that either gave
    n_clusters: int | None  # None where no clusters were given
    resamples: int | None  # None where nothing was drawn, as is `seed`
    seed: int | None
    reason: str | None  # why there is no kappa, or no interval for it; None if there are both


MOST_UNDEFINED = 0.05
"""The largest share of resamples without a kappa, since both gave one label only in them, that are left out."""


def agreement(
    ours: Sequence[Hashable],
    theirs: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """How often two raters gave the same label, and Cohen's kappa with a two-sided interval.

    `ours` and `theirs` are n labels each, of any hashable kind, matched by position. kappa is (po - pe) / (1 - pe),
    with po the share of agreement and pe what it would be if each gave labels as often but without regard to the other
    (Cohen 1960). Its standard error is that of large samples, kappa not assumed to be 0 (Fleiss, Cohen & Everitt
    1969, eq. 13), its interval that of the normal distribution, no further than -1 to 1. kappa is not defined without
    items, and where both gave one label only, the same. There is no interval where the standard error is 0: in full
    agreement, and in disagreement without exception.

    With `clusters`, n hashables, the interval is that of the percentiles of `resamples` kappas, clusters drawn with
    replacement (Efron 1979; Field & Welsh 2007), the standard error what these deviate by. An item whose cluster is
    None is alone; if all are, the interval is that without clusters. There is none with one cluster only, and where
    one label so prevails that more than 5 % of the resamples have no kappa. It needs some 20 clusters to be as wide as
    it should.

    Raises ValueError for sides of other lengths, a None or nan among the labels, another number of clusters, a nan
    among them, a level not between 0 and 1, and resamples below 1.
    """
    level, resamples = checked_level(level), checked_resamples(resamples)
    places, n_labels = _places(ours, theirs)
    clustering = clustering_of(clusters, len(ours))
    table = np.bincount(places, minlength=n_labels**2).reshape(n_labels, n_labels).astype(np.float64)
    share, kappa = _share_and_kappa(table)
    if clustering.all_alone or kappa is None:
        found = _of_large_samples(table, kappa, level)
    else:
        found = _resampled(places, n_labels, clustering, (level, resamples, seed))
    drawn = found.interval is not None and not clustering.all_alone
    return Agreement(
        share=share,
        kappa=kappa,
        standard_error=found.error,
        low=found.interval[0] if found.interval else None,
        high=found.interval[1] if found.interval else None,
        level=level,
        method=f"cohen; {'fleiss-cohen-everitt' if clustering.all_alone else 'cluster bootstrap percentiles'}",
        n=len(ours),
        n_labels=n_labels,
        n_clusters=None if clusters is None else clustering.count,
        resamples=resamples if drawn else None,
        seed=seed if drawn else None,
        reason=_no_kappa(len(ours)) if kappa is None else found.reason,
    )


class _Sureness(NamedTuple):
    """How sure a kappa is, or why that is not known."""

    error: float | None = None
    interval: tuple[float, float] | None = None
    reason: str | None = None


def _places(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> tuple[NDArray[np.intp], int]:
    """In which cell of the table each item is, counted row by row, and how many labels there are."""
    if len(ours) != len(theirs):
        raise ValueError(f"ours: got {len(ours)} labels, wanted as many as theirs, {len(theirs)}")
    seen: dict[Hashable, int] = {}
    rows = [_number("ours", place, label, seen) for place, label in enumerate(ours)]
    columns = [_number("theirs", place, label, seen) for place, label in enumerate(theirs)]
    return np.array(rows, dtype=np.intp) * len(seen) + np.array(columns, dtype=np.intp), len(seen)


def _number(name: str, place: int, label: Hashable, seen: dict[Hashable, int]) -> int:
    """The number of a label, which is new or in `seen`."""
    if label is None or label != label:
        raise ValueError(f"{name}[{place}]: got {label!r}, wanted a label")
    return seen.setdefault(label, len(seen))


def _share_and_kappa(table: FloatArray) -> tuple[float | None, float | None]:
    n = table.sum()
    if not n:
        return None, None
    agreed, by_chance = np.trace(table), float(table.sum(axis=1) @ table.sum(axis=0))  # by chance: times n squared
    if by_chance == n * n:
        return float(agreed / n), None
    return float(agreed / n), float((agreed * n - by_chance) / (n * n - by_chance))


def _standard_error(table: FloatArray, kappa: float) -> float | None:
    """None where it is 0."""
    n, parts = table.sum(), table / table.sum()
    ours, theirs = parts.sum(axis=1), parts.sum(axis=0)
    by_chance = float(ours @ theirs)
    agreed = np.diag(parts) @ (1 - (ours + theirs) * (1 - kappa)) ** 2
    both = (theirs[:, None] + ours[None, :]) ** 2
    differed = (1 - kappa) ** 2 * float((parts * both).sum() - np.diag(parts) @ np.diag(both))
    variance = float(agreed + differed - (kappa - by_chance * (1 - kappa)) ** 2)
    if is_rounding(variance, 1.0):
        return None
    return math.sqrt(variance / n) / (1 - by_chance)


def _of_large_samples(table: FloatArray, kappa: float | None, level: float) -> _Sureness:
    if kappa is None or not (error := _standard_error(table, kappa)):
        n = int(table.sum())
        return _Sureness(
            reason=f"the standard error of kappa over {n} items is 0: no spread to reckon an interval from"
        )
    half = normal_quantile(level) * error
    return _Sureness(error, clipped((kappa - half, kappa + half), -1.0, 1.0))


def _resampled(
    places: NDArray[np.intp], n_labels: int, clustering: Clustering, drawn: tuple[float, int, int]
) -> _Sureness:
    """`drawn` is the level, how many resamples, and the seed."""
    level, resamples, seed = drawn
    if few := too_few(places.size, clustering, "item"):
        return _Sureness(reason=few)
    of_cluster = np.zeros((clustering.count, n_labels**2))
    np.add.at(of_cluster, (clustering.numbers, places), 1.0)
    every = [_kappas(some @ of_cluster, n_labels) for some in drawn_counts(clustering.count, resamples, seed)]
    kappas = np.concatenate(every)
    defined = kappas[~np.isnan(kappas)]
    if defined.size < (1 - MOST_UNDEFINED) * kappas.size:
        return _Sureness(reason="one label prevails, so that many resamples have nothing but it, and no kappa")
    if is_rounding(np.ptp(defined), 1.0):
        same = f"all resamples of {clustering.count} clusters give one kappa"
        return _Sureness(reason=f"{same}: no spread to reckon an interval from")
    error = float(defined.std(ddof=1)) if defined.size > 1 else None
    return _Sureness(error, clipped(percentile_interval(defined, level), -1.0, 1.0))


def _kappas(tables: FloatArray, n_labels: int) -> FloatArray:
    """Of each table, given row by row, shape (R, n_labels ** 2); nan where it has none."""
    square = tables.reshape(-1, n_labels, n_labels)
    n, agreed = square.sum(axis=(1, 2)), np.trace(square, axis1=1, axis2=2)
    by_chance = (square.sum(axis=2) * square.sum(axis=1)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by_chance < n * n, (agreed * n - by_chance) / (n * n - by_chance), np.nan)


def _no_kappa(n: int) -> str:
    if not n:
        return "no items: kappa needs at least 1"
    return f"both gave one and the same label to all {n} items: agreement by chance would be full too"
