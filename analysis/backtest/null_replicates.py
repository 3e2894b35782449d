"""Sign-flip null replicates of a pair: a gate's decisions without a difference, and with a planted regression.

Under the null hypothesis it does not matter which side is the candidate (Fisher 1935). Swapping the sides of random
examples (of whole clusters, if any) turns any pair into one without a difference that keeps its size, noise, clusters
and missing values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from evalflows.analysis.backtest.vectorised_rules import (
    BROKEN,
    MET,
    Codes,
    ReplicateEstimates,
    many_of_difference,
    many_of_one,
    outcomes,
    without_inference,
)
from evalflows.analysis.differences.metric_pairs import PairedMetric, too_few_drawn
from evalflows.analysis.gates.gate_evaluation import COMPARED, GateEvaluation
from evalflows.analysis.gates.rules import Rule
from evalflows.stats.clusters import clustering_of
from evalflows.stats.differences.paired_many import PairedDifferences, paired_differences
from evalflows.store.queries.metric_values import Values
from evalflows.store.reasons import Reason

Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A gate's decisions on the replicates; thresholds, which concern one side only, are left out."""

    failed: Chosen
    passed: Chosen
    caught: Chosen  # a rule of a metric with a planted fall is broken


@dataclass(frozen=True, kw_only=True)
class Replicates:
    """`count` replicates of a pair that has all estimates of a gate's non-inferiority and superiority rules."""

    evaluation: GateEvaluation
    count: int
    seed: int

    def said(self, planted: Mapping[str, float] | None = None) -> Said:
        """The decisions; `planted` maps metrics to the regression planted in the candidate."""
        fall = planted or {}
        found = [(rule, codes) for rule, codes in self.outcomes(fall) if rule.kind in COMPARED]
        of_fall = [one == BROKEN for rule, one in found if rule.metric in fall]
        return Said(
            failed=np.any([one == BROKEN for _, one in found], axis=0),
            passed=np.all([one == MET for _, one in found], axis=0),
            caught=np.any(of_fall, axis=0) if of_fall else np.zeros(self.count, dtype=bool),
        )

    def outcomes(self, planted: Mapping[str, float]) -> list[tuple[Rule, Codes]]:
        """The outcomes of each rule that has an estimate, except plain thresholds."""
        held = [
            (rule, self._estimate(rule.metric, planted.get(rule.metric)))
            if rule.kind in COMPARED
            else (rule, many_of_one(one, self.count))
            for rule, one in self.evaluation.estimates
            if not isinstance(one, Reason) and rule.kind != "threshold"
        ]
        gate, confidence_level = self.evaluation.gate, self.evaluation.pair.spec.confidence_level
        codes = outcomes(
            held, confidence_level=confidence_level, min_examples=gate.min_examples, adjustment=gate.adjustment
        )
        return [(rule, of_rule) for (rule, _), of_rule in zip(held, codes, strict=True)]

    def reachable(self, metric: str, fall: float) -> float:
        """The regression that can be planted, at most `fall`: values cannot be worse than the worst possible one."""
        return min(fall, _room(self.evaluation.compared[metric]))

    def _estimate(self, metric: str, fall: float | None) -> ReplicateEstimates:
        if fall is None:
            return self._without_difference[metric]
        return swapped(self.evaluation.compared[metric], self.swaps).fallen(fall, self.seed).estimates()

    @cached_property
    def _without_difference(self) -> Mapping[str, ReplicateEstimates]:
        return {metric: swapped(paired, self.swaps).estimates() for metric, paired in self.evaluation.compared.items()}

    @cached_property
    def swaps(self) -> Chosen:
        """Which examples each replicate swaps: the same in all metrics, and whole clusters."""
        paired = next(iter(self.evaluation.compared.values()))
        clustering = clustering_of(paired.clusters, len(paired.candidate.values))
        drawn = np.random.default_rng([self.seed, 0]).random((self.count, clustering.count)) < 0.5
        return np.asarray(drawn[:, clustering.numbers])


