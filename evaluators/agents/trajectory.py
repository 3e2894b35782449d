"""Score the arguments of a call from 0 to 1, by one of four rules."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from evalflows.evaluators.agents.calls import Call
from evalflows.evaluators.judges.context import value_at
from evalflows.specs.errors import short
from evalflows.specs.json_schema import JSON_TYPES

Rule = Literal["exact", "per_argument", "types", "allowed"]
Numbers = Literal["equal", "strict"]
CallScore = Callable[[Call, Call], float]
"""A function of the expected and the actual call: the score of the actual call, 0 if the names differ."""

_OPTIONAL = ("", None)  # among the allowed values, these mean that the argument is optional
_IGNORED = re.compile(r"[ ,./\-_*^]")


def rule(arguments: Any, tools: Any = None, numbers: Any = "equal") -> CallScore:
    """Return the function that scores a pair of calls. Raise ValueError for unknown rules, and for those that do not
    go together."""
    if arguments not in get_args(Rule):
        raise ValueError(f"arguments: got {short(arguments)}, wanted one of {', '.join(get_args(Rule))}")
    if numbers not in get_args(Numbers):
        raise ValueError(f"numbers: got {short(numbers)}, wanted one of {', '.join(get_args(Numbers))}")
    strict = numbers == "strict"
    if tools is not None:
        schemas = _schemas(tools)
        if arguments != "types":
            raise ValueError(f"tools: got tools with arguments {arguments!r}, wanted arguments 'types'")
        return _if_same_tool(
            lambda expected, actual: _share_of_schema(schemas.get(actual.name), actual.arguments or {}, strict)
        )
    if strict and arguments == "types":
        raise ValueError("numbers: got 'strict' with arguments 'types', wanted tools, whose schemas have the types")
    score_arguments = _RULES[arguments]
    return _if_same_tool(lambda expected, actual: score_arguments(expected, actual, strict))


def tools_of(setting: Any, inputs: dict[str, Any] | None, metadata: dict[str, Any] | None) -> Any:
    """Return the tools of a setting: the list itself, or what the example has at the path that it names."""
    roots = {"inputs": inputs, "metadata": metadata}
    return value_at("tools", setting, roots) if isinstance(setting, str) else setting


def same(first: Any, second: Any, strict: bool = False) -> bool:
    """Return whether two JSON values are deeply equal: 1 equals 1.0, but not True or "1"; a tuple equals a list.

    With `strict`, the numbers in a list must be written alike: [1] does not equal [1.0].
    """
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(same(value, second[name], strict) for name, value in first.items())
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(same(*pair, strict) and _alike(*pair, strict) for pair in pairs)
    return bool(first == second)


def _alike(first: Any, second: Any, strict: bool) -> bool:
    """Return whether two elements of lists, if numbers, are written alike: both as integers, or neither."""
    return not strict or not isinstance(first, int | float) or isinstance(first, float) == isinstance(second, float)


def json_type(value: Any) -> str:
    """Return the JSON type of a value; integer for a number without a fraction."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, Mapping) else "array"


def _if_same_tool(score_arguments: CallScore) -> CallScore:
    def score(expected: Call, actual: Call) -> float:
        return 0.0 if expected.name != actual.name or actual.arguments is None else score_arguments(expected, actual)

    return score


def _exact(expected: Call, actual: Call, strict: bool) -> float:
    return float(same(expected.arguments, actual.arguments, strict))


def _per_argument(expected: Call, actual: Call, strict: bool) -> float:
    return _share(expected.arguments or {}, actual.arguments or {}, lambda first, second: same(first, second, strict))


def _types(expected: Call, actual: Call, strict: bool) -> float:
    return _share(expected.arguments or {}, actual.arguments or {}, lambda first, second: _type(first) == _type(second))


def _type(value: Any) -> str:
    kind = json_type(value)
    return "number" if kind == "integer" else kind


