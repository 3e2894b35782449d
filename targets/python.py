"""A function of the user's as the target."""

from collections.abc import Callable, Mapping
from typing import Any

from specs.errors import InputError
from specs.reference import is_async, name_of, parameters_of
from targets.target import OFFERED, Target


def python(function: Callable[..., Any], fields: frozenset[str]) -> Target:
    """A target that calls a function with the fields of the inputs by name, or with the inputs as one dict.

    `fields` are those that every example's inputs have. A function may also ask for what OFFERED names. Its only
    parameter, whatever it is called, gets the inputs if it is named like none of these.
    Raises InputError for a parameter that nothing fills.
    """
    found = parameters_of(function, f"target {name_of(function)!r}")
    parameters = [p for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    asked = [p.name for p in parameters if p.name in OFFERED or p.name in fields]
    unfilled = [p.name for p in parameters if p.name not in asked and p.default is p.empty]
    takes_dict = len(unfilled) == 1 and not (set(asked) - set(OFFERED))
    if unfilled and not takes_dict:
        known = ", ".join(sorted(fields)) or "none that all examples share"
        raise InputError(
            f"target {name_of(function)!r}: asks for {unfilled[0]!r}, wanted a field of the inputs ({known}), "
            f"one of {', '.join(OFFERED)}, or the inputs as one argument"
        )
    sources = {name: name for name in asked} | ({unfilled[0]: "inputs"} if takes_dict else {})
    order = [p for p in parameters if p.name in sources or p.kind is p.POSITIONAL_ONLY]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in found)

    def call(offered: Mapping[str, Any]) -> Any:
        values = {**offered["inputs"], **{name: offered[name] for name in OFFERED if name in offered}}
        filled = {p.name: values[sources[p.name]] if p.name in sources else p.default for p in order}
        positional = [filled.pop(p.name) for p in order if p.kind is p.POSITIONAL_ONLY]
        rest = {n: v for n, v in offered["inputs"].items() if n not in sources} if takes_any and not takes_dict else {}
        return function(*positional, **rest, **filled)

    return Target(call=call, is_async=is_async(function))
