"""Progress of a run: what is planned, done and failed in each stage."""

import time
from collections.abc import Callable
from dataclasses import field
from typing import Literal

from evalflows.engine.chunks import Chunk
from evalflows.specs.frozen import dataclass

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

    def begin(self, chunk: Chunk, stage: Stage, count: int) -> Callable[[int], None]:
        """Return a function that adds to the chunk's items."""
        done = self.done[chunk.owner, chunk.part_name, stage] = [count]
        self.lost.pop((chunk.owner, chunk.part_name, stage), None)
        self.postponed.pop((chunk.owner, chunk.part_name, stage), None)
        return done.append

    def lose(self, chunk: Chunk, stage: Stage, count: int = 1) -> None:
        """Note that so many of the items done were lost."""
        self.lost.setdefault((chunk.owner, chunk.part_name, stage), []).append(count)

    def postpone(self, chunk: Chunk, stage: Stage, count: int, seconds: float) -> None:
        """Note that so many items of a chunk failed, and are tried again in so many seconds."""
        self.add(chunk, stage, -count)
        self.lose(chunk, stage, -count)
        self.postponed[chunk.owner, chunk.part_name, stage] = (count, time.monotonic() + seconds)

    def extend(self, chunk: Chunk, stage: Stage, seconds: float) -> None:
        """Note that the items of a chunk that failed are tried again later than planned."""
        count, _ = self.postponed.get((chunk.owner, chunk.part_name, stage), (0, 0.0))
        self.postponed[chunk.owner, chunk.part_name, stage] = (count, time.monotonic() + seconds)

    def waiting(self, owners: frozenset[str]) -> tuple[int, float] | None:
        """Return how many items failed and are tried again, and the seconds until the first of them is; else None."""
        waits = [wait for (owner, _, _), wait in self.postponed.copy().items() if owner in owners]
        if not waits:
            return None
        return sum(count for count, _ in waits), max(0.0, min(until for _, until in waits) - time.monotonic())

    def add(self, chunk: Chunk, stage: Stage, count: int = 1) -> None:
        self.done.setdefault((chunk.owner, chunk.part_name, stage), []).append(count)

    def of(self, owners: frozenset[str], stage: Stage) -> int:
        return self._sum(self.done, owners, stage)

    def lost_of(self, owners: frozenset[str], stage: Stage) -> int:
        return max(0, self._sum(self.lost, owners, stage))

    @staticmethod
    def _sum(kept: dict[tuple[str, str, Stage], list[int]], owners: frozenset[str], stage: Stage) -> int:
        return sum(sum(counts) for (owner, _, at), counts in kept.copy().items() if owner in owners and at == stage)
