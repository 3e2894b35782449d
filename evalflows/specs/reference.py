"""References to code: `module:name` in a spec, and the version of the code.

A callable that is not importable (a closure, a notebook function) is kept here while this process lives, under a
reference that begins with `live:`.
"""

import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import CellType, CodeType
from typing import Any

from evalflows.specs.code_versions import code_parts, fault_text
from evalflows.specs.errors import InputError
from evalflows.specs.permitted import check_code, check_module, check_step
from evalflows.specs.process_memory import flush_at_exit

_SOURCES: Mapping[str, Mapping[str, str]] = {
    "evalflows.evaluators.composite": {"MetricPart": "Part"},
    "evalflows.evaluators.conversations": {
        "CONTEXT_USE_PROMPT": "PROMPT",
        "CONVERSATION_QUALITY_PROMPT": "PROMPT",
        "TURN_ERRORS_PROMPT": "PROMPT",
        "_checked_errors": "_checked",
        "TURN_QUALITY_PROMPT": "PROMPT",
    },
    "evalflows.evaluators.numbers": {"see numbers.py": "see evaluators/number.py"},
    "evalflows.evaluators.keyword_safety": {"_texts_within": "_texts"},
}
"""By module: what stands in its functions, and how it stood when versions of them were first stored. Another name alone
makes no other version, so results of the same code stay comparable."""

FILES = "files"
"""The attribute of a function that lists its settings that name files, whose content is part of its version."""

_live: dict[str, Callable[..., Any]] = {}


def as_first_stored(source: str, module: str | None) -> str:
    """Return the source of a function with the names that it used then."""
    for now, then in _SOURCES.get(module or "", {}).items():
        source = re.sub(rf"(?<![\w/]){re.escape(now)}(?!\w)", then, source)
    return source


def load(reference: str, fits: Callable[[object], bool] = callable) -> Any:
    """Return the object of a reference, by default a callable.

    Raise InputError, in one line, if there is none, or if a deployment's run may not name it: see `permitted.py`.
    """
    if reference.startswith("live:"):
        if reference not in _live:
            raise InputError(f"{reference!r}: got a function of another process, wanted 'module:name'")
        return _live[reference]
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise InputError(f"{reference!r}: wanted 'module:name'")
    check_module(reference, module_name)
    if module_name.partition(".")[0] != "evalflows":
        flush_at_exit()
    try:
        loaded: Any = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything on import
        raise InputError(f"{reference!r}: cannot import {module_name!r}: {fault_text(error)}") from error
    for attribute in name.split("."):
        if not hasattr(loaded, attribute):
            raise InputError(f"{reference!r}: {module_name!r} has no {name!r}")
        loaded = getattr(loaded, attribute)
        check_step(reference, loaded)
    check_code(reference, loaded)
    if not fits(loaded):
        raise InputError(f"{reference!r}: got {type(loaded).__name__}, wanted a callable")
    return loaded


def is_called(found: object) -> bool:
    """Return whether a target can be an object: a callable, or one that is invoked, such as a graph of LangGraph's."""
    return callable(found) or hasattr(found, "ainvoke")


def refer(function: Callable[..., Any]) -> str:
    """Return a reference that `load` resolves to this callable: `module:name` if importable, else `live:…`."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module and name and module != "__main__" and _is_importable(function, module, name):
        return f"{module}:{name}"
    reference = f"live:{name_of(function)}-{version_of(function)[:8]}-{id(function):x}"
    _live[reference] = function
    return reference


def name_of(function: Callable[..., Any]) -> str:
    """Return a callable's name, for messages and as the default name of a score."""
    inner = function.func if isinstance(function, partial) else function
    name = getattr(inner, "__name__", None) or type(inner).__name__
    return "function" if name == "<lambda>" else str(name)


def comes_from(value: object, package: str) -> bool:
    """Return whether a function, a class, or an object by its class or a base class, comes from a package.

    This does not import the package.
    """
    candidates = [value] if inspect.isroutine(value) else (value if inspect.isclass(value) else type(value)).__mro__
    return any(str(getattr(candidate, "__module__", "")).partition(".")[0] == package for candidate in candidates)


def held_by(function: object) -> dict[str, Any]:
    """Return the variables that a closure holds, by name."""
    cells = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars if cells and hasattr(function, "__code__") else ()
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True) if _is_filled(cell)}


def version_of(function: Callable[..., Any], *settings: object) -> str:
    """Return a hash of a callable's values and settings, and of the user's code that it depends on, as 16 hex digits.

    Comments, layout and the names of modules do not count. See `code_versions.py` for what cannot be seen.
    """
    code = sorted(parts_of(function).values())
    values = _values(function, with_source=not code)
    return hashlib.sha256(repr([values, code, _plain(settings)]).encode()).hexdigest()[:16]


def parts_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return a hash of each part of the user's code that a callable depends on, by name: see `code_versions.py`."""
    return code_parts(function, _plain)


def _values(function: object, *, with_source: bool) -> list[object]:
    """Return what a callable holds as plain values, and its source where no part of the user's code is known.

    A function may define them as `version_parts`.
    """
    if inspect.isfunction(function) and "version_parts" in vars(function):
        return [_plain(vars(function)["version_parts"])]
    if isinstance(function, partial):
        inside = _values(function.func, with_source=with_source)
        return [*inside, _plain(function.args), _plain(function.keywords)]
    if inspect.ismethod(function):
        return [
            value for held in (function.__func__, function.__self__) for value in _values(held, with_source=with_source)
        ]
    inner = inspect.unwrap(function) if callable(function) else function
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        return [_source(type(inner)) if with_source else None, _plain(getattr(inner, "__dict__", None))]
    closure = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or () if _is_filled(cell)]
    defaults = getattr(inner, "__defaults__", None), getattr(inner, "__kwdefaults__", None)
    return [_source(inner) if with_source else None, _plain(closure), _plain(defaults)]


def _source(inner: Any) -> object:
    code = getattr(inner, "__code__", None)
    try:
        source: object = as_first_stored(inspect.getsource(inner), getattr(inner, "__module__", None))
    except (OSError, TypeError):
        return _plain(code) if code else f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', '')}"
    # Two lambdas on one line have the same source.
    return [source, _plain(code)] if getattr(inner, "__name__", "") == "<lambda>" else source


def _plain(value: object) -> object:
    """Return a value whose text is the same in every process; for other objects, the name or the type's name."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return value
        case list() | tuple():
            return [type(value).__name__, [_plain(item) for item in value]]
        case dict():
            return ["dict", sorted(([_plain(key), _plain(item)] for key, item in value.items()), key=repr)]
        case set() | frozenset():
            return ["set", sorted((_plain(item) for item in value), key=repr)]
        case CodeType():
            return [value.co_code, value.co_names, _plain(value.co_consts)]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_importable(function: Callable[..., Any], module: str, name: str) -> bool:
    """Return whether a thread can import the callable now: a module that is still being imported would make it wait."""
    value: Any = sys.modules.get(module)
    if getattr(getattr(value, "__spec__", None), "_initializing", False):
        return False
    for attribute in name.split("."):
        value = getattr(value, attribute, None)
    return value is function


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling the function returns an awaitable."""
    outer = function.func if isinstance(function, partial) else function
    return any(
        inspect.iscoroutinefunction(layer) or inspect.iscoroutinefunction(type(layer).__call__)
        for layer in (outer, inspect.unwrap(outer))
    )


def parameters_of(function: Callable[..., Any], what: str) -> list[inspect.Parameter]:
    """Return a callable's parameters. Raise InputError, beginning with `what`, if they cannot be read."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: its parameters cannot be read; wrap it in a function") from error
