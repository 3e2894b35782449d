"""The common result of all adapters, and plain values for the version of an object with nested settings."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evalflows.evaluators.subject import ExampleView, RunView
from evalflows.specs.reference import comes_from, held_by, version_of

_DEEPEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """An adapted evaluator of another project."""

    judge: Callable[[ExampleView, RunView], Any]  # sync or async; returns a list of scores
    parts: object  # plain values that determine its version
    is_share: bool = False  # whether its scores are from 0 (worst) to 1 (best)


def version_values(value: object, path: tuple[int, ...] = ()) -> object:
    """Return plain values that are the same in every process; for an object, its class's source and its settings.

    Of an OpenAI client only the base URL counts. Attributes with a leading underscore, such as keys and locks, do not.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if id(value) in path or len(path) == _DEEPEST:
        return type(value).__name__
    path = (*path, id(value))
    if isinstance(value, Mapping):
        return {str(key): version_values(item, path) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [version_values(item, path) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((version_values(item, path) for item in value), key=repr)
    if comes_from(value, "openai"):
        return [type(value).__name__, str(getattr(value, "base_url", ""))]
    return _of_code(value, path) if inspect.isroutine(value) or inspect.isclass(value) else _of_object(value, path)


def _of_code(value: Any, path: tuple[int, ...]) -> object:
    if inspect.ismethod(value):
        return [version_values(value.__func__, path), version_values(value.__self__, path)]
    return [version_of(value), version_values(held_by(value), path)]


def _of_object(value: object, path: tuple[int, ...]) -> object:
    if comes_from(value, "autoevals") and hasattr(value, "openai"):  # a wrapper around a client
        return version_values(value.openai, path)
    settings = {name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    return [version_of(type(value)), version_values(settings, path)]
