"""Length-controlled win rates: the rates at which entries would win at equal answer length, by one logistic regression
of all comparisons with cluster-robust covariance."""

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, refuse_where, vector_of_size
from evalflows.stats.clusters import Clustering, clustering_of, too_few
from evalflows.stats.proportions import IntervalEstimate, t_quantile

STEPS = 200
"""The maximum number of Newton steps. A maximum at log-odds of 10 takes about 15."""

CLOSE = 1e-9
"""Convergence: the largest change of a coefficient in the last Newton step, in log-odds."""

LONGEST = 50.0
"""The largest change of a coefficient in one Newton step, in log-odds; longer steps come from rounding."""

HALVINGS = 40
"""The maximum number of halvings of a step that decreases the likelihood; beyond it only rounding is left."""

Rows = Any
"""A matrix of shape (n, P), as a sparse array or dense: scipy, which has the type, is imported late."""

LARGEST_LEVERAGE = 0.99
"""Residuals are divided by the root of 1 - leverage, which is then at least 0.1."""

STEEPNESS = 2.0
"""The length term is tanh(2 x difference / root mean square difference). Simulated judges that prefer the sign, the
ratio or the difference of lengths leave less bias at 2 than at 1."""

PRIOR_GAMES = 4.0
"""The length and order terms have a log-F(4, 4) prior: 2 wins and 2 losses, a standard deviation of 1.1 in log-odds."""

MIN_CLUSTERS = 10
"""With fewer clusters, the cluster-robust standard error of a regression is too small too often."""

MIN_OVERLAP = 0.05
"""The share of comparisons in which the answer that is usually shorter has to be at least as long. In simulations of 20
entries and judges whose preference has another shape than the model's, the bias is 3 points or less above it, and 4 to
9 below."""


def probability(log_odds: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(log_odds))
    return np.asarray(np.where(log_odds >= 0, 1.0, small) / (1.0 + small), dtype=np.float64)


def logistic_fit(design: Rows, wins: FloatArray, losses: FloatArray) -> FloatArray | None:
    """Return the coefficients, shape (P,), that maximise sum(wins log p + losses log(1 - p)).

    p = 1 / (1 + exp(-design @ coefficients)), with `design` of shape (n, P). `wins` and `losses`, shape (n,), are at
    least 0 and can be fractional (Papke & Wooldridge 1996). The maximum is found by Newton's method from 0, halving
    each step until the likelihood, which is concave, does not decrease. Return None if the maximum does not exist or
    was not reached; callers have to ensure that it exists.
    """
    at = np.zeros(design.shape[1])
    for _ in range(STEPS):
        try:
            step = _newton_step(design, at, wins, losses)
        except np.linalg.LinAlgError:  # flat: counts differ so much in size that some are lost in rounding
            return None
        at = at + _halved(design, at, step, wins, losses)
        if np.abs(step).max(initial=0.0) <= CLOSE:
            return at
    return None


def information(design: Rows, coefficients: FloatArray, games: FloatArray) -> FloatArray:
    """Return the observed information, shape (P, P), at these coefficients with games (n,)."""
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    log_odds = design @ coefficients
    curvature = games * probability(log_odds) * probability(-log_odds)
    product = design.T @ (sparse.diags_array(curvature) @ design)
    return np.asarray(product.toarray() if sparse.issparse(product) else product, dtype=np.float64)


def _newton_step(design: Rows, at: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    log_odds = design @ at
    # Not 1 - p, which is all rounding error when p is almost 1.
    gradient = design.T @ (wins * probability(-log_odds) - losses * probability(log_odds))
    step = np.linalg.solve(information(design, at, wins + losses), gradient)
    return np.asarray(step * (LONGEST / max(float(np.abs(step).max(initial=0.0)), LONGEST)), dtype=np.float64)


def _halved(design: Rows, at: FloatArray, step: FloatArray, wins: FloatArray, losses: FloatArray) -> FloatArray:
    """Halve the step until the likelihood does not decrease by more than rounding."""
    before = _log_likelihood(design @ at, wins, losses)
    for _ in range(HALVINGS):
        if not _log_likelihood(design @ (at + step), wins, losses) < before - 1e-12 * abs(before):
            break
        step = step / 2
    return step


def _log_likelihood(log_odds: FloatArray, wins: FloatArray, losses: FloatArray) -> float:
    won, lost = -np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds)
    return float(wins @ won + losses @ lost)


