"""The chat target: one chat completion per example."""

from collections.abc import Mapping
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.specs.protocols import Complete, Completion, Message
from evalflows.specs.target import ChatTarget
from evalflows.specs.template import fill, placeholders
from evalflows.targets.target import Target
from evalflows.targets.tools import Tools, as_tools, tools_at


def chat(spec: ChatTarget, complete: Complete) -> Target:
    """Build the target from its spec.

    Its outputs are `{"output": text}`, or the fields of the answer if a schema is set, plus `tool_calls`, by the tools'
    own names, if the model made any. Raise InputError for unusable tools.
    """
    optional = {
        "temperature": spec.temperature,
        "max_tokens": spec.max_tokens,
        "seed": spec.seed,
        "schema": spec.response_schema,
    }
    fixed = None if isinstance(spec.tools, str) else as_tools(spec.tools)
    parameters = {name: value for name, value in optional.items() if value is not None} | spec.extra

    async def call(available: Mapping[str, Any]) -> dict[str, Any]:
        request = _messages(spec, available["inputs"])
        tools = tools_at(spec.tools, available) if isinstance(spec.tools, str) else fixed
        offered: dict[str, Any] = {} if tools is None else {"tools": tools.sent}
        repetition = available.get("repetition", 0)
        completion = await complete(request, model=spec.model, repeat=repetition, **offered, **parameters)
        return _outputs(completion, tools)

    return Target(call=call, is_async=True)


def check_fields(spec: ChatTarget, inputs: Mapping[str, Any], where: str) -> None:
    """Raise InputError if these inputs lack a field that the templates or the conversation need."""
    got = ", ".join(inputs) or "no field"
    for part in ("system", "user"):
        template = getattr(spec, part)
        for name in sorted(placeholders(template or "") - inputs.keys()):
            problem = f"target {spec.name!r}: {part} asks for {{{name}}}, {where} has {got}"
            raise InputError(problem + " (write {{ and }} for braces)")
    if spec.messages is not None:
        _check_conversation(spec, spec.messages, inputs, where)
    elif spec.user is None and len(_besides_tools(spec, inputs)) != 1:
        raise InputError(f"target {spec.name!r}: wanted a user template, since {where} has {got}")


def _check_conversation(spec: ChatTarget, field: str, inputs: Mapping[str, Any], where: str) -> None:
    if field not in inputs:
        got = ", ".join(inputs) or "no field"
        raise InputError(f"target {spec.name!r}: messages are read from {field!r}, {where} has {got}")
    if not _is_conversation(inputs[field]):
        raise InputError(f"target {spec.name!r}: {field!r} of {where} is not a list of {{role, content}}")


def _messages(spec: ChatTarget, inputs: Mapping[str, Any]) -> list[Message]:
    system = [] if spec.system is None else [{"role": "system", "content": fill(spec.system, inputs)}]
    conversation = [] if spec.messages is None else list(inputs[spec.messages])
    if spec.user is not None:
        return [*system, *conversation, {"role": "user", "content": fill(spec.user, inputs)}]
    if spec.messages is not None:
        return [*system, *conversation]
    only = next(iter(_besides_tools(spec, inputs).values()))
    if _is_conversation(only):
        return [*system, *only]
    return [*system, {"role": "user", "content": fill("{input}", {"input": only})}]


def _besides_tools(spec: ChatTarget, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of the inputs that are not the example's tools."""
    return {name: value for name, value in inputs.items() if f"inputs.{name}" != spec.tools}


def _is_conversation(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(message, Mapping) and isinstance(message.get("role"), str) for message in value)
    )


def _outputs(completion: Completion, tools: Tools | None) -> dict[str, Any]:
    made = [call if tools is None else tools.with_own_name(call) for call in completion.tool_calls]
    calls = {"tool_calls": made} if made else {}
    if isinstance(completion.parsed, dict):
        return completion.parsed | calls
    return {"output": completion.text if completion.parsed is None else completion.parsed} | calls
