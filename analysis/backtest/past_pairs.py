"""The past pairs of experiments that a gate can be backtested on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evalflows.analysis.differences.target_changes import is_same_target
from evalflows.reports.backtest import Relation
from evalflows.specs.experiment import TRIAL
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import MEASURES, base_metric
from evalflows.specs.metric_slices import metric_of
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.baselines import Approval, approvals
from evalflows.store.records import ExperimentRow
from evalflows.store.row_specs import experiment_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPair:
    """Two past experiments, and why they are compared."""

    candidate: ExperimentRow
    baseline: ExperimentRow
    relation: Relation

    @property
    def is_same_target(self) -> bool:
        return bool(is_same_target(self.candidate, self.baseline))


@dataclass(frozen=True, kw_only=True)
class PastExperiments:
    """The completed experiments of a store that have all metrics of a gate."""

    store: Store
    gate: GateSpec

    def pairs(self) -> list[PastPair]:
        """Pair each experiment with every earlier one on the same dataset, by name or by enough shared examples.

        The newest candidates come first; of each candidate, the baseline that the gate would have used comes first.
        """
        return [pair for row in self.experiments for pair in self._of(row)]

    @cached_property
    def experiments(self) -> Sequence[ExperimentRow]:
        """The experiments, newest first."""
        wanted = {base_metric(metric_of(name)) for name in self.gate.metrics} - {*MEASURES}
        ((*rows,),) = ask(self.store, (_EXPERIMENTS, [TRIAL]))
        with_all_metrics = [experiment_id for experiment_id, metrics in rows if wanted <= {*(metrics or [])}]
        return [self.store.read("experiments", experiment_id)[0] for experiment_id in with_all_metrics]

    def _of(self, row: ExperimentRow) -> Iterator[PastPair]:
        baseline_then = self._baseline_then(row)
        if baseline_then is not None:
            yield PastPair(candidate=row, baseline=baseline_then, relation="baseline")
        for other in self.experiments:
            if other is not baseline_then and other.started_at < row.started_at and self._fits(row, other):
                yield PastPair(candidate=row, baseline=other, relation="earlier")

    def _baseline_then(self, row: ExperimentRow) -> ExperimentRow | None:
        """The baseline at the time of the candidate: a target of the same run group, or the approved experiment."""
        spec = experiment_spec(row)
        target = spec.baseline_target(self.gate)
        others = [other for other in self.experiments if other is not row]
        if target is not None:
            same_group = (other for other in others if other.run_group == row.run_group)
            return next((other for other in same_group if other.target == target != row.target), None)
        name, ended_at = self.gate.baseline or spec.name, row.ended_at or row.started_at
        earlier = (approval for approval in self._approvals if approval.recorded_at <= ended_at)
        approved = next((approval.experiment_id for approval in earlier if approval.name == name), None)
        return next((other for other in others if other.experiment_id == approved), None)

    def _fits(self, row: ExperimentRow, other: ExperimentRow) -> bool:
        if row.snapshot_id == other.snapshot_id or row.dataset_name == other.dataset_name is not None:
            return True
        return self._shared.get(frozenset((row.snapshot_id, other.snapshot_id)), 0) >= self.gate.min_examples

    @cached_property
    def _approvals(self) -> Sequence[Approval]:
        return sorted(approvals(self.store), key=lambda approval: approval.recorded_at, reverse=True)

    @cached_property
    def _shared(self) -> Mapping[frozenset[str], int]:
        """How many examples with the same inputs two snapshots share."""
        snapshots = list(dict.fromkeys(row.snapshot_id for row in self.experiments))
        (rows,) = ask(self.store, (_SHARED, [snapshots]))
        return {frozenset((snapshot, other)): count for snapshot, other, count in rows}


_EXPERIMENTS = """
with given as (
    select experiment_id, list(distinct metric) as metrics
    from scores where subject_kind = 'run' and turn is null group by experiment_id
)
select experiment_id, metrics from experiments left join given using (experiment_id)
where state = 'completed' and not list_contains(tags, $1) order by started_at desc, experiment_id desc
"""

_SHARED = """
select one.snapshot_id, other.snapshot_id, count(*)
from examples one join examples other using (example_id)
where one.snapshot_id < other.snapshot_id and one.inputs = other.inputs
  and list_contains($1, one.snapshot_id) and list_contains($1, other.snapshot_id)
group by all
"""
