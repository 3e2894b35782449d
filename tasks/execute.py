"""Call every target on every example, in rounds."""

from collections.abc import Sequence
from functools import partial

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.engine.answer import answer_rounds, pending_runs
from evalflows.engine.chunks import Rounds, n_chunks
from evalflows.engine.experiments import Context, Experiment, experiments_in
from evalflows.engine.look_up import look_up_rounds
from evalflows.tasks.limits import within_provider_limits
from evalflows.tasks.retries import admit_trial, breakers_to_wait_for, is_last_attempt, only_transient, retry_later
from evalflows.tasks.take_up import in_any_process

Experiments = Sequence[Experiment]
"""The experiments of a run, in the order of the chunks."""

Pending = Sequence[Sequence[int]]
"""Numbers of the examples of each chunk that have no final answer."""


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
