"""Vectorised `paired_difference`: many replicates of the same pairs at once."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.stats.clusters import (
    ROUNDING,
    Clustering,
    FloatArray,
    checked_confidence_level,
    clustering_of,
    refuse_where,
)
from evalflows.stats.means import (
    OF_DIFFERENCES,
    adjusted_means,
    skewed_quantile,
    skewnesses_of_mean,
    sums_by_cluster,
    unskewed_quantile,
)
from evalflows.stats.paired import ADDED
from evalflows.stats.proportions import checked_bounds, largest_missed_share, paired_score_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifferences:
    """Candidate minus baseline in each of R replicates of the same n pairs; arrays of shape (R,)."""

    difference: FloatArray
    p_value: FloatArray  # two-sided, of no difference; 1 if undefined, as with fewer than two pairs
    has_interval: NDArray[np.bool_]
    n_pairs: int
    n_clusters: int | None  # None if no clusters were given
    centre: FloatArray  # of the interval
    error: FloatArray  # standard error that the interval is based on; 0 without variation
    df: FloatArray  # of Student's t; infinite if the interval uses the normal distribution
    skewness: FloatArray  # of the mean, that the interval corrects for; 0 if it does not
    counts: FloatArray | None  # shape (R, 3): effective pairs gained, lost, in all, if the score test is also used
    units: int  # independent pairs or clusters
    widest: float  # largest possible size of a difference
    unit: float = 1.0  # difference between yes and no

    def rescaled(self, width: float) -> "PairedDifferences":
        """Return the differences of yes/no values for numbers that differ by `width` instead of 1."""
        scaled = {name: width * getattr(self, name) for name in ("difference", "centre", "error", "widest", "unit")}
        return replace(self, **scaled)

    def interval_at(self, confidence_level: float) -> tuple[FloatArray, FloatArray]:
        """Return the two-sided interval of each replicate; infinite if there is none.

        Raise ValueError for a confidence level not between 0 and 1.
        """
        quantile = -_special().stdtrit(self.df, (1 - checked_confidence_level(confidence_level)) / 2)
        low = self.centre - skewed_quantile(quantile, -self.skewness) * self.error
        high = self.centre + skewed_quantile(quantile, self.skewness) * self.error
        if self.counts is not None:
            lows, highs = _scores(np.column_stack([self.counts, quantile]))
            low, high = np.minimum(low, self.unit * lows), np.maximum(high, self.unit * highs)
        constant = self.error == 0
        if constant.any() and np.isfinite(self.widest):
            most = largest_missed_share(self.units, confidence_level=confidence_level)
            low = np.where(constant, self.difference - most * (self.difference + self.widest), low)
            high = np.where(constant, self.difference + most * (self.widest - self.difference), high)
        return (
            np.where(self.has_interval, np.maximum(low, -self.widest), -np.inf),
            np.where(self.has_interval, np.minimum(high, self.widest), np.inf),
        )


def paired_differences(
    candidate: ArrayLike,
    baseline: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    weights: ArrayLike | None = None,
    binary: bool = False,
    bounds: tuple[float, float] | None = None,
) -> PairedDifferences:
    """Return `paired_difference` of each row of `candidate` and `baseline`, both of shape (R, n).

    The clusters, n hashables, are the same in all replicates, and so are `weights`, shape (n,), by which the rows are
    linearised as in `stats.linearised`; `bounds` and `binary` are for unweighted values. The formulas are those of
    `paired_difference`: Student's t and cluster-robust t with Satterthwaite's degrees of freedom, both corrected for
    skew; for 0 and 1, the union of the intervals of Bonett & Price and of Tango, with the exact McNemar test, or with
    clusters the larger p-value of both.

    Raise ValueError for other shapes, a number that is not finite, bounds not in order or values outside them, with
    `binary` for a value other than 0 and 1, a weight not above 0, and another number of clusters.
    """
    candidate_rows, baseline_rows = _rows("candidate", candidate), _rows("baseline", baseline)
    if candidate_rows.shape != baseline_rows.shape:
        raise ValueError(
            f"candidate: got shape {candidate_rows.shape}, wanted that of the baseline, {baseline_rows.shape}"
        )
    count, n = candidate_rows.shape
    for name, side in (("candidate", candidate_rows), ("baseline", baseline_rows)):
        refuse_where(name, side.ravel(), binary & ~np.isin(side, (0.0, 1.0)).ravel(), "0 or 1")
    bounds = checked_bounds(
        (0.0, 1.0) if binary else bounds, candidate=candidate_rows.ravel(), baseline=baseline_rows.ravel()
    )
    candidate_rows, baseline_rows = _linearised(candidate_rows, weights), _linearised(baseline_rows, weights)
    clustering = clustering_of(clusters, n)
    shared: dict[str, Any] = {
        "n_pairs": n,
        "n_clusters": None if clusters is None else clustering.count,
        "units": clustering.count,
        "widest": np.inf if bounds is None else bounds[1] - bounds[0],
    }
    if n < 2 or clustering.count < 2:
        zeros = np.zeros(count)
        difference = (candidate_rows - baseline_rows).mean(axis=1) if n else zeros
        shared |= {"centre": difference, "error": zeros, "df": np.ones(count), "p_value": np.ones(count)}
        shared |= {"skewness": zeros, "counts": None}
        return PairedDifferences(difference=difference, has_interval=np.zeros(count, dtype=bool), **shared)
    if binary and clustering.all_singletons:
        return _of_shares(candidate_rows, baseline_rows, shared)
    return _by_t(candidate_rows, baseline_rows, clustering, shared, binary=binary)


def _of_shares(candidate_rows: FloatArray, baseline_rows: FloatArray, shared: dict[str, Any]) -> PairedDifferences:
    n = candidate_rows.shape[1]
    gained, lost = (candidate_rows > baseline_rows).sum(axis=1), (candidate_rows < baseline_rows).sum(axis=1)
    share_gained, share_lost = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    centre = share_gained - share_lost
    p_value = np.minimum(1.0, 2 * _special().bdtr(np.minimum(gained, lost).astype(float), gained + lost, 0.5))
    return PairedDifferences(
        difference=(gained - lost) / n,
        p_value=p_value,
        has_interval=np.ones(len(centre), dtype=bool),
        centre=centre,
        error=np.sqrt((share_gained + share_lost - centre**2) / (n + 2)),
        df=np.full(len(centre), np.inf),
        skewness=np.zeros(len(centre)),
        counts=np.column_stack([gained, lost, np.full(len(centre), n)]).astype(np.float64),
        **shared,
    )


def _scores(arguments: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Tango's interval of each row of counts and quantile, computed once per distinct row."""
    distinct, places = np.unique(arguments, axis=0, return_inverse=True)
    low, high = np.array([paired_score_interval(*row) for row in distinct.tolist()])[places.ravel()].T
    return low, high


