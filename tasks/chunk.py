"""Chunks: what one Prefect task run takes up."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext

from specs.comparison import ComparisonSpec
from specs.experiment import ExperimentSpec
from store.records import ExampleRow, ExperimentRow

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


def waves_of(spec: ExperimentSpec, experiments: Sequence[ExperimentRow]) -> Iterator[list[Chunk]]:
    """The chunks in the order in which they are to run: all at once, or, where a gate looks after each batch, the same
    examples of every experiment at a time.
    """
    chunks = list(chunks_of(experiments))
    if spec.batch is None or not chunks:
        yield chunks
        return
    for start in sorted({chunk.start for chunk in chunks}):
        yield [chunk for chunk in chunks if chunk.start == start]


def in_running_order(row: ExperimentRow, examples: Sequence[ExampleRow]) -> list[ExampleRow]:
    """The examples as their chunks take them: as they stand in the snapshot, or, where the experiment has a seed, whole
    clusters in an order that is drawn by it, so that what runs first is a fair sample.
    """
    if row.seed is None:
        return list(examples)
    together: dict[str, list[ExampleRow]] = {}
    for example in examples:
        together.setdefault(example.cluster or f"alone {example.example_id}", []).append(example)
    drawn = np.random.default_rng(row.seed).permutation(len(together))
    clusters = list(together.values())
    return [example for place in drawn for example in clusters[place]]


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
