"""Tool calls of a trace: those that models asked for, joined with the spans of the tools that ran them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalflows.specs.protocols import Message
from evalflows.telemetry.conventions.openai_messages import parsed
from evalflows.telemetry.views import ObservationView, ToolCall


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


def run_call(tool: ObservationView, name: str | None, identity: str | None) -> ToolCall:
    """Return the call that a tool's span is about."""
    error = (tool.status_message or "failed") if tool.status == "error" else None
    return ToolCall(
        name=name or tool.name, arguments=_arguments(tool.input), id=identity, result=tool.output, error=error
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
    place = next((place for place, other in enumerate(free) if _is_same(call, other)), None)
    if place is None:
        return call
    found = free.pop(place)
    if found.arguments is None:
        found.arguments = call.arguments
    if call.result is not None:  # what the tool returned says more than what the model was told
        found.result = call.result
    found.error, found.id = found.error or call.error, found.id or call.id
    return found


def _is_same(call: ToolCall, asked: ToolCall) -> bool:
    if call.id is not None and asked.id is not None:
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
