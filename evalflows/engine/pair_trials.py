"""Chunks of pairs of answers, and the trials of each pair: which answer is shown first."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal, TypeVar

from evalflows.engine.chunks import MIN_CHUNK_SIZE, Chunk
from evalflows.engine.tally import Planned
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.frozen import dataclass
from evalflows.store.records import ComparisonSetRow, ExampleRow, Winner, derived_id
from evalflows.store.row_specs import comparison_spec

MAX_PAIR_CHUNKS = 200
"""Chunks per comparison: each is one task run."""

MAX_CHUNK_SIZE = 2000

Side = Literal["left", "right"]
OTHER: dict[Side, Side] = {"left": "right", "right": "left"}

Shown = TypeVar("Shown")


@dataclass(frozen=True, slots=True)
class PairChunk(Chunk):
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
    def part_name(self) -> str:
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


def runs_of(trial: PairTrial, spec: ComparisonSpec) -> list[str]:
    """Return the runs of all candidates for the example of a trial, in the order in which they are shown at once.

    A random order depends on seed and runs only, like that of pairs. Else it is that of the list, so that the answer
    that a trial shows first comes before the other; of a trial in the other order, reversed.
    """
    example = trial.example.example_id
    runs = [derived_id(experiment, example, trial.repetition) for experiment in spec.experiments]
    if spec.randomize_order and not spec.both_orders:
        return sorted(runs, key=lambda run: hashlib.sha256(f"{spec.seed} {example} {run}".encode()).digest())
    first, other = in_order(trial.shown_first, trial.left_experiment, trial.right_experiment)
    return runs if spec.experiments.index(first) < spec.experiments.index(other) else runs[::-1]


def in_order(shown_first: Side, left: Shown, right: Shown) -> tuple[Shown, Shown]:
    """Return left and right in the order shown, or back."""
    return (left, right) if shown_first == "left" else (right, left)


def winning_side(place: str | None, shown_first: Side) -> Winner | None:
    """Return the side shown in a position; a tie for a tie."""
    by_place: dict[str | None, Winner] = {"first": shown_first, "second": OTHER[shown_first], "tie": "tie"}
    return by_place.get(place)
