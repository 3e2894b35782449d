"""How far a run is: counted in this process, shown as a progress artifact and to whoever watches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture, wait

from specs.experiment import ExperimentSpec
from store.records import ExperimentRow
from tasks.chunk import Chunk

Stage = Literal["answers", "judgements"]

Watch = Callable[["Progress"], None]
"""Called every second with how far the run is."""

SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Items done, of those that there are to do."""

    answers: int
    judgements: int
    planned_answers: int
    planned_judgements: int

    @property
    def percent(self) -> float:
        planned = self.planned_answers + self.planned_judgements
        return 100.0 * (self.answers + self.judgements) / planned if planned else 100.0


@dataclass(slots=True)
class _Tally:
    """What each chunk has done, by stage. A chunk that is run again counts from anew.

    Without a lock, for which the threads of quick work would wait most of the time: to append is one step for them.
    """

    done: dict[tuple[str, str, Stage], list[int]] = field(default_factory=dict)

    def begin(self, chunk: Chunk, stage: Stage, count: int) -> None:
        self.done[chunk.experiment_id, chunk.part, stage] = [count]

    def add(self, chunk: Chunk, stage: Stage, count: int = 1) -> None:
        self.done.setdefault((chunk.experiment_id, chunk.part, stage), []).append(count)

    def of(self, experiments: set[str], stage: Stage) -> int:
        done = [counts for (one, _, at), counts in self.done.copy().items() if one in experiments and at == stage]
        return sum(map(sum, done))

    def forget(self, experiments: set[str]) -> None:
        for key in self.done.copy():
            if key[0] in experiments:
                del self.done[key]


tally = _Tally()
_watching: list[Watch] = []


@contextmanager
def watched(watch: Watch | None) -> Iterator[None]:
    """While the block lasts, `watch` is told how far the runs of this process are."""
    if watch is None:
        yield
        return
    _watching.append(watch)
    try:
        yield
    finally:
        _watching.remove(watch)


def wait_and_tell(steps: Sequence[PrefectFuture[Any]], experiments: Sequence[ExperimentRow]) -> None:
    """Wait for all steps, and tell meanwhile how far they are."""
    running = [row for row in experiments if row.state == "running"]
    if not running:
        return
    judges = len(ExperimentSpec.model_validate_json(running[0].spec).evaluators)
    artifact = create_progress_artifact(progress=0.0, key="progress", description="Answers and judgements")
    shown = 0.0
    while True:
        left = wait(list(steps), timeout=SECONDS).not_done
        progress = _progress(running, judges)
        for watch in _watching:
            watch(progress)
        percent = round(progress.percent if left else 100.0, 1)
        if percent != shown:
            update_progress_artifact(artifact_id=artifact, progress=percent)  # type: ignore[arg-type]
            shown = percent
        if not left:
            tally.forget({row.experiment_id for row in running})
            return


def _progress(rows: Sequence[ExperimentRow], judges: int) -> Progress:
    identities = {row.experiment_id for row in rows}
    runs = sum(row.n_examples * row.repetitions for row in rows)
    return Progress(
        answers=tally.of(identities, "answers"),
        judgements=tally.of(identities, "judgements"),
        planned_answers=runs,
        planned_judgements=runs * judges,
    )
