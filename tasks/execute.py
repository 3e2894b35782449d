"""Target execution: call every target on every example, in rounds."""

from collections.abc import Sequence
from functools import partial

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.execution.answering import answer_rounds, pending_runs
from evalflows.execution.chunks import Rounds, n_chunks
from evalflows.execution.progress import tally
from evalflows.execution.recorded_answers import look_up_rounds
from evalflows.execution.running_experiment import RunningExperiment, running_experiment
from evalflows.execution.workers import in_turn
from evalflows.tasks.provider_limit import within_provider_limits
from evalflows.tasks.retries import admitted, awaited, is_last_attempt, only_transient, retry_later
from evalflows.tasks.taken_up import in_any_process

Experiments = Sequence[RunningExperiment]
"""The experiments of a run, in the order of the chunks."""

Pending = Sequence[Sequence[int]]
"""Numbers of the examples of each chunk that have no final answer."""


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="execute-{rounds.part}",
)
@in_any_process
def execute_rounds(rounds: Rounds) -> Rounds:
    """Make the runs of the chunks that have no answer yet: in each round, every target answers one example.

    Raise TransientFailuresError if transient failures remain and Prefect will retry.
    """
    experiments = [running_experiment(chunk.experiment_id) for chunk in rounds.chunks]
    pending = pending_runs(rounds)
    if experiments[0].is_quick:
        _look_up_and_judge(experiments, rounds, pending)
    elif all(experiment.target.is_recorded for experiment in experiments):
        with in_turn(is_quick=True):
            look_up_rounds(rounds, pending, judge=False)
    else:
        _answer(experiments, rounds, pending, last=is_last_attempt())
    return rounds


def _answer(experiments: Experiments, rounds: Rounds, pending: Pending, *, last: bool) -> None:
    n_pending = sum(map(len, pending))
    endpoints = {endpoint.name: endpoint for experiment in experiments for endpoint in experiment.answering_on}
    limits = within_provider_limits(endpoints.values(), n_pending, n_chunks(experiments[0].row))
    breakers = [experiment.target_breaker for experiment in experiments]
    with admitted(rounds.chunks, "answers", breakers), limits:
        failed = answer_rounds(rounds, pending)
    if failed and not last:
        retry_later(failed.items(), "answers", f"{sum(failed.values())} of {n_pending} answers failed transiently")


def _look_up_and_judge(experiments: Experiments, rounds: Rounds, pending: Pending) -> None:
    """Look up the answers and judge them, in a process if there are some. Each experiment notes what was judged."""
    work = partial(look_up_rounds, judge=True)
    if (processes := experiments[0].processes) is not None:
        transient = processes.work(work, rounds, pending)
    else:
        breakers = [breaker for experiment in experiments for breaker in awaited(experiment.evaluators)]
        with admitted(rounds.chunks, "judgements", breakers), in_turn(is_quick=True):
            transient = work(rounds, pending)
    for experiment, chunk, numbers in zip(experiments, rounds.chunks, pending, strict=True):
        tally.begin(chunk, "answers", chunk.stop - chunk.start)
        if len(numbers) == chunk.stop - chunk.start:
            experiment.judged[chunk.part] = transient[chunk]
