"""The likelihood of a tournament under strengths: where it is largest, for the judgements and for resamples of them."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stats.arrays import FloatArray
from stats.logistic import CLOSE, logistic_fits
from stats.tournament import Entries, Tournament, has_maximum

AT_ONCE = 4_000_000
"""How many clusters are drawn, over resamples, before they are summed up."""

LEAST = 1e-6
"""A half win that is drawn smaller counts as this: one in a thousand, and too few to move an end of an interval."""


class Strengths:
    """Ratings of K entries, and an order effect if asked for, by the likelihood that `stats.ratings` describes.

    Fits have the shape (..., K) or, with the order last, (..., K + 1), in log-odds, nan where there is none.
    """

    def __init__(self, played: Tournament, *, order_term: bool, guarded: bool) -> None:
        self._played, self._order_term, self._guarded = played, order_term, guarded
        rows = _differences(played.first, played.second, played.entries)
        if order_term:
            rows = np.column_stack([rows, np.ones(len(rows))])
        halves = self._halves()
        self._design, self._n_halves = np.vstack([rows, halves]), len(halves)

    def unknowable(self) -> str | None:
        """Why there are no ratings of these judgements; None if there are."""
        if not self._played.first.size:
            return "no judgements: ratings need at least 1"
        if apart := self._played.apart():
            return f"entries {apart[0]} and {apart[1]} never met, not even by way of others: no scale holds both"
        if self._guarded or self._have_maximum(*self._sums())[0]:
            return None
        explained = "strength and order explain all results" if self._order_term else "some never lost to the others"
        return f"{explained}: without the guard the likelihood has no maximum"

    def fit(self) -> FloatArray:
        """The ratings of the judgements as they are."""
        one: FloatArray = self._fits(*self._sums(), np.full((2, 1, self._n_halves), 0.5))[0]
        return one

    def resampled(self, resamples: int, rng: np.random.Generator) -> FloatArray:
        """The ratings of `resamples` resamples of the clusters, with the guard's halves drawn too."""
        parts = [(drawn @ self._played.wins, drawn @ self._played.losses) for drawn in self._drawn(resamples, rng)]
        wins, losses = (np.vstack(each) for each in zip(*parts, strict=True))
        halves = np.maximum(rng.gamma(0.5, size=(2, resamples, self._n_halves)), LEAST)
        there = np.full(resamples, True) if self._guarded else self._have_maximum(wins, losses)
        fits = np.full((resamples, self._played.entries + self._order_term), np.nan)
        fits[there] = self._fits(wins[there], losses[there], halves[:, there])
        return fits

    def no_interval(self, fits: FloatArray) -> str | None:
        """Why the spread of these resamples is no interval; None if it is."""
        if missing := int(np.isnan(fits).any(axis=1).sum()):
            what = "maximum of the likelihood within reach" if self._guarded else "maximum of the likelihood"
            return f"{missing} of {len(fits)} resamples have no {what}"
        if np.ptp(fits, axis=0).max() <= CLOSE:
            return "all resamples have the same ratings: no spread to reckon an interval from"
        return None

    def _halves(self) -> FloatArray:
        """What the guard adds half a win and half a loss to: rows like those of the cells."""
        terms = self._played.entries - 1 + self._order_term
        if not self._guarded:
            return np.zeros((0, terms))
        pairs = np.array(self._played.pairs(), dtype=np.intp).reshape(-1, 2)
        rows = _differences(pairs[:, 0], pairs[:, 1], self._played.entries)
        if not self._order_term:
            return rows
        return np.vstack([np.column_stack([rows, np.zeros(len(rows))]), np.eye(terms)[-1:]])

    def _sums(self) -> tuple[FloatArray, FloatArray]:
        return self._played.wins.sum(axis=0, keepdims=True), self._played.losses.sum(axis=0, keepdims=True)

    def _have_maximum(self, wins: FloatArray, losses: FloatArray) -> NDArray[np.bool_]:
        return has_maximum(self._played, wins, losses, order_term=self._order_term)

    def _drawn(self, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        """How often each cluster is in each of some resamples, shape (some, G)."""
        clusters = len(self._played.wins)
        some = max(1, AT_ONCE // clusters)
        for done in range(0, resamples, some):
            count = min(some, resamples - done)
            drawn = rng.integers(0, clusters, (count, clusters)) + clusters * np.arange(count)[:, None]
            counts = np.bincount(drawn.ravel(), minlength=count * clusters)
            yield counts.reshape(count, clusters).astype(np.float64)

    def _fits(self, wins: FloatArray, losses: FloatArray, halves: FloatArray) -> FloatArray:
        found = logistic_fits(self._design, np.hstack([wins, halves[0]]), np.hstack([losses, halves[1]]))
        entries = self._played.entries
        ratings = np.column_stack([found[:, : entries - 1], np.zeros(len(found))])
        return np.column_stack([ratings - ratings.mean(axis=1, keepdims=True), found[:, entries - 1 :]])


def _differences(first: Entries, second: Entries, entries: int) -> FloatArray:
    """Rows that have the rating of the first less that of the second; that of the last entry is 0."""
    return np.asarray((np.eye(entries)[first] - np.eye(entries)[second])[:, :-1])
