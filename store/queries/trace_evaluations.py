"""The trace evaluations of a store, and their batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evalflows.specs.errors import NotFoundError
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentState
from evalflows.store.trace_records import BatchKind, TraceScope


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvaluation:
    """All batches of one name."""

    evaluation_id: str
    name: str
    scope: TraceScope
    state: ExperimentState  # of the newest batch
    batches: int
    items: int
    failed: int
    scores: int
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBatch:
    """One batch of an evaluation."""

    batch_id: str
    kind: BatchKind
    state: ExperimentState
    reason: str | None
    items_fetched: int
    items_failed: int
    scores_created: int
    cost_usd: float | None
    started_at: datetime


def trace_evaluations(store: Store) -> list[TraceEvaluation]:
    """Return the trace evaluations, the one that judged last first."""
    (rows,) = ask(store, (_EVALUATIONS, []))
    return [TraceEvaluation(**dict(zip(TraceEvaluation.__slots__, row, strict=True))) for row in rows]


def trace_evaluation(store: Store, name: str) -> TraceEvaluation:
    """Return the trace evaluation of a name. Raise InputError if there is none."""
    known = trace_evaluations(store)
    for one in known:
        if one.name == name:
            return one
    there = ", ".join(sorted(one.name for one in known)) or "none yet"
    raise NotFoundError(f"trace evaluation {name!r}: not in {store.layout.root}, wanted one of: {there}")


def batches_of(store: Store, evaluation_id: str, limit: int) -> Sequence[TraceBatch]:
    """Return the newest batches of an evaluation, newest first."""
    columns = ", ".join(TraceBatch.__slots__)
    query = f"select {columns} from watermarks where evaluation_id = $1 order by started_at desc limit $2"
    (rows,) = ask(store, (query, [evaluation_id, limit]))
    return [TraceBatch(**dict(zip(TraceBatch.__slots__, row, strict=True))) for row in rows]


_EVALUATIONS = """
select evaluation_id, arg_max(name, started_at), arg_max(scope, started_at), arg_max(state, started_at), count(*),
       sum(items_fetched)::bigint, sum(items_failed)::bigint, sum(scores_created)::bigint, max(started_at)
from watermarks
group by evaluation_id
order by 9 desc
"""
