"""A chat completion for each example."""

from collections.abc import Mapping
from typing import Any

from specs.errors import InputError
from specs.protocols import Complete, Message
from specs.target import ChatTarget
from specs.template import fill, placeholders
from targets.target import Target


def chat(spec: ChatTarget, complete: Complete) -> Target:
    """The target that a spec describes. Its outputs are `{"output": text}`, with `tool_calls` where there are any."""
    given = {"temperature": spec.temperature, "max_tokens": spec.max_tokens, "seed": spec.seed}
    parameters = {name: value for name, value in given.items() if value is not None} | spec.extra

    async def call(offered: Mapping[str, Any]) -> dict[str, Any]:
        completion = await complete(_messages(spec, offered["inputs"]), model=spec.model, **parameters)
        return {"output": completion.text} | ({"tool_calls": completion.tool_calls} if completion.tool_calls else {})

    return Target(call=call, is_async=True)


def check_fields(spec: ChatTarget, inputs: Mapping[str, Any], where: str) -> None:
    """Raises InputError where a template asks for a field that these inputs lack."""
    for part in ("system", "user"):
        template = getattr(spec, part)
        for name in sorted(placeholders(template or "") - inputs.keys()):
            raise InputError(
                f"target {spec.name!r}: {part} asks for {{{name}}}, {where} has {', '.join(inputs) or 'no field'} "
                "(write {{ and }} for braces)"
            )
    if spec.user is None and len(inputs) != 1:
        raise InputError(
            f"target {spec.name!r}: wanted a user template, since {where} has {', '.join(inputs) or 'no field'}"
        )


def _messages(spec: ChatTarget, inputs: Mapping[str, Any]) -> list[Message]:
    user = fill(spec.user, inputs) if spec.user is not None else fill("{input}", {"input": next(iter(inputs.values()))})
    system = [] if spec.system is None else [{"role": "system", "content": fill(spec.system, inputs)}]
    return [*system, {"role": "user", "content": user}]
