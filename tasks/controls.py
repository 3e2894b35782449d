"""Known-answer controls: judges are tested on answers that are known to be right or wrong, and on wrong ones that forge
a verdict; judges of pairs, on a right answer beside a wrong one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.control_checks import ControlScores, validation_check
from evalflows.engine.controls import Control, controls_of
from evalflows.engine.experiments import Experiment, experiment_of
from evalflows.engine.judgement import judge_with
from evalflows.engine.pairs import Comparison, comparison_of
from evalflows.engine.results import EvaluationResult
from evalflows.engine.run_context import RunContext
from evalflows.engine.running import RunnableEvaluator
from evalflows.llm import loop
from evalflows.specs.metrics import MetricSpec
from evalflows.store.records import CheckRow, ComparisonSetRow, ExperimentRow, controls_batch, derived_id
from evalflows.store.spool import Spool
from evalflows.tasks.limits import within_provider_limits

POINTS = {"first": 1.0, "tie": 0.5, "second": 0.0}
"""The score of the answer that is shown first, by the winner."""


@task(cache_policy=NO_CACHE, persist_result=False)
def run_controls(run: RunContext[Any], rows: Sequence[ExperimentRow | ComparisonSetRow]) -> str | None:
    """Test every judge that has `controls`, publish the results as checks, and return their batch, if any.

    The first running experiment, or comparison, pays for the calls. If none is running, the judges were tested before.
    """
    row = next((row for row in rows if row.state == "running"), None)
    if row is None or not any(judge.controls for judge in run.prepared.spec.evaluators):
        return None
    if isinstance(row, ComparisonSetRow):
        return _test_judges(comparison_of(run, row.comparison_id), row.comparison_id)
    return _test_judges(experiment_of(run, row.experiment_id), row.run_group)


def _test_judges(job: Experiment | Comparison, group: str) -> str | None:
    """Test the judges of a job. A cascade is tested by its last tier, which decides the hard cases."""
    tested = [
        (evaluator.tiers[-1] if evaluator.tiers else evaluator, evaluator.controls)
        for evaluator in job.evaluators
        if evaluator.controls
    ]
    if not tested:
        return None
    batch = controls_batch(group)
    alone = [(replace(judge.directly(), fallback=None), controls) for judge, controls in tested]  # they decide soon
    checks = [_check(job, judge, controls or 0, batch) for judge, controls in alone]
    job.store.publish("checks", batch, checks)
    return batch


def _check(job: Experiment | Comparison, judge: RunnableEvaluator, controls: int, batch: str) -> CheckRow:
    of_pairs = isinstance(job, Comparison)
    owner = job.row.comparison_id if isinstance(job, Comparison) else job.row.experiment_id
    tried = ControlScores(of_pairs=of_pairs)
    made = [*controls_of(judge.spec, job.examples, controls, owner=owner, of_pairs=of_pairs)]
    with (
        within_provider_limits(job.judging_on, len(made), job.n_chunks),
        Spool(job.store, owner, f"controls-{derived_id(judge.bound.name)}") as spool,
    ):
        loop.run(_judge_all(job, owner, judge, made, tried, spool))
    return validation_check(batch, judge.bound.name, controls, tried, job.spec.confidence_level)


async def _judge_all(
    job: Experiment | Comparison,
    owner: str,
    judge: RunnableEvaluator,
    controls: Sequence[Control],
    tried: ControlScores,
    spool: Spool,
) -> None:
    """Note the judge's scores of all controls, and its errors."""
    scores = {"right": tried.right, "wrong": tried.wrong, "forged": tried.forged}

    async def judge_one(control: Control) -> None:
        (result, *_) = await judge_with(
            judge, control.arguments, spool=spool, experiment_id=owner, subject_id=control.subject
        )
        try:
            if result.status == "failed":
                raise ValueError(result.error)
            if (score := _score(judge, result)) is not None:
                scores[control.kind].append(score)
        except ValueError as error:
            tried.errors.append(str(error))

    await job.judging.run(judge_one, controls, is_async=judge.bound.is_async)


def _score(judge: RunnableEvaluator, result: EvaluationResult) -> float | None:
    """Return a score from 0 to 1, where 1 is best; None if there is none.

    The range of a metric defaults to 0 to 1. Raise ValueError for a value outside it.
    """
    if result.winner is not None:
        return POINTS[result.winner]
    if result.value is None:
        return None
    metric = judge.metrics.get(judge.bound.name, MetricSpec())
    low, high = metric.range or (0.0, 1.0)
    if not low <= result.value <= high:
        raise ValueError(f"{judge.bound.name}: got {result.value:g}, wanted {low:g} to {high:g} (metrics: … range: …)")
    share = (result.value - low) / (high - low)
    return share if metric.is_higher_better(judge.bound.name) else 1 - share
