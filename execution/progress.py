"""Progress counts: answers and judgements done by each chunk in this process."""

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


@dataclass(slots=True)
class _Tally:
    """Items done per chunk and stage. A retried chunk counts from its start.

    Appending is atomic, so no lock is needed; threads of quick work would spend most of their time waiting for it.
    """

    done: dict[tuple[str, str, Stage], list[int]] = field(default_factory=dict)

    def begin(self, chunk: Part, stage: Stage, count: int) -> None:
        self.done[chunk.owner, chunk.part, stage] = [count]

    def add(self, chunk: Part, stage: Stage, count: int = 1) -> None:
        self.done.setdefault((chunk.owner, chunk.part, stage), []).append(count)

    def of(self, owners: frozenset[str], stage: Stage) -> int:
        done = [counts for (owner, _, at), counts in self.done.copy().items() if owner in owners and at == stage]
        return sum(map(sum, done))

    def forget(self, owners: frozenset[str]) -> None:
        for key in self.done.copy():
            if key[0] in owners:
                del self.done[key]


tally = _Tally()
