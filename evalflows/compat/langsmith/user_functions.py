"""Targets and evaluators written for LangSmith, as functions of ours."""

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from itertools import takewhile
from textwrap import dedent
from typing import Any

from evalflows.compat.langsmith.conversion import example_of_view, opened, run_of_view
from evalflows.compat.langsmith.run_helpers import untraced
from evalflows.evaluators.binding import OFFERED, Scope
from evalflows.evaluators.foreign import evaluator_name
from evalflows.evaluators.views import ExampleView, RunView, with_attributes
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.reference import name_of, parameters_of

Function = Callable[..., Any]

TARGET_OFFERED = ("inputs", "attachments", "metadata")
LEGACY: dict[Scope, tuple[str, str]] = {
    "item": ("run", "example"),
    "run": ("runs", "examples"),
    "pair": ("runs", "example"),
}
"""The arguments of an evaluator with two parameters of any other names."""


def as_target(target: object) -> Function:
    """Adapt a target: a function (traceable or not) of the inputs as one dict, or a LangChain runnable.

    The function's parameter may have any name. Raise InputError for anything else.
    """
    function: Function = untraced(getattr(target, "invoke", target))
    if not callable(function):
        kind = type(target).__name__  # type: ignore[unreachable]  # what users hand over has any type
        raise InputError(f"evaluate: target: got {kind}, wanted a function of the inputs, or an experiment")
    where = f"target {name_of(function)!r}"
    parameters = parameters_of(function, where)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = list(takewhile(TARGET_OFFERED.__contains__, [p.name for p in positional])) or ["inputs"]
    unfilled = [p.name for p in positional[len(names) :] if p.default is p.empty]
    if not positional or unfilled:
        got = f"parameter {unfilled[0]!r}" if unfilled else "no parameter"
        raise InputError(f"{where}: got {got}, wanted the inputs, then at most {' and '.join(TARGET_OFFERED[1:])}")
    if [p.name for p in parameters] == ["inputs"]:
        return function  # unchanged, so that a spec can name it
    return _called_with(function, names)


def as_evaluator(evaluator: Any, scope: Scope = "item") -> Any:
    """Wrap an evaluator so that it receives LangSmith's objects.

    Our own evaluators, given by name or as a spec, are returned unchanged. Raise InputError if it cannot be called.
    """
    if isinstance(evaluator, str | Mapping | EvaluatorSpec):
        return evaluator
    if hasattr(evaluator, "as_run_evaluator"):
        evaluator = evaluator.as_run_evaluator()
    function = getattr(evaluator, "evaluate_run", evaluator)
    if not callable(function):
        kind = type(evaluator).__name__
        raise InputError(f"evaluate: evaluators: got {kind}, wanted a function or an object with evaluate_run")
    name = evaluator_name(function if function is evaluator else type(evaluator))
    return _with_langsmith_objects(as_named(function, name, scope), name)


def told_apart(evaluators: Sequence[Any], stored: Callable[[str], str] = str) -> list[Any]:
    """Return evaluators, those with the name of an earlier one under a name of their own: `judge`, `judge_2`.

    `stored` gives the name under which one is stored.
    """
    seen: Counter[str] = Counter()
    found = []
    for evaluator in evaluators:
        if not isinstance(evaluator, str | Mapping | EvaluatorSpec):
            name = evaluator_name(evaluator)
            seen[name] += 1
            if seen[name] > 1:
                evaluator = {"use": evaluator, "name": f"{stored(name)}_{seen[name]}"}
        found.append(evaluator)
    return found


def keys_by_name(evaluators: Sequence[Any]) -> dict[str, list[str]]:
    """Return the keys of the results of functions, as their sources write them, by the evaluators' names."""
    named = [(each.get("name"), each.get("use")) if isinstance(each, Mapping) else (None, each) for each in evaluators]
    return {name or evaluator_name(use): _returned_keys(use) for name, use in named if callable(use)}


def _returned_keys(evaluator: Any) -> list[str]:
    try:
        tree = ast.parse(dedent(inspect.getsource(getattr(evaluator, "evaluate_run", evaluator))))
    except (OSError, TypeError, SyntaxError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            named = zip(node.keys, node.values, strict=True)
            keys = [value for name, value in named if isinstance(name, ast.Constant) and name.value == "key"]
        else:
            keys = [each.value for each in getattr(node, "keywords", ()) if each.arg == "key"]
        found += [key for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return [str(key.value) for key in sorted(found, key=lambda key: (key.lineno, key.col_offset))]


def as_named(function: Function, name: str, scope: Scope) -> Function:
    """Return the function; one with two parameters of unknown names is wrapped to receive LangSmith's two arguments.

    Raise InputError if its parameters cannot be read.
    """
    parameters = parameters_of(function, f"evaluator {name!r}")
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(required) == 2 and not {*required} <= {*OFFERED[scope]}:
        return _called_with(function, LEGACY[scope])
    return function


def _called_with(function: Function, names: Sequence[str]) -> Function:
    """Wrap a function: keyword parameters with these names, passed on by position."""

    def call(**arguments: Any) -> Any:
        return function(*(_converted(name, arguments[name]) for name in names))

    update_wrapper(call, function).__name__ = evaluator_name(function)
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _with_langsmith_objects(function: Function, name: str) -> Function:
    """Wrap a function so that it receives LangSmith's objects instead of ours; its signature stays the same."""
    signature = inspect.signature(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for parameter, value in bound.arguments.items():
            bound.arguments[parameter] = _converted(parameter, value)
        return function(*bound.args, **bound.kwargs)

    update_wrapper(call, function).__name__ = name
    return call


def _converted(parameter: str, value: Any) -> Any:
    if isinstance(value, RunView):
        return run_of_view(value)
    if isinstance(value, ExampleView):
        return example_of_view(value)
    if value is None and parameter in ("outputs", "reference_outputs"):
        return {}
    if parameter == "attachments":
        return opened(value)
    if isinstance(value, dict) and parameter in ("inputs", "outputs", "reference_outputs"):
        return with_attributes(value)
    if isinstance(value, list) and parameter in ("runs", "examples", "outputs", "reference_outputs"):
        return [_converted(parameter, item) for item in value]
    return value
