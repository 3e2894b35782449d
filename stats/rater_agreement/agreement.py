"""Agreement of two raters: the share of equal labels, and Cohen's kappa."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalflows.stats.arrays import FloatArray, checked_confidence_level
from evalflows.stats.cluster_draws import checked_resamples, drawn_counts, percentile_interval
from evalflows.stats.clusters import Clustering, clustering_of, is_rounding, too_few
from evalflows.stats.distributions import clipped, normal_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A share of agreement, 0 to 1, and kappa: 1 is full agreement, 0 chance agreement, below 0 worse than chance."""

    share: float | None  # of items on which both agree; None without items
    kappa: float | None  # None with a reason, like the next three fields
    standard_error: float | None  # of kappa
    low: float | None
    high: float | None
    confidence_level: float  # the confidence level, 0 to 1
    method: str  # of kappa and of its interval
    n: int  # items
    n_labels: int  # different labels used by either rater
    n_clusters: int | None  # None without clusters
    resamples: int | None  # None if nothing was resampled, like `seed`
    seed: int | None
    reason: str | None  # why kappa or its interval is missing; None if both are present


MAX_UNDEFINED_SHARE = 0.05
"""Resamples in which both raters use a single label have no kappa; they are dropped up to this share of all."""


def agreement(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    *,
    confidence_level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Return how often two raters give the same label, and Cohen's kappa with a two-sided interval.

    `first` and `second` are n labels each, of any hashable type, matched by position. kappa is (po - pe) / (1 - pe),
    where po is the share of agreement and pe the share expected if the raters were independent with the same label
    frequencies (Cohen 1960). The standard error is the large-sample one that does not assume a kappa of 0 (Fleiss,
    Cohen & Everitt 1969, eq. 13); the interval is normal, clipped to -1 to 1. kappa is undefined without items, and
    when both raters give every item the same single label. There is no interval if the standard error is 0: with full
    agreement or full disagreement.

    With `clusters`, n hashables, the interval is the percentile interval of `resamples` kappas from clusters drawn with
    replacement (Efron 1979; Field & Welsh 2007), and the standard error is their standard deviation. An item whose
    cluster is None is its own cluster; if all are, the interval without clusters is used. There is no interval with a
    single cluster, or if one label is so frequent that more than 5 % of the resamples have no kappa. With fewer than
    about 20 clusters the interval is too narrow.

    Raise ValueError if the lengths differ, a label is None or nan, the number of clusters is wrong, a cluster is nan,
    the level is not between 0 and 1, or resamples is below 1.
    """
    confidence_level, resamples = checked_confidence_level(confidence_level), checked_resamples(resamples)
    places, n_labels = _places(first, second)
    clustering = clustering_of(clusters, len(first))
    table = np.bincount(places, minlength=n_labels**2).reshape(n_labels, n_labels).astype(np.float64)
    share, kappa = _share_and_kappa(table)
    if clustering.all_singletons or kappa is None:
        uncertainty = _of_large_samples(table, kappa, confidence_level)
    else:
        uncertainty = _resampled(places, n_labels, clustering, (confidence_level, resamples, seed))
    resampled = uncertainty.interval is not None and not clustering.all_singletons
    return Agreement(
        share=share,
        kappa=kappa,
        standard_error=uncertainty.error,
        low=uncertainty.interval[0] if uncertainty.interval else None,
        high=uncertainty.interval[1] if uncertainty.interval else None,
        confidence_level=confidence_level,
        method=f"cohen; {'fleiss-cohen-everitt' if clustering.all_singletons else 'cluster bootstrap percentiles'}",
        n=len(first),
        n_labels=n_labels,
        n_clusters=None if clusters is None else clustering.count,
        resamples=resamples if resampled else None,
        seed=seed if resampled else None,
        reason=_no_kappa(len(first)) if kappa is None else uncertainty.reason,
    )


class _Uncertainty(NamedTuple):
    """The standard error and interval of a kappa, or why they are missing."""

    error: float | None = None
    interval: tuple[float, float] | None = None
    reason: str | None = None


def _places(first: Sequence[Hashable], second: Sequence[Hashable]) -> tuple[NDArray[np.intp], int]:
    """Return the cell of each item in the flattened (row-major) table, and the number of labels."""
    if len(first) != len(second):
        raise ValueError(f"first: got {len(first)} labels, wanted as many as second, {len(second)}")
    seen: dict[Hashable, int] = {}
    rows = [_number("first", place, label, seen) for place, label in enumerate(first)]
    columns = [_number("second", place, label, seen) for place, label in enumerate(second)]
    return np.array(rows, dtype=np.intp) * len(seen) + np.array(columns, dtype=np.intp), len(seen)


def _number(name: str, place: int, label: Hashable, seen: dict[Hashable, int]) -> int:
    """Return the number of a label, adding it to `seen` if it is new."""
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
    """Return the standard error of kappa; None if it is 0."""
    n, parts = table.sum(), table / table.sum()
    first, second = parts.sum(axis=1), parts.sum(axis=0)
    by_chance = float(first @ second)
    agreed = np.diag(parts) @ (1 - (first + second) * (1 - kappa)) ** 2
    both = (second[:, None] + first[None, :]) ** 2
    differed = (1 - kappa) ** 2 * float((parts * both).sum() - np.diag(parts) @ np.diag(both))
    variance = float(agreed + differed - (kappa - by_chance * (1 - kappa)) ** 2)
    if is_rounding(variance, 1.0):
        return None
    return math.sqrt(variance / n) / (1 - by_chance)


def _of_large_samples(table: FloatArray, kappa: float | None, confidence_level: float) -> _Uncertainty:
    if kappa is None or not (error := _standard_error(table, kappa)):
        n = int(table.sum())
        return _Uncertainty(
            reason=f"the standard error of kappa over {n} items is 0: no spread to compute an interval from"
        )
    half = normal_quantile(confidence_level) * error
    return _Uncertainty(error, clipped((kappa - half, kappa + half), -1.0, 1.0))


def _resampled(
    places: NDArray[np.intp], n_labels: int, clustering: Clustering, bootstrap: tuple[float, int, int]
) -> _Uncertainty:
    """Return the bootstrap interval. `bootstrap` is the confidence level, the number of resamples and the seed."""
    confidence_level, resamples, seed = bootstrap
    if few := too_few(places.size, clustering, "item"):
        return _Uncertainty(reason=few)
    tables = np.zeros((clustering.count, n_labels**2))
    np.add.at(tables, (clustering.numbers, places), 1.0)
    batches = [_kappas(counts @ tables, n_labels) for counts in drawn_counts(clustering.count, resamples, seed)]
    kappas = np.concatenate(batches)
    defined = kappas[~np.isnan(kappas)]
    if defined.size < (1 - MAX_UNDEFINED_SHARE) * kappas.size:
        return _Uncertainty(reason="one label dominates: too many resamples hold only that label and have no kappa")
    if is_rounding(np.ptp(defined), 1.0):
        same = f"all resamples of {clustering.count} clusters give the same kappa"
        return _Uncertainty(reason=f"{same}: no spread to compute an interval from")
    error = float(defined.std(ddof=1)) if defined.size > 1 else None
    return _Uncertainty(error, clipped(percentile_interval(defined, confidence_level), -1.0, 1.0))


def _kappas(tables: FloatArray, n_labels: int) -> FloatArray:
    """Return the kappa of each flattened table, shape (R, n_labels ** 2); nan where it is undefined."""
    square = tables.reshape(-1, n_labels, n_labels)
    n, agreed = square.sum(axis=(1, 2)), np.trace(square, axis1=1, axis2=2)
    by_chance = (square.sum(axis=2) * square.sum(axis=1)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by_chance < n * n, (agreed * n - by_chance) / (n * n - by_chance), np.nan)


def _no_kappa(n: int) -> str:
    if not n:
        return "no items: kappa needs at least 1"
    return f"both raters gave all {n} items the same label: chance agreement is full too"
