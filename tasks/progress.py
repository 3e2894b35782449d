"""Progress of a flow run, as Prefect shows it."""

from collections.abc import Sequence
from typing import Any

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture

from evalflows.engine.chunks import Rounds
from evalflows.engine.interrupts import raise_if_pressed
from evalflows.engine.run_context import RunContext
from evalflows.engine.tally import Planned
from evalflows.reports.progress import Progress
from evalflows.server_watch import report_if_possible
from evalflows.store.described import experiment_spec
from evalflows.store.records import ExperimentRow
from evalflows.tasks.engines import ended_work, not_done

INTERVAL_S = 1.0


def enter_stage(run: RunContext[Any], stage: str) -> None:
    """Tell the program that called the flow what the run does now."""
    _tell(run, Progress(stage=stage))


def _tell(run: RunContext[Any], progress: Progress) -> None:
    if run.caller.watch is not None:
        run.caller.watch(progress)


def planned_of(experiments: Sequence[ExperimentRow]) -> Planned:
    """Return the work planned for the experiments that are running."""
    running = [row for row in experiments if row.state == "running"]
    judges = len(experiment_spec(running[0]).evaluators) if running else 0
    runs = sum(row.n_examples * row.repetitions for row in running)
    owners = frozenset(row.experiment_id for row in running)
    return Planned(owners=owners, answers=runs, judgements=runs * judges, of_item=judges)


def wait_with_progress(run: RunContext[Any], steps: Sequence[PrefectFuture[Any]], planned: Planned) -> None:
    """Wait for all steps, and report progress meanwhile; to Prefect's UI only if it takes longer than INTERVAL_S."""
    if not planned.owners:
        return
    server = run.caller.server
    if server is not None:
        server.owners |= planned.owners
    _tell(run, _progress(run, planned))
    artifact, shown = None, 0.0
    while True:
        pending = not_done(steps, INTERVAL_S)
        raise_if_pressed()
        if server is not None:
            server.raise_if_lost()
        _count_ended(run, steps, planned)
        progress = _progress(run, planned)
        _tell(run, progress)
        percent = round(progress.percent if pending else 100.0, 1)
        with report_if_possible(server):
            if artifact is None and pending:
                artifact = create_progress_artifact(percent, key="progress", description="Answers and judgements")
            elif artifact is not None and percent != shown:
                update_progress_artifact(artifact_id=artifact, progress=percent)  # type: ignore[arg-type]
            shown = percent
        if not pending:
            return


def _count_ended(run: RunContext[Any], steps: Sequence[PrefectFuture[Any]], planned: Planned) -> None:
    """Count the chunks that have ended in other processes, whose items this one cannot count one by one."""
    tally = run.tally
    for work in ended_work(steps):
        for chunk in getattr(work, "chunks", ()):
            if chunk.dispatch is not None:
                run.calls.count_elsewhere(chunk.owner, chunk.dispatch.costs)
            if isinstance(work, Rounds):
                tally.begin(chunk, "answers", chunk.n_items)
            else:
                tally.begin(chunk, "judgements", chunk.n_items * planned.of_item)


def _progress(run: RunContext[Any], planned: Planned) -> Progress:
    tally, made = run.tally, run.calls.made
    failed, again_in_s = tally.waiting(planned.owners) or run.calls.waits()
    return Progress(
        stage=planned.stage,
        answers=tally.of(planned.owners, "answers"),
        judgements=tally.of(planned.owners, "judgements"),
        lost_answers=tally.lost_of(planned.owners, "answers"),
        lost_judgements=tally.lost_of(planned.owners, "judgements"),
        planned_answers=planned.answers,
        planned_judgements=planned.judgements,
        calls=sum(made[owner] for owner in planned.owners),
        cost_usd=run.calls.cost(planned.owners),
        failed=failed,
        again_in_s=again_in_s,
    )
