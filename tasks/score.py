"""Composites and run-level metrics: scores computed from all answers and judgements of an experiment."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.evaluators.call import offer_experiment
from evalflows.evaluators.subject import ItemResult
from evalflows.execution.composite_scores import ScoresByRun, composite_results
from evalflows.execution.evaluation_result import one_score, run_score
from evalflows.execution.resolve import composite_version
from evalflows.execution.run_evaluator import judge_with
from evalflows.execution.running_experiment import RunnableEvaluator, RunningExperiment, running_experiment
from evalflows.execution.views import evaluations_view, example_view, run_view
from evalflows.llm import loop
from evalflows.specs.metric import CompositeSpec
from evalflows.store.records import ExperimentRow, OutputRow, ScoreRow, derived_id
from evalflows.store.spool import Spool
from evalflows.tasks.progress import enter_stage
from evalflows.tasks.provider_limit import within_provider_limits


@task(cache_policy=NO_CACHE, persist_result=False)
def combine_scores(rows: list[ExperimentRow], *, whole: bool = True) -> None:
    """Add composites to the experiments that are not finished, and with `whole` the scores of run-level evaluators.

    Both are recomputed from the stored rows on every call, so a resumed experiment gets newer ones.
    """
    for row in rows:
        if row.state == "running":
            experiment = running_experiment(row.experiment_id)
            _combine(experiment, experiment.summary_evaluators if whole else ())


def _combine(experiment: RunningExperiment, judges: Sequence[RunnableEvaluator]) -> None:
    if not experiment.spec.composites and not judges:
        return
    enter_stage("combining scores")
    identity = experiment.row.experiment_id
    outputs: list[OutputRow] = experiment.store.read("outputs", identity, texts=bool(judges))
    of_run: defaultdict[str, list[ScoreRow]] = defaultdict(list)
    for score in experiment.store.read("scores", identity):
        of_run[score.run_id or ""].append(score)
    names = {composite.name for composite in experiment.spec.composites}
    for run, scores in of_run.items():  # drop composites of an earlier attempt
        of_run[run] = [score for score in scores if score.evaluator not in names]
    composites = [
        score for spec in experiment.spec.composites for score in _composites(experiment, spec, outputs, of_run)
    ]
    experiment.store.append("scores", identity, "composites", composites)
    for score in composites:
        of_run[score.run_id or ""].append(score)
    with (
        within_provider_limits(experiment.judging_on if judges else [], 1, 1),
        Spool(experiment.store, identity, "summary") as spool,
    ):
        for evaluator in judges:
            work = partial(_summarise, experiment, evaluator, spool)
            results = _results(experiment, outputs, of_run)
            # A sync evaluator blocks on its model calls, so it must not run on the loop that makes them.
            loop.run(experiment.judging.run(work, [results], is_async=evaluator.bound.is_async))


def _composites(
    experiment: RunningExperiment, spec: CompositeSpec, outputs: Iterable[OutputRow], of_run: ScoresByRun
) -> Iterator[ScoreRow]:
    """Yield one composite score per run. The version is computed once, since that reads source code."""
    version = composite_version(spec, experiment.spec)
    metrics = {metric: experiment.spec.direction(metric) for metric in spec.metrics}
    for output, result, rate in composite_results(spec, metrics, outputs, of_run):
        yield run_score(output, result, evaluator=spec.name, version=version, sampling_rates=[rate])


async def _summarise(
    experiment: RunningExperiment, evaluator: RunnableEvaluator, spool: Spool, results: list[ItemResult]
) -> None:
    """Call a run-level evaluator on all answers. Its rows have the experiment as their subject."""
    identity = experiment.row.experiment_id
    available = offer_experiment(results)
    for result in await judge_with(evaluator, available, spool=spool, experiment_id=identity, subject_id=identity):
        row = ScoreRow(
            score_id=derived_id(identity, None, result.metric, evaluator.version),
            subject_kind="experiment",
            subject_id=identity,
            experiment_id=identity,
            evaluator=evaluator.bound.name,
            evaluator_version=evaluator.version,
            declared_version=evaluator.spec.version,
            **one_score(result),
        )
        spool.add("scores", row)


def _results(experiment: RunningExperiment, outputs: Iterable[OutputRow], of_run: ScoresByRun) -> list[ItemResult]:
    """Return every run as run-level evaluators see it, by repetition and in the order of the dataset."""
    by_run = {(output.repetition, output.example_id): output for output in outputs}
    results = []
    for repetition in range(experiment.row.repetitions):
        for example in sorted(experiment.examples, key=lambda example: example.position):
            if output := by_run.get((repetition, example.example_id)):
                item = example_view(example)
                run = run_view(output, item.inputs)
                scores = evaluations_view(of_run[output.run_id])
                results.append(ItemResult(item=item, output=run.outputs, evaluations=scores, run=run))
    return results
