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
    outcomes,
    repeated_estimate,
    replicate_differences,
    without_inference,
)
from evalflows.analysis.differences.metric_pairs import PairedMetric, too_few_drawn
from evalflows.analysis.gates.gate_evaluation import COMPARED, GateEvaluation
from evalflows.analysis.gates.rules import Rule
from evalflows.stats.clusters import clustering_of
from evalflows.stats.differences.paired_many import PairedDifferences, paired_differences
from evalflows.store.queries.metric_values import Values
from evalflows.store.reasons import Reason

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateDecisions:
    """A gate's decisions on the replicates, without thresholds, which concern one side only."""

    failed: Mask
    passed: Mask
    caught: Mask  # a rule on a metric with a planted regression is broken


@dataclass(frozen=True, kw_only=True)
class Replicates:
    """`count` replicates of a pair that has all estimates of a gate's non-inferiority and superiority rules."""

    evaluation: GateEvaluation
    count: int
    seed: int

    def decisions(self, planted: Mapping[str, float] | None = None) -> ReplicateDecisions:
        """The decisions; `planted` has the regression planted in the candidate, by metric."""
        regressions = planted or {}
        codes_by_rule = [(rule, codes) for rule, codes in self.outcomes(regressions) if rule.kind in COMPARED]
        of_regressed = [codes == BROKEN for rule, codes in codes_by_rule if rule.metric in regressions]
        return ReplicateDecisions(
            failed=np.any([codes == BROKEN for _, codes in codes_by_rule], axis=0),
            passed=np.all([codes == MET for _, codes in codes_by_rule], axis=0),
            caught=np.any(of_regressed, axis=0) if of_regressed else np.zeros(self.count, dtype=bool),
        )

    def outcomes(self, planted: Mapping[str, float]) -> list[tuple[Rule, Codes]]:
        """The outcomes, shape (replicates,), of each rule that has an estimate, except plain thresholds."""
        testable = [
            (rule, self._estimate(rule.metric, planted.get(rule.metric)))
            if rule.kind in COMPARED
            else (rule, repeated_estimate(estimate, self.count))
            for rule, estimate in self.evaluation.estimates
            if not isinstance(estimate, Reason) and rule.kind != "threshold"
        ]
        gate, confidence_level = self.evaluation.gate, self.evaluation.pair.spec.confidence_level
        codes = outcomes(
            testable, confidence_level=confidence_level, min_examples=gate.min_examples, adjustment=gate.adjustment
        )
        return [(rule, of_rule) for (rule, _), of_rule in zip(testable, codes, strict=True)]

    def feasible_regression(self, metric: str, regression: float) -> float:
        """The largest regression up to `regression` that can be planted: values have a worst possible one."""
        return min(regression, _distance_to_worst(self.evaluation.compared[metric]))

    def _estimate(self, metric: str, regression: float | None) -> ReplicateEstimates:
        if regression is None:
            return self._without_difference[metric]
        return self._swapped(metric).with_regression(regression, self.seed).estimates()

    def _swapped(self, metric: str) -> "ReplicateValues":
        swaps = self.swaps[:, self.evaluation.pair.shared_places(metric)]
        return swap_sides(self.evaluation.compared[metric], swaps)

    @cached_property
    def _without_difference(self) -> Mapping[str, ReplicateEstimates]:
        return {metric: self._swapped(metric).estimates() for metric in self.evaluation.compared}

    @cached_property
    def swaps(self) -> Mask:
        """Which shared examples each replicate swaps, shape (replicates, examples): whole clusters, for all rules."""
        pair = self.evaluation.pair
        assert pair.matched is not None  # it has estimates of differences
        clustering = clustering_of(pair.matched.of_clusters(pair.clusters), pair.matched.n_shared)
        drawn = np.random.default_rng([self.seed, 0]).random((self.count, clustering.count)) < 0.5
        return np.asarray(drawn[:, clustering.numbers])


