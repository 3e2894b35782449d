"""Pairwise judgements counted by pair and cluster."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where, vector_of_size
from evalflows.stats.clusters import Clustering

Entries = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgements:
    """n judgements of two entries each; all arrays have shape (n,)."""

    first: Entries  # the entry shown first
    second: Entries
    points: FloatArray  # of the first entry: 0, 0.5 or 1
    weights: FloatArray

    def in_one_order(self) -> "Judgements":
        """Return the judgements with the smaller entry number first, ignoring the order shown."""
        swapped = self.first > self.second
        return Judgements(
            first=np.minimum(self.first, self.second),
            second=np.maximum(self.first, self.second),
            points=np.where(swapped, 1.0 - self.points, self.points),
            weights=self.weights,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament:
    """Judgements counted in C cells, the ordered pairs of entries, and G clusters."""

    first: Entries  # shape (C,): the entry shown first
    second: Entries
    wins: FloatArray  # shape (G, C): weighted wins of the first entry, a tie as half a win
    losses: FloatArray
    entries: int

    def pairs(self) -> list[tuple[int, int]]:
        """Return each pair of entries that were compared once, the smaller number first."""
        return sorted({(min(a, b), max(a, b)) for a, b in self._cells()})

    def in_both_orders(self) -> bool:
        """Return whether any two entries were shown in both orders."""
        return len(self.pairs()) < self.first.size

    def apart(self) -> tuple[int, int] | None:
        """Return (0, the first entry not connected to entry 0 by comparisons); None if all are connected."""
        connected = np.eye(self.entries, dtype=bool)
        connected[self.first, self.second] = connected[self.second, self.first] = True
        reached = np.linalg.matrix_power(connected, self.entries)[0]
        return None if reached.all() else (0, int(reached.argmin()))

    def _cells(self) -> list[tuple[int, int]]:
        return list(zip(self.first.tolist(), self.second.tolist(), strict=True))


def checked_judgements(
    first: ArrayLike, second: ArrayLike, points: ArrayLike, weights: ArrayLike | None, entries: int
) -> Judgements:
    """Return the judgements as arrays. Raise ValueError as documented in `bradley_terry`."""
    if isinstance(entries, bool) or not isinstance(entries, int | np.integer) or entries < 2:
        raise ValueError(f"entries: got {entries!r}, wanted a whole number of at least 2")
    won = finite_vector("points", points)
    refuse_where("points", won, ~np.isin(won, (0.0, 0.5, 1.0)), "0, 0.5 or 1")
    counts = np.ones(won.size) if weights is None else vector_of_size("weights", weights, won.size)
    refuse_where("weights", counts, counts <= 0, "more than 0")
    shown = [vector_of_size(name, numbers, won.size) for name, numbers in (("first", first), ("second", second))]
    for name, numbers in zip(("first", "second"), shown, strict=True):
        wrong = (numbers < 0) | (numbers >= entries) | (numbers != np.floor(numbers))
        refuse_where(name, numbers, wrong, f"a whole number from 0 to {entries - 1}")
    refuse_where("second", shown[1], shown[0] == shown[1], "another entry than the first")
    return Judgements(first=shown[0].astype(np.intp), second=shown[1].astype(np.intp), points=won, weights=counts)


def tournament(judgements: Judgements, clustering: Clustering, entries: int) -> Tournament:
    """Count the judgements by ordered pair of entries and by cluster."""
    keys, cells = np.unique(judgements.first * entries + judgements.second, return_inverse=True)
    shape = (clustering.count, keys.size)
    places = clustering.numbers * keys.size + cells
    wins, losses = (
        np.bincount(places, weights=judgements.weights * share, minlength=clustering.count * keys.size).reshape(shape)
        for share in (judgements.points, 1.0 - judgements.points)
    )
    return Tournament(first=keys // entries, second=keys % entries, wins=wins, losses=losses, entries=entries)
