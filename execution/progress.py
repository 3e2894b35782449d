"""Progress counts: answers and judgements done by each chunk in this process."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

Stage = Literal["answers", "judgements"]


class Part(Protocol):
    """A chunk: the experiment or comparison that owns it, and the name of its parts in the store."""

    @property
    def owner(self) -> str: ...

    @property
    def part(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The work planned, and the experiments or comparisons that own it; no owners if there is none."""

    owners: frozenset[str]
    answers: int = 0
    judgements: int = 0
    stage: str = "answering and judging"


@dataclass(slots=True)
class _Tally:
    """Items done per chunk and stage. A retried chunk counts from its start.

    Appending is atomic, so no lock is needed; threads of quick work would spend most of their time waiting for it.
    """

    done: dict[tuple[str, str, Stage], list[int]] = field(default_factory=dict)
    postponed: dict[tuple[str, str, Stage], tuple[int, float]] = field(default_factory=dict)

    def begin(self, chunk: Part, stage: Stage, count: int) -> Callable[[int], None]:
        """Return a function that adds to the chunk's items."""
        done = self.done[chunk.owner, chunk.part, stage] = [count]
        self.postponed.pop((chunk.owner, chunk.part, stage), None)
        return done.append

    def postpone(self, chunk: Part, stage: Stage, count: int, seconds: float) -> None:
        """Note that so many items of a chunk failed, and are tried again in so many seconds."""
        self.add(chunk, stage, -count)
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
        done = [counts for (owner, _, at), counts in self.done.copy().items() if owner in owners and at == stage]
        return sum(map(sum, done))

    def forget(self, owners: frozenset[str]) -> None:
        for kept in (self.done, self.postponed):
            for key in [key for key in kept.copy() if key[0] in owners]:
                del kept[key]


tally = _Tally()
