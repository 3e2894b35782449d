"""The parts of composites in every run, from which each system's mean composite follows for any weights."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where

Aggregation = Literal["weighted_mean", "geometric_mean", "minimum"]

MAX_BLOCK_SIZE = 4_000_000
"""The largest size of a block, in weight vectors times runs."""

ROUNDING = 1e-12
"""Scores, 0 to 1, that differ by at most this are tied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The J parts, from 0 (worst) to 1 (best), of M runs of S systems. Create it with `run_parts`."""

    parts: FloatArray  # shape (M, J); nan if the run does not have the part
    systems: NDArray[np.intp]  # shape (M,): 0 to S - 1
    shares: FloatArray  # shape (M,): weight of the run in its system's mean; they add up to 1 for each system
    n_systems: int
    aggregation: Aggregation

    @property
    def n_parts(self) -> int:
        return int(self.parts.shape[1])

    @property
    def means(self) -> FloatArray | None:
        """The mean of each part, shape (S, J), if the mean composite is their weighted mean; otherwise None."""
        if self.aggregation != "weighted_mean" or np.isnan(self.parts).any():
            return None
        return np.asarray(_membership(self) @ self.parts)

    def scores(self, weights: ArrayLike) -> FloatArray:
        """Return the mean composite of each system, shape (W, S), 0 to 1, for `weights` of shape (W, J).

        Weights are at least 0 and not all 0 in a row. The composite is computed for each run and then averaged, as for
        the declared weights.
        """
        rows = normalised(weights)
        if (means := self.means) is not None:
            return np.asarray(rows @ means.T)
        block_size = max(1, MAX_BLOCK_SIZE // len(self.parts))
        blocks = [self._of_runs(rows[start : start + block_size]) for start in range(0, len(rows), block_size)]
        return np.vstack([block @ _membership(self).T for block in blocks])

    def _of_runs(self, weights: FloatArray) -> FloatArray:
        """Return the composite of each run, shape (W, M), for weights of shape (W, J) whose rows add up to 1."""
        if self.aggregation == "minimum":
            return np.broadcast_to(np.nanmin(self.parts, axis=1), (len(weights), len(self.parts)))
        if self.aggregation == "weighted_mean":
            return _averaged(weights, self.parts)
        # A part of 0 makes the geometric mean 0 for every weight, even for 0.
        zero = (self.parts == 0).any(axis=1)
        logs = np.log(np.where(self.parts == 0, 1.0, self.parts))
        return np.where(zero, 0.0, np.exp(_averaged(weights, logs)))


def run_parts(
    parts: ArrayLike,
    systems: ArrayLike,
    *,
    counts: ArrayLike | None = None,
    aggregation: Aggregation = "weighted_mean",
) -> RunParts:
    """Return the checked runs of S systems, at least two.

    `parts`, shape (M, J), are 0 to 1, higher is better; nan marks a missing part, and the composite of that run is
    computed from its other parts. A run with an unmet requirement has 0 for all parts, so its composite is 0 for all
    weights. `systems`, shape (M,), is the system of each run, 0 to S - 1. `counts`, shape (M,), above 0, weight the
    runs in their system's mean; by default 1. `aggregation` combines a run's parts.

    Raise ValueError for other shapes, parts outside 0 to 1, a run without parts, counts not above 0, a number from 0 to
    S - 1 without runs, and an unknown aggregation.
    """
    table = _checked_parts(parts)
    system_of_run, n_systems = _checked_systems(systems, len(table))
    run_counts = np.ones(len(table)) if counts is None else finite_vector("counts", counts)
    if run_counts.size != len(table):
        raise ValueError(f"counts: got {run_counts.size}, wanted one for each of {len(table)} runs")
    refuse_where("counts", run_counts, run_counts <= 0, "more than 0")
    if aggregation not in get_args(Aggregation):
        raise ValueError(f"aggregation: got {aggregation!r}, wanted weighted_mean, geometric_mean or minimum")
    return RunParts(
        parts=table,
        systems=system_of_run,
        shares=run_counts / np.bincount(system_of_run, weights=run_counts)[system_of_run],
        n_systems=n_systems,
        aggregation=aggregation,
    )


def as_run_parts(parts: RunParts | ArrayLike) -> RunParts:
    """Return a table of means, shape (S, J), as one run per system; return RunParts unchanged."""
    if isinstance(parts, RunParts):
        return parts
    table = np.asarray(parts, dtype=np.float64)
    return run_parts(table, np.arange(len(table)))


def normalised(weights: ArrayLike) -> FloatArray:
    """Return weights of shape (W, J), or (J,) for a single row, scaled so that each row adds up to 1."""
    rows = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def checked_weights(weights: ArrayLike, n_parts: int) -> FloatArray:
    """Return declared weights, shape (J,), scaled to add up to 1. Raise ValueError unless there are J, all above 0."""
    declared = finite_vector("weights", weights)
    if declared.size != n_parts:
        raise ValueError(f"weights: got {declared.size}, wanted one for each of {n_parts} parts")
    refuse_where("weights", declared, declared <= 0, "more than 0")
    return np.asarray(declared / declared.sum())


def is_leading(scores: FloatArray) -> NDArray[np.bool_]:
    """Return which systems have the highest score, or tie with it up to rounding; both of shape (W, S)."""
    return np.asarray(scores >= scores.max(axis=1, keepdims=True) - ROUNDING)


def _averaged(weights: FloatArray, parts: FloatArray) -> FloatArray:
    """Return the weighted mean of each run's parts, shape (W, M), over the parts it has."""
    known = ~np.isnan(parts)
    known_weight = weights @ known.T.astype(np.float64)
    # If a run has only parts of weight 0, use their plain mean, the limit for small equal weights.
    plain = np.nanmean(parts, axis=1)
    total = weights @ np.where(known, parts, 0.0).T
    return np.asarray(np.where(known_weight > 0, total / np.where(known_weight > 0, known_weight, 1.0), plain))


def _membership(runs: RunParts) -> FloatArray:
    """Return the weight of each run in the mean of each system, shape (S, M)."""
    return np.asarray((np.arange(runs.n_systems)[:, None] == runs.systems) * runs.shares)


def _checked_parts(parts: ArrayLike) -> FloatArray:
    table = np.asarray(parts, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"parts: got shape {table.shape}, wanted one row per run and one column per part")
    missing = np.isnan(table)
    wrong = (~((table >= 0) & (table <= 1)) & ~missing).any(axis=1) | missing.all(axis=1)
    if wrong.any():
        place = int(wrong.argmax())
        raise ValueError(f"parts[{place}]: got {table[place].tolist()}, wanted 0 to 1, or nan for some parts")
    return table


def _checked_systems(systems: ArrayLike, n: int) -> tuple[NDArray[np.intp], int]:
    system_of_run = np.asarray(systems)
    if system_of_run.shape != (n,) or not np.issubdtype(system_of_run.dtype, np.integer):
        raise ValueError(f"systems: got {system_of_run.dtype} of shape {system_of_run.shape}, wanted {n} whole numbers")
    numbers = np.unique(system_of_run)
    if numbers.size < 2 or not np.array_equal(numbers, np.arange(numbers.size)):
        raise ValueError(f"systems: got {numbers.tolist()}, wanted runs of systems 0, 1 and so on, at least two")
    return system_of_run.astype(np.intp), int(numbers.size)
