"""Stored observations as the objects that mappers, filters and evaluators get: observations, traces, sessions."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from evalflows.store.trace_records import ObservationRow
from evalflows.telemetry.conventions.message_events import Event
from evalflows.telemetry.conventions.openai_messages import messages_of, parsed
from evalflows.telemetry.fields import Fields, from_text
from evalflows.telemetry.messages import OUTPUT, Conversation, conversation_of
from evalflows.telemetry.otlp import TIME
from evalflows.telemetry.tool_calls import asked_calls, join_tool_calls, run_call
from evalflows.telemetry.trace_content import content_of
from evalflows.telemetry.views import ObservationView, SessionView, ToolCall, TraceView

TALKING = ("generation", "agent")
"""Types of observations that have a conversation with a model."""
PRICED = ("generation", "embedding")
"""Types whose tokens and cost add up to those of a trace."""


def observation_view(row: ObservationRow, logs: Sequence[ObservationRow] = ()) -> ObservationView:
    """Return an observation. `logs` are the log records that belong to it, which may hold its messages."""
    fields = Fields.of(row)
    kind = fields.type()
    events = _events(row, logs)
    said = _conversation(fields, kind, events)
    captured = said.captured()
    view = ObservationView(
        id=row.span_id,
        trace_id=row.trace_id,
        parent_id=row.parent_id,
        type=kind,
        name=row.name,
        started_at=row.started_at,
        ended_at=row.ended_at,
        latency_s=_seconds(row.started_at, row.ended_at),
        status=row.status,
        status_message=row.status_message,
        input=_side(fields, "input", kind, captured.request),
        output=_side(fields, "output", kind, captured.answer),
        messages=[*captured.request, *captured.answer] or None,
        model=fields.text("model"),
        provider=fields.text("provider"),
        tokens_in=fields.whole_number("tokens_in"),
        tokens_out=fields.whole_number("tokens_out"),
        cost_usd=fields.number("cost_usd"),
        session_id=fields.text("session_id"),
        user_id=fields.text("user_id"),
        tags=fields.tags(),
        version=fields.text("version"),
        environment=fields.text("environment"),
        service=fields.text("service"),
        trace_name=fields.text("trace_name"),
        metadata=fields.metadata(),
    )
    view.tool_calls = _tool_calls(view, fields, said)
    return view


def trace_view(rows: Sequence[ObservationRow]) -> TraceView:
    """Return a trace of its observations, in any order. Raise ValueError without any.

    The root is the observation without a parent, else the earliest. A log record is part of the span it belongs to, or
    an observation of its own if that span is missing.
    """
    if not rows:
        raise ValueError("rows: got none, wanted at least one observation")
    spans = {row.span_id: row for row in rows if row.kind != "log"}
    logs: defaultdict[str | None, list[ObservationRow]] = defaultdict(list)
    for row in rows:
        if row.kind == "log":
            logs[row.parent_id].append(row)
    alone = [row for parent, records in logs.items() if parent not in spans for row in records]
    views = [observation_view(row, logs.get(row.span_id, ())) for row in (*spans.values(), *alone)]
    views.sort(key=lambda view: (view.started_at, view.id))
    join_tool_calls(views)
    return _trace_of(views)


def _trace_of(views: list[ObservationView]) -> TraceView:
    ordered = sorted(views, key=lambda view: (view.type == "event", view.parent_id is not None))
    root = ordered[0]
    ended_at = max(view.ended_at or view.started_at for view in views)
    has_ended = any(view.ended_at for view in views)
    input_, output = content_of(root, views)
    priced = [view for view in views if view.type in PRICED]
    costs = [view.cost_usd for view in priced if view.cost_usd is not None]
    return TraceView(
        id=root.trace_id,
        name=_first(views, lambda view: view.trace_name) or root.name,
        started_at=views[0].started_at,
        ended_at=ended_at,
        latency_s=_seconds(views[0].started_at, ended_at) if has_ended else None,
        status="error" if root.status == "error" else "ok",
        input=input_,
        output=output,
        session_id=_first(ordered, lambda view: view.session_id),
        user_id=_first(ordered, lambda view: view.user_id),
        tags=sorted({tag for view in views for tag in view.tags}),
        version=_first(ordered, lambda view: view.version),
        environment=_first(ordered, lambda view: view.environment),
        service=_first(ordered, lambda view: view.service),
        tokens_in=_total(view.tokens_in for view in priced),
        tokens_out=_total(view.tokens_out for view in priced),
        cost_usd=sum(costs) if costs else max((v.cost_usd for v in views if v.cost_usd is not None), default=None),
        metadata=root.metadata,
        observations=views,
    )


def session_view(traces: Iterable[TraceView]) -> SessionView:
    """Return a session of its traces, in any order. Raise ValueError without any."""
    ordered = sorted(traces, key=lambda trace: (trace.started_at, trace.id))
    if not ordered:
        raise ValueError("traces: got none, wanted at least one trace")
    return SessionView(
        id=ordered[0].session_id or ordered[0].id,
        started_at=ordered[0].started_at,
        ended_at=max((trace.ended_at for trace in ordered if trace.ended_at), default=None),
        user_id=_first(ordered, lambda trace: trace.user_id),
        tags=sorted({tag for trace in ordered for tag in trace.tags}),
        version=_first(ordered[::-1], lambda trace: trace.version),
        environment=_first(ordered, lambda trace: trace.environment),
        traces=ordered,
    )


def _events(row: ObservationRow, logs: Sequence[ObservationRow]) -> list[Event]:
    spans = [(event["name"], event.get("attributes") or {}) for event in from_text(row.events) or ()]
    records = [(record.name, Fields.of(record).attributes) for record in logs]
    return spans + sorted(records, key=lambda record: int(record[1].get(TIME) or 0))


def _conversation(fields: Fields, kind: str, events: Sequence[Event]) -> Conversation:
    if kind not in TALKING:
        return Conversation()
    values = (fields.value("input"), fields.value("output")) if kind == "generation" else (None, None)
    return conversation_of(fields.attributes, events, values)


def _side(fields: Fields, field: str, kind: str, messages: Sequence[dict[str, Any]]) -> Any:
    """Return an observation's input or output: messages of a model call, and else what is there, parsed."""
    found = parsed(fields.value(field))
    if kind == "agent" and field == "output" and found is not None and OUTPUT not in fields.attributes:
        return found
    if messages:
        return {"messages": list(messages)}
    if found == {} and _of_langsmith(fields):  # what LangSmith leaves of values that are hidden
        return None
    return None if kind in TALKING and messages_of(found) else found


def _of_langsmith(fields: Fields) -> bool:
    return fields.row.source == "langsmith" or "langsmith.span.kind" in fields.short


def _tool_calls(view: ObservationView, fields: Fields, said: Conversation) -> list[ToolCall]:
    if view.type == "tool":
        return [run_call(view, fields.text("tool_name"), fields.text("tool_call_id"))]
    return asked_calls(said.answer)


def _seconds(started_at: datetime, ended_at: datetime | None) -> float | None:
    return (ended_at - started_at).total_seconds() if ended_at and ended_at >= started_at else None


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _first(items: Sequence[Any], field: Callable[[Any], str | None]) -> str | None:
    return next((value for item in items if (value := field(item)) is not None), None)
