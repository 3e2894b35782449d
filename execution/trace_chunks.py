"""Chunks of a trace evaluation: items of one day, read together and judged together."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from evalflows.llm.usage import NO_USAGE, Usage
from evalflows.store.queries.trace_items import ItemKey
from evalflows.store.trace_records import WatermarkRow

KEYS_AT_ONCE = 50_000
"""Most keys of items in memory at a time."""
CHUNKS_AT_ONCE = 3
"""Chunks in work at a time: while one is judged, the next ones are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChunk:
    """Items of one day that are judged together."""

    batch: WatermarkRow
    day: str
    number: int
    keys: Sequence[ItemKey]
    scored: frozenset[str] = frozenset()  # the ids of those that had a score of the same version before

    @property
    def owner(self) -> str:
        """The owner of the scores of an evaluation's items that began on one day."""
        return f"{self.batch.evaluation_id}-{self.day}"

    @property
    def part(self) -> str:
        return f"{self.batch.batch_id}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of the items of a chunk."""

    fetched: int = 0
    processed: int = 0
    failed: int = 0
    scores: int = 0
    composites: int = 0
    unreached: int = 0  # judgements whose model could not be reached
    over_budget: int = 0  # judgements that were not made, since the budget was used up
    usage: Usage = NO_USAGE

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            fetched=self.fetched + other.fetched,
            processed=self.processed + other.processed,
            failed=self.failed + other.failed,
            scores=self.scores + other.scores,
            composites=self.composites + other.composites,
            unreached=self.unreached + other.unreached,
            over_budget=self.over_budget + other.over_budget,
            usage=self.usage + other.usage,
        )


def trace_chunks(
    batch: WatermarkRow, keys: Sequence[ItemKey], scored: frozenset[str], size: int, first: int
) -> list[TraceChunk]:
    """Divide items into chunks of a day and at most `size` items, numbered from `first`."""
    of_day: defaultdict[str, list[ItemKey]] = defaultdict(list)
    for key in keys:
        of_day[key.day].append(key)
    parts = [(day, of_day[day][i : i + size]) for day in sorted(of_day) for i in range(0, len(of_day[day]), size)]
    return [
        TraceChunk(batch=batch, day=day, number=number, keys=part, scored=scored & {key.id for key in part})
        for number, (day, part) in enumerate(parts, start=first)
    ]
