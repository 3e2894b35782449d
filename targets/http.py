"""The HTTP target: an application that answers POST requests."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.specs.errors import CallError, InputError
from evalflows.specs.protocols import Post
from evalflows.specs.safe_text import print_note
from evalflows.specs.target import HttpTarget
from evalflows.specs.template import fill_json, placeholders, texts
from evalflows.targets.target import Answer, Target


def http(spec: HttpTarget, post: Post) -> Target:
    """Build the target from its spec: post each example, and read the answer from the response at `spec.answer`."""

    lacking = f"target {spec.name!r}: a response has nothing at usage {spec.usage!r}: its model calls are unknown"
    says_no_usage = iter([lacking])

    async def call(available: Mapping[str, Any]) -> Answer:
        inputs = available["inputs"]
        posted = await post(dict(inputs) if spec.body is None else fill_json(spec.body, inputs))
        reported = {} if spec.usage is None else _reported(posted.response, spec.usage)
        if spec.usage is not None and not any(value is not None for value in reported.values()):
            for said_once in says_no_usage:
                print_note(said_once)
        outputs = posted.response if spec.answer is None else at_path(posted.response, spec.answer)
        return Answer(
            outputs=outputs,
            latency_s=posted.latency_s,
            attempts=posted.attempts,
            application_version=posted.version,
            **reported,
        )

    return Target(call=call, is_async=True)


USAGE = {
    "tokens_in": ("input_tokens", "prompt_tokens"),
    "tokens_out": ("output_tokens", "completion_tokens"),
    "cost_usd": ("cost_usd",),
    "calls": ("calls",),
}
"""What an application can report of its own model calls, and the names under which it does."""


def _reported(response: Any, path: str) -> dict[str, Any]:
    """Return the numbers that a response reports at a path; what it does not report is unknown."""
    try:
        usage = at_path(response, path)
    except CallError:  # the answer is good without it
        return {}
    found = usage if isinstance(usage, Mapping) else {}
    return {column: _number(column, found, names) for column, names in USAGE.items()}


def _number(column: str, usage: Mapping[str, Any], names: Sequence[str]) -> Any:
    value = next((usage[name] for name in names if name in usage), None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return float(value) if column == "cost_usd" else int(value)


def check_body(spec: HttpTarget, inputs: Mapping[str, Any], where: str) -> None:
    """Raise InputError if the body asks for a field that these inputs lack."""
    for template in texts(spec.body):
        for name in sorted(placeholders(template) - inputs.keys()):
            got = ", ".join(inputs) or "no field"
            raise InputError(f"target {spec.name!r}: body asks for {{{name}}}, {where} has {got}")


def at_path(response: Any, path: str) -> Any:
    """Return the value at a path of names and positions, such as `choices.0.message`.

    Raise CallError if the response has nothing there.
    """
    value = response
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and re.fullmatch(r"-?\d{1,9}", part) and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            raise CallError("bad_return", f"the response has nothing at {path!r}, got {_shape(value)} before {part!r}")
    return value


def _shape(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a mapping with {_listed(value)}"
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


def _listed(names: Mapping[Any, Any], most: int = 20) -> str:
    shown = [" ".join(str(name).split())[:40] for name in list(names)[:most]]
    return ", ".join([*shown, *(["…"] if len(names) > most else [])]) or "nothing"
