"""Chunks: what one Prefect task run handles, which examples an evaluator samples, what a chunk brings along to another
process, and progress. Those of trace evaluations are in `traces.py`.

The budget is divided by the number of items, so that all processes together cannot overspend it, and none has to ask
another before a call. What some chunks leave over goes to those whose part was too small, when all have ended.
"""

import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import combinations, product
from random import Random
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from evalflows.llm.budget import Budget
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec, as_key
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.example_slices import value_at
from evalflows.store.queries.progress import Paid, paid, spent_by_group, spent_on_part, spent_since
from evalflows.store.records import ComparisonSetRow, ExampleRow, ExperimentRow, Winner, derived_id
from evalflows.store.row_specs import comparison_spec
from evalflows.store.snapshots import Examples
from evalflows.store.store import Store
from evalflows.store.trace_records import WatermarkRow

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
    usd: float | None = None  # what the chunk may have spent in all, in USD and in calls
    calls: int | None = None
    counts_unknown: bool = True  # as the budget does
    costs: tuple[float | None, ...] = ()  # of the model calls that were made, when it comes back


@dataclass(frozen=True, slots=True)
class Part(ABC):
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
    def part(self) -> str:
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
class Chunk(Part):
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
    def part(self) -> str:
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


def waves_of(work: "Sequence[OfExamples]", batch: int | None) -> "Iterator[list[OfExamples]]":
    """Yield the chunks in running order: all at once, or batch by batch if there are interim analyses.

    A batch holds the same examples of every experiment, or pair.
    """
    if batch is None or not work:
        yield list(work)
        return
    for start in sorted({each.chunks[0].start for each in work}):
        yield [each for each in work if each.chunks[0].start == start]


def rounds_of(experiments: Iterable[ExperimentRow]) -> list[Rounds]:
    """Return the chunks of all experiments, those with the same runs together."""
    together: dict[tuple[str, int | None], list[Chunk]] = {}
    for row in experiments:
        for chunk in chunks_of([row]):
            together.setdefault((chunk.part, row.seed), []).append(chunk)
    return [Rounds(tuple(chunks)) for chunks in together.values()]


ORDER_SEED = 0
"""Seed of the order of the examples if there are interim analyses: each batch must be a random sample."""


def in_running_order(row: ExperimentRow, examples: Examples) -> Examples:
    """Return the examples in running order: that of the snapshot, or a random one by the experiment's seed."""
    return examples if row.seed is None else in_random_order(examples, row.seed)


def in_random_order(examples: Examples, seed: int) -> Examples:
    """Return the examples as whole clusters in random order, so that each batch is a random sample."""
    by_cluster: dict[str, list[int]] = {}
    for number, (identity, cluster) in enumerate(zip(examples.ids, examples.clusters, strict=True)):
        by_cluster.setdefault(cluster or f"alone {identity}", []).append(number)
    order = np.random.default_rng(seed).permutation(len(by_cluster))
    clusters = list(by_cluster.values())
    return examples.select(number for index in order for number in clusters[index])


def cluster_boundary(clusters: Sequence[str | None], place: int) -> int:
    """Return the last position, at most `place`, that splits no cluster, whose examples follow each other."""
    while 0 < place < len(clusters) and clusters[place] is not None and clusters[place] == clusters[place - 1]:
        place -= 1
    return place


@dataclass(frozen=True, slots=True)
class Sample:
    """The ids of the sampled examples, and the sampling rate of every example: its stratum's, above 0, at most 1."""

    drawn: frozenset[str]
    rates: Mapping[str, float]


