"""Pairs: which runs are compared, which of them is shown first, and what one Prefect task run takes up."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from specs.comparison import ComparisonSpec
from store.records import ComparisonSetRow, ExampleRow, derived_id
from tasks.chunk import LARGEST, SMALLEST
from tasks.progress import Planned

MOST_CHUNKS = 200
"""Of one comparison, each a task run."""

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class PairChunk:
    """Some examples of two experiments in one repetition: those from `start` up to `stop`. `named` comes first in the
    comparison's list."""

    comparison_id: str
    named: str
    other: str
    repetition: int
    start: int
    stop: int

    @property
    def owner(self) -> str:
        return self.comparison_id

    @property
    def part(self) -> str:
        """The name of its parts in the store."""
        pair = derived_id(*sorted((self.named, self.other)))[:12]
        return f"{pair}-r{self.repetition}-{self.start}-{self.stop}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bout:
    """Two runs of one example, in one order. Left is the run of the older experiment."""

    example: ExampleRow
    left_experiment: str
    right_experiment: str
    left_run: str
    right_run: str
    repetition: int
    shown_first: Side


def pairs_of(spec: ComparisonSpec) -> list[tuple[str, str]]:
    """The pairs of experiments, by id, in the order of the list; of the baseline alone where the spec says so."""
    if spec.pairs == "all":
        return list(combinations(spec.experiments, 2))
    base = baseline_of(spec)
    return [(one, other) for one, other in combinations(spec.experiments, 2) if base in (one, other)]


def baseline_of(spec: ComparisonSpec) -> str:
    return spec.baseline or spec.experiments[0]


def orders(spec: ComparisonSpec) -> int:
    """How often each pair of runs is shown."""
    return 2 if spec.both_orders else 1


def chunk_size(n_shared: int, repetitions: int, pairs: int) -> int:
    """Examples that a chunk takes, so that a comparison makes about MOST_CHUNKS at the most."""
    return max(SMALLEST, min(LARGEST, -(-n_shared * repetitions * pairs // MOST_CHUNKS)))


def pair_chunks(row: ComparisonSetRow) -> Iterator[PairChunk]:
    """All chunks of a comparison that is to run; none of one that is finished."""
    if row.state != "running":
        return
    for named, other in pairs_of(ComparisonSpec.model_validate_json(row.spec)):
        for repetition in range(row.repetitions):
            for start in range(0, row.n_shared, row.chunk_size):
                stop = min(start + row.chunk_size, row.n_shared)
                yield PairChunk(row.comparison_id, named, other, repetition, start, stop)


def planned_pairs(row: ComparisonSetRow) -> Planned:
    """How many judgements there are to make."""
    judges = len(ComparisonSpec.model_validate_json(row.spec).evaluators)
    owners = frozenset({row.comparison_id} if row.state == "running" else ())
    return Planned(owners=owners, judgements=bouts_in(row) * judges)


def bouts_in(row: ComparisonSetRow) -> int:
    """How many pairs of runs each evaluator judges; those in both orders count twice."""
    spec = ComparisonSpec.model_validate_json(row.spec)
    return len(pairs_of(spec)) * row.repetitions * row.n_shared * orders(spec)


def bouts_of(chunk: PairChunk, spec: ComparisonSpec, examples: Sequence[ExampleRow]) -> Iterator[Bout]:
    """Every example of a chunk, once or in both orders."""
    left, right = sorted((chunk.named, chunk.other))
    for example in examples[chunk.start : chunk.stop]:
        runs = [derived_id(one, example.example_id, chunk.repetition) for one in (left, right)]
        for shown_first in _shown_first(chunk, spec, example, runs):
            yield Bout(
                example=example,
                left_experiment=left,
                right_experiment=right,
                left_run=runs[0],
                right_run=runs[1],
                repetition=chunk.repetition,
                shown_first=shown_first,
            )


def _shown_first(chunk: PairChunk, spec: ComparisonSpec, example: ExampleRow, runs: Sequence[str]) -> list[Side]:
    """The draw goes by seed and runs alone, so that the same two are shown alike in every comparison."""
    named: Side = "left" if chunk.named < chunk.other else "right"
    if spec.both_orders:
        return [named, "right" if named == "left" else "left"]
    if not spec.randomize_order:
        return [named]
    lot = hashlib.sha256(f"{spec.seed} {example.example_id} {runs[0]} {runs[1]}".encode()).digest()
    return ["left" if lot[0] % 2 else "right"]
