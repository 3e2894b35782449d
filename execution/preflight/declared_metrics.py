"""Metrics that evaluators declare themselves: their names, direction and range."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from evalflows.execution.prepared_evaluator import PreparedEvaluator
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import MetricSpec
from evalflows.specs.trace_evaluation import TraceEvaluationSpec

Spec = TypeVar("Spec", ExperimentSpec, TraceEvaluationSpec)


def with_metrics(spec: Spec, evaluators: Iterable[PreparedEvaluator[EvaluatorSpec]]) -> Spec:
    """Return the spec with the metrics that its evaluators declare; the spec's own fields take precedence.

    Raise InputError for an invalid declaration.
    """
    declared: dict[str, MetricSpec] = {}
    for evaluator in evaluators:
        for metrics in evaluator.declared_metrics:
            _check_agreed(evaluator, metrics, declared, spec)
            declared = {**metrics, **declared}  # the first declaration of a metric counts
    merged = {
        name: spec.metrics[name].or_else(metric) if name in spec.metrics else metric
        for name, metric in declared.items()
    }
    return spec.model_copy(update={"metrics": {**spec.metrics, **merged}})


def _check_agreed(
    evaluator: PreparedEvaluator[EvaluatorSpec],
    metrics: Mapping[str, MetricSpec],
    before: Mapping[str, MetricSpec],
    spec: ExperimentSpec | TraceEvaluationSpec,
) -> None:
    """Raise InputError if tiers declare a metric differently, unless the spec declares it."""
    for metric in metrics.keys() & before.keys() - spec.metrics.keys():
        if evaluator.tiers and metrics[metric] != before[metric]:
            first, second = (f"{m.range} {m.is_higher_better(metric)}" for m in (before[metric], metrics[metric]))
            difference = f"range or higher_is_better: {first} and {second}"
            raise InputError(
                f"evaluator {evaluator.name!r}: its tiers differ in {difference}; wanted the same for all tiers"
            )
