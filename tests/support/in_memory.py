"""Pairs of experiments whose values a test gives: nothing is in a store."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.judge_exclusions import Exclusion
from evalflows.analysis.pairing import Clusters, MatchedExamples
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.queries.shared_examples import SharedRounds
from evalflows.store.queries.values import MetricValues
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store

Side = Mapping[str, MetricValues]


class InMemory(MetricReader):
    """Reads what it was given."""

    def __init__(self, paired: Mapping[str, Side], clusters: Sequence[str | None] | None) -> None:
        super().__init__(Store())
        self.paired, self.given = paired, clusters

    def values(self, row: ExperimentRow, spec: ExperimentSpec) -> Side:
        return self.paired[row.experiment_id]

    def clusters(self, row: ExperimentRow) -> Clusters:
        return self.given

    def matched(self, candidate: ExperimentRow, baseline: ExperimentRow) -> MatchedExamples:
        places = np.arange(candidate.n_examples)
        names = [f"e{place}" for place in places]
        return MatchedExamples(example_ids=names, candidate=places, baseline=places, is_whole=True)

    def shared_rounds(self, candidate: ExperimentRow, baseline: ExperimentRow) -> SharedRounds:
        everywhere = np.ones(candidate.n_examples, dtype=bool)
        return SharedRounds(together=everywhere, warm_up=~everywhere, from_ledger=~everywhere)

    def exclusions(self, row: ExperimentRow, spec: ExperimentSpec) -> Mapping[str, Exclusion]:
        return {}

    def judge_models(self, row: ExperimentRow) -> Mapping[tuple[str, str], str]:
        return {}


def in_memory(
    candidate: Side, baseline: Side, spec: ExperimentSpec, clusters: Sequence[str | None] | None = None
) -> ExperimentPair:
    n = len(next(iter(candidate.values())).values)
    reader = InMemory({"candidate": candidate, "baseline": baseline}, clusters)
    ours, theirs = (_row(name, n) for name in ("candidate", "baseline"))
    return ExperimentPair(reader=reader, spec=spec, candidate=ours, baseline=theirs)


def spec_of(confidence_level: float = 0.95, **fields: Any) -> ExperimentSpec:
    return ExperimentSpec.model_validate(
        {
            "name": "in memory",
            "dataset": {"rows": [{"id": "e0", "inputs": "e0?"}]},
            "targets": [{"kind": "python", "name": "bot", "function": "bot:answer"}],
            "confidence_level": confidence_level,
            **fields,
        }
    )


def values_of(metric: str, given: Any, *, missing: Any = None, weights: Any = None, **fields: Any) -> MetricValues:
    """Numbers, one an example; bool for yes or no."""
    values = np.asarray(given)
    is_yes_no = fields.pop("is_yes_no", values.dtype == bool)
    values = values.astype(float)
    gone = np.zeros(len(values), dtype=bool) if missing is None else missing
    return MetricValues(
        metric=metric,
        evaluator=metric,
        evaluator_version="v1",
        is_yes_no=is_yes_no,
        is_binary=fields.pop("is_binary", is_yes_no),
        values=values,
        missing=gone,
        scored=int((~np.isnan(values)).sum()),
        n_missing=int(gone.sum()),
        weights=np.ones(len(values)) if weights is None else weights,
    )


def _row(name: str, n: int) -> ExperimentRow:
    texts = dict.fromkeys(("run_group", "snapshot_id", "target_kind", "evalflows_version"), "x")
    return ExperimentRow(
        experiment_id=name,
        name=name,
        target=name,
        target_version=name,
        n_examples=n,
        repetitions=1,
        chunk_size=250,
        evaluators="[]",
        spec="{}",
        state="completed",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        **texts,
    )