def swap_sides(paired: PairedMetric, swaps: Mask) -> "ReplicateValues":
    """Swap candidate and baseline where `swaps`, of shape (replicates, examples), is true."""
    ours, theirs = paired.candidate, paired.baseline
    return ReplicateValues(
        paired=paired,
        candidate=np.where(swaps, theirs.values, ours.values),
        baseline=np.where(swaps, ours.values, theirs.values),
        candidate_missing=np.where(swaps, theirs.missing, ours.missing),
        baseline_missing=np.where(swaps, ours.missing, theirs.missing),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateValues:
    """One metric of a pair in each replicate, arrays of shape (replicates, examples).

    Which examples have values on both sides, or a missing value, is the same in all replicates.
    """

    paired: PairedMetric
    candidate: Values
    baseline: Values
    candidate_missing: Mask
    baseline_missing: Mask

    def with_regression(self, regression: float, seed: int) -> "ReplicateValues":
        """Make the candidate's mean worse by `regression`: random passes become fails; bounded values move the same
        fraction of their distance to the worst value; unbounded values all move by the same amount."""
        worst, distance = _worst(self.paired), _distance_to_worst(self.paired)
        if not np.isfinite(worst):
            regressed = self.candidate + (-regression if self.paired.scale.higher_is_better else regression)
        elif self.paired.is_binary:
            drawn = np.random.default_rng([seed, 1]).random(self.candidate.shape)
            fails = drawn < min(regression / distance, 1.0) if distance else False
            regressed = np.where(fails & ~np.isnan(self.candidate), worst, self.candidate)
        else:
            regressed = self.candidate + (min(regression / distance, 1.0) if distance else 0.0) * (
                worst - self.candidate
            )
        return replace(self, candidate=regressed)

    def estimates(self) -> ReplicateEstimates:
        differences, worst_cases = self._known_differences(), None
        if not self.paired.n_missing:
            worst_cases = differences, differences
        elif self.paired.scale.is_bounded:
            worst_cases = self._worst_case_differences("smallest"), self._worst_case_differences("largest")
        return replicate_differences(differences, worst_cases, higher_is_better=self.paired.scale.higher_is_better)

    def _known_differences(self) -> PairedDifferences:
        both = ~np.isnan(self.paired.candidate.values) & ~np.isnan(self.paired.baseline.values)
        return self._difference(self.candidate, self.baseline, both)

    def _worst_case_differences(self, extreme: Literal["smallest", "largest"]) -> PairedDifferences:
        counted = np.ones(self.candidate.shape[1], dtype=bool)
        for side in (self.paired.candidate, self.paired.baseline):
            counted &= ~np.isnan(side.values) | side.missing
        low, high = self.paired.scale.bounds
        of_candidate, of_baseline = (low, high) if extreme == "smallest" else (high, low)
        candidate, baseline = (
            np.where(missing, replacement, values)
            for values, missing, replacement in (
                (self.candidate, self.candidate_missing, of_candidate),
                (self.baseline, self.baseline_missing, of_baseline),
            )
        )
        return self._difference(candidate, baseline, counted)

    def _difference(self, candidate: Values, baseline: Values, chosen: Mask) -> PairedDifferences:
        """The vectorised form of `analysis.differences.metric_pairs.PairedMetric`."""
        all_weights = np.maximum(self.paired.candidate.weights, self.paired.baseline.weights)
        weights = all_weights[chosen]
        is_weighted = bool(weights.size and np.ptp(weights))
        clusters, support = self.paired.clusters, self.paired.scale.support
        clipped_candidate, clipped_baseline = (np.clip(side[:, chosen], *support) for side in (candidate, baseline))
        sides = clipped_candidate, clipped_baseline
        chosen_clusters = None if clusters is None else [clusters[place] for place in np.flatnonzero(chosen).tolist()]
        ends = None if is_weighted else self.paired.yes_no_ends
        if ends is not None and all(np.isin(side, ends).all() for side in sides):
            ours, theirs = (side == ends[1] for side in sides)
            differences = paired_differences(ours, theirs, chosen_clusters, binary=True).rescaled(ends[1] - ends[0])
        else:
            differences = paired_differences(
                *sides,
                chosen_clusters,
                weights=weights if is_weighted else None,
                bounds=None if is_weighted or not np.isfinite(support).all() else support,
            )
        differences = replace(differences, widest=min(differences.widest, self.paired.widest))
        return without_inference(differences) if too_few_drawn(all_weights, chosen) else differences


def _worst(paired: PairedMetric) -> float:
    """The worst possible value; infinite if unbounded."""
    low, high = paired.yes_no_ends or paired.scale.support
    return low if paired.scale.higher_is_better else high


def _distance_to_worst(paired: PairedMetric) -> float:
    """The distance of the mean of both sides from the worst possible value."""
    values = np.concatenate([paired.candidate.values, paired.baseline.values])
    known = values[~np.isnan(values)]
    return abs(float(known.mean()) - _worst(paired)) if known.size else 0.0
