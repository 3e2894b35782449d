"""Sensitivity of a ranking to the weights of its composite: one weight changed at a time, and all possible weights."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray
from evalflows.stats.weights.run_parts import RunParts, as_run_parts, checked_weights, is_leading

Leaders = tuple[int, ...]
"""The systems with the highest score; several if they are tied."""

NO_WEIGHTS = "a minimum has no weights: it is always the worst part"
ONE_PART = "there is only one part, so there are no other weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Result with one weight changed and the others rescaled."""

    part: int
    factor: float  # by which the part's normalised weight is multiplied, up to a weight of 1
    weights: tuple[float, ...]  # of all parts; they add up to 1
    scores: tuple[float, ...]  # of each system
    leaders: Leaders
    changes_winner: bool  # whether the set of leaders differs from that with the declared weights


@dataclass(frozen=True, slots=True, kw_only=True)
class OneAtATime:
    """The leaders with the declared weights, and with each weight alone increased or decreased."""

    weights: tuple[float, ...]  # as declared, adding up to 1
    scores: tuple[float, ...]
    leaders: Leaders
    change: float  # relative change of a weight, between 0 and 1
    changes: tuple[Change, ...]  # for each part, decreased then increased; empty with a reason
    reason: str | None  # why there are no other weights; None if there are


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightShares:
    """The share of all possible weights for which each system leads."""

    shares: tuple[float, ...] | None  # of weights for which each system is the only leader; None with a reason
    ties: tuple[tuple[Leaders, float], ...]  # systems tied for the highest score, and the share of weights
    standard_errors: tuple[float, ...] | None  # Monte Carlo standard errors of the shares
    draws: int
    seed: int
    reason: str | None  # why there are no shares; None if there are


def one_at_a_time(parts: RunParts | ArrayLike, weights: ArrayLike, change: float = 0.2) -> OneAtATime:
    """Return the leaders and scores with each normalised weight w replaced by w (1 - change) and w (1 + change).

    The other weights are rescaled so that all add up to 1 and keep their ratios (Chen, Yu & Khan 2010); a weight above
    1 becomes 1. `parts` are runs, or a table of means of shape (S, J), 0 to 1; `weights`, shape (J,), are above 0.

    Raise ValueError for what `run_parts` refuses, another number of weights, a weight not above 0, and a change not
    between 0 and 1.
    """
    runs = as_run_parts(parts)
    declared = checked_weights(weights, runs.n_parts)
    if not 0 < change < 1:
        raise ValueError(f"change: got {change!r}, wanted a number between 0 and 1")
    scores = runs.scores(declared)
    leaders = _leaders(scores)[0]
    reason = _no_other_weights(runs)
    factors = [] if reason else [(part, factor) for part in range(runs.n_parts) for factor in (1 - change, 1 + change)]
    return OneAtATime(
        weights=tuple(declared.tolist()),
        scores=tuple(scores[0].tolist()),
        leaders=leaders,
        change=float(change),
        changes=tuple(_changed(runs, declared, part, factor, leaders) for part, factor in factors),
        reason=reason,
    )


def share_of_weights(parts: RunParts | ArrayLike, *, draws: int = 10_000, seed: int = 0) -> WeightShares:
    """Return the share of all weights (at least 0, adding up to 1) for which each system leads.

    `parts` are runs, or a table of means of shape (S, J), 0 to 1. `draws` weight vectors are drawn uniformly, from the
    Dirichlet distribution with all parameters 1: the acceptability index of stochastic multicriteria analysis (SMAA:
    Lahdelma, Hokkanen & Salminen 1998), with known scores. Standard errors are computed with two successes and two
    failures added (Agresti & Coull 1998), so that none is 0.

    Raise ValueError for what `run_parts` refuses, and for fewer than 100 draws.
    """
    runs = as_run_parts(parts)
    if draws < 100:
        raise ValueError(f"draws: got {draws!r}, wanted at least 100")
    if reason := _no_other_weights(runs):
        return WeightShares(shares=None, ties=(), standard_errors=None, draws=draws, seed=seed, reason=reason)
    drawn = np.random.default_rng(seed).dirichlet(np.ones(runs.n_parts), draws)
    by_leaders = {leaders: count / draws for leaders, count in Counter(_leaders(runs.scores(drawn))).items()}
    shares = tuple(by_leaders.get((system,), 0.0) for system in range(runs.n_systems))
    return WeightShares(
        shares=shares,
        ties=tuple(sorted((leaders, share) for leaders, share in by_leaders.items() if len(leaders) > 1)),
        standard_errors=tuple(_error(share, draws) for share in shares),
        draws=draws,
        seed=seed,
        reason=None,
    )


def _no_other_weights(runs: RunParts) -> str | None:
    return NO_WEIGHTS if runs.aggregation == "minimum" else ONE_PART if runs.n_parts == 1 else None


def _leaders(scores: FloatArray) -> list[Leaders]:
    return [tuple(np.flatnonzero(row).tolist()) for row in is_leading(scores)]


def _changed(runs: RunParts, declared: FloatArray, part: int, factor: float, before: Leaders) -> Change:
    weight = min(1.0, factor * declared[part])
    weights = declared * (1 - weight) / (1 - declared[part])
    weights[part] = weight
    scores = runs.scores(weights)
    leaders = _leaders(scores)[0]
    return Change(
        part=part,
        factor=float(factor),
        weights=tuple(weights.tolist()),
        scores=tuple(scores[0].tolist()),
        leaders=leaders,
        changes_winner=leaders != before,
    )


def _error(share: float, draws: int) -> float:
    adjusted = (share * draws + 2) / (draws + 4)
    return float(np.sqrt(adjusted * (1 - adjusted) / (draws + 4)))
