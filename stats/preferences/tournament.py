"""Pairwise judgements of entries, and which of their ratings the judgements determine."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where, vector_of_size

Entries = NDArray[np.intp]


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
    # Late, as in stats.distributions.
    from scipy.sparse import csgraph  # type: ignore[import-untyped, unused-ignore]

    return csgraph
