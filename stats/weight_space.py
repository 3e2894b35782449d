"""Who wins under which weights: one weight a little higher or lower, all weights there are, other examples."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray
from stats.run_parts import ROUNDING, RunParts, as_run_parts, declared, leading

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
    level: tuple[tuple[Leaders, float], ...]  # who is level at the top, and in what share
    standard_errors: tuple[float, ...] | None  # of the shares, by chance of the draws; None where they are exact
    method: str
    draws: int | None  # None where exact, as is `seed`
    seed: int | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerStays:
    """How often the winner at the declared weights wins with examples drawn anew."""

    leaders: Leaders  # of all examples
    stays: float | None  # the share of resamples in which the same lead, 0 to 1; None with a reason
    n_clusters: int
    resamples: int
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
    reason = NO_WEIGHTS if runs.how == "minimum" else ONE_PART if runs.n_parts == 1 else None
    factors = [] if reason else [(part, by) for part in range(runs.n_parts) for by in (1 - change, 1 + change)]
    return OneAtATime(
        weights=tuple(given.tolist()),
        scores=tuple(scores[0].tolist()),
        leaders=leaders,
        change=float(change),
        changes=tuple(_changed(runs, given, part, by, leaders) for part, by in factors),
        reason=reason,
    )


def share_of_weights(parts: RunParts | ArrayLike, *, draws: int = 20_000, seed: int = 0) -> WeightShares:
    """The share of all weights (at least 0, adding up to 1, each as likely as another) under which each system leads.

    A weighted mean of two systems, or of two parts, is reckoned exactly: the volume of a simplex on one side of a plane
    (Varsi 1973), and the crossings of lines. All else is drawn, `draws` times, from a Dirichlet distribution of ones;
    its standard errors are those of a share with two more of each kind (Agresti & Coull 1998), so that none is 0. As
    the stochastic multicriteria acceptability of Lahdelma, Hokkanen & Salminen (1998), with known scores.

    Raises ValueError for what is no part, and for fewer than 100 draws.
    """
    runs = as_run_parts(parts).distinct()
    if draws < 100:
        raise ValueError(f"draws: got {draws!r}, wanted 100 at least")
    if runs.how == "minimum":
        return _shares(None, runs.n_systems, "none", reason=NO_WEIGHTS)
    if runs.n_parts == 1:
        return _shares({_leaders(runs.scores([[1.0]]))[0]: 1.0}, runs.n_systems, "exact: one part")
    means = runs.means
    if means is not None and runs.n_systems == 2:
        return _shares(_two_systems(means[0] - means[1]), 2, "exact: volume of a simplex on one side of a plane")
    if means is not None and runs.n_parts == 2:
        return _shares(_two_parts(means), runs.n_systems, "exact: where lines cross")
    drawn = np.random.default_rng(seed).dirichlet(np.ones(runs.n_parts), draws)
    ahead, counts = np.unique(leading(runs.scores(drawn)), axis=0, return_counts=True)
    found = {tuple(np.flatnonzero(row).tolist()): int(count) / draws for row, count in zip(ahead, counts, strict=True)}
    return _shares(found, runs.n_systems, "monte carlo", drawn=(draws, seed))


def winner_stays(
    parts: RunParts | ArrayLike, weights: ArrayLike, *, resamples: int = 2000, seed: int = 0
) -> WinnerStays:
    """How often the winner stays at these weights, in resamples of the clusters with replacement (Efron 1979).

    All systems' runs of a cluster are drawn together. None with a reason for fewer than two clusters.

    Raises ValueError for what is no part or weight, for fewer than 100 resamples, and where a system has no run in a
    cluster: then what is drawn would not be the same for all.
    """
    runs = as_run_parts(parts)
    given = declared(weights, runs.n_parts)
    if resamples < 100:
        raise ValueError(f"resamples: got {resamples!r}, wanted 100 at least")
    values = runs.of_runs(given[None])[0]
    sums, counted = _by_cluster(runs, runs.shares * values), _by_cluster(runs, runs.shares)
    if not (counted > 0).all():
        raise ValueError("clusters: got one in which a system has no run, wanted runs of every system in each")
    n = len(counted)
    leaders = _leaders(runs.scores(given))[0]
    stays = None
    if n > 1:
        drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), resamples)
        ahead = leading((drawn @ sums) / (drawn @ counted))
        same = np.isin(np.arange(runs.n_systems), leaders)
        stays = float((ahead == same).all(axis=1).mean())
    return WinnerStays(
        leaders=leaders,
        stays=stays,
        n_clusters=n,
        resamples=resamples,
        seed=seed,
        reason=None if n > 1 else "all runs are in one cluster: there is nothing to draw anew",
    )


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


def _shares(
    found: dict[Leaders, float] | None,
    n_systems: int,
    method: str,
    *,
    drawn: tuple[int, int] | None = None,
    reason: str | None = None,
) -> WeightShares:
    shares = None if found is None else tuple(found.get((system,), 0.0) for system in range(n_systems))
    return WeightShares(
        shares=shares,
        level=tuple(sorted((who, share) for who, share in (found or {}).items() if len(who) > 1)),
        standard_errors=None if drawn is None or shares is None else tuple(_error(one, drawn[0]) for one in shares),
        method=method,
        draws=drawn[0] if drawn else None,
        seed=drawn[1] if drawn else None,
        reason=reason,
    )


def _error(share: float, draws: int) -> float:
    near = (share * draws + 2) / (draws + 4)
    return float(np.sqrt(near * (1 - near) / (draws + 4)))


def _two_systems(differences: FloatArray) -> dict[Leaders, float]:
    """The share of weights under which the weighted mean of the differences, shape (J,), is above 0, and below.

    Uniform weights are exponential numbers over their sum, so the share is the chance that the sum of those with a
    positive difference, times it, outweighs that of the others: a race of stages, which memory-less as they are can be
    reckoned one by one. Only means of numbers of one sign: nothing cancels.
    """
    if not (np.abs(differences) > ROUNDING).any():
        return {(0, 1): 1.0}
    own, against = differences[differences > ROUNDING], -differences[differences < -ROUNDING]
    # The chance that the first's stages end last, by how many of them are left; in turn, with one stage more against.
    chances = np.array([0.0, *np.ones(own.size)])
    for other in against:
        fewer, chances = chances, np.zeros(own.size + 1)
        for left, one in enumerate(own, start=1):
            chances[left] = (other * chances[left - 1] + one * fewer[left]) / (one + other)
    first = float(chances[-1])
    return {(0,): first, (1,): 1.0 - first}


def _two_parts(means: FloatArray) -> dict[Leaders, float]:
    """Who leads in which share of 0 to 1, as the weight of the first part; `means` of shape (S, 2)."""
    slopes, at_zero = means[:, 0] - means[:, 1], means[:, 1]
    one, other = np.triu_indices(len(means), 1)
    steeper = slopes[one] - slopes[other]
    crossing = steeper != 0
    places = (at_zero[other] - at_zero[one])[crossing] / steeper[crossing]
    ends = np.unique(np.concatenate([[0.0, 1.0], places[(places > 0) & (places < 1)]]))
    middles = (ends[:-1] + ends[1:]) / 2
    found: dict[Leaders, float] = {}
    for who, width in zip(
        _leaders(np.column_stack([middles, 1 - middles]) @ means.T), np.diff(ends).tolist(), strict=True
    ):
        found[who] = found.get(who, 0.0) + width
    return found


def _by_cluster(runs: RunParts, values: FloatArray) -> FloatArray:
    """Sums of the runs' values, shape (G, S)."""
    place = runs.clusters * runs.n_systems + runs.systems
    n = int(runs.clusters.max()) + 1
    sums = np.bincount(place, weights=values, minlength=n * runs.n_systems)
    return np.asarray(sums.reshape(n, runs.n_systems), dtype=np.float64)
