"""Adapter for openevals: functions of `inputs`, `outputs` and `reference_outputs`, built-in or from `create_…`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from evalflows.evaluators.foreign.judge import Adapted, version_values
from evalflows.evaluators.score import Score
from evalflows.evaluators.subject import ExampleView, RunView, unwrapped
from evalflows.specs.errors import InputError
from evalflows.specs.reference import comes_from, is_async, parameters_of

PACKAGE = "openevals"

_parts: WeakKeyDictionary[Callable[..., Any], object] = WeakKeyDictionary()
"""The version parts of each function when first seen: a judge changes at its first call, when it fills in its model."""


def recognises(evaluator: object) -> bool:
    return inspect.isfunction(evaluator) and comes_from(evaluator, PACKAGE)


def split_settings(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    raise InputError(f"{kind.__name__}: got a class, wanted a function of {PACKAGE}")


def adapt(function: Any, settings: dict[str, Any], where: str) -> Adapted:
    """Adapt a function. As in LangSmith, it gets the settings and those of the three arguments that it names.

    A trajectory can be the whole answer, a list of messages, which is unwrapped. It cannot see other placeholders of a
    prompt, such as {context}: pass them as settings, or write a function around it.
    """
    parameters = parameters_of(function, where)
    named = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    missing = [p.name for p in parameters if p.default is p.empty and p.name in named - {*_offered_names, *settings}]
    if missing:
        wanted = "the result of the create_… function" if function.__name__.startswith("create_") else "it under args"
        raise InputError(f"{where}: asks for {missing[0]!r}, wanted {wanted}")
    takes_messages = str(function.__module__).startswith("openevals.trajectory")

    def arguments(example: ExampleView, run: RunView) -> dict[str, Any]:
        values = (example.inputs, run.outputs, example.reference_outputs)
        fields = {name: value for name, value in zip(_offered_names, values, strict=True) if name in named}
        if takes_messages:
            fields = {name: _messages(value) for name, value in fields.items()}
        return fields | settings

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(function(**arguments(example, run)))

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(await function(**arguments(example, run)))

    if function not in _parts:
        _parts[function] = version_values(function)
    parts = [_parts[function], version_values(settings)]
    return Adapted(judge=judge_async if is_async(function) else judge, parts=parts)


_offered_names = ("inputs", "outputs", "reference_outputs")


def _messages(value: Any) -> Any:
    bare = unwrapped(value, "output")
    return bare if isinstance(bare, list) else value


def _scores(given: Any) -> list[Any]:
    return [_score(result) for result in (given if isinstance(given, list) else [given])]


def _score(given: Any) -> Any:
    """Convert a result with a key to a Score; return a result of the user's own schema unchanged."""
    if not isinstance(given, Mapping) or not given.keys() >= {"key", "score"}:
        return given
    return Score(
        key=given["key"], value=given["score"], comment=given.get("comment"), metadata=given.get("metadata") or None
    )
