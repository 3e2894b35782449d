"""Who met whom and how it went: judgements counted by pair and cluster, and whether strengths can be told from them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stats.arrays import FloatArray, finite_vector, refuse_where
from stats.clusters import Clustering

Entries = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgements:
    """n judgements of two entries each, of shape (n,) all."""

    first: Entries  # shown first
    second: Entries
    points: FloatArray  # of the first: 0, 0.5 or 1
    weights: FloatArray

    def in_one_order(self) -> "Judgements":
        """The same with the smaller number first, as if the order did not matter."""
        turned = self.first > self.second
        return Judgements(
            first=np.minimum(self.first, self.second),
            second=np.maximum(self.first, self.second),
            points=np.where(turned, 1.0 - self.points, self.points),
            weights=self.weights,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament:
    """Judgements by cell: by who was shown first and who second. C cells, G clusters."""

    first: Entries  # shape (C,)
    second: Entries
    wins: FloatArray  # shape (G, C): weight of the wins of the first, a tie as half a win
    losses: FloatArray
    entries: int

    def pairs(self) -> list[tuple[int, int]]:
        """Every two entries that met, once, the smaller number first."""
        return sorted({(min(a, b), max(a, b)) for a, b in self._cells()})

    def in_both_orders(self) -> bool:
        """Whether any two entries met in both orders."""
        return len(self.pairs()) < self.first.size

    def apart(self) -> tuple[int, int] | None:
        """An entry that never met the first, not even by way of others: (0, it). None if there is no such entry."""
        one = self.wins.sum(axis=0, keepdims=True) + self.losses.sum(axis=0, keepdims=True)
        ways = _shortest_ways(self, one, one, 0.0)[0, 0]
        return None if np.isfinite(ways).all() else (0, int(np.isinf(ways).argmax()))

    def _cells(self) -> list[tuple[int, int]]:
        return list(zip(self.first.tolist(), self.second.tolist(), strict=True))


def checked_judgements(
    first: ArrayLike, second: ArrayLike, points: ArrayLike, weights: ArrayLike | None, entries: int
) -> Judgements:
    """The judgements as arrays. Raises ValueError for what `bradley_terry` says it does."""
    if isinstance(entries, bool) or not isinstance(entries, int | np.integer) or entries < 2:
        raise ValueError(f"entries: got {entries!r}, wanted a whole number of at least 2")
    won = finite_vector("points", points)
    refuse_where("points", won, ~np.isin(won, (0.0, 0.5, 1.0)), "0, 0.5 or 1")
    counts = np.ones(won.size) if weights is None else _beside("weights", weights, won.size)
    refuse_where("weights", counts, counts <= 0, "more than 0")
    shown = [_beside(name, side, won.size) for name, side in (("first", first), ("second", second))]
    for name, side in zip(("first", "second"), shown, strict=True):
        wrong = (side < 0) | (side >= entries) | (side != np.floor(side))
        refuse_where(name, side, wrong, f"a whole number from 0 to {entries - 1}")
    refuse_where("second", shown[1], shown[0] == shown[1], "another entry than the first")
    return Judgements(first=shown[0].astype(np.intp), second=shown[1].astype(np.intp), points=won, weights=counts)


def _beside(name: str, values: ArrayLike, n: int) -> FloatArray:
    array = finite_vector(name, values)
    if array.size != n:
        raise ValueError(f"{name}: got {array.size}, wanted as many as the {n} points")
    return array


def tournament(judgements: Judgements, clustering: Clustering, entries: int) -> Tournament:
    """The judgements counted: in as many cells as there are ordered pairs among them, for each cluster."""
    keys, cells = np.unique(judgements.first * entries + judgements.second, return_inverse=True)
    shape = (clustering.count, keys.size)
    places = clustering.numbers * keys.size + cells
    wins, losses = (
        np.bincount(places, weights=judgements.weights * share, minlength=clustering.count * keys.size).reshape(shape)
        for share in (judgements.points, 1.0 - judgements.points)
    )
    return Tournament(first=keys // entries, second=keys % entries, wins=wins, losses=losses, entries=entries)


def has_maximum(played: Tournament, wins: FloatArray, losses: FloatArray, *, order_term: bool) -> NDArray[np.bool_]:
    """Whether the likelihood has a maximum, for each of B ways to weigh the cells: wins and losses of shape (B, C).

    Without an order term: whether from every entry a chain of wins leads to every other (Ford 1957). With one,
    strengths and order must moreover not explain all results together. Ascribe +1 to a win of who was shown first, -1
    to one of who was shown second: there must be a circle of wins with a sum above 0, and one with a sum below; without
    the latter, say, the order could grow without bound, the strengths along with it, and no result would speak against
    it (the overlap of Albert & Anderson 1984, here of differences along the edges of a graph).
    """
    down, up = (_shortest_ways(played, wins, losses, sign) for sign in (1.0, -1.0))
    chained = np.isfinite(down).all(axis=(1, 2))
    if not order_term:
        return np.asarray(chained)
    circles = [np.diagonal(ways, axis1=1, axis2=2).min(axis=1) < 0 for ways in (down, up)]
    return np.asarray(chained & circles[0] & circles[1])


def _shortest_ways(played: Tournament, wins: FloatArray, losses: FloatArray, sign: float) -> FloatArray:
    """From each entry to each by chains of wins, shape (B, K, K); inf without one (Floyd 1962).

    A win of who was shown first is `sign` long, one of who was shown second -sign.
    """
    entries = played.entries
    ways = np.full((len(wins), entries, entries), np.inf)
    ways[:, range(entries), range(entries)] = 0.0
    for cell, (first, second) in enumerate(zip(played.first.tolist(), played.second.tolist(), strict=True)):
        for winner, loser, won, length in ((first, second, wins, sign), (second, first, losses, -sign)):
            edge = np.where(won[:, cell] > 0, length, np.inf)
            ways[:, winner, loser] = np.minimum(ways[:, winner, loser], edge)
    for by in range(entries):
        # A circle below 0 would be gone round again and again; that it is below 0 is enough.
        ways = np.maximum(np.minimum(ways, ways[:, :, by, None] + ways[:, None, by, :]), -float(entries))
    return ways
