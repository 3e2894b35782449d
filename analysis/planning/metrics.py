"""Plan each metric: its variance, the minimum detectable effect, and the sample sizes for the target effects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from evalflows.analysis.planning.sample_sizes import (
    CurrentDesign,
    SampleSizes,
    TargetEffect,
    minimum_detectable,
    sample_sizes_of,
)
from evalflows.analysis.planning.target_calls import PlannedCalls
from evalflows.analysis.planning.variance import HistoryQuery, MetricProperties, VarianceEstimate, estimate_variance
from evalflows.execution.evaluator_sample import draw
from evalflows.execution.prepared import PreparedExperiment
from evalflows.execution.prepared_evaluator import PreparedEvaluator
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_names import MEASURES, base_metric
from evalflows.specs.metric_slices import metric_of, sliced_metric
from evalflows.store.queries.example_slices import slice_value
from evalflows.store.records import ExampleRow

Evaluator = PreparedEvaluator[EvaluatorSpec]

YES_NO = {"bool", "bool | None", "typing.Optional[bool]"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPlan:
    """The plan of one metric."""

    metric: str
    variance: VarianceEstimate | None = None
    reason: str | None = None  # why the variance is unknown
    n_examples: int  # of the dataset, or of the metric's slice of it
    n_clusters: int | None  # of these examples; None without clusters
    judged_share: float  # of the examples
    minimum_detectable: float | None = None  # with the dataset and the repetitions of the spec
    sample_sizes: tuple[SampleSizes, ...] = ()


def metrics_to_plan(prepared: PreparedExperiment, wanted: Sequence[str]) -> list[str]:
    """The metrics of evaluators, composites and gate comparisons, or only the wanted ones, if any.

    Raises InputError for a metric that no evaluator gives.
    """
    spec = prepared.spec
    own = [metric for evaluator in prepared.evaluators for metric in evaluator.metrics]
    own += [composite.name for composite in spec.composites]
    every = list(
        dict.fromkeys([*own, *(metric for gate in spec.gates for metric in (*gate.non_inferiority, *gate.superiority))])
    )
    if prepared.given_metrics is not None:  # if None, an evaluator may give others
        known = {*every, *MEASURES}
        for metric in wanted:
            if base_metric(metric_of(metric)) not in known and metric not in known:
                raise InputError(
                    f"metric: no evaluator gives {metric!r}, wanted some of {', '.join([*every, *MEASURES])}"
                )
    return list(dict.fromkeys(wanted)) or every


def planned_metric(
    history: HistoryQuery,
    name: str,
    effect: float | None,
    current: CurrentDesign,
    examples: Sequence[ExampleRow],
    lines: Sequence[PlannedCalls],
) -> MetricPlan:
    """Plan one metric for the requested effect and for the gates' rules.

    The variance of a slice is taken to be that of the whole metric; its examples are those of the slice.
    """
    sliced = sliced_metric(name)
    if sliced.path is not None:
        examples = [example for example in examples if slice_value(example, sliced.path) == sliced.value]
        current = replace(current, n_examples=len(examples), n_clusters=_n_clusters(current, examples))
    evaluator = _evaluator(history.prepared, sliced.metric)
    current = replace(current, judged_share=_judged_share(evaluator, examples))
    estimate = estimate_variance(history, _properties(history.prepared.spec, sliced.metric, evaluator))
    design: dict[str, Any] = {
        "n_examples": current.n_examples,
        "n_clusters": current.n_clusters,
        "judged_share": current.judged_share,
    }
    if isinstance(estimate, str):
        return MetricPlan(metric=name, reason=estimate, **design)
    return MetricPlan(
        metric=name,
        variance=estimate,
        **design,
        minimum_detectable=minimum_detectable(estimate, current),
        sample_sizes=tuple(
            sample_sizes_of(estimate, target, current, lines)
            for target in _target_effects(history.prepared.spec, name, effect)
        ),
    )


def _n_clusters(current: CurrentDesign, examples: Sequence[ExampleRow]) -> int | None:
    """Return the number of clusters of some examples; None without clusters."""
    if current.n_clusters is None:
        return None
    return len({example.cluster or ("alone", example.example_id) for example in examples})


def _target_effects(spec: ExperimentSpec, metric: str, effect: float | None) -> Iterator[TargetEffect]:
    """Yield the requested effect, else the metric's declared margin, and the effects that the gates' rules need.

    A candidate must exceed a superiority margin significantly, so the effect to detect is the excess over the margin.
    """
    size = effect if effect is not None else spec.direction(metric_of(metric)).margin
    if size is not None:
        yield TargetEffect(purpose="difference", size=size, declared=size)
    for gate in spec.gates:
        margin, rise = gate.non_inferiority.get(metric), gate.superiority.get(metric)
        if margin is not None:
            yield TargetEffect(purpose="non_inferiority", size=margin, declared=margin, gate=gate.name)
        if rise and effect is None:
            yield TargetEffect(purpose="difference", size=rise, declared=rise, gate=gate.name)
        elif rise and effect is not None and effect > rise:
            yield TargetEffect(purpose="superiority", size=effect - rise, declared=rise, gate=gate.name)


def _properties(spec: ExperimentSpec, name: str, evaluator: Evaluator | None) -> MetricProperties:
    base = base_metric(name)
    if evaluator is None:
        is_composite = base in {composite.name for composite in spec.composites}
        return MetricProperties(name=name, evaluator=base, is_yes_no=False, bounds=(0.0, 1.0) if is_composite else None)
    own = base == evaluator.name
    is_yes_no = own and all(_is_yes_no(judge.bound.function) for judge in evaluator.judges)
    bounds = (0.0, 1.0) if is_yes_no or base != name else spec.direction(name).range
    return MetricProperties(name=name, evaluator=evaluator.name, is_yes_no=is_yes_no and base == name, bounds=bounds)


def _evaluator(prepared: PreparedExperiment, metric: str) -> Evaluator | None:
    base = base_metric(metric)
    return next((evaluator for evaluator in prepared.evaluators if base in evaluator.metrics), None)


def _is_yes_no(function: Any) -> bool:
    """Whether a function is annotated to return a bool."""
    try:
        returned = signature(function).return_annotation
    except (TypeError, ValueError):
        return False
    return returned is bool or str(returned) in YES_NO


def _judged_share(evaluator: Evaluator | None, examples: Sequence[ExampleRow]) -> float:
    """The share of examples that the evaluator scores."""
    sample = None if evaluator is None else draw(evaluator.spec, examples)
    return 1.0 if sample is None else len(sample.drawn) / len(examples)
