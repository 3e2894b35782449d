"""The weights of composites: the Pareto front, one weight changed at a time, all possible weights, and those that order
ranked cases."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where
from evalflows.stats.clusters import Clustering, clustering_of

ROUNDING = 1e-12
"""Values that differ by at most this fraction of the largest size of their criterion count as equal."""

Aggregation = Literal["weighted_mean", "geometric_mean", "minimum"]

MAX_BLOCK_SIZE = 4_000_000
"""The largest size of a block, in weight vectors times runs."""

Leaders = tuple[int, ...]
"""The systems with the highest score; several if they are tied."""

NO_WEIGHTS = "a minimum has no weights: it is always the worst part"
ONE_PART = "there is only one part, so there are no other weights"

FOLDS, SPLITS = 5, 20
"""Parts into which cases are divided, each once left out of the fit, and how often they are divided."""

CASES_NEEDED = 10
"""Ranked cases below which no weights are given: so few orders are met by nearly all weights."""


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
    sums = _sums_of_clusters(np.where(known, table, 0.0) * counts, clustering)
    sizes = _sums_of_clusters(counts, clustering)[:, None]
    means = np.asarray(sums.sum(axis=0) / sizes.sum(axis=0))
    if clustering.count < 2:
        return means, None
    equal = np.full(clustering.count, 1 / clustering.count)
    drawn = np.random.default_rng(seed).multinomial(clustering.count, equal, resamples)
    totals = np.tensordot(drawn.astype(np.float64), np.concatenate([sums, sizes], axis=1), 1)
    complete = (totals[:, -1] > 0).all(axis=1)
    return means, np.asarray(totals[complete, :-1] / totals[complete, -1:])


def _sums_of_clusters(values: FloatArray, clustering: Clustering) -> FloatArray:
    """Return the sums over the last axis by cluster, with the clusters on the first axis."""
    rows = values.reshape(-1, values.shape[-1])
    sums = np.stack([np.bincount(clustering.numbers, row, clustering.count) for row in rows], axis=-1)
    return sums.astype(np.float64).reshape(clustering.count, *values.shape[:-1])


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
        cell = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name}{list(cell)}: got {float(array[cell])!r}, wanted a finite number")
    return np.asarray(array * np.where(np.asarray(higher, dtype=bool), 1.0, -1.0))


def _dominated(table: FloatArray) -> NDArray[np.bool_]:
    """Return whether each system (row) dominates each other (column), shape (S, S)."""
    close = ROUNDING * np.abs(table).max(axis=0)
    ahead = table[:, None] - table[None]
    return np.asarray((ahead >= -close).all(axis=2) & (ahead > close).any(axis=2))


def _first(which: NDArray[np.bool_]) -> int | None:
    return int(which.argmax()) if which.any() else None


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
    parts: ArrayLike, systems: ArrayLike, *, counts: ArrayLike | None = None, aggregation: Aggregation = "weighted_mean"
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
        row = int(wrong.argmax())
        raise ValueError(f"parts[{row}]: got {table[row].tolist()}, wanted 0 to 1, or nan for some parts")
    return table


def _checked_systems(systems: ArrayLike, n: int) -> tuple[NDArray[np.intp], int]:
    system_of_run = np.asarray(systems)
    if system_of_run.shape != (n,) or not np.issubdtype(system_of_run.dtype, np.integer):
        raise ValueError(f"systems: got {system_of_run.dtype} of shape {system_of_run.shape}, wanted {n} whole numbers")
    numbers = np.unique(system_of_run)
    if numbers.size < 2 or not np.array_equal(numbers, np.arange(numbers.size)):
        raise ValueError(f"systems: got {numbers.tolist()}, wanted runs of systems 0, 1 and so on, at least two")
    return system_of_run.astype(np.intp), int(numbers.size)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedWeights:
    """The weights that order C ranked cases as people did, with intervals; None with a reason."""

    weights: tuple[float, ...] | None  # add up to 1
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None
    agreement: float | None  # the share of pairs of cases in people's order; a tie of scores counts one half
    out_of_sample: float | None  # the agreement of cases that the weights were not fitted to
    p_value: float | None  # of an agreement as high as that, of the best weights, if ranks had nothing to do with parts
    n_cases: int
    level: float
    draws: int
    resamples: int
    seed: int
    reason: str | None


def calibrated_weights(
    runs: RunParts, ranks: ArrayLike, *, level: float = 0.95, draws: int = 2000, resamples: int = 1000, seed: int = 0
) -> CalibratedWeights:
    """Return the weights under which the composites of cases are most often in the order of people's ranks.

    Each system of `runs` is a case; `ranks`, shape (C,), are 1 for the best, and equal for ties, which are left out.
    Of `draws` weights, uniform on the simplex, and its corners, those with the highest agreement are averaged: the
    share of pairs of cases in the right order, which is (tau + 1) / 2 for Kendall's tau (Kendall 1938). The interval of
    each weight is that of percentiles over `resamples` of the cases (Efron 1979), of the lowest and the highest among
    the weights that are best: where many agree as well, it is wide. The p-value compares the highest
    agreement with those of permuted ranks, each with the weights that are best for it, so it allows for the search.
    `out_of_sample` is the agreement of pairs within a fifth of the cases by the weights of the other four (Stone 1974),
    over SPLITS random divisions.
    There are no weights, but a reason, below CASES_NEEDED cases, without differences, and if the p-value is above
    1 - level.

    Raise ValueError unless there is a finite rank for each case.
    """
    given = finite_vector("ranks", ranks)
    if given.size != runs.n_systems:
        raise ValueError(f"ranks: got {given.size}, wanted one for each of {runs.n_systems} cases")
    rng, n = np.random.default_rng(seed), given.size
    candidates = np.vstack([rng.dirichlet(np.ones(runs.n_parts), draws), np.eye(runs.n_parts)])
    scores = runs.scores(candidates)  # (K, C)
    first, second = np.triu_indices(n, 1)
    # Small whole numbers, which are exact in 32 bits: products of them take most of the time.
    orders = np.sign(np.where(np.abs(gaps := scores[:, first] - scores[:, second]) > ROUNDING, gaps, 0.0)).T
    orders = orders.astype(np.float32)  # (P, K)
    wanted = np.sign(given[second] - given[first])  # (P,): 1 if the first case is better

    def agreements(signed: FloatArray) -> FloatArray:
        """Return the agreement of each candidate with each row of orders of pairs, (R, P), weighted by their size."""
        met = np.asarray(signed.astype(np.float32) @ orders, dtype=np.float64)
        return np.asarray(0.5 + 0.5 * met / np.abs(signed).sum(axis=1, keepdims=True))

    def best(of_candidates: FloatArray) -> FloatArray:
        return np.asarray(candidates[of_candidates >= of_candidates.max() - ROUNDING])

    found = CalibratedWeights(
        weights=None,
        low=None,
        high=None,
        agreement=None,
        out_of_sample=None,
        p_value=None,
        n_cases=n,
        level=level,
        draws=draws,
        resamples=resamples,
        seed=seed,
        reason=None,
    )
    if n < CASES_NEEDED:
        return replace(found, reason=f"{n} ranked cases, wanted at least {CASES_NEEDED}")
    if not np.any(wanted) or not np.any(orders):
        return replace(
            found, reason="all ranks are equal" if not np.any(wanted) else "the parts of all cases are equal"
        )
    of_candidates = agreements(wanted[None])[0]
    agreement = float(of_candidates.max())
    shuffled = np.array([rng.permutation(given) for _ in range(resamples)])
    at_once = max(1, MAX_BLOCK_SIZE // len(first))
    by_chance = np.concatenate(
        [
            agreements(np.sign(block[:, second] - block[:, first])).max(axis=1)
            for block in np.array_split(shuffled, -(-resamples // at_once))
        ]
    )
    p_value = (1 + int((by_chance >= agreement - ROUNDING).sum())) / (resamples + 1)
    found = replace(found, agreement=agreement, p_value=p_value)
    if p_value > 1 - level:
        return replace(found, reason="the ranks are ordered no better than by chance")
    drawn: list[FloatArray] = []
    while len(drawn) < resamples:
        n_more = min(at_once, resamples - len(drawn))
        times = np.array([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(n_more)])
        signed = (times[:, first] * times[:, second]) * wanted
        drawn += map(best, agreements(signed[signed.any(axis=1)]))
    low = np.quantile([weights.min(axis=0) for weights in drawn], (1 - level) / 2, axis=0)
    high = np.quantile([weights.max(axis=0) for weights in drawn], (1 + level) / 2, axis=0)
    weights = best(of_candidates).mean(axis=0)
    in_order = compared = 0.0
    parts_of_cases = [rng.permutation(n) % FOLDS for _ in range(SPLITS)]
    for fold in (of_cases == part for of_cases in parts_of_cases for part in range(FOLDS)):
        inside, outside = fold[first] & fold[second] & (wanted != 0), np.where(fold[first] | fold[second], 0.0, wanted)
        if not inside.any() or not outside.any():
            continue
        of_fold = runs.scores(best(agreements(outside[None])[0]).mean(axis=0))[0]
        apart = (of_fold[first] - of_fold[second])[inside] * wanted[inside]
        in_order += float((apart > ROUNDING).sum() + (np.abs(apart) <= ROUNDING).sum() / 2)
        compared += float(inside.sum())
    return replace(
        found,
        weights=tuple(weights.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        out_of_sample=in_order / compared if compared else None,
    )


def weight_disagreements(parts: ArrayLike, *, draws: int = 1000, seed: int = 0) -> FloatArray:
    """Return how far weights disagree on each of M runs, shape (M,), from 0 (not at all) to 1 (half of them).

    `parts`, shape (M, J), are those of `run_parts`. Of `draws` weights, uniform on the simplex, some put a run above
    the median run and others below: with the share p above, it is 4 p (1 - p). A run at the median counts half.
    """
    table = _checked_parts(parts)
    rng = np.random.default_rng(seed)
    block_size = max(1, MAX_BLOCK_SIZE // len(table))
    above = np.zeros(len(table))
    for start in range(0, draws, block_size):
        scores = _averaged(rng.dirichlet(np.ones(table.shape[1]), min(block_size, draws - start)), table)
        gaps = scores - np.median(scores, axis=1, keepdims=True)
        above += ((gaps > ROUNDING) + 0.5 * (np.abs(gaps) <= ROUNDING)).sum(axis=0)
    share = above / draws
    return np.asarray(4 * share * (1 - share))


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
