"""Start or resume experiments, and call every target on every example, in rounds."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.final_looks import take_look
from evalflows.engine.answer import answer_rounds, look_up_rounds, pending_runs
from evalflows.engine.chunks import ORDER_SEED, Rounds, chunk_size, n_chunks
from evalflows.engine.experiments import Context, Experiment, experiments_in
from evalflows.engine.may_call_models import HOW_TO_RECORD, unlimited
from evalflows.engine.prepare import PreparedExperiment, experiment_id
from evalflows.engine.spec_targets import said_version, target_code, target_version
from evalflows.engine.workers import is_quick
from evalflows.specs.errors import print_note
from evalflows.store.records import ExperimentRow, to_json
from evalflows.store.store import Store
from evalflows.tasks.engines import in_any_process
from evalflows.tasks.limits import (
    admitted,
    awaited,
    check_limits,
    is_last_attempt,
    only_transient,
    retry_later,
    within_provider_limits,
)
from evalflows.tasks.start import changed, opened, started

Experiments = Sequence[Experiment]
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
    with admitted(run.tally, rounds.chunks, "answers", breakers), limits:
        failed = answer_rounds(run, rounds, pending)
    if failed and not last:
        retry_later(run.tally, failed, "answers", f"of {n_pending} answers")


def _look_up_and_judge(run: Context, experiments: Experiments, rounds: Rounds, pending: Pending) -> None:
    """Look up the answers and judge them, in a process if there are some. Each experiment notes what was judged."""
    work = partial(look_up_rounds, judge=True)
    if (processes := run.processes) is not None:
        outcomes = processes.work(work, run, rounds, pending)
    else:
        breakers = [breaker for experiment in experiments for breaker in awaited(experiment.evaluators)]
        with admitted(run.tally, rounds.chunks, "judgements", breakers), run.quick_chunks:
            outcomes = work(run, rounds, pending)
    for experiment, chunk, numbers in zip(experiments, rounds.chunks, pending, strict=True):
        run.tally.begin(chunk, "answers", chunk.stop - chunk.start)
        if len(numbers) == chunk.stop - chunk.start:
            experiment.judged[chunk.part] = outcomes[chunk]


FIXED_COLUMNS = ("snapshot_id", "repetitions", "target_version", "application_version", "evaluators")
"""What a resumed experiment must have in common with its first start."""


@task(cache_policy=NO_CACHE, persist_result=False)
def start_experiments(run: Context, resume: str | None = None) -> list[ExperimentRow]:
    """Start or resume one experiment per target; finished ones are returned unchanged.

    An experiment is resumed if it belongs to the run group `resume`, has the same run key, or if this flow run is
    re-run.

    Raise InputError if a resumed experiment was started from another spec, for a limit that Prefect does not have, and
    if the final examples have been run too often.
    """
    spec, store = run.prepared.spec, run.store
    check_limits(spec.connections)
    rows = started(run, resume, _rows, partial(changed, columns=FIXED_COLUMNS))
    _say_what_no_budget_limits(run.prepared)
    if spec.run_key is not None and resume is None:
        _say_what_is_reused(store, spec.run_key, rows)
    take_look(store, spec, rows[0].run_group, rows[0].git_commit)
    run.reset()
    return [opened(store, row) for row in rows]


def _rows(run: Context, group: str, columns: Mapping[str, Any]) -> list[ExperimentRow]:
    prepared, spec = run.prepared, run.prepared.spec
    query = "select n_examples from source.snapshots where snapshot_id = ?"
    ((n_examples,),) = run.store.query(query, [spec.dataset.snapshot])
    size = spec.batch or spec.chunk_size or chunk_size(n_examples, spec.repetitions, is_quick=is_quick(prepared))
    return [
        ExperimentRow(
            experiment_id=experiment_id(group, target.name),
            run_group=group,
            name=spec.experiment_name(target.name),
            dataset_name=spec.dataset.name,
            snapshot_id=spec.dataset.snapshot or "",
            n_examples=n_examples,
            repetitions=spec.repetitions,
            chunk_size=size,
            seed=None if spec.batch is None else ORDER_SEED,
            target=target.name,
            target_kind=target.kind,
            target_version=target_version(target, spec.connections),
            target_code=target_code(target),
            application_version=said_version(target),
            evaluators=to_json(prepared.described),
            **columns,
        )
        for target in spec.targets
    ]


def _say_what_no_budget_limits(prepared: PreparedExperiment) -> None:
    spec, owners = prepared.spec, dict[str, list[str]]()
    for limit in ("budget_usd", "max_calls"):
        if getattr(spec, limit) is not None:
            for owner in unlimited(spec.targets, prepared.of_runs, of_calls=limit == "max_calls"):
                owners.setdefault(owner, []).append(limit)
    for owner, limits in owners.items():
        print_note(f"{' and '.join(limits)} cannot limit the calls of {owner}, which are not recorded: {HOW_TO_RECORD}")


def _say_what_is_reused(store: Store, run_key: str, rows: Sequence[ExperimentRow]) -> None:
    query = "select count(*) from source.outputs where list_contains(?, experiment_id) and status = 'ok'"
    ((answers,),) = store.query(query, [[row.experiment_id for row in rows]])
    if answers:
        since = min(row.started_at for row in rows)
        print_note(f"reusing {answers} answers of {since:%Y-%m-%d %H:%M} UTC (run_key {run_key!r}); --fresh asks again")
