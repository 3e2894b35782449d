"""Who is beaten in nothing: the Pareto front of systems by several criteria."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where
from evalflows.stats.clusters import clustering_of

ROUNDING = 1e-12
"""Values that differ by no more than this part of the criterion's largest size are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoFront:
    """Which of S systems no other beats everywhere."""

    on_front: tuple[bool, ...]
    dominated_by: tuple[int | None, ...]  # one on the front that is at least as good in all, and better in some
    shares: tuple[float, ...] | None  # of the resamples in which each is on the front; None without resamples
    resamples: int | None


def pareto_front(
    values: ArrayLike, higher_is_better: Sequence[bool], *, resamples: ArrayLike | None = None
) -> ParetoFront:
    """The systems that no other dominates: is at least as good as in every criterion, and better in one (Pareto 1906).

    `values` of shape (S, D), in any units, `higher_is_better` for each of the D criteria. Equal systems dominate
    neither each other. Of a dominated one, the first on the front that dominates it is named: there always is one, as
    dominance is transitive. `resamples`, shape (B, S, D), are the values of examples drawn anew, for how sure the front
    is: a system that is on it by a hair is in about half of them.

    Raises ValueError for other shapes, and for a nan or inf.
    """
    table = _criteria("values", values, (2,), higher_is_better)
    beaten = _dominated(table)
    on_front: NDArray[np.bool_] = np.logical_not(beaten.any(axis=0))
    drawn = None if resamples is None else _criteria("resamples", resamples, (3,), higher_is_better)
    if drawn is not None and (drawn.shape[1:] != table.shape or not len(drawn)):
        raise ValueError(f"resamples: got shape {drawn.shape}, wanted (B, {table.shape[0]}, {table.shape[1]})")
    front = [~_dominated(one).any(axis=0) for one in drawn] if drawn is not None else None
    return ParetoFront(
        on_front=tuple(on_front.tolist()),
        dominated_by=tuple(_first(beaten[:, system] & on_front) for system in range(len(table))),
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
    """The mean of each system by each criterion, shape (S, D), and those of the clusters drawn anew, shape (B, S, D).

    `values` of shape (S, D, N) are of the same N examples, nan where unknown: by each criterion, the examples count
    that are known of all systems. `weights` of shape (D, N), above 0, are one over the chance with which an example was
    drawn; `clusters`, N hashables, what was sampled together. All criteria of all systems are drawn together (Efron
    1979). A resample in which a criterion has no example is left out; None for fewer than two clusters.

    Raises ValueError for other shapes, for a weight not above 0, and for a criterion that no example has of all.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 3 or 0 in given.shape:
        raise ValueError(f"values: got shape {given.shape}, wanted systems, criteria and examples")
    known = np.asarray(~np.isnan(given).any(axis=0))
    counts = np.where(known, _example_weights(weights, known.shape), 0.0)
    refuse_where("values", counts.sum(axis=1), counts.sum(axis=1) == 0, "an example that is known of all systems")
    clustering = clustering_of(clusters, given.shape[2])
    member = (np.arange(clustering.count)[:, None] == clustering.numbers).astype(np.float64)
    sums = np.einsum("sdn,gn->gsd", np.where(known, given, 0.0) * counts, member)
    sizes = np.einsum("dn,gn->gd", counts, member)[:, None]
    means = np.asarray(sums.sum(axis=0) / sizes.sum(axis=0))
    if clustering.count < 2:
        return means, None
    chance = np.full(clustering.count, 1 / clustering.count)
    drawn = np.random.default_rng(seed).multinomial(clustering.count, chance, resamples)
    whole = np.tensordot(drawn, sizes, 1)
    there = (whole > 0).all(axis=(1, 2))
    return means, np.asarray(np.tensordot(drawn[there], sums, 1) / whole[there])


def _example_weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> FloatArray:
    if weights is None:
        return np.ones(shape)
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != shape:
        raise ValueError(f"weights: got shape {given.shape}, wanted {shape}")
    flat = finite_vector("weights", given.ravel())
    refuse_where("weights", flat, flat <= 0, "more than 0")
    return given


def _criteria(name: str, values: ArrayLike, dimensions: tuple[int, ...], higher: Sequence[bool]) -> FloatArray:
    """The values with every criterion turned so that higher is better."""
    given = np.asarray(values, dtype=np.float64)
    if given.ndim not in dimensions or 0 in given.shape[-2:] or given.shape[-1] != len(higher):
        raise ValueError(f"{name}: got shape {given.shape} and {len(higher)} directions, wanted one for each column")
    if not np.isfinite(given).all():
        place = tuple(int(one) for one in np.argwhere(~np.isfinite(given))[0])
        raise ValueError(f"{name}{list(place)}: got {float(given[place])!r}, wanted a finite number")
    return np.asarray(given * np.where(np.asarray(higher, dtype=bool), 1.0, -1.0))


def _dominated(table: FloatArray) -> NDArray[np.bool_]:
    """Whether each system (row) dominates each other (column), shape (S, S)."""
    close = ROUNDING * np.abs(table).max(axis=0)
    ahead = table[:, None] - table[None]
    return np.asarray((ahead >= -close).all(axis=2) & (ahead > close).any(axis=2))


def _first(which: NDArray[np.bool_]) -> int | None:
    return int(which.argmax()) if which.any() else None