def _by_t(
    candidate_rows: FloatArray,
    baseline_rows: FloatArray,
    clustering: Clustering,
    shared: dict[str, Any],
    *,
    binary: bool,
) -> PairedDifferences:
    differences, count = candidate_rows - baseline_rows, clustering.count
    difference = differences.mean(axis=1)
    scale = np.maximum(np.abs(candidate_rows).max(axis=1), np.abs(baseline_rows).max(axis=1))
    deviations = sums_by_cluster(differences - difference[:, None], clustering) / np.bincount(
        clustering.numbers, minlength=count
    )
    constant = np.abs(deviations).max(axis=1) <= ROUNDING * scale
    is_zero = np.abs(difference) <= ROUNDING * scale
    df, skewness = _degrees_of_freedom(differences, clustering), np.zeros(len(differences))
    counts, p_value = None, np.zeros(len(differences))
    if binary:
        constant &= differences.any(axis=1)
        centre, error, counts = _effective_counts(differences, clustering)
        differing = counts[:, 0] + counts[:, 1]
        ratio = (counts[:, 0] - counts[:, 1]) / np.sqrt(np.where(differing > 0, differing, 1.0))
        p_value = _p_values(ratio, skewness, df)
    else:
        sums = sums_by_cluster(differences - difference[:, None], clustering)
        centre, error = difference, np.where(constant, 1.0, _errors(sums, differences.shape[1]))
        skewness = np.where(constant, 0.0, skewnesses_of_mean(sums, differences.shape[1], error))
    p_value = np.maximum(p_value, _p_values(centre / error, skewness, df))
    return PairedDifferences(
        difference=difference,
        p_value=np.where(constant, np.where(is_zero, 1.0, np.ldexp(1.0, 1 - count)), p_value),
        has_interval=~constant | np.isfinite(shared["widest"]),
        centre=centre,
        error=np.where(constant, 0.0, error),
        df=df,
        skewness=skewness,
        counts=counts,
        **shared,
    )


