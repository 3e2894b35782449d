"""Bradley-Terry ratings of entries from pairwise comparisons, with intervals, ranges of ranks, intransitive cycles, and
shares of pairs."""

import math
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, refuse_where, vector_of_size
from evalflows.stats.clusters import Clustering, clustering_of, too_few
from evalflows.stats.length_control import (
    adjusted_for_leverage,
    inverse_information,
    logistic_fit,
    probability,
    sandwich,
)
from evalflows.stats.multiple_tests import Adjustment, adjusted
from evalflows.stats.proportions import t_interval, t_p_values, t_quantile

Entries = NDArray[np.intp]

Guard = Literal["needed", "always", "never"]
"""Which entries get half a win and half a loss: those whose ratings would be infinite, all, or none."""

SMALLEST_VARIANCE = 1e-18
"""Variances of estimates up to this size, in squared log-odds, are rounding: estimates are accurate to 1e-9."""

EXPLAINED = "the position shown explains every result"


def rank_ranges(
    ratings: ArrayLike,
    covariance: ArrayLike,
    *,
    df: float,
    confidence_level: float = 0.95,
    adjustment: Adjustment = "holm",
) -> list[tuple[int, int]]:
    """Return the best and the worst rank of each of K entries, 1 for the highest rating.

    `ratings`, shape (K,), have the covariance matrix `covariance`, shape (K, K). The differences of all two entries are
    tested by Student's t with `df` degrees of freedom, and the p-values adjusted together. An entry's best rank is 1
    plus the number of entries significantly above it, its worst rank K minus those significantly below it. If no
    difference is falsely called significant, which by Holm's method holds at the confidence level, all ranges contain
    the entry's true rank at once (Mohamad, Goeman & van Zwet 2019, with Tukey's test in place of Holm's).

    Raise ValueError for shapes that do not fit and a confidence level not between 0 and 1.
    """
    values, matrix = np.asarray(ratings, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    if values.ndim != 1 or matrix.shape != (values.size, values.size):
        raise ValueError(f"covariance: got shape {matrix.shape}, wanted {(values.size, values.size)}")
    above, below = np.triu_indices(values.size, k=1)
    variances = np.diag(matrix)[above] + np.diag(matrix)[below] - 2 * matrix[above, below]
    differences, errors = values[above] - values[below], np.sqrt(np.maximum(variances, 0.0))
    p_values = np.where(errors > 0, t_p_values(differences / np.where(errors > 0, errors, 1.0), df), 1.0)
    is_significant = adjusted(p_values, adjustment) <= 1 - checked_confidence_level(confidence_level)
    is_higher = np.zeros(matrix.shape, dtype=bool)  # [i, j]: i is significantly above j
    is_higher[above, below] = is_significant & (differences > 0)
    is_higher[below, above] = is_significant & (differences < 0)
    best, worst = 1 + is_higher.sum(axis=0), values.size - is_higher.sum(axis=1)
    return list(zip(best.tolist(), worst.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament:
    """n judgements of two of K entries each; all arrays have shape (n,)."""

    first: Entries  # the entry shown first, or either one if the order is not known
    second: Entries
    points: FloatArray  # of the first entry, 0 to 1
    weights: FloatArray
    order: FloatArray  # 1; 0 if the order is not known
    entries: int  # K

    def apart(self) -> tuple[int, int] | None:
        """Return (0, the first entry not connected to entry 0 by comparisons); None if all are connected."""
        _, group = _csgraph().connected_components(self._graph(self.first, self.second), directed=False)
        return None if not np.any(group != group[0]) else (0, int(np.argmax(group != group[0])))

    def components(self) -> Entries:
        """Return the component of each entry, shape (K,): two entries share it if each beat the other, if indirectly.

        Points between 0 and 1 are a win each way. Maximum-likelihood ratings exist if and only if all entries are in
        one component (Zermelo 1929, Ford 1957).
        """
        _, group = _csgraph().connected_components(self._graph(*self._wins()), directed=True, connection="strong")
        return np.asarray(group, dtype=np.intp)

    def in_both_orders(self) -> bool:
        """Return whether any two entries were shown in both orders."""
        known = self.order > 0
        shown = np.unique(self.first[known] * self.entries + self.second[known])
        return bool(np.isin(shown % self.entries * self.entries + shown // self.entries, shown).any())

    def order_is_identified(self) -> bool:
        """Return whether the order shown is more than a linear combination of differences between entries."""
        design = self.differences()
        of_entries = np.linalg.lstsq((design.T @ design).toarray(), design.T @ self.order, rcond=None)[0]
        return bool(np.abs(self.order - design @ of_entries).max(initial=0.0) > 1e-6)

    def order_explains_all(self, group: Entries) -> bool:
        """Return whether no maximum-likelihood order effect exists, given the components of the entries.

        An infinite effect must explain every judgement within a component, up to differences in rating. With
        x(winner) - x(loser) >= -1 if the winner was shown first, and 1 if second, or the reverse of both, these are
        constraints on differences, which have a solution if and only if no cycle has a negative sum (Bellman 1958).
        """
        winner, loser = self._wins()
        order = np.concatenate([self.order[self.points > 0], -self.order[self.points < 1]])
        within = group[winner] == group[loser]
        return any(self._solvable(winner[within], loser[within], sign * order[within], group) for sign in (1.0, -1.0))

    def differences(self) -> Any:
        """Return a sparse array of shape (n, K): 1 for the first entry, -1 for the second."""
        from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

        n = self.first.size
        places = np.tile(np.arange(n), 2), np.concatenate([self.first, self.second])
        return sparse.csr_array((np.repeat([1.0, -1.0], n), places), shape=(n, self.entries))

    def _wins(self) -> tuple[Entries, Entries]:
        """Return winners and losers: first those shown first, then those shown second."""
        won, lost = self.points > 0, self.points < 1
        winner = np.concatenate([self.first[won], self.second[lost]])
        return winner, np.concatenate([self.second[won], self.first[lost]])

    def _graph(self, start: Entries, end: Entries) -> Any:
        from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

        return sparse.csr_array((np.ones(start.size), (start, end)), shape=(self.entries, self.entries))

    def _solvable(self, start: Entries, end: Entries, most: FloatArray, group: Entries) -> bool:
        """Return whether some x has x(end) - x(start) <= most on all edges."""
        limits = np.full((self.entries, self.entries), np.inf)
        np.minimum.at(limits, (start, end), most)
        graph = _csgraph().csgraph_from_dense(limits, null_value=np.inf)
        try:
            _csgraph().bellman_ford(graph, indices=np.unique(group, return_index=True)[1])
        except _csgraph().NegativeCycleError:
            return False
        return True


def checked_tournament(
    first: ArrayLike,
    second: ArrayLike,
    points: ArrayLike,
    weights: ArrayLike | None,
    order_known: ArrayLike | None,
    *,
    entries: int,
) -> Tournament:
    """Return the judgements as arrays. Raise ValueError as documented in `bradley_terry`."""
    if isinstance(entries, bool) or not isinstance(entries, int | np.integer) or entries < 2:
        raise ValueError(f"entries: got {entries!r}, wanted a whole number of at least 2")
    won = finite_vector("points", points)
    refuse_where("points", won, (won < 0) | (won > 1), "0 to 1")
    counts = np.ones(won.size) if weights is None else vector_of_size("weights", weights, won.size)
    refuse_where("weights", counts, counts <= 0, "more than 0")
    known = np.ones(won.size) if order_known is None else vector_of_size("order_known", order_known, won.size)
    refuse_where("order_known", known, ~np.isin(known, (0.0, 1.0)), "true or false")
    shown = [vector_of_size(name, numbers, won.size) for name, numbers in (("first", first), ("second", second))]
    for name, numbers in zip(("first", "second"), shown, strict=True):
        wrong = (numbers < 0) | (numbers >= entries) | (numbers != np.floor(numbers))
        refuse_where(name, numbers, wrong, f"a whole number from 0 to {entries - 1}")
    refuse_where("second", shown[1], shown[0] == shown[1], "another entry than the first")
    sides = [side.astype(np.intp) for side in shown]
    return Tournament(first=sides[0], second=sides[1], points=won, weights=counts, order=known, entries=entries)


def _csgraph() -> Any:
    # Late, as in stats.proportions.
    from scipy.sparse import csgraph  # type: ignore[import-untyped, unused-ignore]

    return csgraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """The terms of the model to which half a win and half a loss are added."""

    entries: Entries  # the guarded entries
    average: FloatArray  # shape (K,): the weights of the mean rating against which they are won and lost
    order: bool


def guards_of(played: Tournament, *, order_term: bool, always: bool) -> Guards:
    """Return the guards of the entries and the order effect that have no maximum-likelihood estimate, or of all.

    The guarded entries are those outside the largest component, compared with its mean. If several components are the
    largest, none of them is a reference, and all entries are guarded.
    """
    group = played.components()
    sizes = np.bincount(group)
    core = sizes[group] == sizes.max()
    if always or np.count_nonzero(sizes == sizes.max()) > 1:
        core = np.zeros(played.entries, dtype=bool)
    average = core if core.any() else np.ones(played.entries)
    return Guards(
        entries=np.flatnonzero(~core),
        average=average / average.sum(),
        order=order_term and (always or played.order_explains_all(group)),
    )


class Strengths:
    """Ratings of K entries, and an order effect on request, by the likelihood described in `bradley_terry`.

    Estimates have the shape (K,) or, with the order effect last, (K + 1,), in log-odds. The ratings have mean 0.
    """

    def __init__(self, played: Tournament, guards: Guards, *, order_term: bool) -> None:
        self.played, self.guards, self.order_term = played, guards, order_term
        self._design = _design(played, guards, order_term)
        added = np.ones(self._design.shape[0] - played.first.size)
        self._games = np.concatenate([played.weights, added])
        self._wins = np.concatenate([played.weights * played.points, added / 2])

    def coefficients(self) -> FloatArray | None:
        """Return the coefficients that maximise the likelihood; None if the maximum was not reached."""
        return logistic_fit(self._design, self._wins, self._games - self._wins)

    def estimates(self, coefficients: FloatArray) -> FloatArray:
        """Return the estimates."""
        return np.asarray(self._centring() @ coefficients, dtype=np.float64)

    def covariance(self, coefficients: FloatArray, clustering: Clustering) -> FloatArray:
        """Return the cluster-robust covariance of the estimates. Needs at least two clusters."""
        bread = inverse_information(self._design, coefficients, self._games)
        covariance = sandwich(self._design, self._residuals(coefficients, bread, clustering), bread, clustering)
        return np.asarray(self._centring() @ covariance @ self._centring().T, dtype=np.float64)

    def _residuals(self, coefficients: FloatArray, bread: FloatArray, clustering: Clustering) -> FloatArray:
        """Return the residual of each row of the design, for the covariance.

        Those of judgements are adjusted for leverage, with one leverage for all judgements of two entries in a cluster.
        Judgements that all went one way have residuals of almost 0, whatever their variance: the standard deviation by
        the model replaces them.
        """
        n, log_odds = self.played.first.size, self._design @ coefficients
        variance = probability(log_odds) * probability(-log_odds)
        residuals = self._wins - self._games * probability(log_odds)
        residuals[:n] = adjusted_for_leverage(
            residuals[:n], self._design[:n], self._games[:n] * variance[:n], bread, self._pairs_in_clusters(clustering)
        )
        one_way = np.flatnonzero(self._one_way())
        residuals[one_way] = np.sign(residuals[one_way]) * self._games[one_way] * np.sqrt(variance[one_way])
        return np.asarray(residuals, dtype=np.float64)

    def _one_way(self) -> NDArray[np.bool_]:
        """Return which judgements an infinite rating or order effect would explain, shape (n,)."""
        played, group = self.played, self.played.components()
        between = group[played.first] != group[played.second]
        by_order = self.order_term and played.order_explains_all(group)
        return np.asarray(between | (played.order > 0) if by_order else between)

    def _pairs_in_clusters(self, clustering: Clustering) -> Entries:
        """Return a number for each judgement, shape (n,), equal for two entries in a cluster, whatever their order."""
        sides, entries = (self.played.first, self.played.second), self.played.entries
        pairs = np.minimum(*sides) * entries + np.maximum(*sides)
        return np.asarray(clustering.numbers * entries**2 + pairs)

    def _centring(self) -> FloatArray:
        """Return the matrix that turns coefficients into estimates."""
        entries, terms = self.played.entries, self._design.shape[1]
        centring = np.zeros((terms + 1, terms))
        centring[: entries - 1, : entries - 1] = np.eye(entries - 1)
        centring[:entries] -= centring[:entries].mean(axis=0)
        centring[entries:, entries - 1 :] = np.eye(terms - entries + 1)
        return centring


def _design(played: Tournament, guards: Guards, order_term: bool) -> Any:
    """Return the sparse rows of the judgements, then of the guards; the last entry's rating is 0."""
    sparse, entries = _sparse(), np.eye(played.entries)[guards.entries] - guards.average
    rows = sparse.vstack([played.differences(), sparse.csr_array(entries)])[:, :-1]
    if not order_term:
        return rows.tocsr()
    order = np.concatenate([played.order, np.zeros(len(entries))])
    rows = sparse.hstack([rows, sparse.csr_array(order[:, None])]).tocsr()
    return sparse.vstack([rows, sparse.csr_array(np.eye(rows.shape[1])[-1:])]).tocsr() if guards.order else rows


def _sparse() -> Any:
    # Late, as in stats.proportions.
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    return sparse


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingDifference:
    """The rating of one entry minus that of another, in log-odds."""

    difference: float | None  # None without ratings
    low: float | None  # None without intervals, like `high` and `standard_error`
    high: float | None
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Ratings of entries in log-odds, with mean 0: an entry rated 1 above another beats it with odds of e to 1."""

    ratings: tuple[float, ...] | None  # of entry 0, 1, ...; None with a reason
    lows: tuple[float, ...] | None  # None with a reason, like `highs`, `standard_errors` and `covariance`
    highs: tuple[float, ...] | None
    standard_errors: tuple[float, ...] | None
    covariance: tuple[tuple[float, ...], ...] | None  # of the ratings
    guard: Guard  # as requested
    guarded: tuple[int, ...]  # the entries that were guarded
    guard_reason: str | None  # why; None if no rating and no order effect was guarded
    order_term: bool  # whether the order effect is in the model
    order_effect: float | None  # log-odds of being shown first; None with `order_reason`
    order_low: float | None  # None with `reason` or `order_reason`, like `order_high` and `order_standard_error`
    order_high: float | None
    order_standard_error: float | None
    confidence_level: float  # the confidence level, 0 to 1
    df: int | None  # degrees of freedom of the intervals; None without
    method: str  # of the ratings; of the intervals
    n: int  # judgements
    n_clusters: int | None  # None without clusters
    apart: tuple[int, int] | None  # two entries that no comparisons connect, so that there are no ratings; None if none
    reason: str | None  # why ratings or intervals are missing; None if both are present
    order_reason: str | None  # why the order effect or its interval is missing; None if both are present

    def difference(self, entry: int, other: int) -> RatingDifference:
        """Return how much higher `entry` is rated than `other`, with an interval at the same confidence level."""
        if self.ratings is None:
            return RatingDifference(difference=None, low=None, high=None, standard_error=None)
        difference = self.ratings[entry] - self.ratings[other]
        if self.covariance is None or self.df is None:
            return RatingDifference(difference=difference, low=None, high=None, standard_error=None)
        of = self.covariance
        error = math.sqrt(max(of[entry][entry] + of[other][other] - 2 * of[entry][other], 0.0))
        low, high = t_interval(difference, error, df=self.df, confidence_level=self.confidence_level)
        return RatingDifference(difference=difference, low=low, high=high, standard_error=error)


class _Fitted(NamedTuple):
    """Estimates of some terms, shape (T,), and their covariance."""

    estimates: FloatArray | None = None
    covariance: FloatArray | None = None
    reason: str | None = None  # why one of them is missing

    def of(self, terms: slice) -> "_Fitted":
        """Return the estimates of these terms, without a covariance if it is 0."""
        if self.estimates is None or self.covariance is None:
            return self._replace(estimates=None if self.estimates is None else self.estimates[terms])
        covariance = self.covariance[terms, terms]
        exact = "all points are fitted exactly: no variation to compute an interval from"
        varies = np.diag(covariance).max() > SMALLEST_VARIANCE
        return _Fitted(self.estimates[terms], covariance if varies else None, None if varies else exact)

    def columns(self, df: int, confidence_level: float) -> list[tuple[float, ...] | None]:
        """Return estimates, lows, highs and standard errors; None for what is missing."""
        if self.estimates is None or self.covariance is None:
            return [None if self.estimates is None else tuple(self.estimates.tolist()), None, None, None]
        errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        half = t_quantile(confidence_level, df) * errors
        numbers = self.estimates, self.estimates - half, self.estimates + half, errors
        return [tuple(each.tolist()) for each in numbers]


def bradley_terry(
    first: ArrayLike,
    second: ArrayLike,
    points: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    entries: int,
    weights: ArrayLike | None = None,
    guard: Guard = "needed",
    order_term: bool | None = None,
    order_known: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> Ratings:
    """Return the maximum-likelihood ratings from n comparisons, with two-sided intervals.

    `first` and `second`, shape (n,), are entry numbers, 0 to `entries` - 1, in the order shown. `points`, shape (n,), 0
    to 1, are those of the first entry: 1 for a win, 0.5 for a tie, anything between for a graded preference.
    `weights`, shape (n,), above 0, weight the comparisons, for example 1/2 for each of the two orders of a pair. The
    expected points of the first entry are 1 / (1 + exp(-(r_first - r_second + order))), with ratings r of mean 0
    (Bradley & Terry 1952), fitted as a fractional logit (Papke & Wooldridge 1996): a tie is half a win and half a loss.

    `order` is estimated with the ratings (Davidson & Beaver 1977). `order_known`, shape (n,), is false for comparisons
    whose order is not known (default: all are known): they have no order effect. By default it is
    estimated if any two entries were shown in both orders; with `order_term` True also where only ratings of third
    entries separate it from strength. It is left out, with `order_reason`, if nothing does.

    An entry, or a group of entries, that never lost to the others or never beat them has an infinite
    maximum-likelihood rating (Ford 1957). With `guard` "needed", only such entries get half a win and half a loss
    against the mean of the others (log-F(1, 1): Greenland & Mansournia 2015); if no group of entries is larger than
    all others, every entry gets them, against the mean. Likewise the order effect, if position explains every result.
    `guarded` and `guard_reason` say so. "always" adds them to all; with "never" there are no ratings instead. There are
    no ratings if comparisons do not connect all entries.

    Standard errors are cluster-robust, with HC2 residuals and the factor G / (G - 1) of CR1 (MacKinnon & White 1985,
    Cameron & Miller 2015), or the same without clusters; intervals are Student's t with G - 1 degrees of freedom, in
    log-odds. `clusters` are n hashables; an item whose cluster is None is its own cluster. Results between a group that
    is infinitely far apart and the others have no variation; the variance by the model replaces it, as if those of a
    cluster were one. There are no intervals with fewer than two clusters. In simulations
    (docs/explanation/simulation.md) the intervals of 20 entries cover from one vote per pair on.

    Raise ValueError for lengths or shapes that do not fit, entries below 2, entry numbers out of range, an entry
    compared with itself, points outside 0 to 1, weights that are not above 0, nan and inf, a nan among the clusters, an
    unknown `guard` or `order_term`, and a level not between 0 and 1.
    """
    confidence_level = checked_confidence_level(confidence_level)
    _refuse_unknown(guard, order_term)
    played = checked_tournament(first, second, points, weights, order_known, entries=entries)
    clustering, no_order = clustering_of(clusters, played.points.size), _no_order(played, order_term)
    guards = guards_of(played, order_term=no_order is None, always=guard == "always")
    fitted = _fitted(Strengths(played, guards, order_term=no_order is None), clustering, guard)
    df, of_entries = clustering.count - 1, fitted.of(slice(entries))
    of_order = _Fitted(reason=no_order) if no_order else fitted.of(slice(entries, None))
    ratings, lows, highs, standard_errors = of_entries.columns(df, confidence_level)
    order = [None if column is None else column[0] for column in of_order.columns(df, confidence_level)]
    return Ratings(
        ratings=ratings,
        lows=lows,
        highs=highs,
        standard_errors=standard_errors,
        covariance=_rows(of_entries.covariance),
        guard=guard,
        guarded=() if ratings is None else tuple(guards.entries.tolist()),
        guard_reason=None if ratings is None else _guard_reason(guards, guard, entries),
        order_term=no_order is None,
        order_effect=order[0],
        order_low=order[1],
        order_high=order[2],
        order_standard_error=order[3],
        confidence_level=confidence_level,
        df=df if of_entries.covariance is not None or of_order.covariance is not None else None,
        method=_method(clustering, order_term=no_order is None),
        n=played.points.size,
        n_clusters=None if clusters is None else clustering.count,
        apart=played.apart(),
        reason=of_entries.reason,
        order_reason=of_order.reason,
    )


def _refuse_unknown(guard: Guard, order_term: bool | None) -> None:
    if guard not in get_args(Guard):
        raise ValueError(f"guard: got {guard!r}, wanted one of {', '.join(get_args(Guard))}")
    if order_term not in (True, False, None):
        raise ValueError(f"order_term: got {order_term!r}, wanted true, false or nothing")


def _no_order(played: Tournament, order_term: bool | None) -> str | None:
    if order_term is False:
        return "no order term was requested"
    if played.order.size and not played.order.any():
        return "no order is known"
    if played.in_both_orders() or (order_term and played.order_is_identified()):
        return None
    separated = "separated from strength" + ("" if order_term else " without the ratings of third entries")
    return f"no two entries were shown in both orders: the order effect cannot be {separated}"


def _fitted(strengths: Strengths, clustering: Clustering, guard: Guard) -> _Fitted:
    if reason := _no_ratings(strengths, guard):
        return _Fitted(reason=reason)
    coefficients = strengths.coefficients()
    if coefficients is None:
        return _Fitted(reason="the likelihood maximisation did not converge")
    estimates = strengths.estimates(coefficients)
    if few := too_few(clustering.numbers.size, clustering, "judgement"):
        return _Fitted(estimates, None, few)
    return _Fitted(estimates, strengths.covariance(coefficients, clustering))


def _no_ratings(strengths: Strengths, guard: Guard) -> str | None:
    played, guards = strengths.played, strengths.guards
    if not played.first.size:
        return "no judgements: ratings need at least 1"
    if apart := played.apart():
        return f"entries {apart[0]} and {apart[1]} are not connected by comparisons: no common scale"
    if guard == "never" and guards.entries.size:
        return f"{_never_both(guards.entries.size, played.entries)}: no finite ratings without a guard"
    if guard == "never" and guards.order:
        return f"{EXPLAINED}: no finite order effect without a guard"
    return None


def _guard_reason(guards: Guards, guard: Guard, entries: int) -> str | None:
    added = "half a win and half a loss added to"
    if guard == "always":
        return f"as requested: {added} every entry{' and the order effect' if guards.order else ''}"
    reasons = []
    if guards.entries.size:
        reasons.append(f"{_never_both(guards.entries.size, entries)}: {added} each")
    if guards.order:
        reasons.append(f"{EXPLAINED}: {added} the order effect")
    return "; ".join(reasons) or None


def _never_both(guarded: int, entries: int) -> str:
    if guarded == entries:
        return "there is no largest group of entries that beat and lost to each other"
    alone = "1 entry" if guarded == 1 else f"{guarded} entries"
    return f"{alone} of {entries} never lost to the others or never beat them"


def _rows(matrix: FloatArray | None) -> tuple[tuple[float, ...], ...] | None:
    return None if matrix is None else tuple(tuple(row) for row in matrix.tolist())


def _method(clustering: Clustering, *, order_term: bool) -> str:
    model = "bradley-terry with an order term" if order_term else "bradley-terry"
    return f"{model}; {'heteroskedasticity' if clustering.all_singletons else 'cluster'}-robust t"


def cycles(net: ArrayLike) -> list[tuple[int, ...]]:
    """Return intransitive cycles among entries: one for each strongly connected component of the "beats" graph.

    `net`, shape (K, K), holds at [i, j] the wins of entry i over entry j minus those of j over i; 0 if they are level
    or were never compared. The components are Tarjan's (1972). Each is represented by a shortest cycle through its
    smallest entry, which comes first: (0, 2, 1) means that 0 beats 2, 2 beats 1 and 1 beats 0. Ties go to the first
    cycle in tuple order. Cycles are sorted by their first entry. Without cycles the entries can be ranked so that no
    entry beats one ranked above it.

    Raise ValueError for another shape, nan or inf, and if [j, i] is not minus [i, j].
    """
    beats = _beats(net)
    count, component = _components(beats)
    groups = [np.flatnonzero(component == number) for number in range(count)]
    return sorted(_shortest(beats, group.tolist()) for group in groups if group.size > 1)


def _beats(net: ArrayLike) -> NDArray[np.bool_]:
    array = np.asarray(net, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"net: got shape {array.shape}, wanted a row and a column for each entry")
    wrong = ~np.isfinite(array) | (array != -array.T)
    if wrong.any():
        i, j = (int(index) for index in np.argwhere(wrong)[0])
        got = f"{float(array[i, j])!r} against {float(array[j, i])!r}"
        raise ValueError(f"net[{i}, {j}]: got {got}, wanted a finite number and its opposite")
    return np.asarray(array > 0)


def _components(beats: NDArray[np.bool_]) -> tuple[int, NDArray[Any]]:
    """Return the number of strongly connected components, and the component of each entry, shape (K,)."""
    if not beats.size:
        return 0, np.zeros(0, dtype=np.intp)
    # Imported late, as in stats.proportions.
    from scipy.sparse import csgraph  # type: ignore[import-untyped, unused-ignore]

    count, component = csgraph.connected_components(beats.astype(np.int8), directed=True, connection="strong")
    return int(count), np.asarray(component)


def _shortest(beats: NDArray[np.bool_], group: list[int]) -> tuple[int, ...]:
    """Search breadth first from the smallest entry, smaller entries first; return the first path that closes."""
    start, seen = group[0], {group[0]}
    paths: list[tuple[int, ...]] = [(start,)]
    for path in paths:  # grows during the loop
        if beats[path[-1], start]:
            return path
        successors = [entry for entry in group if beats[path[-1], entry] and entry not in seen]
        seen.update(successors)
        paths.extend((*path, entry) for entry in successors)
    raise AssertionError("a strongly connected component has a path back from each of its entries")
