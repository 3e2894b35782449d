"""Work through the chunks of a run, wave by wave, on its engine: each is answered by every target, or judged by every
evaluator.

A wave ends before the next begins, so that gates may look at what it brought. It is worked through again as long as
batches answer calls that were put off. Other processes get a part of the budget
with each chunk; those whose part was too small are repeated in this process if some of the budget is left.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import field
from functools import partial
from itertools import chain
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture

from evalflows.engine.answer import answer_rounds, look_up_rounds, pending_runs
from evalflows.engine.budget_parts import Started
from evalflows.engine.chunks import Rounds, n_chunks
from evalflows.engine.experiments import Context, Experiment, experiments_in
from evalflows.engine.job import Job
from evalflows.engine.jobs import job_of, judge_in_process
from evalflows.engine.judge_chunk import Outcome, judge_chunk
from evalflows.engine.run_context import RunContext
from evalflows.engine.sent_chunks import chunks_to_repeat, items_of, with_budget_parts
from evalflows.engine.tally import Planned
from evalflows.specs.frozen import dataclass
from evalflows.tasks.batches import another_pass
from evalflows.tasks.engines import Steps, chunk_task, chunks_on
from evalflows.tasks.limits import within_provider_limits
from evalflows.tasks.progress import wait_with_progress
from evalflows.tasks.retries import admit_trial, breakers_to_wait_for, is_last_attempt, only_transient, retry_later
from evalflows.tasks.take_up import in_any_process

Experiments = Sequence[Experiment]
"""The experiments of a run, in the order of the chunks."""

Pending = Sequence[Sequence[int]]
"""Numbers of the examples of each chunk that have no final answer."""


@dataclass(frozen=True)
class ChunkWork:
    """What is done with each chunk of a run, or with the chunks of a round."""

    submit: Callable[[Any], Iterable[PrefectFuture[Any]]]
    repeat: Callable[[Any], Any]  # in this process


@dataclass
class Worked:
    """What became of the chunks of a run."""

    steps: list[PrefectFuture[Any]]
    repeated: list[Any] = field(default_factory=list)
    stopped: str | None = None  # why the run ended after a wave, if one was left


def work_through(
    run: RunContext[Any],
    rows: Sequence[Started],
    waves: Sequence[Sequence[Any]],
    work: ChunkWork,
    planned: Planned,
    *,
    begun: Steps = (),
    why_stop: Callable[[], str | None] | None = None,
) -> Worked:
    """Do the work of all chunks, or of those up to the wave after which there is a reason to stop.

    Args:
        run: The flow run.
        rows: Its experiments, its comparison or its batch.
        waves: Chunks, or rounds of them, each wave with the same examples of all systems.
        work: What is done with each.
        planned: How much work that is, for its progress.
        begun: Steps that the run has begun before. What they spend is known before other processes get their parts.
        why_stop: Asked after each wave whether the run stops, and why.
    """
    run.warm_up()
    done = Worked([*begun])
    with chunks_on(run.prepared.spec.task_runner, after=done.steps):
        for number, wave in enumerate(waves):
            while True:
                for chunk in with_budget_parts(run, rows, wave, items_of(chain(*waves[number:]))):
                    done.steps += work.submit(chunk)
                wait_with_progress(run, done.steps, planned)
                if not another_pass(run, rows):
                    break
            done.repeated += [work.repeat(chunk) for chunk in chunks_to_repeat(run, rows, wave)]
            if why_stop is not None and (reason := why_stop()):
                done.stopped = reason
                break
    return done


def judge_chunks(run: RunContext[Any]) -> ChunkWork:
    """Return the work on pairs and on items of production: they are judged."""
    task = chunk_task(judge, run.prepared.spec)
    return ChunkWork(lambda chunk: [task.submit(run, chunk)], lambda chunk: task(run, chunk))


def answer_and_judge(run: RunContext[Any]) -> ChunkWork:
    """Return the work on the examples of experiments: every target answers them, and the answers are judged."""
    spec = run.prepared.spec
    execute, evaluate = chunk_task(execute_rounds, spec), chunk_task(judge, spec)

    def submit(rounds: Rounds) -> Iterable[PrefectFuture[Any]]:
        answered = execute.submit(run, rounds)
        yield answered
        for chunk in rounds.chunks:
            yield evaluate.submit(run, chunk, return_state=False, wait_for=[answered])

    def repeat(rounds: Rounds) -> list[Any]:
        return [evaluate(run, chunk) for chunk in execute(run, rounds).chunks]

    return ChunkWork(submit, repeat)


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="execute-{rounds.part_name}",
)
@in_any_process
def execute_rounds(run: Context, rounds: Rounds) -> Rounds:
    """Make the runs of the chunks that have no answer yet: in each round, every target answers one example.

    Raise TransientFailuresError if transient failures remain and Prefect will retry.
    """
    experiments, pending = experiments_in(run, rounds), pending_runs(run, rounds)
    if experiments[0].is_quick:
        _look_up_and_judge(run, experiments, rounds, pending)
    elif all(experiment.target.is_recorded for experiment in experiments):
        with run.quick_chunks:
            look_up_rounds(run, rounds, pending, judge=False)
    else:
        _answer(run, experiments, rounds, pending, last=is_last_attempt())
    return rounds


def _answer(run: Context, experiments: Experiments, rounds: Rounds, pending: Pending, *, last: bool) -> None:
    n_pending = sum(map(len, pending))
    endpoints = {endpoint.name: endpoint for experiment in experiments for endpoint in experiment.answering_on}
    limits = within_provider_limits(endpoints.values(), n_pending, n_chunks(experiments[0].row))
    breakers = [experiment.target_breaker for experiment in experiments]
    with admit_trial(run.tally, rounds.chunks, "answers", breakers), limits:
        failed = answer_rounds(run, rounds, pending)
    if failed and not last:
        retry_later(run.tally, failed, "answers", f"of {n_pending} answers")


def _look_up_and_judge(run: Context, experiments: Experiments, rounds: Rounds, pending: Pending) -> None:
    """Look up the answers and judge them, in a process if there are some. Each experiment notes what was judged."""
    work = partial(look_up_rounds, judge=True)
    if (processes := run.processes) is not None:
        outcomes = processes.work(work, run, rounds, pending)
    else:
        breakers = [breaker for experiment in experiments for breaker in breakers_to_wait_for(experiment.evaluators)]
        with admit_trial(run.tally, rounds.chunks, "judgements", breakers), run.quick_chunks:
            outcomes = work(run, rounds, pending)
    for experiment, chunk, numbers in zip(experiments, rounds.chunks, pending, strict=True):
        run.tally.begin(chunk, "answers", chunk.stop - chunk.start)
        if len(numbers) == chunk.stop - chunk.start:
            experiment.judged[chunk.part_name] = outcomes[chunk]


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