def _effective_counts(differences: FloatArray, clustering: Clustering) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centre, error, and counts of each row; see `stats.paired`."""
    gained, lost = (differences > 0).sum(axis=1), (differences < 0).sum(axis=1)
    adjusted = adjusted_means(differences, clustering, (gained + lost).astype(np.float64), ADDED, OF_DIFFERENCES)
    counts = np.column_stack([gained, lost, np.full(len(gained), differences.shape[1])])
    return adjusted.mean, adjusted.error, counts / adjusted.design_effect[:, None]


def _errors(sums: FloatArray, n: int) -> FloatArray:
    """The standard error of each row; see `stats.clusters.standard_error`."""
    count = sums.shape[1]
    return np.asarray(np.sqrt((sums**2).sum(axis=1) * count / (count - 1)) / n)


def _p_values(ratios: FloatArray, skewness: FloatArray, df: FloatArray) -> FloatArray:
    """The p-value of each row; see `stats.means.skewed_t_p_value`."""
    quantiles = unskewed_quantile(np.abs(ratios), np.where(ratios > 0, -skewness, skewness))
    return np.asarray(2 * _special().stdtr(df, -quantiles))


def _degrees_of_freedom(differences: FloatArray, clustering: Clustering) -> FloatArray:
    """The degrees of freedom of each row, by the algebra of `stats.clusters.degrees_of_freedom`."""
    sizes = np.bincount(clustering.numbers, minlength=clustering.count)
    if sizes.min() == sizes.max():
        return np.full(len(differences), clustering.count - 1.0)
    icc, parts = _intraclass_correlation(differences, clustering, sizes)[:, None], sizes / sizes.sum()
    spread = parts * (1 - icc + icc * sizes)
    total, crossed = spread.sum(axis=1), spread @ parts
    squared, own = float(parts @ parts), (spread**2).sum(axis=1)
    rest = total[:, None] * parts**2 - 2 * spread * parts
    of_rest = 2 * own * squared + 2 * crossed**2 + total**2 * squared**2 - 4 * total * crossed * squared
    trace = (spread + rest).sum(axis=1)
    return np.asarray(trace**2 / (own + 2 * (spread * rest).sum(axis=1) + of_rest))


def _intraclass_correlation(differences: FloatArray, clustering: Clustering, sizes: NDArray[np.intp]) -> FloatArray:
    """The intraclass correlation of each row; see `stats.clusters.intraclass_correlation`."""
    n, count = differences.shape[1], clustering.count
    deviations = differences - differences.mean(axis=1)[:, None]
    largest = np.abs(deviations).max(axis=1)
    deviations = deviations / np.where(largest == 0, 1.0, largest)[:, None]
    means = sums_by_cluster(deviations, clustering) / sizes
    within = ((deviations - means[:, clustering.numbers]) ** 2).sum(axis=1) / (n - count)
    between = (sizes * means**2).sum(axis=1) / (count - 1)
    size = (n - float((sizes**2).sum()) / n) / (count - 1)
    both = between + (size - 1) * within
    return np.where(largest == 0, 0.0, np.maximum(0.0, (between - within) / np.where(both == 0, 1.0, both)))


def _linearised(rows: FloatArray, weights: ArrayLike | None) -> FloatArray:
    """Linearise each row as `stats.linearised` does."""
    if weights is None:
        return rows
    row_weights = np.asarray(weights, dtype=np.float64)
    if row_weights.shape != rows.shape[1:]:
        raise ValueError(f"weights: got shape {row_weights.shape}, wanted one for each of {rows.shape[1]} pairs")
    refuse_where("weights", row_weights, ~(row_weights > 0), "more than 0")
    if not row_weights.size or np.ptp(row_weights) == 0:
        return rows
    means = (rows @ row_weights / row_weights.sum())[:, None]
    return np.asarray(means + row_weights.size * row_weights * (rows - means) / row_weights.sum())


def _rows(name: str, values: ArrayLike) -> FloatArray:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"{name}: got shape {rows.shape}, wanted replicates by pairs")
    refuse_where(name, rows.ravel(), ~np.isfinite(rows).ravel(), "a finite number")
    return rows


def _special() -> Any:
    # Late: see stats.distributions.
    from scipy import special  # type: ignore[import-untyped, unused-ignore]

    return special
