"""What evaluators declare of their metrics themselves: which they give, which way is better, between which bounds."""

from collections.abc import Sequence

from evaluators.call import Level
from evaluators.direction import declared_by
from specs.evaluator import EvaluatorSpec, FallbackSpec
from specs.experiment import ExperimentSpec
from specs.metric import MetricSpec
from tasks.resolve import bind_evaluator, is_ours


def with_metrics(spec: ExperimentSpec) -> ExperimentSpec:
    """The spec with what its evaluators declare of their metrics; what the spec says itself comes first.

    Raises InputError for a declaration that is none.
    """
    found: dict[str, MetricSpec] = {}
    levels: list[tuple[Level, list[EvaluatorSpec]]] = [("item", spec.evaluators), ("run", spec.summary_evaluators)]
    for level, evaluators in levels:
        for evaluator in evaluators:
            for judge in judges_of(evaluator):
                found = declared(judge, level, evaluator.metric) | found
    metrics = {name: spec.metrics[name].or_else(one) if name in spec.metrics else one for name, one in found.items()}
    return spec.model_copy(update={"metrics": {**spec.metrics, **metrics}})


def judges_of(evaluator: EvaluatorSpec) -> Sequence[FallbackSpec]:
    """Itself, or its tiers."""
    return evaluator.tiers or [evaluator]


def declared(judge: FallbackSpec, level: Level, name: str) -> dict[str, MetricSpec]:
    """What the function of a judge declares of its metrics, where its score bears this name. Raises InputError."""
    return declared_by(bind_evaluator(judge, level).function, name, judge.args)


def given_metrics(spec: ExperimentSpec) -> list[str] | None:
    """The metrics that the evaluators of a run give; None where one is not ours, which may name others."""
    if not all(is_ours(judge) for evaluator in spec.evaluators for judge in judges_of(evaluator)):
        return None
    return list(dict.fromkeys(metric for evaluator in spec.evaluators for metric in metrics_of(evaluator)))


def metrics_of(evaluator: EvaluatorSpec) -> list[str]:
    """The metric of its own name, and those that it declares."""
    said = [metric for judge in judges_of(evaluator) for metric in declared(judge, "item", evaluator.metric)]
    return [evaluator.metric, *said]
