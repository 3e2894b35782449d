"""Trace evaluations, their batches, and the values of their metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from evalflows.specs.dataset import SelectedScope
from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.frozen import dataclass
from evalflows.specs.metrics import MetricSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.records import ExperimentState
from evalflows.store.sql import ask, ask_records, fields_of, records_of
from evalflows.store.store import Store
from evalflows.store.trace_records import TraceScope as RecordedScope
from evalflows.store.trace_records import WatermarkRow

_METRICS = "select distinct metric from trace_scores where status = 'scored' and value is not null order by 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvaluation:
    """All batches of one name."""

    evaluation_id: str
    name: str
    scope: RecordedScope
    state: ExperimentState  # of the newest batch
    batches: int
    items: int
    failed: int
    scores: int
    last_at: datetime


def trace_evaluations(store: Store) -> list[TraceEvaluation]:
    """Return the trace evaluations, the one that judged last first."""
    return ask_records(store, TraceEvaluation, _EVALUATIONS)


def trace_evaluation(store: Store, name: str) -> TraceEvaluation:
    """Return the trace evaluation of a name. Raise InputError if there is none."""
    known = trace_evaluations(store)
    for evaluation in known:
        if evaluation.name == name:
            return evaluation
    there = ", ".join(sorted(evaluation.name for evaluation in known)) or "none yet"
    raise NotFoundError(f"trace evaluation {name!r}: not in {store.layout.root}, wanted one of: {there}")


def batches_of(store: Store, evaluation_id: str, limit: int) -> Sequence[WatermarkRow]:
    """Return the newest batches of an evaluation, newest first."""
    query = (
        f"select {fields_of(WatermarkRow)} from watermarks where evaluation_id = $1 order by started_at desc limit $2"
    )
    return ask_records(store, WatermarkRow, query, [evaluation_id, limit])


_EVALUATIONS = """
select evaluation_id, arg_max(name, started_at), arg_max(scope, started_at), arg_max(state, started_at), count(*),
       sum(items_fetched)::bigint, sum(items_failed)::bigint, sum(scores_created)::bigint, max(started_at)
from watermarks
group by evaluation_id
order by 9 desc
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemValue:
    """What one evaluator gave to one trace or session and its parts."""

    item: str
    evaluator: str
    lowest: float
    mean: float
    highest: float
    spread: float | None  # standard deviation over the repeats of the judge


def item_values(store: Store, scope: SelectedScope, metric: str) -> list[ItemValue]:
    """Return the values of a metric, by item and evaluator. Of each evaluator, only its newest version counts.

    An item's value includes those of its observations, and a session's those of its traces. Raise InputError if no
    item has a numeric value.
    """
    (rows,) = ask(store, (_VALUES, [scope, metric]))
    if not rows:
        (known,) = ask(store, (_METRICS, []))
        names = ", ".join(name for (name,) in known) or "none yet (`evaluate-traces`)"
        raise InputError(f"metric {metric!r}: no {scope} have numeric scores of it, wanted one of: {names}")
    return records_of(ItemValue, rows)


def newest_spec(store: Store, name: str) -> tuple[str, TraceEvaluationSpec] | None:
    """Return the id and the newest spec of the trace evaluation of a name; None if there is none."""
    query = "select evaluation_id, spec from source.watermarks where name = ? order by recorded_at desc limit 1"
    found = store.query(query, [name])
    return (found[0][0], TraceEvaluationSpec.model_validate_json(found[0][1])) if found else None


def production_metric(store: Store, metric: str) -> MetricSpec:
    """Return the declared properties of a metric, with its direction, by the newest evaluation that has scored it."""
    query = """select w.spec from source.watermarks w where w.evaluation_id in (
                   select distinct left(experiment_id, -11) from staging.scores
                   where metric = ? and starts_with(experiment_id, 'eval-'))
               order by w.recorded_at desc limit 1"""
    found = store.query(query, [metric])
    if found:
        return TraceEvaluationSpec.model_validate(json.loads(found[0][0])).direction(metric)
    return MetricSpec(higher_is_better=MetricSpec().is_higher_better(metric))


_VALUES = """
with given as (
    select case when $1 = 'traces' then trace_id when subject_kind = 'session' then subject_id else session_id end
               as item, evaluator, evaluator_version, value, spread, recorded_at
    from trace_scores
    where metric = $2 and status = 'scored' and value is not null
), newest as (
    select item, evaluator, arg_max(evaluator_version, recorded_at) as evaluator_version
    from given where item is not null group by all
)
select item, evaluator, min(value), avg(value), max(value), max(spread)
from given join newest using (item, evaluator, evaluator_version)
group by item, evaluator order by item, evaluator
"""
