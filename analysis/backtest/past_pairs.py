"""The past pairs of experiments that a gate can be backtested on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from evalflows.reports.backtest import Relation
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric import MEASURES
from evalflows.specs.metric_names import base_metric
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.baselines import Approval, approvals
from evalflows.store.records import ExperimentRow
from evalflows.store.row_specs import experiment_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    candidate: ExperimentRow
    baseline: ExperimentRow
    relation: Relation

    @property
    def is_same_target(self) -> bool:
        return self.candidate.target_version == self.baseline.target_version


@dataclass(frozen=True, kw_only=True)
class Past:
    """The completed experiments of a store that have all metrics of a gate."""

    store: Store
    gate: GateSpec

    def pairs(self) -> list[Pair]:
        """Pair each experiment with every earlier one on the same dataset, by name or by enough shared examples.

        The newest candidates come first; of each candidate, the baseline that the gate would have used comes first.
        """
        return [pair for row in self.experiments for pair in self._of(row)]

    @cached_property
    def experiments(self) -> Sequence[ExperimentRow]:
        """The newest first."""
        wanted = {base_metric(metric) for metric in self.gate.metrics if base_metric(metric) not in MEASURES}
        ((*found,),) = ask(self.store, (_EXPERIMENTS, []))
        fit = [identity for identity, metrics in found if wanted <= {*(metrics or [])}]
        return [self.store.read("experiments", identity)[0] for identity in fit]

    def _of(self, row: ExperimentRow) -> Iterator[Pair]:
        then = self._baseline_then(row)
        if then is not None:
            yield Pair(candidate=row, baseline=then, relation="baseline")
        for other in self.experiments:
            if other is not then and other.started_at < row.started_at and self._fits(row, other):
                yield Pair(candidate=row, baseline=other, relation="earlier")

    def _baseline_then(self, row: ExperimentRow) -> ExperimentRow | None:
        """The baseline when the candidate ran: a target of the same run group, or the approved experiment."""
        spec = experiment_spec(row)
        target = spec.baseline_target(self.gate)
        if target is not None:
            together = (one for one in self.experiments if one.run_group == row.run_group and one is not row)
            return next((one for one in together if one.target == target != row.target), None)
        name, when = self.gate.baseline or spec.name, row.ended_at or row.started_at
        held = next((one for one in self._approvals if one.name == name and one.recorded_at <= when), None)
        named = (one for one in self.experiments if held and one.experiment_id == held.experiment_id)
        return next((one for one in named if one is not row), None)

    def _fits(self, row: ExperimentRow, other: ExperimentRow) -> bool:
        if row.snapshot_id == other.snapshot_id or row.dataset_name == other.dataset_name is not None:
            return True
        return self._shared.get(frozenset((row.snapshot_id, other.snapshot_id)), 0) >= self.gate.min_examples

    @cached_property
    def _approvals(self) -> Sequence[Approval]:
        return sorted(approvals(self.store), key=lambda one: one.recorded_at, reverse=True)

    @cached_property
    def _shared(self) -> Mapping[frozenset[str], int]:
        """How many examples with the same inputs two snapshots share."""
        snapshots = list(dict.fromkeys(row.snapshot_id for row in self.experiments))
        (found,) = ask(self.store, (_SHARED, [snapshots]))
        return {frozenset((one, other)): count for one, other, count in found}


_EXPERIMENTS = """
with given as (
    select experiment_id, list(distinct metric) as metrics
    from scores where subject_kind = 'run' and turn is null group by experiment_id
)
select experiment_id, metrics from experiments left join given using (experiment_id)
where state = 'completed' order by started_at desc, experiment_id desc
"""

_SHARED = """
select one.snapshot_id, other.snapshot_id, count(*)
from examples one join examples other using (example_id)
where one.snapshot_id < other.snapshot_id and one.inputs = other.inputs
  and list_contains($1, one.snapshot_id) and list_contains($1, other.snapshot_id)
group by all
"""
