"""Who wins under which weights: one weight a little higher or lower, all weights there are."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray
from evalflows.stats.weights.run_parts import RunParts, as_run_parts, declared, leading

Leaders = tuple[int, ...]
"""The systems with the highest score: one, or several that are level."""

NO_WEIGHTS = "a minimum has no weights: it is the worst part whatever they are"
ONE_PART = "one part only: there are no other weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One weight changed, the others rescaled."""

    part: int
    factor: float  # by which the part's normalised weight was to change
    weights: tuple[float, ...]  # they add up to 1
    scores: tuple[float, ...]  # of each system
    leaders: Leaders
    changes_winner: bool  # whether others lead, or fewer or more are level


@dataclass(frozen=True, slots=True, kw_only=True)
class OneAtATime:
    """Who wins as declared, and with each weight alone higher or lower."""

    weights: tuple[float, ...]  # as declared, adding up to 1
    scores: tuple[float, ...]
    leaders: Leaders
    change: float
    changes: tuple[Change, ...]  # of each part the lower weight, then the higher one; none with a reason
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightShares:
    """How much of all weights each system wins under."""

    shares: tuple[float, ...] | None  # in which each system leads alone; None with a reason
    ties: tuple[tuple[Leaders, float], ...]  # systems tied for the highest score, and in what share of weights
    standard_errors: tuple[float, ...] | None  # of the shares, by chance of the draws
    draws: int
    seed: int
    reason: str | None


def one_at_a_time(parts: RunParts | ArrayLike, weights: ArrayLike, change: float = 0.2) -> OneAtATime:
    """The winner and all scores with each normalised weight w at w (1 - change) and at w (1 + change) in turn.

    The other weights are rescaled so that all add up to 1 and keep their ratios (Chen, Yu & Khan 2010); a weight
    that would be more than 1 becomes 1. `parts` are runs, or a table of means of shape (S, J); `weights`, shape (J,),
    are above 0.

    Raises ValueError for what is no part or weight, and for a change not between 0 and 1.
    """
    runs = as_run_parts(parts)
    given = declared(weights, runs.n_parts)
    if not 0 < change < 1:
        raise ValueError(f"change: got {change!r}, wanted a number between 0 and 1")
    scores = runs.scores(given)
    leaders = _leaders(scores)[0]
    reason = _no_other_weights(runs)
    factors = [] if reason else [(part, by) for part in range(runs.n_parts) for by in (1 - change, 1 + change)]
    return OneAtATime(
        weights=tuple(given.tolist()),
        scores=tuple(scores[0].tolist()),
        leaders=leaders,
        change=float(change),
        changes=tuple(_changed(runs, given, part, by, leaders) for part, by in factors),
        reason=reason,
    )


def share_of_weights(parts: RunParts | ArrayLike, *, draws: int = 10_000, seed: int = 0) -> WeightShares:
    """The share of all weights (at least 0, adding up to 1, each as likely as another) under which each system leads.

    Weights are drawn, `draws` times, from a Dirichlet distribution of ones: the stochastic multicriteria acceptability
    of Lahdelma, Hokkanen & Salminen (1998), with known scores. Standard errors are those of a share with two more of
    each kind (Agresti & Coull 1998), so that none is 0.

    Raises ValueError for what is no part, and for fewer than 100 draws.
    """
    runs = as_run_parts(parts)
    if draws < 100:
        raise ValueError(f"draws: got {draws!r}, wanted 100 at least")
    if reason := _no_other_weights(runs):
        return WeightShares(shares=None, ties=(), standard_errors=None, draws=draws, seed=seed, reason=reason)
    drawn = np.random.default_rng(seed).dirichlet(np.ones(runs.n_parts), draws)
    found = {who: count / draws for who, count in Counter(_leaders(runs.scores(drawn))).items()}
    shares = tuple(found.get((system,), 0.0) for system in range(runs.n_systems))
    return WeightShares(
        shares=shares,
        ties=tuple(sorted((who, share) for who, share in found.items() if len(who) > 1)),
        standard_errors=tuple(_error(share, draws) for share in shares),
        draws=draws,
        seed=seed,
        reason=None,
    )


def _no_other_weights(runs: RunParts) -> str | None:
    return NO_WEIGHTS if runs.how == "minimum" else ONE_PART if runs.n_parts == 1 else None


def _leaders(scores: FloatArray) -> list[Leaders]:
    return [tuple(np.flatnonzero(row).tolist()) for row in leading(scores)]


def _changed(runs: RunParts, given: FloatArray, part: int, factor: float, before: Leaders) -> Change:
    weight = min(1.0, factor * given[part])
    weights = given * (1 - weight) / (1 - given[part])
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
    near = (share * draws + 2) / (draws + 4)
    return float(np.sqrt(near * (1 - near) / (draws + 4)))
