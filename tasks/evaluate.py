"""Item evaluation: every evaluator judges every answer of a chunk."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.engine.chunks import Chunk, n_chunks, tally
from evalflows.engine.judge import judge_chunk
from evalflows.engine.running import running_experiment
from evalflows.engine.workers import in_turn
from evalflows.tasks.engines import in_any_process
from evalflows.tasks.limits import (
    admitted,
    awaited,
    is_last_attempt,
    only_transient,
    retry_later,
    within_provider_limits,
)


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="evaluate-{chunk.part}",
)
@in_any_process
def evaluate_chunk(chunk: Chunk) -> Chunk:
    """Judge the runs of a chunk that have no judgement yet. Evaluators that ask for scores run last.

    Raise TransientFailuresError if transient failures remain and Prefect will retry.
    """
    experiment, last = running_experiment(chunk.experiment_id), is_last_attempt()
    n_runs = chunk.stop - chunk.start
    limits = within_provider_limits(
        experiment.judging_on, n_runs * len(experiment.evaluators), n_chunks(experiment.row)
    )
    if (judged := experiment.judged.pop(chunk.part, None)) is not None:
        transient = judged
    elif experiment.processes is not None:
        transient = experiment.processes.work(judge_chunk, chunk)
    else:
        is_quick = all(evaluator.is_rule for evaluator in experiment.evaluators)
        with admitted([chunk], "judgements", awaited(experiment.evaluators)), in_turn(is_quick=is_quick), limits:
            transient = judge_chunk(chunk)
    tally.begin(chunk, "judgements", n_runs * len(experiment.evaluators))
    if transient and not last:
        text = f"{transient} judgements of {n_runs} answers failed transiently"
        retry_later([(chunk, transient)], "judgements", text)
    return chunk
