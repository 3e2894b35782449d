"""Composites under any weights: the parts of every run, and what each system's mean composite would be."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where

How = Literal["weighted_mean", "geometric_mean", "minimum"]

AT_ONCE = 4_000_000
"""Weights times runs that are reckoned at once."""

ROUNDING = 1e-12
"""Means of numbers up to 1 that differ by no more are level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The parts of M runs of S systems, in J parts from 0 (worst) to 1 (best). Made by `run_parts`."""

    parts: FloatArray  # shape (M, J); nan where a part is left out of its run
    systems: NDArray[np.intp]  # shape (M,): 0 to S - 1
    shares: FloatArray  # shape (M,): what a run counts in its system's mean; they add up to 1 in each system
    n_systems: int
    how: How

    @property
    def n_parts(self) -> int:
        return int(self.parts.shape[1])

    @property
    def means(self) -> FloatArray | None:
        """The mean of each part, shape (S, J), where the mean composite is their weighted mean; else None."""
        if self.how != "weighted_mean" or np.isnan(self.parts).any():
            return None
        return np.asarray(_membership(self) @ self.parts)

    def scores(self, weights: ArrayLike) -> FloatArray:
        """The mean composite of each system, shape (W, S), under weights of shape (W, J) that are not all 0 in a row.

        The composite is made of each run's parts and then averaged, as for the weights that were declared.
        """
        given = normalised(weights)
        if (means := self.means) is not None:
            return np.asarray(given @ means.T)
        some = max(1, AT_ONCE // len(self.parts))
        blocks = [self._of_runs(given[start : start + some]) for start in range(0, len(given), some)]
        return np.vstack([block @ _membership(self).T for block in blocks])

    def _of_runs(self, weights: FloatArray) -> FloatArray:
        """The composite of each run, shape (W, M), under weights of shape (W, J) that add up to 1 in each row."""
        if self.how == "minimum":
            return np.broadcast_to(np.nanmin(self.parts, axis=1), (len(weights), len(self.parts)))
        if self.how == "weighted_mean":
            return _averaged(weights, self.parts)
        # A part of 0 makes the geometric mean 0 under every weight, however small.
        zero = (self.parts == 0).any(axis=1)
        logs = np.log(np.where(self.parts == 0, 1.0, self.parts))
        return np.where(zero, 0.0, np.exp(_averaged(weights, logs)))


def run_parts(
    parts: ArrayLike,
    systems: ArrayLike,
    *,
    counts: ArrayLike | None = None,
    how: How = "weighted_mean",
) -> RunParts:
    """The runs of two or more systems, to ask what other weights would make of them.

    `parts` of shape (M, J) are within 0 to 1, higher better, nan where a part is left out of its run, which then is
    the composite of the others; a run with an unmet requirement, which is 0 under all weights, has 0 in all parts.
    `systems` of shape (M,) says whose run it is, 0 to S - 1; `counts`, above 0, how much a run counts (1 where left
    out).

    Raises ValueError for other shapes, for parts outside of 0 to 1, for a run without parts, for counts not above 0,
    and where a number from 0 to S - 1 has no run.
    """
    given = _checked_parts(parts)
    whose, n_systems = _checked_systems(systems, len(given))
    weighed = np.ones(len(given)) if counts is None else finite_vector("counts", counts)
    if weighed.size != len(given):
        raise ValueError(f"counts: got {weighed.size}, wanted one for each of {len(given)} runs")
    refuse_where("counts", weighed, weighed <= 0, "more than 0")
    if how not in ("weighted_mean", "geometric_mean", "minimum"):
        raise ValueError(f"how: got {how!r}, wanted weighted_mean, geometric_mean or minimum")
    return RunParts(
        parts=given,
        systems=whose,
        shares=weighed / np.bincount(whose, weights=weighed)[whose],
        n_systems=n_systems,
        how=how,
    )


def as_run_parts(parts: RunParts | ArrayLike) -> RunParts:
    """A table of means, shape (S, J), as one run of each system; what is made of runs as it is."""
    if isinstance(parts, RunParts):
        return parts
    table = np.asarray(parts, dtype=np.float64)
    return run_parts(table, np.arange(len(table)))


def normalised(weights: ArrayLike) -> FloatArray:
    """Weights of shape (W, J), or (J,) for one row, so that each row adds up to 1."""
    rows = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def declared(weights: ArrayLike, n_parts: int) -> FloatArray:
    """Weights as someone declares them, shape (J,), so that they add up to 1. Raises ValueError unless above 0."""
    given = finite_vector("weights", weights)
    if given.size != n_parts:
        raise ValueError(f"weights: got {given.size}, wanted one for each of {n_parts} parts")
    refuse_where("weights", given, given <= 0, "more than 0")
    return np.asarray(given / given.sum())


def leading(scores: FloatArray) -> NDArray[np.bool_]:
    """Who has the highest score, or is level with it up to rounding; `scores` and the result of shape (W, S)."""
    return np.asarray(scores >= scores.max(axis=1, keepdims=True) - ROUNDING)


def _averaged(weights: FloatArray, parts: FloatArray) -> FloatArray:
    """The weighted mean of each run's parts, shape (W, M), over those that are not left out."""
    known = ~np.isnan(parts)
    whole = weights @ known.T.astype(np.float64)
    # Where only parts of weight 0 are left, their plain mean: what equal weights would tend to.
    plain = np.nanmean(parts, axis=1)
    total = weights @ np.where(known, parts, 0.0).T
    return np.asarray(np.where(whole > 0, total / np.where(whole > 0, whole, 1.0), plain))


def _membership(runs: RunParts) -> FloatArray:
    """What each run counts in each system, shape (S, M)."""
    return np.asarray((np.arange(runs.n_systems)[:, None] == runs.systems) * runs.shares)


def _checked_parts(parts: ArrayLike) -> FloatArray:
    given = np.asarray(parts, dtype=np.float64)
    if given.ndim != 2 or 0 in given.shape:
        raise ValueError(f"parts: got shape {given.shape}, wanted a row for each run and a column for each part")
    missing = np.isnan(given)
    wrong = (~((given >= 0) & (given <= 1)) & ~missing).any(axis=1) | missing.all(axis=1)
    if wrong.any():
        place = int(wrong.argmax())
        raise ValueError(f"parts[{place}]: got {given[place].tolist()}, wanted 0 to 1, or nan but not in all")
    return given


def _checked_systems(systems: ArrayLike, n: int) -> tuple[NDArray[np.intp], int]:
    whose = np.asarray(systems)
    if whose.shape != (n,) or not np.issubdtype(whose.dtype, np.integer):
        raise ValueError(f"systems: got {whose.dtype} of shape {whose.shape}, wanted a whole number for each of {n}")
    found = np.unique(whose)
    if found.size < 2 or not np.array_equal(found, np.arange(found.size)):
        raise ValueError(f"systems: got {found.tolist()}, wanted runs of 0, 1 and so on, of two systems at least")
    return whose.astype(np.intp), int(found.size)
