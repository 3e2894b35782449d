"""How far a run is: counted in this process, shown as a progress artifact and to whoever watches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture, wait

from specs.experiment import ExperimentSpec
from store.records import ExperimentRow
from tasks.interrupts import raise_if_pressed

Stage = Literal["answers", "judgements"]

Watch = Callable[["Progress"], None]
"""Called every second with how far the run is."""

SECONDS = 1.0


class Part(Protocol):
    """A chunk: whose it is, and what its parts in the store are called."""

    @property
    def owner(self) -> str: ...

    @property
    def part(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What there is to do, and whose it is; no owners where nothing is."""

    owners: frozenset[str]
    answers: int = 0
    judgements: int = 0


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

    def begin(self, chunk: Part, stage: Stage, count: int) -> None:
        self.done[chunk.owner, chunk.part, stage] = [count]

    def add(self, chunk: Part, stage: Stage, count: int = 1) -> None:
        self.done.setdefault((chunk.owner, chunk.part, stage), []).append(count)

    def of(self, owners: frozenset[str], stage: Stage) -> int:
        done = [counts for (one, _, at), counts in self.done.copy().items() if one in owners and at == stage]
        return sum(map(sum, done))

    def forget(self, owners: frozenset[str]) -> None:
        for key in self.done.copy():
            if key[0] in owners:
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


def planned_of(experiments: Sequence[ExperimentRow]) -> Planned:
    """What there is to do for those of some experiments that are running."""
    running = [row for row in experiments if row.state == "running"]
    judges = len(ExperimentSpec.model_validate_json(running[0].spec).evaluators) if running else 0
    runs = sum(row.n_examples * row.repetitions for row in running)
    owners = frozenset(row.experiment_id for row in running)
    return Planned(owners=owners, answers=runs, judgements=runs * judges)


def wait_and_tell(steps: Sequence[PrefectFuture[Any]], planned: Planned) -> None:
    """Wait for all steps, and tell meanwhile how far they are."""
    if not planned.owners:
        return
    artifact = create_progress_artifact(progress=0.0, key="progress", description="Answers and judgements")
    shown = 0.0
    while True:
        left = wait(list(steps), timeout=SECONDS).not_done
        raise_if_pressed()
        progress = _progress(planned)
        for watch in _watching:
            watch(progress)
        percent = round(progress.percent if left else 100.0, 1)
        if percent != shown:
            update_progress_artifact(artifact_id=artifact, progress=percent)  # type: ignore[arg-type]
            shown = percent
        if not left:
            return


def _progress(planned: Planned) -> Progress:
    return Progress(
        answers=tally.of(planned.owners, "answers"),
        judgements=tally.of(planned.owners, "judgements"),
        planned_answers=planned.answers,
        planned_judgements=planned.judgements,
    )
