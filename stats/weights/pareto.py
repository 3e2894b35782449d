"""The Pareto front of systems compared by several criteria."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where
from evalflows.stats.clusters import clustering_of

ROUNDING = 1e-12
"""Values that differ by at most this fraction of the largest size of their criterion count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoFront:
    """Which of S systems no other system dominates."""

    on_front: tuple[bool, ...]
    dominated_by: tuple[int | None, ...]  # a system on the front that dominates it; None on the front
    shares: tuple[float, ...] | None  # of the resamples with the system on the front; None without resamples
    resamples: int | None


def pareto_front(
    values: ArrayLike, higher_is_better: Sequence[bool], *, resamples: ArrayLike | None = None
) -> ParetoFront:
    """Return the systems that no other dominates (Pareto 1906).

    One system dominates another if it is at least as good by every criterion and better by one. `values`, shape (S, D),
    are in any units; `higher_is_better` has one entry for each of the D criteria. Equal systems do not dominate each
    other. For a dominated system, `dominated_by` is the first system on the front that dominates it; there always is
    one, because dominance is transitive. `resamples`, shape (B, S, D), such as those of `means_of_examples`, show how
    certain the front is: a system that is barely on it is on the front of about half of them.

    Raise ValueError for other shapes, and for a nan or inf.
    """
    table = _criteria("values", values, (2,), higher_is_better)
    dominated = _dominated(table)
    on_front: NDArray[np.bool_] = np.logical_not(dominated.any(axis=0))
    drawn = None if resamples is None else _criteria("resamples", resamples, (3,), higher_is_better)
    if drawn is not None and (drawn.shape[1:] != table.shape or not len(drawn)):
        raise ValueError(f"resamples: got shape {drawn.shape}, wanted (B, {table.shape[0]}, {table.shape[1]})")
    front = [~_dominated(resample).any(axis=0) for resample in drawn] if drawn is not None else None
    return ParetoFront(
        on_front=tuple(on_front.tolist()),
        dominated_by=tuple(_first(dominated[:, system] & on_front) for system in range(len(table))),
        shares=None if front is None else tuple(np.mean(front, axis=0).tolist()),
        resamples=None if drawn is None else len(drawn),
    )


def means_of_examples(
    values: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    clusters: Sequence[Hashable] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[FloatArray, FloatArray | None]:
    """Return the mean of each system by each criterion, shape (S, D), and its bootstrap resamples, shape (B, S, D).

    `values`, shape (S, D, N), are in any units, of the same N examples, nan if missing; a criterion uses the examples
    that have a value for all systems. `weights`, shape (D, N), above 0, are inverse sampling probabilities; `clusters`,
    N hashables, are drawn with replacement, jointly for all systems and criteria (Efron 1979). An example with cluster
    None is its own cluster. Resamples in which a criterion has no example are dropped. The resamples are None with
    fewer than two clusters.

    Raise ValueError for other shapes, for a weight not above 0, and for a criterion without any complete example.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 3 or 0 in table.shape:
        raise ValueError(f"values: got shape {table.shape}, wanted systems, criteria and examples")
    known = np.asarray(~np.isnan(table).any(axis=0))
    counts = np.where(known, _example_weights(weights, known.shape), 0.0)
    refuse_where("values", counts.sum(axis=1), counts.sum(axis=1) == 0, "an example with a value for all systems")
    clustering = clustering_of(clusters, table.shape[2])
    membership = (np.arange(clustering.count)[:, None] == clustering.numbers).astype(np.float64)
    sums = np.einsum("sdn,gn->gsd", np.where(known, table, 0.0) * counts, membership)
    sizes = np.einsum("dn,gn->gd", counts, membership)[:, None]
    means = np.asarray(sums.sum(axis=0) / sizes.sum(axis=0))
    if clustering.count < 2:
        return means, None
    equal = np.full(clustering.count, 1 / clustering.count)
    drawn = np.random.default_rng(seed).multinomial(clustering.count, equal, resamples)
    drawn_sizes = np.tensordot(drawn, sizes, 1)
    complete = (drawn_sizes > 0).all(axis=(1, 2))
    return means, np.asarray(np.tensordot(drawn[complete], sums, 1) / drawn_sizes[complete])


def _example_weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> FloatArray:
    if weights is None:
        return np.ones(shape)
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"weights: got shape {array.shape}, wanted {shape}")
    flat = finite_vector("weights", array.ravel())
    refuse_where("weights", flat, flat <= 0, "more than 0")
    return array


def _criteria(name: str, values: ArrayLike, dimensions: tuple[int, ...], higher: Sequence[bool]) -> FloatArray:
    """Return the checked values, with the sign of each criterion set so that higher is better."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in dimensions or 0 in array.shape[-2:] or array.shape[-1] != len(higher):
        raise ValueError(f"{name}: got shape {array.shape} and {len(higher)} directions, wanted one per column")
    if not np.isfinite(array).all():
        place = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name}{list(place)}: got {float(array[place])!r}, wanted a finite number")
    return np.asarray(array * np.where(np.asarray(higher, dtype=bool), 1.0, -1.0))


def _dominated(table: FloatArray) -> NDArray[np.bool_]:
    """Return whether each system (row) dominates each other (column), shape (S, S)."""
    close = ROUNDING * np.abs(table).max(axis=0)
    ahead = table[:, None] - table[None]
    return np.asarray((ahead >= -close).all(axis=2) & (ahead > close).any(axis=2))


def _first(which: NDArray[np.bool_]) -> int | None:
    return int(which.argmax()) if which.any() else None