def _share(expected: Mapping[str, Any], actual: Mapping[str, Any], alike: Callable[[Any, Any], bool]) -> float:
    """Return the share of all arguments of either call that both have and that are alike."""
    names = expected.keys() | actual.keys()
    matching = [name for name in expected.keys() & actual.keys() if alike(expected[name], actual[name])]
    return len(matching) / len(names) if names else 1.0


def _allowed(expected: Call, actual: Call, strict: bool) -> float:
    allowed_values = expected.arguments or {}
    for name, values in allowed_values.items():
        if not isinstance(values, list | tuple):
            raise ValueError(
                f"reference: {expected.name}: {name}: got {short(values)}, wanted a list of allowed values"
            )
    return float(_fits_fields(actual.arguments or {}, allowed_values, strict))


def _fits_fields(given: Mapping[str, Any], reference: Mapping[str, Any], strict: bool) -> bool:
    allowed = {name: values if isinstance(values, list | tuple) else [values] for name, values in reference.items()}
    needed = {name for name, values in allowed.items() if not any(value in _OPTIONAL for value in values)}
    return needed <= given.keys() <= allowed.keys() and all(
        any(_fits(value, option, strict) for option in allowed[name]) for name, value in given.items()
    )


def _fits(value: Any, allowed: Any, strict: bool) -> bool:
    if isinstance(value, str) and isinstance(allowed, str):
        return _folded(value) == _folded(allowed)
    if isinstance(value, list | tuple) and isinstance(allowed, list | tuple):
        pairs = zip(value, allowed, strict=False)
        return len(value) == len(allowed) and all(_fits(*pair, strict) and _alike(*pair, strict) for pair in pairs)
    if isinstance(value, Mapping) and isinstance(allowed, Mapping):
        return _fits_fields(value, allowed, strict)
    return same(value, allowed, strict)


def _folded(text: str) -> str:
    """Normalise a text as BFCL's checker does: ignore case, spaces and , . / - _ * ^, and use one kind of quotes."""
    return _IGNORED.sub("", text).lower().replace("'", '"')


_RULES: Mapping[Rule, Callable[[Call, Call, bool], float]] = {
    "exact": _exact,
    "per_argument": _per_argument,
    "types": _types,
    "allowed": _allowed,
}


def _schemas(tools: Any) -> dict[str, Mapping[str, Any]]:
    """Return the parameters of each tool by name."""
    if not isinstance(tools, Sequence) or isinstance(tools, str) or not tools:
        raise ValueError(f"tools: got {short(tools)}, wanted a list of tools")
    schemas: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ValueError(f"tools: got {short(tool)}, wanted name and parameters")
        schemas[inner["name"]] = inner.get("parameters") or {}
    return schemas


def _share_of_schema(schema: Mapping[str, Any] | None, actual: Mapping[str, Any], strict: bool) -> float:
    """Return the share of all given or required arguments that are given and have the schema's type."""
    if schema is None:
        return 0.0
    fields = schema.get("properties") or {}
    names = {*actual, *(schema.get("required") or ())}
    matching = [name for name, value in actual.items() if name in fields and _is_of(value, fields[name], strict)]
    return len(matching) / len(names) if names else 1.0


def _is_of(value: Any, field: Any, strict: bool, inside: bool = False) -> bool:
    """Return whether a value has a schema's type. `strict` looks at the elements of arrays too, where an integer is not
    a number and 2.0 not an integer; `inside` says that the value is such an element."""
    types, kind = _types_of(field), json_type(value)
    if inside and isinstance(value, float):
        kind = "number"
    also = ["integer"] if "number" in types and not inside else []
    if "any" not in types and kind not in [*types, *also]:
        return False
    items = field.get("items") if isinstance(field, Mapping) else None
    return not (strict and isinstance(value, list | tuple)) or all(_is_of(item, items, strict, True) for item in value)


def _types_of(field: Any) -> list[str]:
    """Return the JSON types that a schema allows, whether it names them as JSON schema, Python or BFCL does."""
    declared = field.get("type", "any") if isinstance(field, Mapping) else "any"
    return [JSON_TYPES.get(name, name) for name in ([declared] if isinstance(declared, str) else declared)]
