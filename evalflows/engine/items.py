"""Production items as evaluators see them: read from the store, mapped to inputs and outputs, and sampled."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable, signature
from typing import Any

from evalflows.engine.experiments import Answered
from evalflows.llm.wrapped import plain
from evalflows.specs.code_versions import fault_text
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec, as_key
from evalflows.specs.reference import load, name_of
from evalflows.specs.traces import MAPPED, TraceScope
from evalflows.specs.values import stored
from evalflows.store.queries.traces import ItemKey, observations_of
from evalflows.store.records import ExampleRow, OutputRow, to_json
from evalflows.store.store import Store
from evalflows.targets import length_of
from evalflows.telemetry.views import (
    ObservationView,
    SessionView,
    TraceView,
    at_path,
    observation_view,
    parsed_path,
    session_view,
    trace_view,
)

Item = TraceView | ObservationView | SessionView


NOT_CAPTURED = "its output was not captured"
"""Why an item cannot be judged if its instrumentation leaves content out."""

FAULT_OF_MAPPER = "mapper: "
"""What stands before the fault of a mapper in the error of an item."""


@dataclass(slots=True, kw_only=True)
class EvaluatorInputs:
    """What a mapper returns: what the evaluators of an item get. The name and the fields are Langfuse's."""

    input: Any
    output: Any
    expected_output: Any = None
    metadata: dict[str, Any] | None = None


Mapper = Callable[[Item], Any]
"""A function of an item that returns EvaluatorInputs, a mapping with its fields, or an awaitable of either."""


def load_mapper(given: str | dict[str, str] | None) -> Mapper:
    """Return the mapper that a spec names; by default one that takes an item's own input and output.

    Raise InputError for a function that does not exist, and for a path that cannot be read.
    """
    if given is None:
        return _as_it_is
    if isinstance(given, str):
        return _by_argument(load(given))
    for path in given.values():
        parsed_path(path)
    paths = {"input": "input", "output": "output", **given}
    return lambda item: EvaluatorInputs(
        **{name: at_path(item, paths[name]) if name in paths else None for name in MAPPED}
    )


def _by_argument(function: Callable[..., Any]) -> Mapper:
    """Call a user's mapper with the item as `item`, Langfuse's name, or as its first argument."""
    if _accepts(function, item=None):
        return lambda item: function(item=item)
    if not _accepts(function, None):
        raise InputError(f"mapper {name_of(function)!r}: got other parameters, wanted one item, as `item` or the first")
    return function


def _accepts(function: Callable[..., Any], *arguments: object, **named: object) -> bool:
    try:
        signature(function).bind(*arguments, **named)
    except (TypeError, ValueError):
        return False
    return True


def _as_it_is(item: Item) -> EvaluatorInputs:
    """Map an item to its own input and output; of a session, to the whole conversation if it was captured."""
    session = item.id if isinstance(item, SessionView) else item.session_id
    others = {name: getattr(item, name) for name in ("user_id", "tags", "version", "environment")}
    metadata = {"session_id": session, **others}
    if isinstance(item, SessionView):
        messages = [message for trace in item.traces for message in _new_messages(trace)]
        return EvaluatorInputs(input={}, output={"messages": messages} if messages else None, metadata=metadata)
    return EvaluatorInputs(input=item.input, output=item.output, metadata=metadata)


def _new_messages(trace: TraceView) -> list[dict[str, Any]]:
    """Return what a trace adds to its session: the user's input and the application's output."""
    if isinstance(trace.input, str) or isinstance(trace.output, str):
        spoken = (("user", trace.input), ("assistant", trace.output))
        return [{"role": role, "content": content} for role, content in spoken if isinstance(content, str)]
    messages = trace.messages or []
    latest = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=0)
    return [dict(message) for message in messages[latest:]]


async def answered_by(item: Item, mapper: Mapper, owner: str) -> Answered:
    """Return an item as evaluators judge it. If it cannot be mapped, its answer has failed, with the reason."""
    try:
        example, output = await map_item(item, mapper)
        return Answered(example, _output(item, output, owner))
    except Exception as error:  # whatever the user's mapper raises
        failed = FAULT_OF_MAPPER + fault_text(error)
        return Answered(_example(item, dict.fromkeys(MAPPED)), _answer(item, owner, status="failed", error=failed))


async def map_item(item: Item, mapper: Mapper) -> tuple[ExampleRow, Any]:
    """Return an item as an example, and its output; None if it was not captured. Raise what the mapper raises."""
    given = mapper(item)
    fields = _fields(await given if isinstance(given, Awaitable) or isawaitable(given) else given)
    return _example(item, fields), fields["output"]


