"""The binder: which arguments an evaluator asks for, found before the first call, and how it is then called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from evaluators.subject import Evaluations, ExampleView, ItemResult, RunView, whole
from specs.errors import InputError
from specs.reference import is_async, name_of, parameters_of

Level = Literal["item", "run", "pair"]

_LANGFUSE = ("input", "output", "expected_output", "metadata")
OFFERED: dict[Level, tuple[str, ...]] = {
    "item": (
        *("inputs", "outputs", "reference_outputs", "metadata", "example", "run", "root_run", "attachments"),
        *("input", "output", "expected_output", "evaluations", "scores", "complete", "embed"),
    ),
    "run": ("inputs", "outputs", "reference_outputs", "runs", "examples", "item_results", "complete", "embed"),
    "pair": (
        *("inputs", "outputs", "reference_outputs", "metadata", "runs", "example", "attachments"),
        *("complete", "embed"),
    ),
}
"""What may be asked for: of one run, of all runs of an experiment at once, and of two runs of one example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An evaluator whose signature was checked."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    level: Level = "item"
    positional: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of positional-only parameters, to keep their place

    @property
    def asked(self) -> frozenset[str]:
        """The names of what it is handed."""
        return frozenset({*self.positional, *self.named})

    def asks_for(self, *names: str) -> bool:
        return not self.asked.isdisjoint(names)

    def call(self, offered: Mapping[str, Any]) -> Any:
        """Call the function with what it asks for: its return value, or for an async one something to await."""
        arguments = [self.defaults[name] if name in self.defaults else offered[name] for name in self.positional]
        return self.function(*arguments, **{name: offered[name] for name in self.named}, **self.settings)


def bind(
    function: Callable[..., Any], *, name: str = "", settings: Mapping[str, Any] | None = None, level: Level = "item"
) -> Bound:
    """Match a function's parameters with what can be offered.

    Raises InputError for a parameter that nothing fills, and for a setting that the function does not take.
    """
    name, settings, offered = name or name_of(function), settings or {}, OFFERED[level]
    parameters = parameters_of(function, f"evaluator {name!r}")
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    single = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    for p in single:
        given = p.name in settings and p.kind is not p.POSITIONAL_ONLY
        if not given and p.name not in offered and p.default is p.empty:
            raise InputError(f"evaluator {name!r}: asks for {p.name!r}, wanted any of {', '.join(offered)}")
    unknown = settings.keys() - {p.name for p in single if p.kind is not p.POSITIONAL_ONLY}
    if unknown and not takes_any:
        known = ", ".join(p.name for p in single if p.name not in offered) or "none"
        raise InputError(f"evaluator {name!r}: got the setting {min(unknown)!r}, wanted one of: {known}")
    held = function.keywords if isinstance(function, partial) else {}
    asked = [p for p in single if p.name in offered and p.name not in {*settings, *held}]
    defaults = {p.name: p.default for p in single if p.kind is p.POSITIONAL_ONLY and p.name not in offered}
    named = [p.name for p in asked if p.kind is not p.POSITIONAL_ONLY]
    if takes_any and level == "item":  # Langfuse hands these four to everyone
        named += [argument for argument in _LANGFUSE if argument not in {*named, *settings}]
    return Bound(
        name=name,
        function=function,
        is_async=is_async(function),
        level=level,
        positional=tuple(p.name for p in single if p.kind is p.POSITIONAL_ONLY),
        defaults=defaults,
        named=tuple(named),
        settings=settings,
    )


_WHOLE = {
    "input": ("inputs", "input"),
    "output": ("outputs", "output"),
    "expected_output": ("reference_outputs", "output"),
}


def offer_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs, outputs, reference outputs and metadata of a run, as far as they are given, in both spellings."""
    spelled = {name: whole(fields[given], only) for name, (given, only) in _WHOLE.items() if given in fields}
    return {**fields, **spelled}


def offer_run(example: ExampleView, run: RunView, evaluations: Evaluations | None = None) -> dict[str, Any]:
    """What a run offers to an item-level evaluator, in LangSmith's spelling and in Langfuse's."""
    evaluations = evaluations if evaluations is not None else Evaluations()
    return {
        **offer_fields(
            {
                "inputs": example.inputs,
                "outputs": run.outputs,
                "reference_outputs": example.reference_outputs,
                "metadata": example.metadata,
            }
        ),
        "example": example,
        "run": run,
        "root_run": run,
        "attachments": example.attachments,
        "evaluations": evaluations,
        "scores": evaluations,
    }


def offer_experiment(results: list[ItemResult]) -> dict[str, Any]:
    """What an experiment offers to a run-level evaluator: lists in the order of the runs.

    The `output` of `item_results` is what the target returned, before it was wrapped, as Langfuse has it.
    """
    return {
        "inputs": [result.item.inputs for result in results],
        "outputs": [result.run.outputs for result in results],
        "reference_outputs": [result.item.reference_outputs for result in results],
        "runs": [result.run for result in results],
        "examples": [result.item for result in results],
        "item_results": [replace(result, output=whole(result.run.outputs, "output")) for result in results],
    }


def offer_pair(example: ExampleView, first: RunView, second: RunView) -> dict[str, Any]:
    """What two runs of an example offer to a pairwise evaluator, in the order in which they are shown."""
    return {
        "inputs": example.inputs,
        "outputs": [first.outputs, second.outputs],
        "reference_outputs": example.reference_outputs,
        "metadata": example.metadata,
        "runs": [first, second],
        "example": example,
        "attachments": example.attachments,
    }