def draw(spec: EvaluatorSpec, examples: Sequence[ExampleRow]) -> Sample | None:
    """Return the sample of an evaluator; None for one that judges all examples.

    Each value of `sample_by` in `sample_rates` is a stratum with its own rate; all other examples, also those without
    the field, form one stratum with `sample_rate`. Sizes are rounded, and at least 1. Examples are drawn by a hash of
    seed and id, so that the sample is the same for every target, evaluator and resumption, and smaller samples are
    part of larger ones. Raise InputError if no example has any of the values.
    """
    if not spec.is_sampled:
        return None
    strata: defaultdict[str | None, list[str]] = defaultdict(list)
    values = [_value(spec, example) for example in examples]
    if spec.sample_rates and not {*values} & {*spec.sample_rates}:
        got = ", ".join(sorted({value for value in values if value is not None})[:10]) or "no such field"
        wanted = ", ".join(spec.sample_rates)
        where = f"evaluator {spec.metric!r}: sample_rates"
        raise InputError(f"{where}: no example has {wanted} as its {spec.sample_by}, got {got}")
    for value, example in zip(values, examples, strict=True):
        strata[value if value in spec.sample_rates else None].append(example.example_id)
    drawn: set[str] = set()
    rates: dict[str, float] = {}
    for value, members in strata.items():
        rate = (spec.sample_rate or 1.0) if value is None else spec.sample_rates[value]
        in_turn = sorted(members, key=lambda one: hashlib.sha256(f"{spec.sample_seed} {one}".encode()).digest())
        chosen = in_turn[: max(1, math.floor(rate * len(members) + 0.5))]
        drawn.update(chosen)
        rates.update(dict.fromkeys(members, len(chosen) / len(members)))
    return Sample(frozenset(drawn), rates)


def _value(spec: EvaluatorSpec, example: ExampleRow) -> str | None:
    """Return the example's value of `sample_by` as a key; None if it has no such field."""
    if spec.sample_by is None:
        return None
    try:
        return as_key(value_at(example, spec.sample_by))
    except InputError:
        return None


