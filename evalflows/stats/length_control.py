"""Length-controlled win rates: the rates at which entries would win at equal answer length."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, refuse_where, vector_of_size
from evalflows.stats.clusters import Clustering, clustering_of, too_few
from evalflows.stats.distributions import t_quantile
from evalflows.stats.preferences.length_model import Comparisons, LengthModel
from evalflows.stats.preferences.logistic import probability

MIN_CLUSTERS = 10
"""With fewer clusters, the cluster-robust standard error of a regression is too small too often."""

MIN_OVERLAP = 0.05
"""The share of comparisons in which the answer that is usually shorter has to be at least as long. In simulations of 20
entries and judges whose preference has another shape than the model's, the bias is 3 points or less above it, and 4 to
9 below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControlled:
    """The win rate of one entry over another at equal length, 0 to 1."""

    rate: float | None  # None with a reason
    low: float | None  # None with a reason, like `high` and `standard_error`
    high: float | None
    standard_error: float | None
    confidence_level: float  # the confidence level, 0 to 1
    method: str  # of the regression; of the intervals
    n: int  # comparisons of the two
    n_clusters: int | None  # of these; None without clusters
    reason: str | None  # why the rate or its interval is missing; None if both are present


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
    is the more accurate of the two only if the judge has a clear preference for length (docs/simulation.md).

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
    place = {(int(low), int(high)): number for number, (low, high) in enumerate(met.T)}
    return [judge.rate(place.get((min(pair), max(pair))), turned=pair[0] > pair[1]) for pair in pairs]


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
