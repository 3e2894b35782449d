"""Naming code by text: `module:name` in a spec, and the version of what it names.

A callable that no text can name (a closure, a function of a notebook) is kept here for as long as this process
lives, under a text that begins with `live:`.
"""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from functools import partial
from types import CellType, CodeType
from typing import Any

from specs.errors import InputError, describe

FILES = "files"
"""The attribute of a function that lists which of its settings name files: their content is part of its version."""

_live: dict[str, Callable[..., Any]] = {}


def load(reference: str, fits: Callable[[object], bool] = callable) -> Any:
    """The callable that a reference names, or what else `fits`. Raises InputError, in one line, if there is none."""
    if reference.startswith("live:"):
        return _load_live(reference)
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise InputError(f"{reference!r}: wanted 'module:name'")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module raises while it is imported
        raise InputError(f"{reference!r}: cannot import {module_name!r}: {describe(error)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{reference!r}: {module_name!r} has no {name!r}")
        found = getattr(found, part)
    if not fits(found):
        raise InputError(f"{reference!r}: got {type(found).__name__}, wanted something that can be called")
    return found


def refer(function: Callable[..., Any]) -> str:
    """A text that `load` turns into this callable: `module:name` if that is importable anywhere, else `live:…`."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module and name and module != "__main__" and _is_importable(function, module, name):
        return f"{module}:{name}"
    reference = f"live:{name_of(function)}-{version_of(function)[:8]}-{id(function):x}"
    _live[reference] = function
    return reference


def name_of(function: Callable[..., Any]) -> str:
    """What a callable is called, for messages and as the name of a score; another project's evaluator by its score."""
    inner = function.func if isinstance(function, partial) else function
    name = _score_name(inner) or getattr(inner, "__name__", None) or type(inner).__name__
    return "function" if name == "<lambda>" else str(name)


def comes_from(value: object, package: str) -> bool:
    """Whether a function, a class, or an object by its class or one of its bases, is of a package.

    The package is not imported for it.
    """
    of = [value] if inspect.isroutine(value) else (value if inspect.isclass(value) else type(value)).__mro__
    return any(str(getattr(one, "__module__", "")).partition(".")[0] == package for one in of)


def held_by(function: object) -> dict[str, Any]:
    """What a closure holds, by the names that its source has for it."""
    cells = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars if cells and hasattr(function, "__code__") else ()
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True) if _is_filled(cell)}


def _score_name(inner: Any) -> str | None:
    """What another project's evaluator calls its score, where it tells before it is called; None for all others."""
    if inspect.isclass(inner):
        return None
    if comes_from(inner, "openevals"):
        return _name_by_factory(inner)
    if comes_from(inner, "langfuse") and (scorer := held_by(inner).get("autoevals_evaluator")):
        return name_of(scorer)
    if comes_from(inner, "autoevals") and hasattr(inner, "_name"):
        return str(inner._name())
    if comes_from(inner, "pydantic_evals") and hasattr(inner, "get_default_evaluation_name"):
        return str(inner.get_default_evaluation_name())
    keys = getattr(inner, "feedback_keys", None) if comes_from(inner, "langsmith") else None
    return str(keys[0]) if keys and len(keys) == 1 else None


def _name_by_factory(function: Any) -> str | None:
    """Of what a function of openevals made: the key of its score, else the name of what it makes."""
    held, made_by = held_by(function), str(getattr(function, "__qualname__", "")).partition(".<locals>")
    if "feedback_key" in held or not made_by[1]:
        return held.get("feedback_key")
    made = made_by[0].removeprefix("create_").removeprefix("async_").removesuffix("_evaluator")
    mode = held.get("trajectory_match_mode")
    return made.replace("_match", f"_{mode}_match") if mode else made


def version_of(function: Callable[..., Any], *settings: object) -> str:
    """A hash of a callable's source, constants, and settings; 16 hex digits.

    It labels what was used. It cannot see a change in code that the callable calls.
    """
    return hashlib.sha256(repr([_parts(function), _plain(settings)]).encode()).hexdigest()[:16]


def _parts(function: object) -> list[object]:
    """What a callable is made of, as plain values: what it says itself in `version_parts`, if it is a function."""
    if inspect.isfunction(function) and "version_parts" in vars(function):
        return [_plain(vars(function)["version_parts"])]
    if isinstance(function, partial):
        return [*_parts(function.func), _plain(function.args), _plain(function.keywords)]
    if inspect.ismethod(function):
        return [*_parts(function.__func__), *_parts(function.__self__)]
    inner = inspect.unwrap(function) if callable(function) else function
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        return [_source(type(inner)), _plain(getattr(inner, "__dict__", None))]
    closure = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or () if _is_filled(cell)]
    defaults = getattr(inner, "__defaults__", None), getattr(inner, "__kwdefaults__", None)
    return [_source(inner), _plain(closure), _plain(defaults)]


def _source(inner: Any) -> object:
    code = getattr(inner, "__code__", None)
    try:
        source: object = inspect.getsource(inner)
    except (OSError, TypeError):
        return _plain(code) if code else f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', '')}"
    # Two lambdas of one line have the same source.
    return [source, _plain(code)] if getattr(inner, "__name__", "") == "<lambda>" else source


def _plain(value: object) -> object:
    """A value whose text is the same in every process: of an object that has none, its type or its name."""
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
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function


def _load_live(reference: str) -> Callable[..., Any]:
    if reference not in _live:
        raise InputError(f"{reference!r}: lived in another process; name code as 'module:name' to use it in this one")
    return _live[reference]


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    outer = function.func if isinstance(function, partial) else function
    return any(
        inspect.iscoroutinefunction(one) or inspect.iscoroutinefunction(type(one).__call__)
        for one in (outer, inspect.unwrap(outer))
    )


def parameters_of(function: Callable[..., Any], what: str) -> list[inspect.Parameter]:
    """A callable's parameters. Raises InputError, which begins with `what`, where they cannot be read."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: its parameters cannot be read; wrap it in a function") from error