Stage = Literal["answers", "judgements"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The work planned, and who owns it; no owners if there is none."""

    owners: frozenset[str]
    answers: int = 0
    judgements: int = 0
    of_item: int = 0  # judgements of each item of a chunk
    stage: str = "answering and judging"


@dataclass(slots=True)
class Tally:
    """Items done per chunk and stage, and how many of these were lost: failed, or not attempted. A retried chunk
    counts from its start.

    Appending is atomic, so no lock is needed; threads of quick work would spend most of their time waiting for it.
    """

    done: dict[tuple[str, str, Stage], list[int]] = field(default_factory=dict)
    lost: dict[tuple[str, str, Stage], list[int]] = field(default_factory=dict)
    postponed: dict[tuple[str, str, Stage], tuple[int, float]] = field(default_factory=dict)

    def begin(self, chunk: Part, stage: Stage, count: int) -> Callable[[int], None]:
        """Return a function that adds to the chunk's items."""
        done = self.done[chunk.owner, chunk.part, stage] = [count]
        self.lost.pop((chunk.owner, chunk.part, stage), None)
        self.postponed.pop((chunk.owner, chunk.part, stage), None)
        return done.append

    def lose(self, chunk: Part, stage: Stage, count: int = 1) -> None:
        """Note that so many of the items done were lost."""
        self.lost.setdefault((chunk.owner, chunk.part, stage), []).append(count)

    def postpone(self, chunk: Part, stage: Stage, count: int, seconds: float) -> None:
        """Note that so many items of a chunk failed, and are tried again in so many seconds."""
        self.add(chunk, stage, -count)
        self.lose(chunk, stage, -count)
        self.postponed[chunk.owner, chunk.part, stage] = (count, time.monotonic() + seconds)

    def extend(self, chunk: Part, stage: Stage, seconds: float) -> None:
        """Note that the items of a chunk that failed are tried again later than planned."""
        count, _ = self.postponed.get((chunk.owner, chunk.part, stage), (0, 0.0))
        self.postponed[chunk.owner, chunk.part, stage] = (count, time.monotonic() + seconds)

    def waiting(self, owners: frozenset[str]) -> tuple[int, float] | None:
        """Return how many items failed and are tried again, and the seconds until the first of them is; else None."""
        waits = [wait for (owner, _, _), wait in self.postponed.copy().items() if owner in owners]
        if not waits:
            return None
        return sum(count for count, _ in waits), max(0.0, min(until for _, until in waits) - time.monotonic())

    def add(self, chunk: Part, stage: Stage, count: int = 1) -> None:
        self.done.setdefault((chunk.owner, chunk.part, stage), []).append(count)

    def of(self, owners: frozenset[str], stage: Stage) -> int:
        return self._sum(self.done, owners, stage)

    def lost_of(self, owners: frozenset[str], stage: Stage) -> int:
        return max(0, self._sum(self.lost, owners, stage))

    @staticmethod
    def _sum(kept: dict[tuple[str, str, Stage], list[int]], owners: frozenset[str], stage: Stage) -> int:
        return sum(sum(counts) for (owner, _, at), counts in kept.copy().items() if owner in owners and at == stage)


MAX_PAIR_CHUNKS = 200
"""Chunks per comparison: each is one task run."""

MAX_CHUNK_SIZE = 2000

Side = Literal["left", "right"]
OTHER: dict[Side, Side] = {"left": "right", "right": "left"}

Shown = TypeVar("Shown")


@dataclass(frozen=True, slots=True)
class PairChunk(Part):
    """Examples of two experiments in one repetition, from `start` up to `stop` (exclusive).

    `first` comes before `second` in the comparison's list.
    """

    table = "comparison_sets"

    comparison_id: str
    first: str
    second: str
    repetition: int
    start: int
    stop: int

    @property
    def owner(self) -> str:
        return self.comparison_id

    @property
    def part(self) -> str:
        pair = derived_id(*sorted((self.first, self.second)))[:12]
        return f"{pair}-r{self.repetition}-{self.start}-{self.stop}"

    @property
    def n_items(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTrial:
    """Two runs of one example, in one order. Left is the run of the older experiment."""

    example: ExampleRow
    left_experiment: str
    right_experiment: str
    left_run: str
    right_run: str
    repetition: int
    shown_first: Side


def pairs_of(spec: ComparisonSpec) -> list[tuple[str, str]]:
    """Return the pairs of experiment ids in the order of the list: all pairs, or those with the baseline."""
    if spec.pairs == "all":
        return list(combinations(spec.experiments, 2))
    baseline = baseline_of(spec)
    return [pair for pair in combinations(spec.experiments, 2) if baseline in pair]


def baseline_of(spec: ComparisonSpec) -> str:
    return spec.baseline or spec.experiments[0]


def orders(spec: ComparisonSpec) -> int:
    """Return how often each pair of runs is shown."""
    return 2 if spec.both_orders else 1


def pair_chunk_size(n_shared: int, repetitions: int, pairs: int) -> int:
    """Return the number of examples per chunk, so that a comparison has at most about MAX_CHUNKS chunks."""
    return max(MIN_CHUNK_SIZE, min(MAX_CHUNK_SIZE, -(-n_shared * repetitions * pairs // MAX_PAIR_CHUNKS)))


def pair_chunks(row: ComparisonSetRow) -> Iterator[PairChunk]:
    """Yield all chunks of a running comparison; a finished one has none, nor has one of votes."""
    if row.state != "running" or row.n_votes is not None:
        return
    for first, second in pairs_of(comparison_spec(row)):
        for repetition in range(row.repetitions):
            for start in range(0, row.n_shared, row.chunk_size):
                stop = min(start + row.chunk_size, row.n_shared)
                yield PairChunk(row.comparison_id, first, second, repetition, start, stop)


def planned_pairs(row: ComparisonSetRow) -> Planned:
    """Return the number of judgements planned."""
    spec = comparison_spec(row)
    judges = len(spec.evaluators)
    owners = frozenset({row.comparison_id} if row.state == "running" else ())
    of_item = orders(spec) * judges
    return Planned(owners=owners, judgements=n_trials(row) * judges, of_item=of_item, stage="comparing pairs")


def n_trials(row: ComparisonSetRow) -> int:
    """Return how many trials each evaluator judges; a pair shown in both orders is two trials."""
    spec = comparison_spec(row)
    return len(pairs_of(spec)) * row.repetitions * row.n_shared * orders(spec)


def trials_of(chunk: PairChunk, spec: ComparisonSpec, examples: Sequence[ExampleRow]) -> Iterator[PairTrial]:
    """Yield the trials of a chunk: each example once, or in both orders."""
    left, right = sorted((chunk.first, chunk.second))
    for example in examples[chunk.start : chunk.stop]:
        runs = [derived_id(experiment, example.example_id, chunk.repetition) for experiment in (left, right)]
        for shown_first in _shown_first(chunk, spec, example, runs):
            yield PairTrial(
                example=example,
                left_experiment=left,
                right_experiment=right,
                left_run=runs[0],
                right_run=runs[1],
                repetition=chunk.repetition,
                shown_first=shown_first,
            )


def _shown_first(chunk: PairChunk, spec: ComparisonSpec, example: ExampleRow, runs: Sequence[str]) -> list[Side]:
    """Return which run is shown first. A random order depends on seed and runs only, so it is the same elsewhere."""
    first: Side = "left" if chunk.first < chunk.second else "right"
    if spec.both_orders:
        return [first, "right" if first == "left" else "left"]
    if not spec.randomize_order:
        return [first]
    digest = hashlib.sha256(f"{spec.seed} {example.example_id} {runs[0]} {runs[1]}".encode()).digest()
    return ["left" if digest[0] % 2 else "right"]


def in_order(shown_first: Side, left: Shown, right: Shown) -> tuple[Shown, Shown]:
    """Return left and right in the order shown, or back."""
    return (left, right) if shown_first == "left" else (right, left)


def winning_side(place: str | None, shown_first: Side) -> Winner | None:
    """Return the side shown in a position; a tie for a tie."""
    by_place: dict[str | None, Winner] = {"first": shown_first, "second": OTHER[shown_first], "tie": "tie"}
    return by_place.get(place)


OfExamples = TypeVar("OfExamples", Rounds, PairChunk)
Sent = TypeVar("Sent", bound=Part)
AnySpec = ExperimentSpec | ComparisonSpec | TraceEvaluationSpec
Started = ExperimentRow | ComparisonSetRow | WatermarkRow
"""The row of an experiment, a comparison, or a batch of a trace evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left of a budget."""

    usd: float | None
    calls: int | None
    counts_unknown: bool

    @property
    def is_limited(self) -> bool:
        return self.usd is not None or self.calls is not None

    @property
    def is_spent(self) -> bool:
        return (self.usd is not None and self.usd <= 0.0) or (self.calls is not None and self.calls <= 0)

    def part(self, before: int, until: int, of: int) -> "Left":
        """Return the part for the items from `before` up to `until` of so many; all parts add up to the whole."""
        usd = None if self.usd is None else max(0.0, self.usd) * (until - before) / of
        whole = None if self.calls is None else max(0, self.calls)
        calls = None if whole is None else whole * until // of - whole * before // of
        return Left(usd=usd, calls=calls, counts_unknown=self.counts_unknown)


def spent_by(store: Store, row: Started) -> Paid:
    """Return what a run has paid for model calls: a run group, a comparison, or a batch."""
    if isinstance(row, ExperimentRow):
        return spent_by_group(store, row.run_group)
    if isinstance(row, ComparisonSetRow):
        return paid(store, row.comparison_id)
    return spent_since(store, f"{row.evaluation_id}-", row.started_at)


def left_of(spec: AnySpec, spent: Paid) -> Left:
    """Return what is left of the limits of a spec."""
    usd, calls, counts_unknown = spec.budget_usd, spec.max_calls, spec.budget_counts_unknown
    if usd is not None:
        usd = 0.0 if spent.unknown and counts_unknown else max(0.0, usd - spent.usd)
    return Left(usd=usd, calls=None if calls is None else max(0, calls - spent.calls), counts_unknown=counts_unknown)


def dispatched(store: Store, chunks: Sequence[Sent], attempt: datetime, left: Left, items: int) -> list[Sent]:
    """Return the chunks with what they bring along.

    Args:
        store: Where what they have already spent is recorded.
        chunks: Chunks of one run.
        attempt: When it was started or resumed.
        left: What is left of the budget for these and later chunks.
        items: Number of items that it is for, at least those of the chunks.
    """
    sent, before = [], 0
    for chunk in chunks:
        until = before + chunk.n_items
        part = left.part(before, until, items)
        already = spent_on_part(store, chunk.owner, chunk.part) if left.is_limited else NOTHING_PAID
        dispatch = Dispatch(
            attempt=attempt,
            usd=None if part.usd is None else already.usd + part.usd,
            calls=None if part.calls is None else already.calls + part.calls,
            counts_unknown=left.counts_unknown,
        )
        sent.append(replace(chunk, dispatch=dispatch))
        before = until
    return sent


def budget_of_part(store: Store, chunk: Part) -> Budget:
    """Return the budget of a chunk that was sent to this process, with what it has spent in any process."""
    dispatch = chunk.dispatch
    if dispatch is None:
        raise ValueError(f"{chunk.part}: got a chunk that was not sent")
    if dispatch.usd is None and dispatch.calls is None:
        return Budget()
    spent = spent_on_part(store, chunk.owner, chunk.part)
    return Budget.after(spent, usd=dispatch.usd, calls=dispatch.calls, counts_unknown=dispatch.counts_unknown)
