"""What only the page of one experiment shows: costs by source, kinds of failures, and related experiments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evalflows.reports.experiment_report import Failure
from evalflows.store.sql import ask, ask_records, fields_of, record_of, records_of
from evalflows.store.store import Store

MOST_FAILURES = 20
LINKED = 5
"""Examples of a failure that are named."""

_BASELINES = """
select baseline_experiment_id, baseline, relation, baseline_state, baseline_started_at
from experiment_pairs where candidate_experiment_id = $1 order by relation desc
"""

_BESIDE = """
select experiment_id, name, 'beside', state, started_at from experiments
where run_group = $1 and experiment_id <> $2 order by started_at, target
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCost:
    """Calls, cost and latency of the target, of an evaluator, or of all; for all models, or for one."""

    source: str
    model: str
    n: int | None
    failed: int | None
    calls: int | None
    calls_cached: int | None
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    cost_known_usd: float | None
    unpriced: int
    cost_reason: str | None
    latency_p50_s: float | None
    latency_p95_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureKind:
    """How often a target or an evaluator failed in one way."""

    source: str  # `target`, or the evaluator
    kind: str
    error: str | None
    count: int
    examples: Sequence[str]  # the first ones
    trace: str | None  # the frames of the user's code


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedExperiment:
    """An experiment that this one is compared with, or that ran beside it."""

    experiment_id: str
    name: str
    relation: str  # `run`: the baseline of its run, `gate`: of a gate, `previous`: the run before, `beside`
    state: str
    started_at: datetime


def costs_of(store: Store, experiment: str) -> list[SourceCost]:
    """Return cost and latency of an experiment: of all, of the target, then of each evaluator."""
    return ask_records(store, SourceCost, _COSTS, [experiment])


def failure_kinds(store: Store, experiment: str, failures: Sequence[Failure]) -> list[FailureKind]:
    """Return the failures of an experiment by kind, the most frequent first; `failures` have the frames of the code."""
    (rows,) = ask(store, (_FAILURE_FACTS, [experiment, LINKED, MOST_FAILURES]))
    traces = {(failure.source, failure.error): failure.trace for failure in failures}
    return [record_of(FailureKind, row, trace=traces.get((row[0], row[2]))) for row in rows]


def related_experiments(store: Store, experiment: str, run_group: str) -> list[RelatedExperiment]:
    """Return the baselines of an experiment, the run before it, and those of the same run."""
    baselines, beside = ask(store, (_BASELINES, [experiment]), (_BESIDE, [run_group, experiment]))
    found = records_of(RelatedExperiment, baselines)
    known = {record.experiment_id for record in found}
    return found + [record for record in records_of(RelatedExperiment, beside) if record.experiment_id not in known]


_COSTS = f"""
select {fields_of(SourceCost)} from cost_and_latency where experiment_id = $1
order by source <> 'all', source <> 'target', source, model <> 'all', model
"""

_FAILURE_FACTS = """
select coalesce(evaluator, source) as source, kind, error, count(*) as n,
       list_slice(list_sort(list(distinct example_id)), 1, $2) as examples
from failures where experiment_id = $1 and kind <> 'no_output'
group by all order by n desc, source, kind, error limit $3
"""
