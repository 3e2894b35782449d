"""From an evaluator of another project to a function that the binder takes. Its package is not imported for that."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from evaluators.direction import zero_to_one
from evaluators.foreign import autoevals, langsmith, openevals, pydantic_evals
from evaluators.foreign.judge import Foreign
from evaluators.score import Score
from evaluators.subject import ExampleView, RunView
from specs.errors import InputError, describe
from specs.reference import name_of

_PROJECTS: tuple[ModuleType, ...] = (autoevals, openevals, langsmith, pydantic_evals)


def origin_of(found: object) -> str | None:
    """Which project's evaluator something is, if it needs an adapter; None for plain functions, whoever wrote them."""
    module = _module_for(found)
    return None if module is None else str(module.PACKAGE)


def adapted(
    found: Any, *, name: str, settings: Mapping[str, Any] | None = None, renamed: bool = False, one_run: bool = True
) -> Callable[..., Any] | None:
    """A function of `example` and `run` that calls another project's evaluator; None where `found` needs none.

    A class is made with the settings. What it gives bears its own key, or `name` where it is one score and `renamed`.
    Raises InputError for one that cannot be made, that takes no such setting, or that is to judge all runs at once
    (`one_run` is false).
    """
    module = _module_for(found)
    if module is None:
        return None
    who = f"evaluator {name!r}"
    if not one_run:
        raise InputError(f"{who}: one of {module.PACKAGE} judges one run, wanted it under evaluators")
    made, left = _made(found, module.of_class(found, settings or {}), who) if inspect.isclass(found) else (found, None)
    foreign: Foreign = module.foreign(made, dict(settings or {}) if left is None else left, who)
    return _function(foreign, name if renamed else name_of(found), renamed)


def _module_for(found: object) -> ModuleType | None:
    return next((module for module in _PROJECTS if module.is_one(found)), None)


def _made(kind: type, split: tuple[dict[str, Any], dict[str, Any]], who: str) -> tuple[object, dict[str, Any]]:
    """An object of a class, and the settings that are for its calls."""
    try:
        return kind(**split[0]), split[1]
    except Exception as error:  # whatever it raises about its settings
        raise InputError(f"{who}: {kind.__name__} cannot be made: {describe(error)}") from error


def _function(foreign: Foreign, name: str, renamed: bool) -> Callable[..., Any]:
    def call(example: ExampleView, run: RunView) -> Any:
        return _named(foreign.judge(example, run), renamed)

    async def call_later(example: ExampleView, run: RunView) -> Any:
        return _named(await foreign.judge(example, run), renamed)

    function = call_later if inspect.iscoroutinefunction(foreign.judge) else call
    function.__name__ = name
    vars(function)["version_parts"] = foreign.parts
    if foreign.is_share:
        vars(function)["metrics"] = {name: zero_to_one()}
    return function


def _named(scores: list[Any], renamed: bool) -> list[Any]:
    """The scores under the names that they are kept by: the one that a spec names loses its own."""
    if renamed and len(scores) == 1 and isinstance(scores[0], Score):
        return [replace(scores[0], key=None)]
    return scores
