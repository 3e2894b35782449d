"""Known-answer controls: test each judge on right answers, wrong answers, and wrong answers that forge a verdict."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.differences.judge_validation import ControlScores, validation_check
from evalflows.evaluators.call import offer_run
from evalflows.evaluators.subject import RunView
from evalflows.execution.chunks import n_chunks
from evalflows.execution.evaluation_result import EvaluationResult
from evalflows.execution.planted_controls import control_pairs, outputs_from, with_forged_verdict
from evalflows.execution.run_evaluator import judge_with
from evalflows.execution.running_experiment import RunnableEvaluator, RunningExperiment, running_experiment
from evalflows.execution.views import example_view
from evalflows.llm import loop
from evalflows.specs.metric import MetricSpec
from evalflows.store.records import CheckRow, ExampleRow, ExperimentRow, controls_batch, derived_id, to_json
from evalflows.store.spool import Spool
from evalflows.tasks.provider_limit import within_provider_limits


@task(cache_policy=NO_CACHE, persist_result=False)
def run_controls(rows: list[ExperimentRow]) -> str | None:
    """Test every judge that has `controls`, publish the results as checks, and return their batch, if any.

    The first running experiment pays for the calls. If none is running, the judges were tested before.
    """
    row = next((row for row in rows if row.state == "running"), None)
    if row is None:
        return None
    experiment = running_experiment(row.experiment_id)
    judges = [_judge(evaluator) for evaluator in experiment.evaluators if evaluator.controls]
    if not judges:
        return None
    batch = controls_batch(row.run_group)
    experiment.store.publish("checks", batch, [_check(experiment, judge, batch) for judge in judges])
    return batch


def _judge(evaluator: RunnableEvaluator) -> RunnableEvaluator:
    """Return the evaluator to test: the last tier of a cascade, which decides the hard cases."""
    last = evaluator.tiers[-1] if evaluator.tiers else evaluator
    return replace(last, fallback=None, controls=evaluator.controls)


def _check(experiment: RunningExperiment, judge: RunnableEvaluator, batch: str) -> CheckRow:
    pairs = control_pairs(experiment.examples, judge.controls or 0)
    chunks = n_chunks(experiment.row)
    with (
        within_provider_limits(experiment.judging_on, 3 * len(pairs), chunks),
        Spool(experiment.store, experiment.row.experiment_id, f"controls-{judge.bound.name}") as spool,
    ):
        tried = loop.run(_judge_all(experiment, judge, pairs, spool))
    return validation_check(batch, judge.bound.name, judge.controls, tried, experiment.spec.confidence_level)


async def _judge_all(
    experiment: RunningExperiment, judge: RunnableEvaluator, pairs: Sequence[tuple[ExampleRow, str]], spool: Spool
) -> ControlScores:
    """Return the judge's scores of right, wrong and forged answers."""
    tried = ControlScores()

    async def judge_one(control: tuple[ExampleRow, dict[str, Any], list[float]]) -> None:
        example, outputs, scores = control
        judgement = await _score(experiment, judge, example, outputs, spool)
        try:
            if judgement.status == "failed":
                raise ValueError(judgement.error)
            if judgement.value is not None:
                scores.append(_normalised(judge, judgement.value))
        except ValueError as error:
            tried.errors.append(str(error))

    controls = [
        control
        for number, (example, wrong) in enumerate(pairs)
        for control in (
            (example, outputs_from(example.reference_outputs or "{}"), tried.right),
            (example, outputs_from(wrong), tried.wrong),
            (example, with_forged_verdict(outputs_from(wrong), number), tried.forged),
        )
    ]
    await experiment.judging.run(judge_one, controls, is_async=judge.bound.is_async)
    return tried


def _normalised(judge: RunnableEvaluator, value: float) -> float:
    """Map a score to 0 to 1, where 1 is best. The range defaults to 0 to 1; raise ValueError outside it."""
    metric = judge.metrics.get(judge.bound.name, MetricSpec())
    low, high = metric.range or (0.0, 1.0)
    if not low <= value <= high:
        raise ValueError(f"{judge.bound.name}: got {value:g}, wanted {low:g} to {high:g} (metrics: … range: …)")
    part = (value - low) / (high - low)
    return part if metric.is_higher_better(judge.bound.name) else 1 - part


async def _score(
    experiment: RunningExperiment, judge: RunnableEvaluator, example: ExampleRow, outputs: dict[str, Any], spool: Spool
) -> EvaluationResult:
    view = example_view(example)
    identity = derived_id("control", experiment.row.experiment_id, example.example_id, to_json(outputs))
    run = RunView(id=identity, inputs=view.inputs, outputs=outputs)
    available, owner = offer_run(view, run), experiment.row.experiment_id
    return (await judge_with(judge, available, spool=spool, experiment_id=owner, subject_id=identity))[0]
