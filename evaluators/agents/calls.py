"""One tool call, in the shapes in which agents and published truths write it down."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from specs.errors import short

_ARGUMENTS = ("arguments", "args", "input", "kwargs", "parameters")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool's name and what it was called with; None where that is no JSON object, which matches nothing."""

    name: str
    arguments: dict[str, Any] | None

    def __str__(self) -> str:
        given = "not a JSON object" if self.arguments is None else json.dumps(self.arguments, ensure_ascii=False)
        return f"{self.name}({given})"


def read_calls(given: Any, where: str) -> tuple[Call, ...]:
    """A list of calls. An element is {"name", "arguments"} (or args, input, kwargs, parameters), the same within
    "function" as OpenAI has it, or {name: arguments}.

    Raises ValueError, which begins with `where`, for what is no list, and for an element without a name.
    """
    if not isinstance(given, list | tuple):
        raise ValueError(f"{where}: got {short(given)}, wanted a list of calls")
    return tuple(_read_call(one, f"{where}[{place}]") for place, one in enumerate(given))


def _read_call(one: Any, where: str) -> Call:
    if isinstance(one, Mapping):
        fields = one["function"] if _names_one(one.get("function")) else one
        if _names_one(fields):
            return Call(
                fields["name"], read_arguments(next((fields[key] for key in _ARGUMENTS if key in fields), None))
            )
        if len(one) == 1:
            ((name, arguments),) = one.items()
            if isinstance(arguments, Mapping):
                return Call(str(name), read_arguments(arguments))
    raise ValueError(f"{where}: got {short(one)}, wanted a call: name and arguments")


def _names_one(fields: Any) -> bool:
    return isinstance(fields, Mapping) and isinstance(fields.get("name"), str)


def read_arguments(given: Any) -> dict[str, Any] | None:
    """Arguments by name, out of a mapping or of a JSON text. None for anything else; nothing at all is no argument."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    if isinstance(given, str):
        try:
            given = json.loads(given, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None
    return {str(name): value for name, value in given.items()} if isinstance(given, Mapping) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