def inverse_information(design: Rows, coefficients: FloatArray, games: FloatArray) -> FloatArray:
    """Return the covariance of the coefficients by the model, shape (P, P)."""
    return np.asarray(np.linalg.inv(information(design, coefficients, games)), dtype=np.float64)


def adjusted_for_leverage(
    residuals: FloatArray, design: Rows, games_variance: FloatArray, bread: FloatArray, groups: NDArray[Any]
) -> FloatArray:
    """Return the residuals, shape (n,), divided by sqrt(1 - leverage): HC2 (MacKinnon & White 1985).

    `games_variance`, shape (n,), is each row's part in the information, `bread` the inverse of all of it. Rows with the
    same number in `groups` share the sum of their leverages, as if they were one row.
    """
    _, codes = np.unique(groups, return_inverse=True)
    leverages = np.bincount(codes, weights=games_variance * _quadratic(design, bread))[codes]
    return np.asarray(residuals / np.sqrt(1 - np.minimum(leverages, LARGEST_LEVERAGE)), dtype=np.float64)


def sandwich(design: Rows, residuals: FloatArray, bread: FloatArray, clustering: Clustering) -> FloatArray:
    """Return the covariance of the coefficients, shape (P, P), with the factor G / (G - 1) of CR1.

    `clustering` is that of the first n rows (Cameron & Miller 2015); rows after them, which were added to the data, are
    units of their own. Needs at least two clusters.
    """
    sparse, n, count = _sparse(), clustering.numbers.size, clustering.count
    scores = sparse.diags_array(residuals) @ design
    members = sparse.csr_array((np.ones(n), (clustering.numbers, np.arange(n))), shape=(count, n))
    sums, added = members @ scores[:n], scores[n:]
    meat = count / (count - 1) * (sums.T @ sums) + added.T @ added
    return np.asarray(bread @ meat.toarray() @ bread, dtype=np.float64)


def _quadratic(rows: Rows, matrix: FloatArray) -> FloatArray:
    """Return x' matrix x for each sparse row x, shape (n,), from its few numbers that are not 0."""
    counts, starts = np.diff(rows.indptr), rows.indptr[:-1]
    total, filled = np.zeros(counts.size), np.arange(int(counts.max(initial=0)))
    places = [np.where(counts > k, starts + k, 0) for k in filled]
    numbers = [np.where(counts > k, rows.data[position], 0.0) for k, position in zip(filled, places, strict=True)]
    columns = [rows.indices[position] for position in places]
    for i, first in enumerate(columns):
        for j, second in enumerate(columns):
            total += numbers[i] * numbers[j] * matrix[first, second]
    return total


def _sparse() -> Any:
    # Late, as in stats.proportions.
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    return sparse


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """n comparisons of pairs of entries; all arrays have shape (n,)."""

    pair: NDArray[np.intp]  # the number of the pair
    points: FloatArray  # of the pair's first entry, 0 to 1
    longer_by: FloatArray  # how much longer its answer was
    order: FloatArray  # 1 if it was shown first, -1 if second, 0 if both orders were averaged
    clustering: Clustering

    def varies_within_pairs(self, numbers: FloatArray) -> bool:
        """Return whether any pair has different numbers."""
        low, high = np.full((2, int(self.pair.max(initial=-1)) + 1), [[np.inf], [-np.inf]])
        np.minimum.at(low, self.pair, numbers)
        np.maximum.at(high, self.pair, numbers)
        return bool(np.any(high > low))


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEqualLength:
    """The rate of each pair at equal length, shape (pairs,), and the standard error of its log-odds."""

    rates: FloatArray
    errors: FloatArray  # 0 if all points of the pair are fitted exactly, or there is only one cluster


