"""A gate held against two experiments of the past, or against the halves of one, by what is in the store."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from specs.experiment import ExperimentSpec
from specs.gate import GateSpec
from store.parquet import Store
from store.records import DecisionConclusion, ExperimentRow
from store.repetition_values import RepetitionValues, repetition_values
from store.values import MetricValues
from tasks.comparability import differences, refused
from tasks.controls import unfit_judges
from tasks.matched import Matched, matched
from tasks.measured import measured_difference, measured_mean
from tasks.rules import Measured, Rule, Ruling, concluded, rules_of, rulings
from tasks.sides import Clusters, Side, Sides, scale_of, told_apart
from tasks.weigh import clusters_in, resting_on, values_of

COMPARED = ("guard", "goal")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What a gate's rules are held against, and what becomes of them."""

    gate: GateSpec
    level: float
    measured: tuple[tuple[Rule, Measured | str], ...]
    sides: Mapping[str, Sides]  # of the metrics of guards and goals that could be compared
    refused: Mapping[str, str]  # those that may not be, and why
    n_shared: int = 0  # examples

    @cached_property
    def rulings(self) -> list[Ruling]:
        return rulings(self.measured, level=self.level, fewest=self.gate.fewest, adjustment=self.gate.adjustment)

    @property
    def conclusion(self) -> DecisionConclusion:
        return concluded(self.rulings)

    @property
    def is_the_same_twice(self) -> bool:
        """Whether both sides have the very same values: then chance had no part in it."""
        pairs = [(one.candidate, one.baseline) for one in self.sides.values()]
        return bool(pairs) and all(np.array_equal(ours.values, theirs.values, equal_nan=True) for ours, theirs in pairs)


@dataclass(frozen=True, kw_only=True)
class History:
    """What a gate needs of experiments; each is read once. A spec says what its metrics are; without one, each
    candidate's own does."""

    store: Store
    gate: GateSpec
    spec: ExperimentSpec | None = None
    _read: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def of_pair(self, candidate: ExperimentRow, baseline: ExperimentRow) -> Replay:
        """As `tasks.case.Case` has it, but for gates that look after each batch, or bridge: see `tasks.backtest`."""
        spec = self._spec(candidate)
        found = self._matched(candidate, baseline)
        why = refused(differences(self.store, candidate, baseline, found.shared, spec))
        ours, theirs = self._values(candidate, spec), self._values(baseline, spec)
        clusters = found.of_clusters(self._clusters(candidate))
        sides = {
            metric: Sides(
                candidate=found.of_candidate(ours[metric]),
                baseline=found.of_baseline(theirs[metric]),
                clusters=clusters,
                scale=scale_of(ours[metric], spec),
                level=spec.level,
            )
            for metric in self.gate.metrics
            if metric in ours and metric in theirs
        }
        unfit = {**self._unfit(baseline), **self._unfit(candidate)}
        return self._replay(spec, ours, sides, why, resting_on(unfit, spec), self._clusters(candidate))

    def of_halves(self, row: ExperimentRow, seed: int) -> Replay:
        """One half of each example's repetitions, by chance, against the other half."""
        spec = self._spec(row)
        found = repetition_values(self.store, row, self.gate.metrics)
        rng = np.random.default_rng(seed)
        order = rng.permuted(np.tile(np.arange(row.repetitions), (row.n_examples, 1)), axis=1)
        half = row.repetitions // 2
        ours, theirs = (
            told_apart([_some_of(one, chosen) for one in found])
            for chosen in (order[:, :half], order[:, half : 2 * half])
        )
        clusters = self._clusters(row)
        sides = {
            metric: Sides(
                candidate=ours[metric],
                baseline=theirs[metric],
                clusters=clusters,
                scale=scale_of(ours[metric], spec),
                level=spec.level,
            )
            for metric in ours
        }
        return self._replay(spec, ours, sides, {}, resting_on(self._unfit(row), spec), clusters)

    def _replay(
        self,
        spec: ExperimentSpec,
        ours: Mapping[str, MetricValues],
        sides: Mapping[str, Sides],
        why_refused: Mapping[str, str],
        unfit: Mapping[str, str],
        clusters: Clusters,
    ) -> Replay:
        def measured(rule: Rule) -> Measured | str:
            one = ours.get(rule.metric)
            if one is None:
                return "nothing gave it, or two evaluators did"
            if one.evaluator in unfit:
                return f"nothing rests on it: {unfit[one.evaluator]}"
            if rule.kind not in COMPARED:
                return measured_mean(Side(values=one, clusters=clusters, scale=scale_of(one, spec)), spec.level)
            both = sides.get(rule.metric)
            if both is None:
                return "the baseline has no such metric"
            why = why_refused.get(rule.metric)
            return f"refused: {why}" if why else measured_difference(both)

        held = tuple((rule, measured(rule)) for rule in rules_of(self.gate))
        compared = {rule.metric for rule, one in held if rule.kind in COMPARED and not isinstance(one, str)}
        return Replay(
            gate=self.gate,
            level=spec.level,
            measured=held,
            sides={metric: both for metric, both in sides.items() if metric in compared},
            refused={rule.metric: why_refused[rule.metric] for rule, _ in held if rule.metric in why_refused},
            n_shared=max((len(both.candidate.values) for both in sides.values()), default=0),
        )

    def _spec(self, row: ExperimentRow) -> ExperimentSpec:
        if self.spec is not None:
            return self.spec
        return self._once(("spec", row.experiment_id), lambda: ExperimentSpec.model_validate_json(row.spec))

    def _values(self, row: ExperimentRow, spec: ExperimentSpec) -> Mapping[str, MetricValues]:
        key = ("values", row.experiment_id, id(spec))
        return self._once(key, lambda: told_apart(list(values_of(self.store, row, spec))))

    def _clusters(self, row: ExperimentRow) -> Clusters:
        return self._once(("clusters", row.snapshot_id), lambda: clusters_in(self.store, row))

    def _unfit(self, row: ExperimentRow) -> Mapping[str, str]:
        return self._once(("unfit", row.run_group), lambda: unfit_judges(self.store, row.run_group))

    def _matched(self, candidate: ExperimentRow, baseline: ExperimentRow) -> Matched:
        key = ("matched", candidate.snapshot_id, baseline.snapshot_id)
        return self._once(key, lambda: matched(self.store, candidate, baseline))

    def _once(self, key: tuple[Any, ...], read: Callable[[], T]) -> T:
        if key not in self._read:
            self._read[key] = read()
        found: T = self._read[key]
        return found


def _some_of(one: RepetitionValues, chosen: np.ndarray[Any, np.dtype[np.intp]]) -> MetricValues:
    """A metric by some repetitions of each example."""
    values, lost = (np.take_along_axis(each, chosen, axis=1) for each in (one.values, one.lost))
    counts = (~np.isnan(values)).sum(axis=1)
    means = np.where(counts > 0, np.nansum(values, axis=1) / np.maximum(counts, 1), np.nan)
    return MetricValues(
        metric=one.metric,
        evaluator=one.evaluator,
        evaluator_version=one.evaluator_version,
        is_yes_no=one.is_yes_no,
        is_binary=one.is_yes_no and chosen.shape[1] == 1,
        values=means,
        missing=np.asarray(lost.any(axis=1)),
        scored=int(counts.sum()),
        lost=int(lost.sum()),
        weights=one.weights,
    )
