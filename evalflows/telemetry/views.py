"""Stored observations as what mappers, filters and evaluators get: observations, traces and sessions, their tree,
their tool calls, and paths into them.

The names are those of OpenTelemetry and Langfuse; Langfuse's other spellings work too. What was not captured is None:
an instrumentation that leaves content out gives no input, not an empty one.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.specs.grouping import grouped
from evalflows.specs.protocols import Message
from evalflows.store.observations import EPOCH
from evalflows.store.trace_records import ObservationRow
from evalflows.telemetry.conventions import (
    OUTPUT,
    Conversation,
    Event,
    Fields,
    answer_text,
    conversation_of,
    from_text,
    last_user_text,
    messages_of,
    parsed,
)
from evalflows.telemetry.otlp import TIME

STEPS = ("span", "chain", "agent")
"""Types that may do the work of a whole trace."""

TALKING = ("generation", "agent")
"""Types of observations that have a conversation with a model."""
PRICED = ("generation", "embedding")
"""Types whose tokens and cost add up to those of a trace."""

_STEP = re.compile(r"([A-Za-z_][\w\-]*)((?:\[[^\[\]]*\])*)")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


@dataclass(slots=True, kw_only=True)
class ToolCall:
    """A tool call of a model or an agent, as an object and as a mapping: `call.name` and `call["name"]`."""

    name: str
    arguments: Any = None  # parsed, if it is JSON text
    id: str | None = None
    result: Any = None  # None if it was not captured
    error: str | None = None

    def __getitem__(self, name: str) -> Any:
        if name not in self.__slots__:
            raise KeyError(f"{name!r}: wanted one of {', '.join(self.__slots__)}")
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name) if name in self.__slots__ else default

    def keys(self) -> Iterator[str]:
        return iter(self.__slots__)


@dataclass(slots=True, kw_only=True)
class ObservationView:
    """One observation: a model call, a tool call, a step of an agent, or any other span."""

    id: str
    trace_id: str
    parent_id: str | None = None
    type: str = "span"  # generation, tool, agent, chain, retriever, embedding, evaluator, guardrail, event or span
    name: str
    started_at: datetime
    ended_at: datetime | None = None
    latency_s: float | None = None  # None if it did not end, or ended before it began
    status: str = "unset"
    status_message: str | None = None
    input: Any = None  # parsed, if it is JSON text; of a model call {"messages": […]}
    output: Any = None  # parsed, if it is JSON text; of a model call {"messages": […]}
    messages: list[Message] | None = None  # of a model call, in OpenAI's form: the request and the answer
    tool_calls: list[ToolCall] = field(default_factory=list)  # those that a model asked for, or of a tool the one call
    model: str | None = None
    provider: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    session_id: str | None = None
    user_id: str | None = None
    tags: list[str] = field(default_factory=list)
    version: str | None = None
    environment: str | None = None
    service: str | None = None
    trace_name: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)  # all attributes, as they came

    @property
    def parent_observation_id(self) -> str | None:
        return self.parent_id

    @property
    def start_time(self) -> datetime:
        return self.started_at

    @property
    def end_time(self) -> datetime | None:
        return self.ended_at

    @property
    def level(self) -> str:
        return "ERROR" if self.status == "error" else "DEFAULT"

    @property
    def latency(self) -> float | None:
        return self.latency_s


@dataclass(slots=True, kw_only=True)
class TraceView:
    """One trace, with its observations in order of time. Its fields are those of the view `traces`."""

    id: str
    name: str
    started_at: datetime
    ended_at: datetime | None = None
    latency_s: float | None = None
    status: str = "ok"
    input: Any = None
    output: Any = None
    session_id: str | None = None
    user_id: str | None = None
    tags: list[str] = field(default_factory=list)
    version: str | None = None
    environment: str | None = None
    service: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)  # of the root observation
    observations: list[ObservationView] = field(default_factory=list)

    @property
    def timestamp(self) -> datetime:
        return self.started_at

    @property
    def latency(self) -> float | None:
        return self.latency_s

    @property
    def release(self) -> str | None:
        return self.version

    def of_type(self, kind: str) -> list[ObservationView]:
        """Return all observations of a type, in order of time; an empty list if there are none."""
        return [observation for observation in self.observations if observation.type == kind]

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls of the trace, in order: what models asked for, and what tools ran.

        A call that was asked for and run is one, with its arguments and its result.
        """
        calls = {id(call): call for observation in self.observations for call in observation.tool_calls}
        return list(calls.values())

    @property
    def messages(self) -> list[Message] | None:
        """The longest conversation with a model, in OpenAI's form; None if no content was captured."""
        return longest([observation.messages for observation in self.observations if observation.messages])


