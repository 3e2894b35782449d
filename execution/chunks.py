"""Chunks of an experiment: the runs that one Prefect task run handles."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from random import Random
from typing import TypeVar

import numpy as np

from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.examples import Examples
from evalflows.store.records import ExperimentRow

T = TypeVar("T")

CHUNKS_AT_ONCE = 4
"""Chunks that a flow run handles at the same time."""

MAX_CHUNKS = 40
"""Chunks per experiment: each is two task runs, and Prefect's server handles a few hundred task runs per flow run."""

MIN_CHUNK_SIZE = 250
"""Fewest examples per chunk."""

QUICK_CHUNKS, QUICK_CHUNK_SIZES = 8, (5_000, 25_000)
"""Chunks of an experiment that calls no model, within these sizes: a task run takes as long as a rule for a thousand
examples, each process should have several chunks, and a process has the results of a chunk in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """What a chunk brings along to another process, and back."""

    attempt: datetime  # `recorded_at` of its experiment or comparison: another for each start and resumption
    usd: float | None = None  # what the chunk may have spent in all, in USD and in calls
    calls: int | None = None
    costs: tuple[float | None, ...] = ()  # of the model calls that were made, when it comes back


@dataclass(frozen=True, slots=True)
class Chunk:
    """Runs of one experiment: the examples from `start` up to `stop` (exclusive), in one repetition."""

    experiment_id: str
    repetition: int
    start: int
    stop: int
    dispatch: Dispatch | None = None  # of a chunk that is sent to another process

    @property
    def chunks(self) -> "tuple[Chunk]":
        return (self,)

    @property
    def owner(self) -> str:
        return self.experiment_id

    @property
    def part(self) -> str:
        """The name of the chunk's parts in the store."""
        return f"r{self.repetition}-{self.start}-{self.stop}"


@dataclass(frozen=True, slots=True)
class Rounds:
    """Chunks with the same examples of all experiments of a run: in each round, every target answers one example.

    The answers of a round are made one right after another, so that load, warm-up and time of day are the same for all
    targets. Else their latencies could not be compared.
    """

    chunks: tuple[Chunk, ...]

    @property
    def part(self) -> str:
        return self.chunks[0].part


def in_drawn_order(targets: Sequence[T], *drawn_by: object) -> list[T]:
    """Return the targets in the random order of one round, which depends only on `drawn_by`."""
    return Random(repr(drawn_by)).sample(targets, len(targets))


def chunk_size(n_examples: int, repetitions: int, *, is_quick: bool = False) -> int:
    """Return the number of examples per chunk, so that an experiment has at most about MAX_CHUNKS chunks.

    It is larger for an experiment that `is_quick`, which calls no model.
    """
    least, runs = MIN_CHUNK_SIZE, n_examples * repetitions
    if is_quick:
        fewest, most = QUICK_CHUNK_SIZES
        least = min(most, max(fewest, -(-runs // QUICK_CHUNKS)))
    return max(least, -(-runs // MAX_CHUNKS))


def n_chunks(row: ExperimentRow) -> int:
    """Return the number of chunks of an experiment."""
    return row.repetitions * -(-row.n_examples // row.chunk_size)


def chunks_of(experiments: Iterable[ExperimentRow]) -> Iterator[Chunk]:
    """Yield all chunks of the running experiments; finished ones have none."""
    for row in experiments:
        starts = range(0, row.n_examples, row.chunk_size) if row.state == "running" else ()
        for repetition, start in product(range(row.repetitions), starts):
            yield Chunk(row.experiment_id, repetition, start, min(start + row.chunk_size, row.n_examples))


def waves_of(spec: ExperimentSpec, experiments: Sequence[ExperimentRow]) -> Iterator[list[Rounds]]:
    """Yield the chunks in running order: all at once, or batch by batch if a gate has interim analyses.

    A batch holds the same examples of every experiment.
    """
    rounds = _rounds_of(experiments)
    if spec.batch is None or not rounds:
        yield rounds
        return
    for start in sorted({each.chunks[0].start for each in rounds}):
        yield [each for each in rounds if each.chunks[0].start == start]


def _rounds_of(experiments: Iterable[ExperimentRow]) -> list[Rounds]:
    """Return the chunks of all experiments, those with the same runs together."""
    together: dict[tuple[str, int | None], list[Chunk]] = {}
    for row in experiments:
        for chunk in chunks_of([row]):
            together.setdefault((chunk.part, row.seed), []).append(chunk)
    return [Rounds(tuple(chunks)) for chunks in together.values()]


def in_running_order(row: ExperimentRow, examples: Examples) -> Examples:
    """Return the examples in running order: that of the snapshot, or whole clusters in random order by the experiment's
    seed, so that each batch is a random sample.
    """
    if row.seed is None:
        return examples
    by_cluster: dict[str, list[int]] = {}
    for number, (identity, cluster) in enumerate(zip(examples.ids, examples.clusters, strict=True)):
        by_cluster.setdefault(cluster or f"alone {identity}", []).append(number)
    order = np.random.default_rng(row.seed).permutation(len(by_cluster))
    clusters = list(by_cluster.values())
    return examples.select(number for index in order for number in clusters[index])
