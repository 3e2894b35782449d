"""Maximum-likelihood ratings of a tournament, guarded where they would be infinite, and their covariance."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalflows.stats.arrays import FloatArray
from evalflows.stats.clusters import Clustering
from evalflows.stats.preferences.logistic import logistic_fit, probability
from evalflows.stats.preferences.sandwich import adjusted_for_leverage, inverse_information, sandwich
from evalflows.stats.preferences.tournament import Entries, Tournament


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
    # Late, as in stats.distributions.
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    return sparse
