"""Chunks: what one Prefect task run takes up."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext

from specs.comparison import ComparisonSpec
from specs.experiment import ExperimentSpec
from store.records import ExperimentRow

CHUNKS_AT_ONCE = 4

MOST_CHUNKS = 40
"""Per experiment: each is two task runs, and the server wants no more than a few hundred of these in a flow run."""
SMALLEST, LARGEST = 250, 2000


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some runs of one experiment: the examples from `start` up to `stop`, in one repetition."""

    experiment_id: str
    repetition: int
    start: int
    stop: int

    @property
    def owner(self) -> str:
        return self.experiment_id

    @property
    def part(self) -> str:
        """The name of its parts in the store."""
        return f"r{self.repetition}-{self.start}-{self.stop}"


class TransientFailuresError(Exception):
    """Some calls of a chunk failed in a way that another attempt may cure."""


def chunk_size(n_examples: int, repetitions: int) -> int:
    """Examples a chunk takes, so that an experiment makes about MOST_CHUNKS at the most."""
    return max(SMALLEST, min(LARGEST, -(-n_examples * repetitions // MOST_CHUNKS)))


def n_chunks(row: ExperimentRow) -> int:
    """How many chunks an experiment has."""
    return row.repetitions * -(-row.n_examples // row.chunk_size)


def chunks_of(experiments: Iterable[ExperimentRow]) -> Iterator[Chunk]:
    """All chunks of the experiments that are to run; none of one that is finished."""
    for row in experiments:
        starts = range(0, row.n_examples, row.chunk_size) if row.state == "running" else ()
        for repetition, start in product(range(row.repetitions), starts):
            yield Chunk(row.experiment_id, repetition, start, min(start + row.chunk_size, row.n_examples))


def retries_of(spec: ExperimentSpec | ComparisonSpec) -> dict[str, Any]:
    """Options of a task that takes up chunks: how often it is run again, and after which pauses."""
    delays = [spec.chunk_retry_delay_s * 2.0**retry for retry in range(spec.chunk_retries)]
    return {"retries": spec.chunk_retries, "retry_delay_seconds": delays}


def is_last_attempt() -> bool:
    """Whether Prefect will not run this task again, so that failures have to be kept as they are."""
    context = TaskRunContext.get()
    return context is None or context.task_run.run_count > context.task.retries


def only_transient(task: Task[..., object], run: TaskRun, state: State[object]) -> bool:
    """Prefect's retry condition: a chunk whose calls may yet succeed is run again, a fault of ours is not."""
    return isinstance(state.data, TransientFailuresError)
