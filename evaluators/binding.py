"""Bind evaluators: find out before the first call which arguments a function requests, and call it with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from evalflows.evaluators.subject import Evaluations, ExampleView, ItemResult, RunView, unwrapped, with_attributes
from evalflows.specs.errors import InputError
from evalflows.specs.reference import is_async, name_of, parameters_of

Scope = Literal["item", "run", "pair"]

_LANGFUSE = ("input", "output", "expected_output", "metadata")
OFFERED: dict[Scope, tuple[str, ...]] = {
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
"""Arguments that evaluators can request: for one run, for all runs of an experiment, for two runs of one example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An evaluator with a checked signature."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    scope: Scope = "item"
    positional: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of positional-only parameters, to keep their place
    names_stand: bool = False  # whether its scores may have the names of measures, which traces of production lack

    @property
    def asked(self) -> frozenset[str]:
        """Names of the arguments it requests."""
        return frozenset({*self.positional, *self.named})

    def asks_for(self, *names: str) -> bool:
        return not self.asked.isdisjoint(names)

    def call(self, available: Mapping[str, Any], function: Callable[..., Any] | None = None) -> Any:
        """Call the function, or another with the same parameters, with the arguments that it requests.

        Return its value, or an awaitable if it is async.
        """
        named = {name: available[name] for name in self.named}
        if not self.positional:
            return (function or self.function)(**named, **self.settings)
        positional = [self.defaults[name] if name in self.defaults else available[name] for name in self.positional]
        return (function or self.function)(*positional, **named, **self.settings)


def bind(
    function: Callable[..., Any], *, name: str = "", settings: Mapping[str, Any] | None = None, scope: Scope = "item"
) -> Bound:
    """Match a function's parameters with the available arguments.

    Raise InputError for a parameter that cannot be filled, and for a setting that the function does not take.
    """
    name, settings, available = name or name_of(function), settings or {}, OFFERED[scope]
    parameters = parameters_of(function, f"evaluator {name!r}")
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    single = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    for p in single:
        is_set = p.name in settings and p.kind is not p.POSITIONAL_ONLY
        if not is_set and p.name not in available and p.default is p.empty:
            raise InputError(f"evaluator {name!r}: asks for {p.name!r}, wanted any of {', '.join(available)}")
    unknown = settings.keys() - {p.name for p in single if p.kind is not p.POSITIONAL_ONLY}
    if unknown and not takes_any:
        known = ", ".join(p.name for p in single if p.name not in available) or "none"
        raise InputError(f"evaluator {name!r}: got the setting {min(unknown)!r}, wanted one of: {known}")
    preset = function.keywords if isinstance(function, partial) else {}
    requested = [p for p in single if p.name in available and p.name not in {*settings, *preset}]
    defaults = {p.name: p.default for p in single if p.kind is p.POSITIONAL_ONLY and p.name not in available}
    named = [p.name for p in requested if p.kind is not p.POSITIONAL_ONLY]
    if takes_any and scope == "item":  # Langfuse passes these four to every evaluator
        named += [argument for argument in _LANGFUSE if argument not in {*named, *settings}]
    return Bound(
        name=name,
        function=function,
        is_async=is_async(function),
        scope=scope,
        positional=tuple(p.name for p in single if p.kind is p.POSITIONAL_ONLY),
        defaults=defaults,
        named=tuple(named),
        settings=settings,
    )


LANGFUSE_FIELDS = {
    "input": ("inputs", "input"),
    "output": ("outputs", "output"),
    "expected_output": ("reference_outputs", "output"),
}
"""Langfuse's names: ours, and the key that is left off if it is the only one."""


def offer_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given fields of a run, under LangSmith's and Langfuse's names."""
    langfuse = {
        name: with_attributes(unwrapped(fields[source], only))
        for name, (source, only) in LANGFUSE_FIELDS.items()
        if source in fields
    }
    return {**fields, **langfuse}


def offer_run(example: ExampleView, run: RunView, evaluations: Evaluations | None = None) -> dict[str, Any]:
    """Return the arguments for an item-level evaluator, under LangSmith's and Langfuse's names."""
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
    """Return the arguments for a run-level evaluator: lists in the order of the runs.

    As in Langfuse, the `output` of `item_results` is the target's return value before it was wrapped.
    """
    return {
        "inputs": [result.item.inputs for result in results],
        "outputs": [result.run.outputs for result in results],
        "reference_outputs": [result.item.reference_outputs for result in results],
        "runs": [result.run for result in results],
        "examples": [result.item for result in results],
        "item_results": [replace(result, output=unwrapped(result.run.outputs, "output")) for result in results],
    }


def offer_pair(example: ExampleView, first: RunView, second: RunView) -> dict[str, Any]:
    """Return the arguments for a pairwise evaluator, in the order in which the two runs are shown."""
    return {
        "inputs": example.inputs,
        "outputs": [first.outputs, second.outputs],
        "reference_outputs": example.reference_outputs,
        "metadata": example.metadata,
        "runs": [first, second],
        "example": example,
        "attachments": example.attachments,
    }
