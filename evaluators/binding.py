"""Bind evaluators: find out before the first call which arguments a function requests, call it with them, and read its
return value.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field, replace
from functools import partial
from inspect import Parameter, isfunction
from typing import Any, Literal

from evalflows.evaluators.declarations import UNUSED
from evalflows.evaluators.of_all import OF_ALL, ReturnedOfAll
from evalflows.evaluators.scales import Combine, combined, majority, spread_of
from evalflows.evaluators.score import Judgement, Preference, normalise, preferences
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES, RETURNED_AS, kept_apart
from evalflows.specs.reference import is_async, name_of, parameters_of
from evalflows.store.records import DataType

Scope = Literal["item", "run", "pair"]

_LANGFUSE = ("input", "output", "expected_output", "metadata")
OFFERED: dict[Scope, tuple[str, ...]] = {
    "item": (
        *("inputs", "outputs", "reference_outputs", "metadata", "example", "run", "root_run", "attachments"),
        *("input", "output", "expected_output", "evaluations", "scores", "complete", "embed"),
    ),
    "run": ("inputs", "outputs", "reference_outputs", "runs", "examples", "item_results", "complete", "embed"),
    "pair": (
        *("inputs", "outputs", "reference_outputs", "metadata", "runs", "example", "attachments", "candidates"),
        *("complete", "embed"),
    ),
}
"""Arguments that evaluators can request: for one run, for all runs of an experiment, for two runs of one example or
those of all candidates, which a function compares at once that asks for `candidates`."""

_SWITCHES = {"yes": True, "on": True, "no": False, "off": False}


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
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of each of its model calls
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of positional-only parameters, to keep their place
    names_stand: bool = False  # whether its scores may have the names of measures, which traces of production lack
    measures_used: Set[str] = frozenset()  # by rules of the spec: a score of such a name would be mistaken for it
    repeats: int = 1
    combine: "Combine | None" = None  # of the repeats
    is_of_all: bool = False  # whether it compares the answers of all candidates at once

    @property
    def asked(self) -> frozenset[str]:
        """Names of the arguments it requests."""
        return frozenset({*self.positional, *self.named, *((OF_ALL,) if self.is_of_all else ())})

    def asks_for(self, *names: str) -> bool:
        return not self.asked.isdisjoint(names)

    def call(self, available: Mapping[str, Any], function: Callable[..., Any] | None = None) -> Any:
        """Call the function, or another with the same parameters, with the arguments that it requests.

        Return its value, or an awaitable if it is async; of several repeats, their combined judgements.
        """
        if self.is_of_all and OF_ALL in available:
            return available[OF_ALL].ask(self, available)
        if self.parameters and "complete" in self.asked:
            available = {**available, "complete": partial(available["complete"], **self.parameters)}
        if self.repeats > 1 and function is None:
            single = replace(self, repeats=1, parameters={})
            offers = [_as_repeat(available, number) for number in range(self.repeats)]
            return (_gathered if self.is_async else _made)(single, offers)
        named = {name: available[name] for name in self.named}
        if not self.positional:
            return (function or self.function)(**named, **self.settings)
        positional = [self.defaults[name] if name in self.defaults else available[name] for name in self.positional]
        return (function or self.function)(*positional, **named, **self.settings)


REPEATS_WITHIN = 1000
"""The most repeats that an evaluator asks for itself; those of its own repeats follow."""


def _as_repeat(available: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return the arguments of one repeat: its model calls are others than those of the repeats before."""
    complete = available.get("complete")
    if complete is None or number == 0:
        return available

    def again(*args: Any, repeat: int = 0, **kwargs: Any) -> Any:
        return complete(*args, repeat=repeat + REPEATS_WITHIN * number, **kwargs)

    return {**available, "complete": again}


def _made(bound: Bound, offers: Sequence[Mapping[str, Any]]) -> list[Judgement]:
    return combined_judgements(bound, [(bound.call(offer), offer) for offer in offers])


async def _gathered(bound: Bound, offers: Sequence[Mapping[str, Any]]) -> list[Judgement]:
    """Wait for all repeats, even if one fails, so that their cost counts for this judgement."""
    returned = await asyncio.gather(*(bound.call(offer) for offer in offers), return_exceptions=True)
    for value in returned:
        if isinstance(value, BaseException):
            raise value
    return combined_judgements(bound, [*zip(returned, offers, strict=True)])


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
    settings = {**settings, **{p.name: _switch(settings[p.name], p) for p in single if p.name in settings}}
    preset = function.keywords if isinstance(function, partial) else {}
    left_out = {*settings, *preset}
    if isfunction(function) and UNUSED in vars(function):
        left_out |= vars(function)[UNUSED](settings)
    requested = [p for p in single if p.name in available and p.name not in left_out]
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
        is_of_all="candidates" in named,
    )


