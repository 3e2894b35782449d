"""Plan each metric: its variance, the minimum detectable effect, and the sample sizes for the wanted effects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from evalflows.analysis.planning.sample_sizes import Present, Sizes, Wanted, minimum_detectable, sizes_of
from evalflows.analysis.planning.target_calls import PlannedCalls
from evalflows.analysis.planning.variance import Metric, Place, Spread, spread_of
from evalflows.execution.evaluator_sample import draw
from evalflows.execution.prepared import PreparedExperiment
from evalflows.execution.prepared_evaluator import PreparedEvaluator
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import MEASURES
from evalflows.specs.metric_names import base_metric
from evalflows.store.records import ExampleRow

Evaluator = PreparedEvaluator[EvaluatorSpec]

YES_NO = {"bool", "bool | None", "typing.Optional[bool]"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPlan:
    """The plan of one metric."""

    metric: str
    spread: Spread | None
    reason: str | None  # why there is no spread
    share: float  # of the examples that is judged
    minimum_detectable: float | None  # by the dataset and the repetitions of the spec
    wanted: tuple[Sizes, ...]


def metrics_to_plan(prepared: PreparedExperiment, wanted: Sequence[str]) -> list[str]:
    """The metrics of evaluators, composites and gate comparisons, or only the wanted ones.

    Raises InputError for a metric that no evaluator gives.
    """
    spec = prepared.spec
    own = [metric for evaluator in prepared.evaluators for metric in evaluator.metrics]
    own += [composite.name for composite in spec.composites]
    every = list(
        dict.fromkeys([*own, *(metric for gate in spec.gates for metric in (*gate.non_inferiority, *gate.superiority))])
    )
    if prepared.given_metrics is not None:  # else an evaluator may give others
        known = {*every, *MEASURES}
        for metric in wanted:
            if base_metric(metric) not in known:
                raise InputError(
                    f"metric: no evaluator gives {metric!r}, wanted some of {', '.join([*every, *MEASURES])}"
                )
    return list(dict.fromkeys(wanted)) or every


def planned_metric(
    place: Place,
    name: str,
    effect: float | None,
    present: Present,
    examples: Sequence[ExampleRow],
    lines: Sequence[PlannedCalls],
) -> MetricPlan:
    """Plan one metric for the requested effect and for the rules of gates."""
    evaluator = _evaluator(place.prepared, name)
    present = replace(present, share=_share(evaluator, examples))
    found = spread_of(place, _metric(place.prepared.spec, name, evaluator))
    if isinstance(found, str):
        return MetricPlan(
            metric=name, spread=None, reason=found, share=present.share, minimum_detectable=None, wanted=()
        )
    return MetricPlan(
        metric=name,
        spread=found,
        reason=None,
        share=present.share,
        minimum_detectable=minimum_detectable(found, present),
        wanted=tuple(sizes_of(found, one, present, lines) for one in _wanted(place.prepared.spec, name, effect)),
    )


def _wanted(spec: ExperimentSpec, metric: str, effect: float | None) -> Iterator[Wanted]:
    """The requested effect, else the metric's declared margin, and the effects that the rules of gates need.

    A superiority margin must be exceeded significantly, so the effect to detect is the excess over it.
    """
    size = effect if effect is not None else spec.direction(metric).margin
    if size is not None:
        yield Wanted(purpose="difference", size=size, said=size)
    for gate in spec.gates:
        margin, rise = gate.non_inferiority.get(metric), gate.superiority.get(metric)
        if margin is not None:
            yield Wanted(purpose="non_inferiority", size=margin, said=margin, gate=gate.name)
        if rise and effect is None:
            yield Wanted(purpose="difference", size=rise, said=rise, gate=gate.name)
        elif rise and effect is not None and effect > rise:
            yield Wanted(purpose="superiority", size=effect - rise, said=rise, gate=gate.name)


def _metric(spec: ExperimentSpec, name: str, evaluator: Evaluator | None) -> Metric:
    base = base_metric(name)
    if evaluator is None:
        composite = base in {one.name for one in spec.composites}
        return Metric(name=name, evaluator=base, is_yes_no=False, bounds=(0.0, 1.0) if composite else None)
    own = base == evaluator.name
    is_yes_no = own and all(_is_yes_no(judge.bound.function) for judge in evaluator.judges)
    bounds = (0.0, 1.0) if is_yes_no or base != name else spec.direction(name).range
    return Metric(name=name, evaluator=evaluator.name, is_yes_no=is_yes_no and base == name, bounds=bounds)


def _evaluator(prepared: PreparedExperiment, metric: str) -> Evaluator | None:
    return next((one for one in prepared.evaluators if base_metric(metric) in one.metrics), None)


def _is_yes_no(function: Any) -> bool:
    """Whether a function is annotated to return a bool."""
    try:
        returned = signature(function).return_annotation
    except (TypeError, ValueError):
        return False
    return returned is bool or str(returned) in YES_NO


def _share(evaluator: Evaluator | None, examples: Sequence[ExampleRow]) -> float:
    """The share of examples that the evaluator scores."""
    sample = None if evaluator is None else draw(evaluator.spec, examples)
    return 1.0 if sample is None else len(sample.drawn) / len(examples)