def swapped(paired: PairedMetric, swaps: Chosen) -> "Drawn":
    ours, theirs = paired.candidate, paired.baseline
    return Drawn(
        paired=paired,
        candidate=np.where(swaps, theirs.values, ours.values),
        baseline=np.where(swaps, ours.values, theirs.values),
        candidate_missing=np.where(swaps, theirs.missing, ours.missing),
        baseline_missing=np.where(swaps, ours.missing, theirs.missing),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One metric of a pair in each replicate, as arrays of replicates by examples. All replicates share the examples
    that both sides have and those with missing values."""

    paired: PairedMetric
    candidate: Values
    baseline: Values
    candidate_missing: Chosen
    baseline_missing: Chosen

    def fallen(self, fall: float, seed: int) -> "Drawn":
        """Lower the candidate's mean by `fall`: random passes become fails; bounded values move the same fraction of
        their distance to the worst value; unbounded values all move by the same amount."""
        worst, room = _worst(self.paired), _room(self.paired)
        if not np.isfinite(worst):
            worse = self.candidate + (-fall if self.paired.scale.higher_is_better else fall)
        elif _is_binary(self.paired):
            flips = (
                np.random.default_rng([seed, 1]).random(self.candidate.shape) < min(fall / room, 1.0) if room else False
            )
            worse = np.where(flips & ~np.isnan(self.candidate), worst, self.candidate)
        else:
            worse = self.candidate + (min(fall / room, 1.0) if room else 0.0) * (worst - self.candidate)
        return replace(self, candidate=worse)

    def estimates(self) -> ReplicateEstimates:
        plain, ends = self._found(), None
        if not self.paired.n_missing:
            ends = plain, plain
        elif self.paired.scale.is_bounded:
            ends = self._had_missing_made_it("smallest"), self._had_missing_made_it("largest")
        return many_of_difference(plain, ends, higher_is_better=self.paired.scale.higher_is_better)

    def _found(self) -> PairedDifferences:
        both = ~np.isnan(self.paired.candidate.values) & ~np.isnan(self.paired.baseline.values)
        return self._difference(self.candidate, self.baseline, both)

    def _had_missing_made_it(self, how: Literal["smallest", "largest"]) -> PairedDifferences:
        counted = np.ones(self.candidate.shape[1], dtype=bool)
        for side in (self.paired.candidate, self.paired.baseline):
            counted &= ~np.isnan(side.values) | side.missing
        low, high = self.paired.scale.bounds
        ours, theirs = (low, high) if how == "smallest" else (high, low)
        one, other = (
            np.where(missing, instead, values)
            for values, missing, instead in (
                (self.candidate, self.candidate_missing, ours),
                (self.baseline, self.baseline_missing, theirs),
            )
        )
        return self._difference(one, other, counted)

    def _difference(self, ours: Values, theirs: Values, chosen: Chosen) -> PairedDifferences:
        """The vectorised form of `analysis.differences.metric_pairs.PairedMetric`."""
        every = np.maximum(self.paired.candidate.weights, self.paired.baseline.weights)
        weights = every[chosen]
        weighted = bool(weights.size and np.ptp(weights))
        clusters, reach = self.paired.clusters, self.paired.scale.support
        one, other = (np.clip(side[:, chosen], *reach) for side in (ours, theirs))
        found = paired_differences(
            one,
            other,
            None if clusters is None else [clusters[place] for place in np.flatnonzero(chosen).tolist()],
            weights=weights if weighted else None,
            binary=_is_binary(self.paired)
            and not weighted
            and all(np.isin(side, (0, 1)).all() for side in (one, other)),
            bounds=None if weighted or not np.isfinite(reach).all() else reach,
        )
        found = replace(found, widest=min(found.widest, self.paired.widest))
        return without_inference(found) if too_few_drawn(every, chosen) else found


def _is_binary(paired: PairedMetric) -> bool:
    return paired.candidate.is_binary and paired.baseline.is_binary


def _worst(paired: PairedMetric) -> float:
    """The worst possible value; infinite if unbounded."""
    low, high = (0.0, 1.0) if _is_binary(paired) else paired.scale.support
    return low if paired.scale.higher_is_better else high


def _room(paired: PairedMetric) -> float:
    """The distance of the mean of both sides from the worst possible value."""
    values = np.concatenate([paired.candidate.values, paired.baseline.values])
    known = values[~np.isnan(values)]
    return abs(float(known.mean()) - _worst(paired)) if known.size else 0.0
