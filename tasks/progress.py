"""Progress of a flow run: counted in this process, shown as a progress artifact and passed to watchers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture
from rich.console import Console

from evalflows.execution.chunks import Rounds
from evalflows.execution.interrupts import raise_if_pressed
from evalflows.execution.progress import Planned, tally
from evalflows.llm.attempts import calls_waiting
from evalflows.llm.recorder import calls_made, cost_made, note_calls_elsewhere
from evalflows.reports.progress import Progress, Watch, in_notebook, shown_progress
from evalflows.store.records import ExperimentRow
from evalflows.store.row_specs import experiment_spec
from evalflows.tasks.engines import ended_work, not_done
from evalflows.tasks.server_watch import note_owners, raise_if_lost, reported_if_possible

INTERVAL_S = 1.0


_watching: list[Watch] = []


@contextmanager
def watched(watch: Watch | None) -> Iterator[None]:
    """Call `watch` with the progress of this process during the block; without one, a notebook shows lines."""
    if watch is None and in_notebook():
        with shown_progress(Console()) as bar, watched(bar):
            yield
        return
    if watch is None:
        yield
        return
    _watching.append(watch)
    try:
        yield
    finally:
        _watching.remove(watch)


def enter_stage(stage: str) -> None:
    """Tell the watchers of this process what it does now."""
    for watch in _watching:
        watch(Progress(stage=stage))


def planned_of(experiments: Sequence[ExperimentRow]) -> Planned:
    """Return the work planned for the experiments that are running."""
    running = [row for row in experiments if row.state == "running"]
    judges = len(experiment_spec(running[0]).evaluators) if running else 0
    runs = sum(row.n_examples * row.repetitions for row in running)
    owners = frozenset(row.experiment_id for row in running)
    return Planned(owners=owners, answers=runs, judgements=runs * judges)


def wait_with_progress(steps: Sequence[PrefectFuture[Any]], planned: Planned) -> None:
    """Wait for all steps, and report progress meanwhile."""
    if not planned.owners:
        return
    note_owners(planned.owners)
    for watch in _watching:
        watch(_progress(planned))
    artifact = create_progress_artifact(progress=0.0, key="progress", description="Answers and judgements")
    shown = 0.0
    while True:
        pending = not_done(steps, INTERVAL_S)
        raise_if_pressed()
        raise_if_lost()
        _count_ended(steps, planned)
        progress = _progress(planned)
        for watch in _watching:
            watch(progress)
        percent = round(progress.percent if pending else 100.0, 1)
        if percent != shown:
            with reported_if_possible():
                update_progress_artifact(artifact_id=artifact, progress=percent)  # type: ignore[arg-type]
                shown = percent
        if not pending:
            return


def _count_ended(steps: Sequence[PrefectFuture[Any]], planned: Planned) -> None:
    """Count the chunks that have ended in other processes, whose items this one cannot count one by one."""
    for work in ended_work(steps):
        for chunk in getattr(work, "chunks", ()):
            items = chunk.stop - chunk.start
            if chunk.dispatch is not None:
                note_calls_elsewhere((type(work), chunk), chunk.owner, chunk.dispatch.costs)
            if isinstance(work, Rounds):
                tally.begin(chunk, "answers", items)
            elif planned.answers:
                tally.begin(chunk, "judgements", items * planned.judgements // planned.answers)
            else:
                tally.begin(chunk, "judgements", planned.judgements // len(steps))


def _progress(planned: Planned) -> Progress:
    made, (failed, again_in_s) = calls_made(), tally.waiting(planned.owners) or calls_waiting()
    return Progress(
        stage=planned.stage,
        answers=tally.of(planned.owners, "answers"),
        judgements=tally.of(planned.owners, "judgements"),
        planned_answers=planned.answers,
        planned_judgements=planned.judgements,
        calls=sum(made[owner] for owner in planned.owners),
        cost_usd=cost_made(planned.owners),
        failed=failed,
        again_in_s=again_in_s,
    )
