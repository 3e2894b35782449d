"""The Python target: a user's function."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.specs.reference import is_async, name_of, parameters_of
from evalflows.targets.target import OFFERED, TRIAL, Target


def python(function: Callable[..., Any], fields: frozenset[str]) -> Target:
    """Build a target that calls a function with the fields of the inputs by name, or with the inputs as one dict.

    `fields` are the fields that the inputs of all examples share. The function may also ask for any name in OFFERED;
    a field called `repetition` or `seed` goes before ours.
    If it has a single parameter with none of these names, that parameter gets the inputs.
    Raise InputError for a parameter that cannot be filled.
    """
    signature = parameters_of(function, f"target {name_of(function)!r}")
    parameters = [p for p in signature if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    offered = [name for name in OFFERED if name not in TRIAL or name not in fields]
    given = function.keywords if isinstance(function, partial) else {}  # such as a seed that is fixed
    requested = [p.name for p in parameters if p.name not in given and (p.name in offered or p.name in fields)]
    unfilled = [p.name for p in parameters if p.name not in requested and p.default is p.empty]
    takes_dict = len(unfilled) == 1 and not (set(requested) - set(offered))
    if unfilled and not takes_dict:
        known = ", ".join(sorted(fields)) or "no field is in all examples"
        raise InputError(
            f"target {name_of(function)!r}: asks for {unfilled[0]!r}, wanted a field of the inputs ({known}), "
            f"one of {', '.join(OFFERED)}, or the inputs as one argument"
        )
    sources = {name: name for name in requested} | ({unfilled[0]: "inputs"} if takes_dict else {})
    order = [p for p in parameters if p.name in sources or p.kind is p.POSITIONAL_ONLY]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature)

    def call(available: Mapping[str, Any]) -> Any:
        values = {**available["inputs"], **{name: available[name] for name in offered if name in available}}
        filled = {p.name: values[sources[p.name]] if p.name in sources else p.default for p in order}
        positional = [filled.pop(p.name) for p in order if p.kind is p.POSITIONAL_ONLY]
        rest = (
            {n: v for n, v in available["inputs"].items() if n not in sources} if takes_any and not takes_dict else {}
        )
        return function(*positional, **rest, **filled)

    return Target(call=call, is_async=is_async(function))
