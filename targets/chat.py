"""A chat completion for each example."""

from collections.abc import Mapping
from typing import Any

from specs.errors import InputError
from specs.protocols import Complete, Completion, Message
from specs.target import ChatTarget
from specs.template import fill, placeholders
from targets.target import Target


def chat(spec: ChatTarget, complete: Complete) -> Target:
    """The target that a spec describes.

    Its outputs are `{"output": text}`, or the fields of the answer where it has a schema, and `tool_calls` where there
    are any.
    """
    given = {
        "temperature": spec.temperature,
        "max_tokens": spec.max_tokens,
        "seed": spec.seed,
        "tools": spec.tools,
        "schema": spec.response_schema,
    }
    parameters = {name: value for name, value in given.items() if value is not None} | spec.extra

    async def call(offered: Mapping[str, Any]) -> dict[str, Any]:
        asked = _messages(spec, offered["inputs"])
        return _outputs(await complete(asked, model=spec.model, repeat=offered.get("repetition", 0), **parameters))

    return Target(call=call, is_async=True)


def check_fields(spec: ChatTarget, inputs: Mapping[str, Any], where: str) -> None:
    """Raises InputError where these inputs lack what the templates and the conversation need."""
    has = ", ".join(inputs) or "no field"
    for part in ("system", "user"):
        template = getattr(spec, part)
        for name in sorted(placeholders(template or "") - inputs.keys()):
            asks = f"target {spec.name!r}: {part} asks for {{{name}}}, {where} has {has}"
            raise InputError(asks + " (write {{ and }} for braces)")
    if spec.messages is not None:
        _check_conversation(spec, spec.messages, inputs, where)
    elif spec.user is None and len(inputs) != 1:
        raise InputError(f"target {spec.name!r}: wanted a user template, since {where} has {has}")


def _check_conversation(spec: ChatTarget, field: str, inputs: Mapping[str, Any], where: str) -> None:
    if field not in inputs:
        has = ", ".join(inputs) or "no field"
        raise InputError(f"target {spec.name!r}: messages stand in {field!r}, {where} has {has}")
    if not _is_conversation(inputs[field]):
        raise InputError(f"target {spec.name!r}: {field!r} of {where} is no list of {{role, content}}")


def _messages(spec: ChatTarget, inputs: Mapping[str, Any]) -> list[Message]:
    system = [] if spec.system is None else [{"role": "system", "content": fill(spec.system, inputs)}]
    conversation = [] if spec.messages is None else list(inputs[spec.messages])
    if spec.user is not None:
        return [*system, *conversation, {"role": "user", "content": fill(spec.user, inputs)}]
    if spec.messages is not None:
        return [*system, *conversation]
    only = next(iter(inputs.values()))
    if _is_conversation(only):
        return [*system, *only]
    return [*system, {"role": "user", "content": fill("{input}", {"input": only})}]


def _is_conversation(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(message, Mapping) and isinstance(message.get("role"), str) for message in value)
    )


def _outputs(completion: Completion) -> dict[str, Any]:
    calls = {"tool_calls": completion.tool_calls} if completion.tool_calls else {}
    if isinstance(completion.parsed, dict):
        return completion.parsed | calls
    return {"output": completion.text if completion.parsed is None else completion.parsed} | calls
