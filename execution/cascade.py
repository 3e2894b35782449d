"""Cascades: whether a tier decides a run, and the scores and cost of the tier that does."""

from evalflows.execution.evaluation_result import EvaluationResult
from evalflows.execution.running_experiment import RunnableEvaluator
from evalflows.specs.evaluator import TierSpec


def is_undecided(tier: RunnableEvaluator, results: list[EvaluationResult]) -> bool:
    """Whether a run goes to the next tier: this one does not apply, or its score is not among those it decides.

    A failed tier is final: the next tier is not a fallback.
    """
    first = results[0]
    if first.status == "not_applicable":
        return True
    assert isinstance(tier.spec, TierSpec)
    return first.status == "scored" and not tier.spec.is_final(first.value, first.label)


def decided_by(tier: RunnableEvaluator, results: list[EvaluationResult]) -> list[EvaluationResult]:
    """Return the scores with `decided_by` set to the tier; if it failed, the error names the tier.

    A single score gets the cascade's name, whatever the tier calls it.
    """
    name = tier.spec.metric
    if len(results) == 1:
        results = [results[0]._replace(metric=tier.bound.name)]
    if results[0].error:
        return [result._replace(decided_by=None, error=f"{name}: {results[0].error}") for result in results]
    return [result._replace(decided_by=name if result.status == "scored" else None) for result in results]


def with_earlier_cost(results: list[EvaluationResult], before: EvaluationResult | None) -> list[EvaluationResult]:
    """Return the scores, with the cost of the earlier tiers added to the first."""
    if before is None:
        return results
    first = results[0]
    models = dict.fromkeys(model for model in (before.judge_model, first.judge_model) if model)
    latencies = [result.latency_s for result in (before, first) if result.latency_s is not None]
    total = first._replace(
        usage=before.usage + first.usage,
        latency_s=sum(latencies) if latencies else None,
        judge_model=", ".join(models) or None,
    )
    return [total, *results[1:]]