class LengthModel:
    """log-odds = pair + length coefficient x length term + order coefficient x order: see `length_controlled_rates`."""

    def __init__(self, compared: Comparisons) -> None:
        self._compared, self._pairs = compared, int(compared.pair.max()) + 1
        terms = {"length": _length_term(compared.longer_by), "order": compared.order}
        self._terms = {name: term for name, term in terms.items() if compared.varies_within_pairs(term)}

    @property
    def terms(self) -> list[str]:
        """The names of the shared terms: those that vary within a pair."""
        return [*self._terms]

    def at_equal_length(self) -> AtEqualLength | None:
        """Return the rates; None if the likelihood has no maximum that can be found."""
        coefficients = logistic_fit(self._design, self._wins, self._games - self._wins)
        if coefficients is None:
            return None
        rates, slopes = self._rates(coefficients)
        if self._compared.clustering.count < 2:
            return AtEqualLength(rates=rates, errors=np.zeros(rates.size))
        variances = ((slopes @ self._covariance(coefficients)) * slopes).sum(axis=1)
        errors = np.sqrt(np.maximum(variances, 0.0)) / (rates * (1 - rates))
        return AtEqualLength(rates=rates, errors=np.where(self._exact(coefficients), 0.0, errors))

    def _rates(self, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the rates with both orders equally often, and their derivatives, shape (pairs, P)."""
        alone, effect = coefficients[: self._pairs], coefficients[-1] if "order" in self._terms else 0.0
        counts = np.bincount(self._compared.pair)
        one_order = np.bincount(self._compared.pair, weights=np.abs(self._compared.order)) / counts
        chances = [probability(alone + shown * effect) for shown in (1.0, -1.0, 0.0)]
        shares = [one_order / 2, one_order / 2, 1 - one_order]
        rates = sum(share * chance for share, chance in zip(shares, chances, strict=True))
        first, second, both = (share * p * (1 - p) for share, p in zip(shares, chances, strict=True))
        slopes = np.zeros((self._pairs, coefficients.size))
        slopes[:, : self._pairs] = np.diag(first + second + both)
        if "order" in self._terms:
            slopes[:, -1] = first - second
        return np.asarray(rates, dtype=np.float64), slopes

    def _covariance(self, coefficients: FloatArray) -> FloatArray:
        n, chance = self._compared.pair.size, probability(self._design @ coefficients)
        variance = self._games * chance * (1 - chance)
        bread = inverse_information(self._design, coefficients, self._games)
        residuals = self._wins - self._games * chance
        groups = self._compared.clustering.numbers * self._pairs + self._compared.pair
        residuals[:n] = adjusted_for_leverage(residuals[:n], self._design[:n], variance[:n], bread, groups)
        # The priors of terms have their own variance: at a coefficient of 0, their residuals would be 0.
        of_terms = slice(n + len(self._decided), None)
        residuals[of_terms] = np.sqrt(variance[of_terms])
        return sandwich(self._design, residuals, bread, self._compared.clustering)

    def _exact(self, coefficients: FloatArray) -> NDArray[np.bool_]:
        """Return for which pairs all points are fitted exactly, shape (pairs,)."""
        n, largest = self._compared.pair.size, np.zeros(self._pairs)
        residuals = self._compared.points - probability(self._design[:n] @ coefficients)
        np.maximum.at(largest, self._compared.pair, np.abs(residuals))
        return np.asarray(largest < 1e-9)

    @cached_property
    def _decided(self) -> NDArray[np.intp]:
        """The pairs with all points equal to 0 or to 1, to which half a win and half a loss are added."""
        counts, won = np.bincount(self._compared.pair), np.bincount(self._compared.pair, weights=self._compared.points)
        return np.flatnonzero((won <= 0) | (won >= counts))

    @cached_property
    def _design(self) -> Any:
        from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

        n = self._compared.pair.size
        of_pairs = sparse.csr_array((np.ones(n), (np.arange(n), self._compared.pair)), shape=(n, self._pairs))
        columns = [sparse.csr_array(term[:, None]) for term in self._terms.values()]
        added = np.concatenate([self._decided, self._pairs + np.arange(len(columns))]).astype(np.intp)
        return sparse.vstack(
            [sparse.hstack([of_pairs, *columns]), sparse.csr_array(np.eye(self._pairs + len(columns))[added])]
        ).tocsr()

    @cached_property
    def _games(self) -> FloatArray:
        """The weight of each row of the design: 1 for comparisons, and a cluster's average number for decided pairs."""
        clusters = np.unique(np.stack([self._compared.pair, self._compared.clustering.numbers]), axis=1)[0]
        per_cluster = np.bincount(self._compared.pair) / np.bincount(clusters)
        of_terms = np.full(len(self._terms), PRIOR_GAMES)
        return np.concatenate([np.ones(self._compared.pair.size), per_cluster[self._decided], of_terms])

    @cached_property
    def _wins(self) -> FloatArray:
        return np.concatenate([self._compared.points, self._games[self._compared.pair.size :] / 2])


def _length_term(longer_by: FloatArray) -> FloatArray:
    largest = float(np.abs(longer_by).max(initial=0.0))
    if not largest:
        return longer_by
    scaled = longer_by / largest  # so that squares do not overflow
    return np.asarray(np.tanh(STEEPNESS * scaled / np.sqrt(np.mean(scaled**2))), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControlled(IntervalEstimate):
    """The win rate of one entry over another at equal length, 0 to 1."""

    rate: float | None  # None with a reason
    standard_error: float | None
    method: str  # of the regression; of the intervals
    n: int  # comparisons of the two
    n_clusters: int | None  # of these; None without clusters


def length_controlled_rates(
    left: ArrayLike,
    right: ArrayLike,
    points: ArrayLike,
    longer_by: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    pairs: Sequence[tuple[int, int]],
    order: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> list[LengthControlled]:
    """Return for each of `pairs` the first entry's win rate over the second if answers were equally long.

    `left` and `right`, shape (n,), are entry numbers from 0. `points`, shape (n,), 0 to 1, are those of the left entry,
    and `longer_by`, shape (n,), says how much longer its answer was, in any unit. `order`, shape (n,), is 1 if it was
    shown first, -1 if second, 0 if both orders were averaged. All comparisons, also those of pairs not asked for, are
    in one regression of the points (fractional logit: Papke & Wooldridge 1996) on the pair, the length term
    tanh(2 longer_by / its root mean square) and the order (after Dubois et al. 2024). The coefficients of length and
    order are shared: they belong to the judge, and a pair alone determines them badly. The rate is the mean prediction
    without a difference in length, and with both orders equally often.

    The coefficients of length and order have a log-F(4, 4) prior, a standard deviation of 1.1 (Greenland & Mansournia
    2015): it hardly matters with several entries, and keeps the noise down with two. A pair with nothing but wins, or
    losses, has half a cluster's win and half its loss added. There is no coefficient of length for single entries, no
    difficulty of examples, and no cross-validated shrinkage: in simulations, they did not reduce the errors. With two
    entries, the rate is noisier than the plain one, as the length coefficient comes from the same few comparisons. It
    is the more accurate of the two only if the judge has a clear preference for length
    (docs/explanation/simulation.md).

    Standard errors are cluster-robust (CR1 with HC2 residuals: Cameron & Miller 2015, MacKinnon & White 1985) and
    include the uncertainty of the shared coefficients; intervals are t with G - 1 degrees of freedom, of the pair's
    clusters, in log-odds. `clusters` are n hashables (None is a cluster of its own), in general the examples. There is
    no interval with fewer than 10 clusters of a pair, or if all its points are fitted exactly. There is no rate without
    comparisons, nor if lengths do not overlap: if the answer that is usually shorter is at least as long in fewer than
    5 % of a pair's comparisons, the rate would be an extrapolation.

    It is assumed that longer answers of the same entry are not better or worse than its shorter ones. A judge that
    rightly prefers them is corrected too.

    Raise ValueError for points outside 0 to 1, an order other than -1, 0 and 1, entry numbers that are not whole or
    below 0, an entry compared with itself, nan or inf, lengths or shapes that do not fit, a nan among the clusters, and
    a level not between 0 and 1.
    """
    confidence_level, won = checked_confidence_level(confidence_level), finite_vector("points", points)
    refuse_where("points", won, (won < 0) | (won > 1), "0 to 1")
    sides = _sides(left, right, won.size)
    clustering = clustering_of(clusters, won.size)
    turned = np.where(sides[0] > sides[1], -1.0, 1.0)
    met, numbers = np.unique(np.sort(sides, axis=0), axis=1, return_inverse=True)
    compared = Comparisons(
        pair=numbers.reshape(-1),
        points=np.where(turned < 0, 1 - won, won),
        longer_by=turned * vector_of_size("longer_by", longer_by, won.size),
        order=turned * _order(order, won.size),
        clustering=clustering,
    )
    judge = _Judge(compared, confidence_level, has_clusters=clusters is not None)
    pair_numbers = {(int(low), int(high)): number for number, (low, high) in enumerate(met.T)}
    return [judge.rate(pair_numbers.get((min(pair), max(pair))), turned=pair[0] > pair[1]) for pair in pairs]


def _sides(left: ArrayLike, right: ArrayLike, n: int) -> NDArray[np.intp]:
    """Return the checked entry numbers, shape (2, n)."""
    sides = [vector_of_size(name, numbers, n) for name, numbers in (("left", left), ("right", right))]
    for name, numbers in zip(("left", "right"), sides, strict=True):
        refuse_where(name, numbers, (numbers < 0) | (numbers != np.floor(numbers)), "a whole number from 0")
    refuse_where("right", sides[1], sides[0] == sides[1], "another entry than the left")
    return np.array(sides, dtype=np.float64).reshape(2, n).astype(np.intp)


def _order(order: ArrayLike | None, n: int) -> FloatArray:
    if order is None:
        return np.zeros(n)
    shown = vector_of_size("order", order, n)
    refuse_where("order", shown, ~np.isin(shown, (-1.0, 0.0, 1.0)), "1, -1 or 0")
    return shown


class _Judge:
    """The regression of all comparisons, and the estimates of single pairs."""

    def __init__(self, compared: Comparisons, confidence_level: float, *, has_clusters: bool) -> None:
        self._compared, self._confidence_level, self._has_clusters = compared, confidence_level, has_clusters
        model = LengthModel(compared) if compared.pair.size else None
        self._fit = model.at_equal_length() if model else None
        self._method = f"logistic on {', '.join(['pair', *(model.terms if model else [])])}; cluster-robust t"

    def rate(self, pair: int | None, *, turned: bool) -> LengthControlled:
        """Return the rate of the first entry of the pair with this number, or if `turned` of its second."""
        rows = np.flatnonzero(self._compared.pair == -1 if pair is None else self._compared.pair == pair)
        _, numbers = np.unique(self._compared.clustering.numbers[rows], return_inverse=True)
        clustering = Clustering(numbers=numbers, count=int(numbers.max(initial=-1)) + 1)
        why_not = self._no_rate(rows)
        no_interval = why_not or self._no_interval(pair, clustering)
        centre, error = (0.0, 0.0) if why_not else self._log_odds(pair, turned)
        half = 0.0 if no_interval else t_quantile(self._confidence_level, clustering.count - 1) * error
        low, rate, high = (float(probability(np.asarray(each))) for each in (centre - half, centre, centre + half))
        return LengthControlled(
            rate=None if why_not else rate,
            low=None if no_interval else low,
            high=None if no_interval else high,
            standard_error=None if no_interval else error * rate * (1 - rate),
            confidence_level=self._confidence_level,
            method=self._method,
            n=rows.size,
            n_clusters=clustering.count if self._has_clusters else None,
            reason=no_interval,
        )

    def _log_odds(self, pair: int | None, turned: bool) -> tuple[float, float]:
        assert self._fit is not None and pair is not None
        centre = math.log(self._fit.rates[pair]) - math.log1p(-self._fit.rates[pair])
        return -centre if turned else centre, float(self._fit.errors[pair])

    def _no_rate(self, rows: NDArray[np.intp]) -> str | None:
        if not rows.size:
            return "no comparisons: a rate needs at least 1"
        longer = self._compared.longer_by[rows]
        shorter = min(int(np.sum(longer >= 0)), int(np.sum(longer <= 0)))
        if shorter < MIN_OVERLAP * rows.size:
            text = f"in {shorter} of {rows.size} comparisons, the answer that is usually shorter is at least as long"
            return f"lengths do not overlap: {text}; a rate at equal length needs {MIN_OVERLAP:.0%}"
        return "the likelihood maximisation did not converge" if self._fit is None else None

    def _no_interval(self, pair: int | None, clustering: Clustering) -> str | None:
        if few := too_few(clustering.numbers.size, clustering, "comparison"):
            return few
        noun = "comparisons" if clustering.all_singletons else "clusters"
        if clustering.count < MIN_CLUSTERS:
            return f"{clustering.count} {noun}: an interval needs at least {MIN_CLUSTERS}"
        if self._fit is not None and not self._fit.errors[pair]:
            same = f"the points of all {clustering.count} {noun} are fitted exactly"
            return f"{same}: no spread to compute an interval from"
        return None
