"""Targets and evaluators as LangSmith calls them, as functions that `flows.evaluate` can call."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from itertools import takewhile
from typing import Any

from compat.langsmith.run_helpers import untraced
from compat.langsmith.views import example_seen, run_seen
from evaluators.call import OFFERED, Level
from evaluators.subject import ExampleView, RunView
from specs.errors import InputError
from specs.evaluator import EvaluatorSpec
from specs.reference import name_of, parameters_of

Function = Callable[..., Any]

TARGET_OFFERED = ("inputs", "attachments", "metadata")
LEGACY: dict[Level, tuple[str, str]] = {
    "item": ("run", "example"),
    "run": ("runs", "examples"),
    "pair": ("runs", "example"),
}
"""What an evaluator with two parameters of any other names gets."""


def as_target(target: object) -> Function:
    """A function of the inputs as one dict, whatever its parameter is called; a traceable one, or LangChain's runnable.

    Raises InputError for anything else.
    """
    function: Function = untraced(getattr(target, "invoke", target))
    if not callable(function):
        kind = type(target).__name__
        remedy = "for an experiment's answers use flows.evaluate({'kind': 'recorded', 'experiment': …}, …)"
        raise InputError(f"evaluate: target: got {kind}, wanted a function of the inputs; {remedy}")
    what = f"target {name_of(function)!r}"
    found = parameters_of(function, what)
    positional = [p for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    asked = list(takewhile(TARGET_OFFERED.__contains__, [p.name for p in positional])) or ["inputs"]
    unfilled = [p.name for p in positional[len(asked) :] if p.default is p.empty]
    if not positional or unfilled:
        got = f"asks for {unfilled[0]!r}" if unfilled else "takes no argument"
        raise InputError(f"{what}: {got}, wanted the inputs, then at most {' and '.join(TARGET_OFFERED[1:])}")
    if [p.name for p in found] == ["inputs"]:
        return function  # as it is, so that a spec can name it
    return _called_with(function, asked)


def as_evaluator(evaluator: Any, level: Level = "item") -> Any:
    """A function that asks for what the binder offers, and is shown LangSmith's objects.

    Ours, by name or as a spec, are left as they are. Raises InputError for what cannot be called.
    """
    if isinstance(evaluator, str | Mapping | EvaluatorSpec):
        return evaluator
    function = getattr(evaluator, "evaluate_run", evaluator)
    if not callable(function):
        kind = type(evaluator).__name__
        raise InputError(f"evaluate: evaluators: got {kind}, wanted a function or an object with evaluate_run")
    name = name_of(function if function is evaluator else type(evaluator))
    return _shown(as_named(function, name, level), name)


def as_named(function: Function, name: str, level: Level) -> Function:
    """The function, if need be as one that asks by LangSmith's names for what it takes as two arguments of any names.

    Raises InputError where its parameters cannot be read.
    """
    found = parameters_of(function, f"evaluator {name!r}")
    needed = [p.name for p in found if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(needed) == 2 and not {*needed} <= {*OFFERED[level]}:
        return _called_with(function, LEGACY[level])
    return function


def _called_with(function: Function, names: Sequence[str]) -> Function:
    """The function as one that asks for these names, and is called with their values by position."""

    def call(**given: Any) -> Any:
        return function(*(given[name] for name in names))

    update_wrapper(call, function).__name__ = name_of(function)
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _shown(function: Function, name: str) -> Function:
    """The function, given LangSmith's objects where it would be given ours. It asks for the same."""
    signature = inspect.signature(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        for parameter, value in given.arguments.items():
            given.arguments[parameter] = _as_theirs(parameter, value)
        return function(*given.args, **given.kwargs)

    update_wrapper(call, function).__name__ = name
    return call


def _as_theirs(parameter: str, value: Any) -> Any:
    if isinstance(value, RunView):
        return run_seen(value)
    if isinstance(value, ExampleView):
        return example_seen(value)
    if value is None and parameter in ("outputs", "reference_outputs"):
        return {}
    if isinstance(value, list) and parameter in ("runs", "examples", "outputs", "reference_outputs"):
        return [_as_theirs(parameter, one) for one in value]
    return value
