"""openevals: functions of `inputs`, `outputs` and `reference_outputs`, ready-made or made by `create_…`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from evaluators.foreign.judge import Foreign, made_of
from evaluators.score import Score
from evaluators.subject import ExampleView, RunView, whole
from specs.errors import InputError
from specs.reference import comes_from, is_async, parameters_of

PACKAGE = "openevals"

_parts: WeakKeyDictionary[Callable[..., Any], object] = WeakKeyDictionary()
"""What a function is made of when it is first seen: a judge fills in its model at its first call."""


def is_one(found: object) -> bool:
    return inspect.isfunction(found) and comes_from(found, PACKAGE)


def of_class(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    raise InputError(f"{kind.__name__}: {PACKAGE} has functions, and this is a class")


def foreign(function: Any, settings: dict[str, Any], who: str) -> Foreign:
    """It is given what LangSmith would give it, those of the three that it names, and the settings.

    A trajectory may be the whole answer: a list of messages, that is, which was wrapped. Cannot see a placeholder of a
    prompt that is none of the three, such as {context}: hand that as a setting, or write a function around it.
    """
    parameters = parameters_of(function, who)
    named = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    lacking = [p.name for p in parameters if p.default is p.empty and p.name in named - {*_offered_names, *settings}]
    if lacking:
        wanted = "what a create_… function gives" if function.__name__.startswith("create_") else "it under args"
        raise InputError(f"{who}: asks for {lacking[0]!r}, wanted {wanted}")
    takes_messages = str(function.__module__).startswith("openevals.trajectory")

    def arguments(example: ExampleView, run: RunView) -> dict[str, Any]:
        values = (example.inputs, run.outputs, example.reference_outputs)
        given = {name: value for name, value in zip(_offered_names, values, strict=True) if name in named}
        if takes_messages:
            given = {name: _messages(value) for name, value in given.items()}
        return given | settings

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(function(**arguments(example, run)))

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(await function(**arguments(example, run)))

    if function not in _parts:
        _parts[function] = made_of(function)
    parts = [_parts[function], made_of(settings)]
    return Foreign(judge=judge_async if is_async(function) else judge, parts=parts)


_offered_names = ("inputs", "outputs", "reference_outputs")


def _messages(value: Any) -> Any:
    bare = whole(value, "output")
    return bare if isinstance(bare, list) else value


def _scores(given: Any) -> list[Any]:
    return [_score(one) for one in (given if isinstance(given, list) else [given])]


def _score(given: Any) -> Any:
    """What bears a key, as ours; what a schema of the user's own shaped, as it is."""
    if not isinstance(given, Mapping) or not given.keys() >= {"key", "score"}:
        return given
    return Score(
        key=given["key"], value=given["score"], comment=given.get("comment"), metadata=given.get("metadata") or None
    )
