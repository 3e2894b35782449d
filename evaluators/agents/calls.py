"""Read tool calls in the formats of agents and published datasets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from evalflows.specs.errors import short

_ARGUMENTS = ("arguments", "args", "input", "kwargs", "parameters")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool's name and arguments; None for arguments that are not a JSON object, which match nothing."""

    name: str
    arguments: dict[str, Any] | None

    def __str__(self) -> str:
        arguments = "not a JSON object" if self.arguments is None else json.dumps(self.arguments, ensure_ascii=False)
        return f"{self.name}({arguments})"


def read_calls(given: Any, where: str) -> tuple[Call, ...]:
    """Read a list of calls.

    An element is {"name", "arguments"} (or args, input, kwargs, parameters), the same inside "function" as in OpenAI's
    format, or {name: arguments}. Raise ValueError, with `where` first, for a value that is not a list, and for an
    element without a name.
    """
    if not isinstance(given, list | tuple):
        raise ValueError(f"{where}: got {short(given)}, wanted a list of calls")
    return tuple(_read_call(item, f"{where}[{index}]") for index, item in enumerate(given))


def _read_call(item: Any, where: str) -> Call:
    if isinstance(item, Mapping):
        fields = item["function"] if _has_name(item.get("function")) else item
        if _has_name(fields):
            return Call(
                fields["name"], read_arguments(next((fields[key] for key in _ARGUMENTS if key in fields), None))
            )
        if len(item) == 1:
            ((name, arguments),) = item.items()
            if isinstance(arguments, Mapping):
                return Call(str(name), read_arguments(arguments))
    raise ValueError(f"{where}: got {short(item)}, wanted a call: name and arguments")


def _has_name(fields: Any) -> bool:
    return isinstance(fields, Mapping) and isinstance(fields.get("name"), str)


def read_arguments(given: Any) -> dict[str, Any] | None:
    """Read arguments by name from a mapping or a JSON text; None for anything else. Null or an empty text is {}."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    if isinstance(given, str):
        try:
            given = json.loads(given, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None
    return {str(name): value for name, value in given.items()} if isinstance(given, Mapping) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