@dataclass(slots=True, kw_only=True)
class SessionView:
    """One session: its traces in order of time."""

    id: str
    started_at: datetime
    ended_at: datetime | None = None
    user_id: str | None = None
    tags: list[str] = field(default_factory=list)
    version: str | None = None
    environment: str | None = None
    traces: list[TraceView] = field(default_factory=list)

    @property
    def session_id(self) -> str:
        return self.id

    @property
    def input(self) -> Any:
        return self.traces[0].input if self.traces else None

    @property
    def output(self) -> Any:
        return self.traces[-1].output if self.traces else None

    @property
    def metadata(self) -> dict[str, Any]:
        return self.traces[-1].metadata if self.traces else {}


def longest(conversations: Sequence[list[Message]]) -> list[Message] | None:
    """Return the conversation with the most messages, the first of several; None if there is none."""
    return max(conversations, key=len, default=None)


def asked_calls(answer: Sequence[Message]) -> list[ToolCall]:
    """Return the tool calls in a model's answer. Of an agent, the answer also has their results."""
    calls: list[ToolCall] = []
    for message in answer:
        if message["role"] == "tool":
            _note_result(message, calls)
        for call in message.get("tool_calls") or ():
            function = call["function"]
            calls.append(ToolCall(name=function["name"], arguments=parsed(function["arguments"]), id=call.get("id")))
    return calls


def run_call(tool: ObservationView, fields: Fields) -> ToolCall:
    """Return the call that a tool's span is about."""
    return ToolCall(
        name=fields.text("tool_name") or tool.name,
        arguments=_arguments(tool.input),
        id=fields.text("tool_call_id"),
        result=tool.output,
        error=(tool.status_message or "failed") if tool.status == "error" else None,
    )


def _arguments(value: Any) -> Any:
    """Return named arguments as such where they came as Langfuse's {"args": [], "kwargs": {…}}."""
    if isinstance(value, dict) and value.keys() == {"args", "kwargs"} and not value["args"]:
        return value["kwargs"]
    return value


def join_tool_calls(observations: Sequence[ObservationView]) -> None:
    """Make one object of a call that a model asked for and of the span that ran it, of observations in order of time.

    It has the arguments and the result, from wherever they were captured. The calls of an agent, which repeats those
    of its models, are joined too.
    """
    asked: list[ToolCall] = []
    for observation in observations:
        if observation.type == "generation":
            for message in _tool_messages(observation.input):
                _note_result(message, asked)
            asked += observation.tool_calls
    for kind in ("tool", "agent"):
        free = list(asked)
        for observation in observations:
            if observation.type == kind:
                observation.tool_calls = [_joined(call, free) for call in observation.tool_calls]
                asked += [call for call in observation.tool_calls if not any(call is known for known in asked)]


def _joined(call: ToolCall, free: list[ToolCall]) -> ToolCall:
    """Return the asked call that is the same, with what this one adds, and take it out of those that are free."""
    has_its_id = any(call.id == other.id for other in free)  # ids of two conventions differ
    position = next((index for index, other in enumerate(free) if _is_same(call, other, has_its_id)), None)
    if position is None:
        return call
    found = free.pop(position)
    if found.arguments is None:
        found.arguments = call.arguments
    if call.result is not None:  # what the tool returned says more than what the model was told
        found.result = call.result
    found.error, found.id = found.error or call.error, found.id or call.id
    return found


