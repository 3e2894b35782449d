"""A pair many times over, its sides swapped by chance: what a gate says where there is no difference, and where one was
planted.

Under no difference it does not matter which side is the candidate (Fisher 1935), so that swapping the sides of each
example (of each cluster, where there are any) by chance makes a pair without a difference out of any pair, with its
size, its noise, its clusters and what is missing of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from stats.clusters import clustering_of
from stats.paired_many import PairedDifferences, paired_differences
from store.values import Values
from tasks.outcomes import BROKEN, MET, MeasuredMany, many_of_difference, many_of_one, outcomes
from tasks.replay import COMPARED, Replay
from tasks.sides import Sides

Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a gate said of each replicate; floors, which speak of one side alone, are left aside."""

    failed: Chosen
    passed: Chosen
    caught: Chosen  # a rule of a metric with a planted fall is broken


@dataclass(frozen=True, kw_only=True)
class Replicates:
    """A pair whose guards and goals are all measured, `count` times over."""

    replay: Replay
    count: int
    seed: int

    def said(self, planted: Mapping[str, float] | None = None) -> Said:
        """What becomes of them; `planted` are metrics, each with how much worse the candidate is made in it."""
        fall = planted or {}
        held = [
            (rule, self._measured(rule.metric, fall.get(rule.metric)))
            if rule.kind in COMPARED
            else (rule, many_of_one(one, self.count))
            for rule, one in self.replay.measured
            if not isinstance(one, str) and rule.kind != "floor"
        ]
        gate = self.replay.gate
        codes = outcomes(held, level=self.replay.level, fewest=gate.fewest, adjustment=gate.adjustment)
        found = [(rule, one) for (rule, _), one in zip(held, codes, strict=True) if rule.kind in COMPARED]
        of_fall = [one == BROKEN for rule, one in found if rule.metric in fall]
        return Said(
            failed=np.any([one == BROKEN for _, one in found], axis=0),
            passed=np.all([one == MET for _, one in found], axis=0),
            caught=np.any(of_fall, axis=0) if of_fall else np.zeros(self.count, dtype=bool),
        )

    def reachable(self, metric: str, fall: float) -> float:
        """By how much a candidate's mean can be made worse at all, `fall` at most: no value is worse than the worst."""
        return min(fall, _room(self.replay.sides[metric]))

    def _measured(self, metric: str, fall: float | None) -> MeasuredMany:
        if fall is None:
            return self._without_difference[metric]
        return swapped(self.replay.sides[metric], self.swaps).fallen(fall, self.seed).measured()

    @cached_property
    def _without_difference(self) -> Mapping[str, MeasuredMany]:
        return {metric: swapped(sides, self.swaps).measured() for metric, sides in self.replay.sides.items()}

    @cached_property
    def swaps(self) -> Chosen:
        """Of each replicate, which examples have their sides swapped: the same in all metrics, and whole clusters."""
        sides = next(iter(self.replay.sides.values()))
        clustering = clustering_of(sides.clusters, len(sides.candidate.values))
        drawn = np.random.default_rng([self.seed, 0]).random((self.count, clustering.count)) < 0.5
        return np.asarray(drawn[:, clustering.numbers])


