"""Better or not, many times over: `paired_difference` of the same pairs in many replicates, in one go."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stats.arrays import FloatArray, checked_level, refuse_where
from stats.clusters import ROUNDING, Clustering, clustering_of, with_two_more
from stats.distributions import checked_bounds
from stats.paired import ADDED
from stats.proportions import most_that_differ, tango_interval
from stats.skewness import shrunk, skewnesses_of_mean, stretched


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifferences:
    """Candidate minus baseline in each of R replicates of the same n pairs; arrays of shape (R,)."""

    difference: FloatArray
    p_value: FloatArray  # two-sided, of no difference; 1 where there is none to have, as with fewer than two pairs
    has_interval: NDArray[np.bool_]
    n_pairs: int
    n_clusters: int | None  # None where no clusters were given
    centre: FloatArray  # of the interval
    error: FloatArray  # the standard error that it rests on; 0 without spread
    df: FloatArray  # of Student's t; infinite where the interval rests on the normal distribution
    skewness: FloatArray  # of the mean, that the interval allows for; 0 where it allows for none
    counts: NDArray[np.intp] | None  # shape (R, 2): pairs gained and lost, where the interval is also by the score test
    units: int  # pairs, or clusters, that stand alone
    widest: float  # how far from 0 a difference can be

    def interval_at(self, level: float) -> tuple[FloatArray, FloatArray]:
        """The two-sided interval of each replicate; without end where there is none.

        Raises ValueError for a level not between 0 and 1.
        """
        quantile = -_special().stdtrit(self.df, (1 - checked_level(level)) / 2)
        low = self.centre - stretched(quantile, -self.skewness) * self.error
        high = self.centre + stretched(quantile, self.skewness) * self.error
        if self.counts is not None:
            lows, highs = _scores(self.counts, self.n_pairs, level)
            low, high = np.minimum(low, lows), np.maximum(high, highs)
        still = self.error == 0
        if still.any() and np.isfinite(self.widest):
            most = most_that_differ(self.units, level=level)
            low = np.where(still, self.difference - most * (self.difference + self.widest), low)
            high = np.where(still, self.difference + most * (self.widest - self.difference), high)
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
    """What `paired_difference` (with "auto") says of each row of `candidate` and `baseline`, both of shape (R, n).

    The clusters, n hashables, are the same in all replicates, and so are `weights`, shape (n,), by which the rows are
    linearised as `stats.linearised` does it; `bounds` and `binary` are for values that are not weighted. The formulas
    are those of `paired_difference`: Student's t, cluster-robust t by the degrees of freedom of Satterthwaite, both
    corrected for skew, for 0 and 1 with two clusters added instead, and without clusters the intervals of Bonett &
    Price and of Tango joined, and the exact test of the pairs that differ.

    Raises ValueError for other shapes, for a number that is not finite, for bounds not in order or values beyond them,
    with `binary` for a value other than 0 and 1, for a weight not above 0, and for another number of clusters.
    """
    ours, theirs = _rows("candidate", candidate), _rows("baseline", baseline)
    if ours.shape != theirs.shape:
        raise ValueError(f"candidate: got shape {ours.shape}, wanted that of the baseline, {theirs.shape}")
    count, n = ours.shape
    for name, side in (("candidate", ours), ("baseline", theirs)):
        refuse_where(name, side.ravel(), binary & ~np.isin(side, (0.0, 1.0)).ravel(), "0 or 1")
    bounds = checked_bounds((0.0, 1.0) if binary else bounds, candidate=ours.ravel(), baseline=theirs.ravel())
    ours, theirs = _linearised(ours, weights), _linearised(theirs, weights)
    clustering = clustering_of(clusters, n)
    shared: dict[str, Any] = {
        "n_pairs": n,
        "n_clusters": None if clusters is None else clustering.count,
        "units": clustering.count,
        "widest": np.inf if bounds is None else bounds[1] - bounds[0],
    }
    if n < 2 or clustering.count < 2:
        none = np.zeros(count)
        difference = (ours - theirs).mean(axis=1) if n else none
        shared |= {"centre": difference, "error": none, "df": np.ones(count), "p_value": np.ones(count)}
        shared |= {"skewness": none, "counts": None}
        return PairedDifferences(difference=difference, has_interval=np.zeros(count, dtype=bool), **shared)
    if binary and clustering.all_alone:
        return _of_shares(ours, theirs, shared)
    return _by_t(ours, theirs, clustering, shared, binary=binary)


def _of_shares(ours: FloatArray, theirs: FloatArray, shared: dict[str, Any]) -> PairedDifferences:
    n = ours.shape[1]
    gained, lost = (ours > theirs).sum(axis=1), (ours < theirs).sum(axis=1)
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
        counts=np.column_stack([gained, lost]),
        **shared,
    )


def _scores(counts: NDArray[np.intp], n: int, level: float) -> tuple[FloatArray, FloatArray]:
    """The interval of Tango of each row; those with the same counts share theirs."""
    kinds, places = np.unique(counts, axis=0, return_inverse=True)
    found = np.array([tango_interval(gained, lost, n, level=level) for gained, lost in kinds.tolist()])
    low, high = found[places.ravel()].T
    return low, high


def _by_t(
    ours: FloatArray, theirs: FloatArray, clustering: Clustering, shared: dict[str, Any], *, binary: bool
) -> PairedDifferences:
    found, count = ours - theirs, clustering.count
    difference = found.mean(axis=1)
    scale = np.maximum(np.abs(ours).max(axis=1), np.abs(theirs).max(axis=1))
    deviations = _sums(found - difference[:, None], clustering) / np.bincount(clustering.numbers, minlength=count)
    still = np.abs(deviations).max(axis=1) <= ROUNDING * scale
    nothing = np.abs(difference) <= ROUNDING * scale
    if binary:
        found, clustering = with_two_more(found, clustering, -ADDED, ADDED)
    centre, df = found.mean(axis=1), _degrees_of_freedom(found, clustering)
    sums = _sums(found - centre[:, None], clustering)
    error = _errors(sums, found.shape[1])
    moving = np.where(still, 1.0, error)
    skewness = np.zeros(len(found)) if binary else skewnesses_of_mean(sums, found.shape[1], moving)
    return PairedDifferences(
        difference=difference,
        p_value=np.where(
            still, np.where(nothing, 1.0, np.ldexp(1.0, 1 - count)), _p_values(centre / moving, skewness, df)
        ),
        has_interval=~still | np.isfinite(shared["widest"]),
        centre=centre,
        error=np.where(still, 0.0, error),
        df=df,
        skewness=np.where(still, 0.0, skewness),
        counts=None,
        **shared,
    )


def _errors(sums: FloatArray, n: int) -> FloatArray:
    """Of each row; see `stats.clusters.standard_error`."""
    count = sums.shape[1]
    return np.asarray(np.sqrt((sums**2).sum(axis=1) * count / (count - 1)) / n)


def _p_values(ratios: FloatArray, skewness: FloatArray, df: FloatArray) -> FloatArray:
    """Of each row; see `stats.skewness.skewed_t_p_value`."""
    quantiles = shrunk(np.abs(ratios), np.where(ratios > 0, -skewness, skewness))
    return np.asarray(2 * _special().stdtr(df, -quantiles))


def _degrees_of_freedom(found: FloatArray, clustering: Clustering) -> FloatArray:
    """Of each row; see `stats.clusters.degrees_of_freedom`, whose algebra this is."""
    sizes = np.bincount(clustering.numbers, minlength=clustering.count)
    if sizes.min() == sizes.max():
        return np.full(len(found), clustering.count - 1.0)
    alike, parts = _intraclass_correlation(found, clustering, sizes)[:, None], sizes / sizes.sum()
    spread = parts * (1 - alike + alike * sizes)
    total, crossed = spread.sum(axis=1), spread @ parts
    squared, own = float(parts @ parts), (spread**2).sum(axis=1)
    rest = total[:, None] * parts**2 - 2 * spread * parts
    of_rest = 2 * own * squared + 2 * crossed**2 + total**2 * squared**2 - 4 * total * crossed * squared
    trace = (spread + rest).sum(axis=1)
    return np.asarray(trace**2 / (own + 2 * (spread * rest).sum(axis=1) + of_rest))


def _intraclass_correlation(found: FloatArray, clustering: Clustering, sizes: NDArray[np.intp]) -> FloatArray:
    """Of each row; see `stats.clusters.intraclass_correlation`."""
    n, count = found.shape[1], clustering.count
    deviations = found - found.mean(axis=1)[:, None]
    largest = np.abs(deviations).max(axis=1)
    deviations = deviations / np.where(largest == 0, 1.0, largest)[:, None]
    means = _sums(deviations, clustering) / sizes
    within = ((deviations - means[:, clustering.numbers]) ** 2).sum(axis=1) / (n - count)
    between = (sizes * means**2).sum(axis=1) / (count - 1)
    size = (n - float((sizes**2).sum()) / n) / (count - 1)
    both = between + (size - 1) * within
    return np.where(largest == 0, 0.0, np.maximum(0.0, (between - within) / np.where(both == 0, 1.0, both)))


def _sums(rows: FloatArray, clustering: Clustering) -> FloatArray:
    """Of each row, by cluster: shape (R, G)."""
    if clustering.all_alone:
        return rows
    order = np.argsort(clustering.numbers, kind="stable")
    begins = np.searchsorted(clustering.numbers[order], np.arange(clustering.count))
    return np.asarray(np.add.reduceat(rows[:, order], begins, axis=1))


def _linearised(rows: FloatArray, weights: ArrayLike | None) -> FloatArray:
    """Each row as `stats.linearised` has it."""
    if weights is None:
        return rows
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != rows.shape[1:]:
        raise ValueError(f"weights: got shape {given.shape}, wanted one for each of {rows.shape[1]} pairs")
    refuse_where("weights", given, ~(given > 0), "more than 0")
    if not given.size or np.ptp(given) == 0:
        return rows
    means = (rows @ given / given.sum())[:, None]
    return np.asarray(means + given.size * given * (rows - means) / given.sum())


def _rows(name: str, values: ArrayLike) -> FloatArray:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"{name}: got shape {rows.shape}, wanted replicates by pairs")
    refuse_where(name, rows.ravel(), ~np.isfinite(rows).ravel(), "a finite number")
    return rows


def _special() -> Any:
    # Late, as in stats.distributions.
    from scipy import special  # type: ignore[import-untyped, unused-ignore]

    return special