def _switch(setting: Any, parameter: Parameter) -> Any:
    """Return a setting, as a bool if it is `yes`, `no`, `on` or `off` for a parameter that wants one."""
    wants_bool = isinstance(parameter.default, bool) or parameter.annotation in (bool, "bool")
    return _SWITCHES.get(setting.lower(), setting) if wants_bool and isinstance(setting, str) else setting


def with_comment(bound: Bound, returned: object, available: Mapping[str, Any]) -> object:
    """Return a rule's false as a judgement with its comment, and anything else unchanged."""
    why_false = getattr(bound.function, "why_false", None)
    if returned is not False or why_false is None:
        return returned
    comment = bound.call(available, why_false)
    return Judgement(metric=bound.name, value=0.0, data_type="BOOLEAN", comment=comment)


def read_returned(
    bound: Bound, returned: object, available: Mapping[str, Any]
) -> Sequence[Judgement] | Sequence[Preference]:
    """Return judgements, or for a pairwise evaluator preferences between the `runs` that it was given.

    A rule's false gets its comment, and a score called like a measure of every run a name of its own. Raise TypeError
    or ValueError for a return value that cannot be converted.
    """
    if bound.scope == "pair":
        if isinstance(returned, ReturnedOfAll):
            returned = returned.of_pair([run.id for run in available["runs"]])
        return preferences(returned, bound.name, [run.id for run in available["runs"]])
    judgements = normalise(with_comment(bound, returned, available), bound.name)
    if bound.names_stand or not any(judgement.metric in MEASURES for judgement in judgements):
        return judgements
    return [_kept_apart(judgement, bound.measures_used) for judgement in judgements]


def _kept_apart(judgement: Judgement, measures_used: Set[str]) -> Judgement:
    """Give a score that is called like a measure a name of its own; other evaluators still see it by the first.

    Raise ValueError if rules of the spec use that measure: nobody could tell which of the two they mean.
    """
    if judgement.metric not in MEASURES:
        return judgement
    if judgement.metric in measures_used:
        used = f"returned the score {judgement.metric!r}, which the spec's rules use for the measure of every run"
        raise ValueError(f"{used}; wanted another name")
    metadata = {**(judgement.metadata or {}), RETURNED_AS: judgement.metric}
    return judgement._replace(metric=kept_apart(judgement.metric), metadata=metadata)


def combined_judgements(bound: Bound, repeats: Sequence[tuple[Any, Mapping[str, Any]]]) -> list[Judgement]:
    """Combine what several repeats returned, each with its arguments, into one judgement per metric and turn.

    Raise ValueError if a metric was not given by all: fewer repeats would be another estimate.
    """
    found: dict[tuple[str, int | None], list[Judgement]] = {}
    for returned, available in repeats:
        for judgement in normalise(with_comment(bound, returned, available), bound.name):
            found.setdefault((judgement.metric, judgement.turn), []).append(judgement)
    return [_one_of(bound, judgements, len(repeats)) for judgements in found.values()]


def _one_of(bound: Bound, judgements: Sequence[Judgement], count: int) -> Judgement:
    first, scored = judgements[0], [judgement for judgement in judgements if judgement.status == "scored"]
    if failed := next((judgement for judgement in judgements if judgement.error is not None), None):
        return failed
    if not scored:
        return first
    if len(scored) < count:
        raise ValueError(f"{first.metric}: scored in {len(scored)} of {count} repeats, wanted all")
    numbers = [judgement.value for judgement in scored if judgement.value is not None]
    if len(numbers) < count:  # labels
        label = majority([judgement.label for judgement in scored])
        chosen = next(judgement for judgement in scored if judgement.label == label)
        return chosen._replace(repeats=count, spread=spread_of(numbers))
    combine = bound.combine or ("majority" if first.data_type == "BOOLEAN" else "median")
    of_all = combined(numbers, combine)
    nearest = scored[of_all.nearest]
    is_kept = of_all.number == nearest.value
    kind: DataType | None = nearest.data_type if is_kept and combine != "mean" else "NUMERIC"
    label = nearest.label if is_kept else None
    return nearest._replace(value=of_all.number, label=label, data_type=kind, repeats=count, spread=of_all.spread)
