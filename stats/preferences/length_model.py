"""One logistic regression of all comparisons on their pair of entries, the difference in length, and the order."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalflows.stats.arrays import FloatArray
from evalflows.stats.clusters import Clustering
from evalflows.stats.preferences.logistic import logistic_fit, probability
from evalflows.stats.preferences.sandwich import adjusted_for_leverage, inverse_information, sandwich

STEEPNESS = 2.0
"""The length term is tanh(2 x difference / root mean square difference). Simulated judges that prefer the sign, the
ratio or the difference of lengths leave less bias at 2 than at 1."""

PRIOR_GAMES = 4.0
"""The length and order terms have a log-F(4, 4) prior: 2 wins and 2 losses, a standard deviation of 1.1 in log-odds."""


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
