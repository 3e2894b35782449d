"""Chunks: what one Prefect task run handles. Those of pairs are in `pair_trials.py`, those of trace evaluations in
`traces.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from itertools import product
from random import Random
from typing import Any, ClassVar, Self, TypeVar

from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.queries.spending import Paid
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store

T = TypeVar("T")

NOTHING_PAID = Paid(0, 0.0, 0.0, 0)

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

    attempt: datetime  # when its run was started or resumed
    paid_before: frozenset[str] = frozenset()  # the calls, by id, that its part had when it was sent
    usd: float | None = None  # what the chunk may have spent in all, in USD and in calls
    calls: int | None = None
    counts_unknown: bool = True  # as the budget does
    costs: Mapping[str, float | None] = field(default_factory=dict)  # of calls made since, by id, when it comes back


@dataclass(frozen=True, slots=True)
class Chunk(ABC):
    """A chunk of any kind."""

    dispatch: Dispatch | None = field(default=None, kw_only=True)  # of a chunk that is sent to another process

    @property
    def chunks(self) -> tuple[Self]:
        return (self,)

    @property
    @abstractmethod
    def owner(self) -> str:
        """The id that its rows in the store belong to."""

    @property
    @abstractmethod
    def part_name(self) -> str:
        """The name of its parts in the store."""

    @property
    @abstractmethod
    def n_items(self) -> int:
        """The number of its examples, or items of production."""

    table: ClassVar[str]
    """That of the row of its run."""

    def attempt_in(self, store: Store) -> datetime | None:
        """Return when its run was last started or resumed, by a store; None if that has no such run."""
        rows: list[Any] = store.read(self.table, self.owner)
        return rows[0].recorded_at if rows else None


@dataclass(frozen=True, slots=True)
class ExampleChunk(Chunk):
    """Runs of one experiment: the examples from `start` up to `stop` (exclusive), in one repetition."""

    table = "experiments"

    experiment_id: str
    repetition: int
    start: int
    stop: int

    @property
    def owner(self) -> str:
        return self.experiment_id

    @property
    def part_name(self) -> str:
        return f"r{self.repetition}-{self.start}-{self.stop}"

    @property
    def n_items(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Rounds:
    """Chunks with the same examples of all experiments of a run: in each round, every target answers one example.

    The answers of a round are made one right after another, so that load, warm-up and time of day are the same for all
    targets. Else their latencies could not be compared.
    """

    chunks: tuple[ExampleChunk, ...]

    @property
    def part_name(self) -> str:
        return self.chunks[0].part_name


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


def chunks_of(experiments: Iterable[ExperimentRow]) -> Iterator[ExampleChunk]:
    """Yield all chunks of the running experiments; finished ones have none."""
    for row in experiments:
        starts = range(0, row.n_examples, row.chunk_size) if row.state == "running" else ()
        for repetition, start in product(range(row.repetitions), starts):
            yield ExampleChunk(row.experiment_id, repetition, start, min(start + row.chunk_size, row.n_examples))


def rounds_of(experiments: Iterable[ExperimentRow]) -> list[Rounds]:
    """Return the chunks of all experiments, those with the same runs together."""
    together = grouped(((chunk.part_name, row.seed), chunk) for row in experiments for chunk in chunks_of([row]))
    return [Rounds(tuple(chunks)) for chunks in together.values()]