def _is_same(call: ToolCall, asked: ToolCall, by_id: bool) -> bool:
    if by_id and call.id is not None and asked.id is not None:
        return call.id == asked.id
    unknown = call.arguments is None or asked.arguments is None
    return call.name == asked.name and (unknown or call.arguments == asked.arguments)


def _tool_messages(value: Any) -> Iterator[Message]:
    messages = value.get("messages") if isinstance(value, Mapping) else None
    yield from (message for message in messages or () if message.get("role") == "tool")


def _note_result(message: Message, calls: Sequence[ToolCall]) -> None:
    """Give the result in a tool's message to the latest call with its id, unless it has one."""
    identity = message.get("tool_call_id")
    call = next((call for call in reversed(calls) if identity is not None and call.id == identity), None)
    if call is not None and call.result is None:
        call.result = parsed(message.get("content"))


def content_of(root: ObservationView, observations: Sequence[ObservationView]) -> tuple[Any, Any]:
    """Return the input and the output of a trace; None for what was not captured.

    They are those of the root. If it captured neither (a web server's span, say), those of the only step below it that
    did, and else of the last model call that answered with text. Messages are shortened to what a judge compares: the
    user's last message, and the text of the answer.
    """
    speaker = root if _has_content(root) else _only_step(root, observations) or _last_answer(observations)
    if speaker is None:
        return None, None
    asked, said = last_user_text(_messages(speaker.input)), answer_text(_messages(speaker.output))
    return speaker.input if asked is None else asked, speaker.output if said is None else said


def _has_content(observation: ObservationView) -> bool:
    return observation.input is not None or observation.output is not None


def _only_step(root: ObservationView, observations: Sequence[ObservationView]) -> ObservationView | None:
    """Return the step that captured content nearest below the root, if nothing beside it did."""
    below = grouped((observation.parent_id, observation) for observation in observations)
    level, seen = below[root.id], {root.id}
    while level:
        if filled := [observation for observation in level if _has_content(observation)]:
            return filled[0] if len(filled) == 1 and filled[0].type in STEPS else None
        seen |= {observation.id for observation in level}
        level = [child for parent in level for child in below[parent.id] if child.id not in seen]
    return None


def _last_answer(observations: Sequence[ObservationView]) -> ObservationView | None:
    made = [observation for observation in observations if observation.type == "generation" and observation.messages]
    said = [observation for observation in made if answer_text(_messages(observation.output)) is not None]
    return next(reversed(said or made), None)