def swapped(sides: Sides, swaps: Chosen) -> "Drawn":
    ours, theirs = sides.candidate, sides.baseline
    return Drawn(
        sides=sides,
        candidate=np.where(swaps, theirs.values, ours.values),
        baseline=np.where(swaps, ours.values, theirs.values),
        candidate_missing=np.where(swaps, theirs.missing, ours.missing),
        baseline_missing=np.where(swaps, ours.missing, theirs.missing),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One metric of a pair in each replicate; arrays of replicates by examples. Which examples both sides have, and of
    which something is missing, is the same in all."""

    sides: Sides
    candidate: Values
    baseline: Values
    candidate_missing: Chosen
    baseline_missing: Chosen

    def fallen(self, fall: float, seed: int) -> "Drawn":
        """The candidate's mean made worse by as much: passes become fails by chance, values that have a worst end all
        go the same part of their way to it, others all go by the same amount."""
        worst, room = _worst(self.sides), _room(self.sides)
        if not np.isfinite(worst):
            worse = self.candidate + (-fall if self.sides.scale.higher_is_better else fall)
        elif _is_binary(self.sides):
            flips = (
                np.random.default_rng([seed, 1]).random(self.candidate.shape) < min(fall / room, 1.0) if room else False
            )
            worse = np.where(flips & ~np.isnan(self.candidate), worst, self.candidate)
        else:
            worse = self.candidate + (min(fall / room, 1.0) if room else 0.0) * (worst - self.candidate)
        return replace(self, candidate=worse)

    def measured(self) -> MeasuredMany:
        plain, ends = self._found(), None
        if not self.sides.lost:
            ends = plain, plain
        elif self.sides.scale.is_bounded:
            ends = self._had_missing_made_it("smallest"), self._had_missing_made_it("largest")
        return many_of_difference(plain, ends, higher_is_better=self.sides.scale.higher_is_better)

    def _found(self) -> PairedDifferences:
        both = ~np.isnan(self.sides.candidate.values) & ~np.isnan(self.sides.baseline.values)
        is_there = self.sides.difference(self.sides.level).low is not None
        return self._difference(self.candidate, self.baseline, both, is_there=is_there)

    def _had_missing_made_it(self, how: Literal["smallest", "largest"]) -> PairedDifferences:
        counted = np.ones(self.candidate.shape[1], dtype=bool)
        for side in (self.sides.candidate, self.sides.baseline):
            counted &= ~np.isnan(side.values) | side.missing
        low, high = self.sides.scale.bounds
        ours, theirs = (low, high) if how == "smallest" else (high, low)
        one, other = (
            np.where(missing, instead, np.clip(values, low, high))
            for values, missing, instead in (
                (self.candidate, self.candidate_missing, ours),
                (self.baseline, self.baseline_missing, theirs),
            )
        )
        found = self.sides.had_missing_made_it(how, self.sides.level)
        return self._difference(one, other, counted, is_there=found is not None and found.low is not None)

    def _difference(self, ours: Values, theirs: Values, chosen: Chosen, *, is_there: bool) -> PairedDifferences:
        """As `tasks.sides.Sides` makes it; `is_there` says whether so few stand for so many that there is none."""
        weights = np.maximum(self.sides.candidate.weights, self.sides.baseline.weights)[chosen]
        weighted = bool(weights.size and np.ptp(weights))
        one, other = ours[:, chosen], theirs[:, chosen]
        clusters = self.sides.clusters
        reach = self.sides.scale.reach
        found = paired_differences(
            one,
            other,
            None if clusters is None else [clusters[place] for place in np.flatnonzero(chosen).tolist()],
            weights=weights if weighted else None,
            binary=_is_binary(self.sides)
            and not weighted
            and all(np.isin(side, (0, 1)).all() for side in (one, other)),
            bounds=None if weighted or not np.isfinite(reach).all() else reach,
        )
        return replace(found, has_interval=found.has_interval & is_there) if weighted else found


def _is_binary(sides: Sides) -> bool:
    return sides.candidate.is_binary and sides.baseline.is_binary


def _worst(sides: Sides) -> float:
    """The worst that a value can be; infinite where nothing says so."""
    low, high = (0.0, 1.0) if _is_binary(sides) else sides.scale.reach
    return low if sides.scale.higher_is_better else high


def _room(sides: Sides) -> float:
    """How far the mean of both sides is from the worst."""
    values = np.concatenate([sides.candidate.values, sides.baseline.values])
    known = values[~np.isnan(values)]
    return abs(float(known.mean()) - _worst(sides)) if known.size else 0.0
