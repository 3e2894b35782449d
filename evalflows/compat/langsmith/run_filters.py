"""LangSmith's language of filters of runs: `and(eq(run_type, "llm"), gt(latency, "5s"))`."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

from evalflows.compat.langsmith.schemas import Fields, Run
from evalflows.specs.errors import InputError

_TOKEN = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(-?\d+(?:\.\d+)?)|([A-Za-z_]\w*)|([(),]))""")
_SUCH_AS = 'and(eq(run_type, "llm"), gt(latency, "5s"))'
_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_OF_RUN = (
    *("id", "name", "run_type", "status", "error", "latency", "start_time", "end_time", "trace_id", "parent_run_id"),
    *("total_tokens", "prompt_tokens", "completion_tokens", "total_cost", "tags", "is_root", "reference_example_id"),
)
_OF_ENTRY = ("metadata_key", "metadata_value", "feedback_key", "feedback_score")
FIELDS = (*_OF_RUN, *_OF_ENTRY)

_WANTED = f"and, or, not, search, has, {', '.join(_COMPARED)}, of a field and a value"


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments: calls, values, and the names of fields."""

    name: str
    arguments: tuple[Any, ...]


class Name(str):
    """The name of a field."""

    __slots__ = ()


def parse(text: str) -> Call:
    """Return a filter. Raise InputError, in one line, if it is none."""
    tokens = list(_tokens(text))
    call, end = _parsed(tokens, 0, text)
    if end != len(tokens) or not isinstance(call, Call):
        raise _no_filter(text)
    return call


def _no_filter(text: str) -> InputError:
    return InputError(f"list_runs: filter: got {text!r:.80}, wanted a filter such as {_SUCH_AS}")


def _tokens(text: str) -> Iterator[Any]:
    position = 0
    while position < len(text.rstrip()):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _no_filter(text)
        quoted, number, name, mark = found.groups()
        if quoted is not None:
            yield ("value", re.sub(r"\\(.)", r"\1", quoted[1:-1]))
        elif number is not None:
            yield ("value", float(number))
        elif name is not None:
            yield ("value", _CONSTANTS[name]) if name in _CONSTANTS else ("name", Name(name))
        else:
            yield ("mark", mark)
        position = found.end()


def _parsed(tokens: list[Any], position: int, text: str) -> tuple[Any, int]:
    """Return the call or value that begins at a token, and the place after it."""
    if position >= len(tokens):
        raise _no_filter(text)
    kind, value = tokens[position]
    if kind == "mark":
        raise _no_filter(text)
    if kind == "value" or tokens[position + 1 : position + 2] != [("mark", "(")]:
        return value, position + 1
    arguments, position = [], position + 2
    while tokens[position : position + 1] != [("mark", ")")]:
        argument, position = _parsed(tokens, position, text)
        arguments.append(argument)
        if tokens[position : position + 1] == [("mark", ",")]:
            position += 1
        elif tokens[position : position + 1] != [("mark", ")")]:
            raise _no_filter(text)
    return Call(str(value), tuple(arguments)), position + 1


def matches(call: Call, run: Run) -> bool:
    """Return whether a filter holds for a run.

    Conditions on `metadata_key` and `metadata_value`, and on `feedback_key` and `feedback_score`, hold for one entry
    together. Raise InputError for an unknown function or field.
    """
    metadata = [{"metadata_key": key, "metadata_value": value} for key, value in run.metadata.items()] or [{}]
    feedback: list[Fields] = [
        {"feedback_key": key, "feedback_score": stats.get("avg")} for key, stats in (run.feedback_stats or {}).items()
    ] or [{}]
    return any(_holds(call, run, entry | other) for entry, other in product(metadata, feedback))


def _holds(call: Call, run: Run, entry: Fields) -> bool:
    if call.name in ("and", "or", "not") and all(isinstance(argument, Call) for argument in call.arguments):
        held = [_holds(argument, run, entry) for argument in call.arguments]
        return not any(held) if call.name == "not" else all(held) if call.name == "and" else any(held)
    if call.name == "search" and len(call.arguments) == 1:
        return str(call.arguments[0]).lower() in f"{run.name} {run.inputs} {run.outputs} {run.error}".lower()
    if len(call.arguments) != 2 or not isinstance(call.arguments[0], Name):
        raise InputError(f"list_runs: filter: got {call.name} of {len(call.arguments)}, wanted {_WANTED}")
    name, wanted = call.arguments
    if name not in FIELDS:
        raise InputError(f"list_runs: filter: got the field {str(name)!r}, wanted one of {', '.join(FIELDS)}")
    if name in _OF_ENTRY:
        value = entry.get(name)
    else:
        value = run.parent_run_id is None if name == "is_root" else getattr(run, name)
    if call.name == "has":
        return wanted in (value or ())
    if call.name not in _COMPARED:
        raise InputError(f"list_runs: filter: got {call.name!r}, wanted {_WANTED}")
    wanted = _as_value(name, wanted)
    if name == "error" and isinstance(wanted, bool):
        value = value is not None
    if call.name not in ("eq", "neq") and (value is None or wanted is None):
        return False
    try:
        return _COMPARED[call.name](value, wanted)
    except TypeError:
        raise InputError(f"list_runs: filter: {name}: got {wanted!r:.40}, wanted a value to compare it with") from None


def _as_value(name: str, wanted: Any) -> Any:
    """Return a value as the field has it: seconds of `5s`, and a time."""
    if name == "latency" and isinstance(wanted, str):
        found = re.fullmatch(r"([\d.]+)\s*(ms|s|m|h)", wanted)
        return wanted if found is None else float(found[1]) * _UNITS[found[2]]
    if name in ("start_time", "end_time") and isinstance(wanted, str):
        try:
            moment = datetime.fromisoformat(wanted)
        except ValueError:
            raise InputError(f"list_runs: filter: {name}: got {wanted!r:.40}, wanted a time in ISO 8601") from None
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return wanted


def names_children(call: Call) -> bool:
    """Return whether a filter names what tells child runs from roots."""
    return any(
        names_children(argument)
        if isinstance(argument, Call)
        else argument in ("run_type", "is_root", "parent_run_id", "trace_id")
        for argument in call.arguments
        if isinstance(argument, Call | Name)
    )