def _fields(given: Any) -> dict[str, Any]:
    fields: dict[str, Any]
    if isinstance(given, Mapping):
        fields = {name: given[name] for name in MAPPED if name in given}
    else:
        fields = {name: getattr(given, name) for name in MAPPED if hasattr(given, name)}
    if not fields:
        raise InputError(f"got {type(given).__name__}, wanted EvaluatorInputs, or a mapping with {', '.join(MAPPED)}")
    return dict.fromkeys(MAPPED) | fields


def _example(item: Item, fields: Mapping[str, Any]) -> ExampleRow:
    expected = fields["expected_output"]
    return ExampleRow(
        snapshot_id="",
        example_id=item_id(item),
        position=0,
        inputs=_json(_as_mapping(fields["input"], "input")),
        reference_outputs=None if expected is None else _json(_as_mapping(expected, "output")),
        metadata=_json(fields["metadata"] or {}),
        cluster=item.id if isinstance(item, SessionView) else item.session_id,
    )


def _output(item: Item, output: Any, owner: str) -> OutputRow:
    """Return the answer that is judged. What was not captured is no blank: the item has failed, with that reason."""
    if output is None:
        error = NOT_CAPTURED
        if not isinstance(item, SessionView) and item.status == "error":
            error = "the application failed"
        return _answer(item, owner, status="failed", error=error)
    outputs = _as_mapping(output, "output")
    return _answer(item, owner, status="ok", outputs=_json(outputs), length=length_of(plain(outputs)))


def _answer(item: Item, owner: str, **fields: Any) -> OutputRow:
    names = () if isinstance(item, SessionView) else ("latency_s", "tokens_in", "tokens_out", "cost_usd")
    measured: dict[str, Any] = {name: getattr(item, name) for name in names}
    return OutputRow(
        run_id=item_id(item),
        experiment_id=owner,
        example_id=item_id(item),
        repetition=0,
        steps=_json(_steps(item)),
        started_at=item.started_at,
        **measured,
        **fields,
    )


def _steps(item: Item) -> list[dict[str, Any]]:
    """Return the tool calls of an item as steps of a run, which evaluators of agents read."""
    traces = item.traces if isinstance(item, SessionView) else [item]
    return [
        {"kind": "tool", "name": call.name, "inputs": call.arguments, "outputs": call.result, "error": call.error}
        for trace in traces
        for call in trace.tool_calls
    ]


def item_id(item: Item) -> str:
    """Return the id under which an item is judged: an observation's begins with that of its trace."""
    return f"{item.trace_id}/{item.id}" if isinstance(item, ObservationView) else item.id


def _as_mapping(value: Any, only: str) -> dict[str, Any]:
    try:
        simple = stored(value, only)
    except InputError:  # an object of a mapper, as text
        simple = plain(value)
    return simple if isinstance(simple, dict) else {} if simple is None else {only: simple}


def _json(value: Any) -> str:
    return to_json(plain(value), mend=True)


def items_of(store: Store, scope: TraceScope, keys: Sequence[ItemKey]) -> list[Item]:
    """Return the items as mappers get them, in the order of their keys."""
    by_trace = observations_of(store, keys)
    traces = {identity: rows for identity, rows in by_trace.items() if rows}
    match scope:
        case "observations":
            spans = {f"{row.trace_id}/{row.span_id}": row for rows in traces.values() for row in rows}
            return [observation_view(spans[key.id]) for key in keys if key.id in spans]
        case "sessions":
            of_session = [
                [trace_view(traces[identity]) for identity in key.trace_ids if identity in traces] for key in keys
            ]
            return [session_view(views) for views in of_session if views]
        case "traces":
            return [trace_view(traces[key.id]) for key in keys if key.id in traces]


def is_drawn(spec: Any, item: Item) -> bool:
    """Return whether an item is in an evaluator's sample: its trace's hash, from 0 to 1, is below the rate.

    So the same traces are drawn on every day and machine, and smaller samples are part of larger ones.
    """
    return _draw(spec.sample_seed, getattr(item, "trace_id", item.id)) < sampling_rate(spec, item)


def sampling_rate(spec: Any, item: Item) -> float:
    """Return the rate at which an evaluator judges items like this one: that of its stratum, else `sample_rate`."""
    if not isinstance(spec, EvaluatorSpec) or not spec.is_sampled:
        return 1.0
    if spec.sample_by is not None:
        value = at_path(item, spec.sample_by)
        values = value if isinstance(value, list) else [value]
        if rates := [spec.sample_rates[key] for key in map(as_key, values) if key in spec.sample_rates]:
            return max(rates)
    return spec.sample_rate or 1.0


def _draw(seed: int, identity: str) -> float:
    digest = hashlib.sha256(f"{seed} {identity}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64
