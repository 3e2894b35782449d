"""What evaluators declare of their metrics themselves: which they give, which way is better, between which bounds."""

from collections.abc import Mapping, Sequence

from evaluators.call import Level
from evaluators.direction import declared_by
from specs.errors import InputError
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
                said = declared(judge, level, evaluator.metric)
                _check_agreed(evaluator, said, found, spec)
                found = said | found
    metrics = {name: spec.metrics[name].or_else(one) if name in spec.metrics else one for name, one in found.items()}
    return spec.model_copy(update={"metrics": {**spec.metrics, **metrics}})


def _check_agreed(
    evaluator: EvaluatorSpec, said: Mapping[str, MetricSpec], before: Mapping[str, MetricSpec], spec: ExperimentSpec
) -> None:
    """Raises InputError where tiers declare different things of one metric, unless the spec itself says them."""
    for metric in said.keys() & before.keys() - spec.metrics.keys():
        if evaluator.tiers and said[metric] != before[metric]:
            one, other = (f"{each.range} {each.is_higher_better(metric)}" for each in (before[metric], said[metric]))
            what = f"range and whether higher is better: {one} and {other}"
            raise InputError(f"evaluator {evaluator.metric!r}: its tiers differ in {what}; wanted tiers of one scale")


def judges_of(evaluator: EvaluatorSpec) -> Sequence[FallbackSpec]:
    """Itself, or its tiers."""
    return evaluator.tiers or [evaluator]


def declared(judge: FallbackSpec, level: Level, name: str) -> dict[str, MetricSpec]:
    """What the function of a judge declares of its metrics, where its score bears this name. Raises InputError."""
    return declared_by(bind_evaluator(judge, level).function, name, judge.args)


def given_metrics(spec: ExperimentSpec) -> list[str] | None:
    """The metrics that the evaluators of a run give; None where one is not ours, which may name others."""
    every = [*spec.evaluators, *spec.summary_evaluators]
    if not all(is_ours(judge) for evaluator in every for judge in judges_of(evaluator)):
        return None
    of_runs = [metric for evaluator in spec.evaluators for metric in metrics_of(evaluator)]
    of_all = [metric for evaluator in spec.summary_evaluators for metric in metrics_of(evaluator, "run")]
    return list(dict.fromkeys([*of_runs, *of_all]))


def metrics_of(evaluator: EvaluatorSpec, level: Level = "item") -> list[str]:
    """The metric of its own name, and those that it declares."""
    said = [metric for judge in judges_of(evaluator) for metric in declared(judge, level, evaluator.metric)]
    return [evaluator.metric, *said]
