"""Adapt an evaluator of another project to a function that can be bound, without importing its package."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from evalflows.evaluators.direction import zero_to_one
from evalflows.evaluators.foreign import autoevals, langsmith, openevals, pydantic_evals
from evalflows.evaluators.foreign.judge import Adapted
from evalflows.evaluators.foreign.names import evaluator_name
from evalflows.evaluators.score import Score
from evalflows.evaluators.subject import ExampleView, RunView
from evalflows.specs.errors import InputError, describe

_PROJECTS: tuple[ModuleType, ...] = (autoevals, openevals, langsmith, pydantic_evals)


def origin_of(evaluator: object) -> str | None:
    """Return the project of an evaluator that needs an adapter; None for plain functions of any origin."""
    module = _module_for(evaluator)
    return None if module is None else str(module.PACKAGE)


def adapted(
    evaluator: Any, *, name: str, settings: Mapping[str, Any] | None = None, renamed: bool = False, one_run: bool = True
) -> Callable[..., Any] | None:
    """Return a function of `example` and `run` that calls another project's evaluator; None if no adapter is needed.

    A class is instantiated with the settings. Scores keep their own keys; with `renamed`, a single score gets `name`.
    Raise InputError for an evaluator that cannot be instantiated, for an unknown setting, and if it is to judge all
    runs at once (`one_run` is false).
    """
    module = _module_for(evaluator)
    if module is None:
        return None
    where = f"evaluator {name!r}"
    if not one_run:
        raise InputError(
            f"{where}: got an evaluator of {module.PACKAGE}, which judges one run, wanted it under evaluators"
        )
    instance, call_settings = evaluator, dict(settings or {})
    if inspect.isclass(evaluator):
        instance, call_settings = _instance(evaluator, module.split_settings(evaluator, settings or {}), where)
    result: Adapted = module.adapt(instance, call_settings, where)
    return _function(result, name if renamed else evaluator_name(evaluator), renamed)


def _module_for(evaluator: object) -> ModuleType | None:
    return next((module for module in _PROJECTS if module.recognises(evaluator)), None)


def _instance(kind: type, split: tuple[dict[str, Any], dict[str, Any]], where: str) -> tuple[object, dict[str, Any]]:
    """Return an instance of a class, and the settings for its calls."""
    try:
        return kind(**split[0]), split[1]
    except Exception as error:  # a constructor can raise anything about its settings
        raise InputError(f"{where}: {kind.__name__} cannot be instantiated: {describe(error)}") from error


def _function(result: Adapted, name: str, renamed: bool) -> Callable[..., Any]:
    def call(example: ExampleView, run: RunView) -> Any:
        return _named(result.judge(example, run), renamed)

    async def call_later(example: ExampleView, run: RunView) -> Any:
        return _named(await result.judge(example, run), renamed)

    function = call_later if inspect.iscoroutinefunction(result.judge) else call
    function.__name__ = name
    vars(function)["version_parts"] = result.parts
    if result.is_share:
        vars(function)["metrics"] = {name: zero_to_one()}
    return function


def _named(scores: list[Any], renamed: bool) -> list[Any]:
    """Drop the key of a single score that the spec names, so that it gets the spec's name."""
    if renamed and len(scores) == 1 and isinstance(scores[0], Score):
        return [replace(scores[0], key=None)]
    return scores
