"""Target execution: call every target on every example, in rounds."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.execution.answering import answer_rounds, pending_runs
from evalflows.execution.chunks import Rounds, n_chunks
from evalflows.execution.progress import tally
from evalflows.execution.running_experiment import running_experiment
from evalflows.execution.workers import in_turn
from evalflows.tasks.provider_limit import within_provider_limits
from evalflows.tasks.retries import admitted, is_last_attempt, only_transient, retry_later
from evalflows.tasks.taken_up import in_any_process


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
    last = is_last_attempt()
    experiments = [running_experiment(chunk.experiment_id) for chunk in rounds.chunks]
    pending = pending_runs(rounds)
    n_pending = sum(map(len, pending))
    endpoints = {endpoint.name: endpoint for experiment in experiments for endpoint in experiment.answering_on}
    limits = within_provider_limits(endpoints.values(), n_pending, n_chunks(experiments[0].row))
    if (processes := experiments[0].processes) is not None:
        failed = processes.work(answer_rounds, rounds, pending)
        for chunk in rounds.chunks:
            tally.begin(chunk, "answers", chunk.stop - chunk.start)
    else:
        breakers = [experiment.target_breaker for experiment in experiments]
        is_quick = all(experiment.target.is_recorded for experiment in experiments)
        with admitted(rounds.chunks, "answers", breakers), in_turn(is_quick=is_quick), limits:
            failed = answer_rounds(rounds, pending)
    if failed and not last:
        retry_later(failed.items(), "answers", f"{sum(failed.values())} of {n_pending} answers failed transiently")
    return rounds
