"""Read experiments for comparison, each part from the store only once."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from evalflows.analysis.differences.comparability import JudgeModels, judge_models
from evalflows.analysis.differences.judge_validation import failed_judges
from evalflows.analysis.differences.matching import MatchedExamples, Places, matched
from evalflows.analysis.differences.metric_pairs import Clusters, drop_ambiguous
from evalflows.analysis.differences.pass_at_k import trial_values
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.parquet import Store
from evalflows.store.queries.example_conditions import places_where
from evalflows.store.queries.example_slices import slice_values
from evalflows.store.queries.metric_values import MetricValues, clusters_of, metric_values
from evalflows.store.queries.rounds import SharedRounds, shared_rounds
from evalflows.store.reasons import Reason
from evalflows.store.records import ExperimentRow
from evalflows.store.row_specs import experiment_spec

T = TypeVar("T")


class MetricReader:
    """A reader that caches what it reads; use it only while experiments do not change.

    Without `keeps_values`, it reads the values of metrics again each time, and has one metric in memory at a time.
    """

    def __init__(self, store: Store, *, keeps_values: bool = True) -> None:
        self.store, self._keeps_values = store, keeps_values
        self._read: dict[tuple[str, ...], Any] = {}

    def spec(self, row: ExperimentRow) -> ExperimentSpec:
        """The spec that an experiment was run by."""
        return self._once(("spec", row.experiment_id), lambda: experiment_spec(row))

    def values(self, row: ExperimentRow, spec: ExperimentSpec) -> Mapping[str, MetricValues]:
        """By metric, without metrics that several evaluators give."""
        return drop_ambiguous(list(self.all_values(row, spec)))

    def all_values(self, row: ExperimentRow, spec: ExperimentSpec) -> Iterator[MetricValues]:
        """The metrics of an experiment, and the pass@k metrics that the spec declares of them."""
        read = metric_values(self.store, row)
        values = self._once(("values", row.experiment_id), lambda: [*read]) if self._keeps_values else read
        for metric in values:
            yield metric
            yield from self._trial_values(row, metric, spec)

    def clusters(self, row: ExperimentRow) -> Clusters:
        """The cluster of each example, in the snapshot's order; None if no example has one."""
        return self._once(("clusters", row.snapshot_id), lambda: clusters_of(self.store, row.snapshot_id))

    def slice_values(self, snapshot_id: str, path: str) -> list[str | None]:
        """Each example's value at a path, in the snapshot's order; None if it has none."""
        return self._once(("slice", snapshot_id, path), lambda: slice_values(self.store, snapshot_id, path))

    def places_where(self, snapshot_id: str, condition: str) -> Places:
        """The positions of the examples for which a SQL condition holds. Raise InputError if it is none."""
        return self._once(("where", snapshot_id, condition), lambda: places_where(self.store, snapshot_id, condition))

    def matched(self, candidate: ExperimentRow, baseline: ExperimentRow) -> MatchedExamples:
        key = ("matched", candidate.snapshot_id, baseline.snapshot_id)
        return self._once(key, lambda: matched(self.store, candidate, baseline))

    def shared_rounds(self, candidate: ExperimentRow, baseline: ExperimentRow) -> SharedRounds:
        key = ("rounds", candidate.experiment_id, baseline.experiment_id)
        return self._once(key, lambda: shared_rounds(self.store, candidate, baseline))

    def failed_judges(self, row: ExperimentRow) -> Mapping[str, Reason]:
        return self._once(("failed judges", row.run_group), lambda: failed_judges(self.store, row.run_group))

    def judge_models(self, row: ExperimentRow) -> JudgeModels:
        return self._once(("judges", row.experiment_id), lambda: judge_models(self.store, row))

    def _trial_values(self, row: ExperimentRow, metric: MetricValues, spec: ExperimentSpec) -> list[MetricValues]:
        declared = spec.direction(metric.metric)
        if not declared.pass_k:
            return []
        key = ("trials", row.experiment_id, metric.metric, metric.evaluator_version, declared.model_dump_json())
        return self._once(key, lambda: list(trial_values(self.store, row, metric, declared)))

    def _once(self, key: tuple[str, ...], read: Callable[[], T]) -> T:
        if key not in self._read:
            self._read[key] = read()
        content: T = self._read[key]
        return content
