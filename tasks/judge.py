"""Judging: every evaluator judges every subject of a chunk: answers, pairs of answers, or items of production."""

from contextlib import nullcontext
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.engine.job import Job
from evalflows.engine.jobs import job_of, judge_in_process
from evalflows.engine.judge_chunk import Outcome, judge_chunk
from evalflows.engine.run_context import RunContext
from evalflows.tasks.limits import within_provider_limits
from evalflows.tasks.retries import admit_trial, breakers_to_wait_for, is_last_attempt, only_transient, retry_later
from evalflows.tasks.take_up import in_any_process


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="judge-{chunk.part_name}",
)
@in_any_process
def judge(run: RunContext[Any], chunk: Any) -> Any:
    """Judge the subjects of a chunk that have no judgement yet. Evaluators that ask for scores run last.

    Return the chunk, one of production with what became of its items. Raise TransientFailuresError if transient
    failures remain and Prefect will retry.
    """
    job, processes, last = job_of(run, chunk), run.processes, is_last_attempt()
    outcome: Outcome | None = job.judged.pop(chunk.part_name, None)
    if outcome is None:
        outcome = _judge_here(job, chunk) if processes is None else processes.work(judge_in_process, run, chunk)
    if processes is not None:  # they have counted elsewhere
        run.tally.begin(chunk, "judgements", chunk.n_items * len(job.evaluators))
    if outcome.transient and not last:
        retry_later(
            run.tally, {chunk: outcome.transient}, "judgements", f"judgements of {outcome.n_subjects} {job.called}"
        )
    return outcome.chunk


def _judge_here(job: Job[Any], chunk: Any) -> Outcome:
    loaded = job.load(chunk)
    is_quick = all(evaluator.is_rule for evaluator in job.evaluators)
    with (
        admit_trial(job.run.tally, [chunk], "judgements", breakers_to_wait_for(job.evaluators)),
        job.run.quick_chunks if is_quick else nullcontext(),
        within_provider_limits(job.judging_on, loaded.n_subjects * len(job.evaluators), job.n_chunks),
    ):
        return judge_chunk(job, chunk, loaded)
