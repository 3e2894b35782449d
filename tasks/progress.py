"""Progress of a flow run: counted in this process, shown as a progress artifact and passed to watchers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture, wait

from evalflows.execution.progress import Planned, tally
from evalflows.store.records import ExperimentRow
from evalflows.store.row_specs import experiment_spec
from evalflows.tasks.interrupts import raise_if_pressed
from evalflows.tasks.server_watch import note_owners, raise_if_lost, reported_if_possible

Watch = Callable[["Progress"], None]
"""Called every second with the current progress."""

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Answers and judgements done, and the totals planned."""

    answers: int
    judgements: int
    planned_answers: int
    planned_judgements: int

    @property
    def percent(self) -> float:
        planned = self.planned_answers + self.planned_judgements
        return 100.0 * (self.answers + self.judgements) / planned if planned else 100.0


_watching: list[Watch] = []


@contextmanager
def watched(watch: Watch | None) -> Iterator[None]:
    """Call `watch` with the progress of this process during the block."""
    if watch is None:
        yield
        return
    _watching.append(watch)
    try:
        yield
    finally:
        _watching.remove(watch)


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
    artifact = create_progress_artifact(progress=0.0, key="progress", description="Answers and judgements")
    shown = 0.0
    while True:
        pending = wait(list(steps), timeout=INTERVAL_S).not_done
        raise_if_pressed()
        raise_if_lost()
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


def _progress(planned: Planned) -> Progress:
    return Progress(
        answers=tally.of(planned.owners, "answers"),
        judgements=tally.of(planned.owners, "judgements"),
        planned_answers=planned.answers,
        planned_judgements=planned.judgements,
    )
