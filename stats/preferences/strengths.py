"""Maximum-likelihood fits of a tournament, for the judgements and for resamples of them."""

from collections.abc import Iterator

import numpy as np

from evalflows.stats.arrays import FloatArray
from evalflows.stats.preferences.logistic import logistic_fits
from evalflows.stats.preferences.tournament import Entries, Tournament

MAX_BLOCK_SIZE = 4_000_000
"""The number of clusters drawn, over all resamples, before they are summed."""

MIN_HALF_WIN = 1e-6
"""The smallest value of a drawn half win: one in a thousand is below it, too few to move the end of an interval."""


class Strengths:
    """Ratings of K entries, and an order effect on request, by the likelihood described in `bradley_terry`.

    Fits have the shape (..., K) or, with the order effect last, (..., K + 1), in log-odds; nan if there is no maximum.
    """

    def __init__(self, played: Tournament, *, order_term: bool) -> None:
        self._played, self._order_term = played, order_term
        rows = _differences(played.first, played.second, played.entries)
        if order_term:
            rows = np.column_stack([rows, np.ones(len(rows))])
        halves = self._halves()
        self._design, self._n_halves = np.vstack([rows, halves]), len(halves)

    def no_ratings(self) -> str | None:
        """Return why these judgements have no ratings; None if they do."""
        if not self._played.first.size:
            return "no judgements: ratings need at least 1"
        if apart := self._played.apart():
            return f"entries {apart[0]} and {apart[1]} are not connected by comparisons: no common scale"
        return None

    def fit(self) -> FloatArray:
        """Return the ratings from all judgements."""
        ratings: FloatArray = self._fits(*self._sums(), np.full((2, 1, self._n_halves), 0.5))[0]
        return ratings

    def resampled(self, resamples: int, rng: np.random.Generator) -> FloatArray:
        """Return the ratings of `resamples` resamples of the clusters, with the added halves drawn too."""
        parts = [(counts @ self._played.wins, counts @ self._played.losses) for counts in self._drawn(resamples, rng)]
        wins, losses = (np.vstack(part) for part in zip(*parts, strict=True))
        halves = np.maximum(rng.gamma(0.5, size=(2, resamples, self._n_halves)), MIN_HALF_WIN)
        return self._fits(wins, losses, halves)

    def no_interval(self, fits: FloatArray) -> str | None:
        """Return why these resamples give no interval; None if they do."""
        if missing := int(np.isnan(fits).any(axis=1).sum()):
            return f"{missing} of {len(fits)} resamples did not converge"
        return None

    def _halves(self) -> FloatArray:
        """Return the design rows to which half a win and half a loss are added."""
        terms = self._played.entries - 1 + self._order_term
        pairs = np.array(self._played.pairs(), dtype=np.intp).reshape(-1, 2)
        rows = _differences(pairs[:, 0], pairs[:, 1], self._played.entries)
        if not self._order_term:
            return rows
        return np.vstack([np.column_stack([rows, np.zeros(len(rows))]), np.eye(terms)[-1:]])

    def _sums(self) -> tuple[FloatArray, FloatArray]:
        return self._played.wins.sum(axis=0, keepdims=True), self._played.losses.sum(axis=0, keepdims=True)

    def _drawn(self, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        """Yield batches of resamples: how often each cluster was drawn, shape (batch, G)."""
        clusters = len(self._played.wins)
        batch = max(1, MAX_BLOCK_SIZE // clusters)
        for done in range(0, resamples, batch):
            count = min(batch, resamples - done)
            drawn = rng.integers(0, clusters, (count, clusters)) + clusters * np.arange(count)[:, None]
            counts = np.bincount(drawn.ravel(), minlength=count * clusters)
            yield counts.reshape(count, clusters).astype(np.float64)

    def _fits(self, wins: FloatArray, losses: FloatArray, halves: FloatArray) -> FloatArray:
        fits = logistic_fits(self._design, np.hstack([wins, halves[0]]), np.hstack([losses, halves[1]]))
        entries = self._played.entries
        ratings = np.column_stack([fits[:, : entries - 1], np.zeros(len(fits))])
        return np.column_stack([ratings - ratings.mean(axis=1, keepdims=True), fits[:, entries - 1 :]])


def _differences(first: Entries, second: Entries, entries: int) -> FloatArray:
    """Return design rows for the rating of the first minus that of the second; the last entry's rating is 0."""
    return np.asarray((np.eye(entries)[first] - np.eye(entries)[second])[:, :-1])
