"""What is planned of each metric: how much it varies, what the dataset would show, and what it takes to see more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from specs.errors import InputError
from specs.evaluator import EvaluatorSpec
from specs.experiment import ExperimentSpec
from specs.metric import MEASURES
from store.records import ExampleRow
from tasks.declared import given_metrics, judges_of, metrics_of
from tasks.plan_calls import PlannedCalls
from tasks.plan_sizes import Present, Sizes, Wanted, sizes_of, smallest_seen
from tasks.plan_spread import Metric, Place, Spread, measured_name, spread_of
from tasks.resolve import bind_evaluator
from tasks.sample import draw

YES_NO = {"bool", "bool | None", "typing.Optional[bool]"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPlan:
    """One metric."""

    metric: str
    spread: Spread | None
    reason: str | None  # why there is no spread
    share: float  # of the examples that is judged
    smallest_seen: float | None  # by the dataset and the repetitions of the spec
    wanted: tuple[Sizes, ...]


def metrics_to_plan(spec: ExperimentSpec, wanted: Sequence[str]) -> list[str]:
    """Those of the evaluators and composites, and those that gates compare; or just those that are wanted.

    Raises InputError for one that nothing gives.
    """
    own = [metric for evaluator in spec.evaluators for metric in metrics_of(evaluator)]
    own += [composite.name for composite in spec.composites]
    every = list(dict.fromkeys([*own, *(metric for gate in spec.gates for metric in (*gate.guards, *gate.goals))]))
    if given_metrics(spec) is not None:  # else an evaluator may give others
        known = {*every, *MEASURES}
        for metric in wanted:
            if measured_name(metric) not in known:
                raise InputError(f"metric: nothing gives {metric!r}, wanted some of {', '.join([*every, *MEASURES])}")
    return list(dict.fromkeys(wanted)) or every


def planned_metric(
    place: Place,
    name: str,
    effect: float | None,
    present: Present,
    examples: Sequence[ExampleRow],
    lines: Sequence[PlannedCalls],
) -> MetricPlan:
    """The plan for one metric, by the effect that is asked for and by what gates ask of it."""
    evaluator = _evaluator(place.spec, name)
    present = replace(present, share=_share(evaluator, examples))
    found = spread_of(place, _metric(place.spec, name, evaluator))
    if isinstance(found, str):
        return MetricPlan(metric=name, spread=None, reason=found, share=present.share, smallest_seen=None, wanted=())
    return MetricPlan(
        metric=name,
        spread=found,
        reason=None,
        share=present.share,
        smallest_seen=smallest_seen(found, present),
        wanted=tuple(sizes_of(found, one, present, lines) for one in _wanted(place.spec, name, effect)),
    )


def _wanted(spec: ExperimentSpec, metric: str, effect: float | None) -> Iterator[Wanted]:
    """The effect that is asked for, else the margin that the metric declares; and what each gate asks of it.

    A gate's goal of a rise is met by those that are surely above it: what must be told is how much above.
    """
    size = effect if effect is not None else spec.direction(metric).margin
    if size is not None:
        yield Wanted(purpose="difference", size=size, said=size)
    for gate in spec.gates:
        margin, rise = gate.guards.get(metric), gate.goals.get(metric)
        if margin is not None:
            yield Wanted(purpose="guard", size=margin, said=margin, gate=gate.name)
        if rise and effect is None:
            yield Wanted(purpose="difference", size=rise, said=rise, gate=gate.name)
        elif rise and effect is not None and effect > rise:
            yield Wanted(purpose="goal", size=effect - rise, said=rise, gate=gate.name)


def _metric(spec: ExperimentSpec, name: str, evaluator: EvaluatorSpec | None) -> Metric:
    base = measured_name(name)
    if evaluator is None:
        composite = base in {one.name for one in spec.composites}
        return Metric(name=name, evaluator=base, is_yes_no=False, bounds=(0.0, 1.0) if composite else None)
    own = base == evaluator.metric
    is_yes_no = own and all(_is_yes_no(bind_evaluator(judge).function) for judge in judges_of(evaluator))
    bounds = (0.0, 1.0) if is_yes_no or base != name else spec.direction(name).range
    return Metric(name=name, evaluator=evaluator.metric, is_yes_no=is_yes_no and base == name, bounds=bounds)


def _evaluator(spec: ExperimentSpec, metric: str) -> EvaluatorSpec | None:
    return next((one for one in spec.evaluators if measured_name(metric) in metrics_of(one)), None)


def _is_yes_no(function: Any) -> bool:
    """Whether a function says that it returns a bool."""
    try:
        returned = signature(function).return_annotation
    except (TypeError, ValueError):
        return False
    return returned is bool or str(returned) in YES_NO


def _share(evaluator: EvaluatorSpec | None, examples: Sequence[ExampleRow]) -> float:
    """Of the examples, how many the evaluator judges."""
    sample = None if evaluator is None else draw(evaluator, examples)
    return 1.0 if sample is None else len(sample.drawn) / len(examples)