def _messages(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a model call's side; an empty list if it is anything else."""
    is_side = isinstance(value, dict) and value.keys() == {"messages"} and isinstance(value["messages"], list)
    messages = value["messages"] if is_side else []
    return [message for message in messages if isinstance(message, dict) and "role" in message]


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
    view.tool_calls = [run_call(view, fields)] if kind == "tool" else asked_calls(said.answer)
    return view


def trace_view(rows: Sequence[ObservationRow]) -> TraceView:
    """Return a trace of its observations, in any order. Raise ValueError without any.

    The root is the observation without a parent, else the earliest. A log record is part of the span it belongs to, or
    an observation of its own if that span is missing.
    """
    if not rows:
        raise ValueError("rows: got none, wanted at least one observation")
    spans = {row.span_id: row for row in rows if row.kind != "log"}
    logs = grouped((row.parent_id, row) for row in rows if row.kind == "log")
    alone = [row for parent, records in logs.items() if parent not in spans for row in records]
    views = [observation_view(row, logs.get(row.span_id, ())) for row in (*spans.values(), *alone)]
    views.sort(key=lambda view: (view.started_at, view.id))
    join_tool_calls(views)
    return _trace_of(views)


def _trace_of(views: list[ObservationView]) -> TraceView:
    ordered = sorted(views, key=lambda view: (view.type == "event", view.parent_id is not None))
    root = ordered[0]
    started_at = min((view.started_at for view in views if view.started_at > EPOCH), default=EPOCH)
    ended_at = max(view.ended_at or view.started_at for view in views)
    has_ended = any(view.ended_at for view in views)
    input_, output = content_of(root, views)
    priced = [view for view in views if view.type in PRICED]
    costs = [view.cost_usd for view in priced if view.cost_usd is not None]
    return TraceView(
        id=root.trace_id,
        name=_first(views, lambda view: view.trace_name) or root.name,
        started_at=started_at,
        ended_at=ended_at,
        latency_s=_seconds(started_at, ended_at) if has_ended else None,
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
    values = fields.value("input"), fields.value("output")
    if kind in TALKING or (kind in STEPS and values == (None, None)):
        return conversation_of(fields.attributes, events, values if kind == "generation" else (None, None))
    return Conversation()


def _side(fields: Fields, field: str, kind: str, messages: Sequence[dict[str, Any]]) -> Any:
    """Return an observation's input or output: messages of a model call, and else what is there, parsed."""
    found = parsed(fields.value(field))
    if kind == "agent" and field == "output" and found is not None and OUTPUT not in fields.attributes:
        return found
    if messages:
        return {"messages": list(messages)}
    is_langsmith = fields.row.source == "langsmith" or "langsmith.span.kind" in fields.short
    if found == {} and is_langsmith:  # what LangSmith leaves of values that are hidden
        return None
    return None if kind in TALKING and messages_of(found) else found


def _seconds(started_at: datetime, ended_at: datetime | None) -> float | None:
    return (ended_at - started_at).total_seconds() if ended_at and ended_at >= started_at else None


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _first(items: Sequence[Any], field: Callable[[Any], str | None]) -> str | None:
    return next((value for item in items if (value := field(item)) is not None), None)


def in_depth(observations: Sequence[ObservationView]) -> Iterator[tuple[int, ObservationView]]:
    """Yield each observation with its depth, below its parent; below nothing if the parent is missing, or itself."""
    known = {observation.id for observation in observations}
    below = grouped((each.parent_id if each.parent_id in known else None, each) for each in observations)
    seen: set[str] = set()
    stack = [(0, root) for root in reversed(below[None])]
    for left in (None, *observations):  # what is only its own ancestor stands at the top, too
        stack += [(0, left)] if left is not None and left.id not in seen else []
        while stack:
            depth, observation = stack.pop()
            if observation.id not in seen:
                seen.add(observation.id)
                yield depth, observation
                stack += [(depth + 1, child) for child in reversed(below[observation.id])]


def parsed_path(path: str) -> list[tuple[str, list[str]]]:
    """Return a path's steps: a field, and what is in brackets after it. Raise InputError if it is no path."""
    steps, rest = [], path
    while rest:
        found = _STEP.match(rest)
        dot, rest = (rest[found.end() : found.end() + 1], rest[found.end() + 1 :]) if found else ("", rest)
        if not found or dot not in ("", ".") or (dot and not rest):
            raise InputError(f"path {path!r}: wanted fields such as output, or observations[type=tool].output")
        steps.append((found[1], _BRACKETS.findall(found[2])))
    if not steps:
        raise InputError("path: got an empty text, wanted a field such as output")
    return steps


def at_path(item: Any, path: str) -> Any:
    """Return the value at a path; None where a field is missing.

    A field of a list is the list of this field of its elements, so a path to all observations of a type gives a list,
    never just the last. `[field=value]` keeps the elements that have this value, and `[0]` is the first element.
    """
    value = item
    for name, brackets in parsed_path(path):
        value = _field(value, name)
        for bracket in brackets:
            value = _chosen(value, bracket)
    return value


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_field(element, name) for element in value]
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _chosen(value: Any, bracket: str) -> Any:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    name, is_condition, wanted = bracket.partition("=")
    if is_condition:
        return [element for element in value if str(_field(element, name.strip())) == wanted.strip()]
    index = int(bracket) if re.fullmatch(r"-?\d+", bracket) else None
    return value[index] if index is not None and -len(value) <= index < len(value) else None
