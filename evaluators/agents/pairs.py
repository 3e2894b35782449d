"""The calls that were wanted beside those that were made, one to one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluators.agents.arguments import Right
from evaluators.agents.assignment import best_pairs
from evaluators.agents.calls import Call

_MOST_SHOWN = 3
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Paired:
    """Pairs of the wanted and the made that are right in some measure, and that measure of each."""

    wanted: Sequence[Call]
    made: Sequence[Call]
    pairs: Sequence[tuple[int, int]]
    right: Sequence[float]

    @property
    def total(self) -> float:
        return float(sum(self.right))

    def faults(self, *, extra: bool = True) -> str | None:
        """What is not right about the calls, the first three; None where all is. With `extra`, also calls too many."""
        said = [*self._unlike(), *self._alone(extra)]
        more = [f"and {len(said) - _MOST_SHOWN} more"] if len(said) > _MOST_SHOWN else []
        return "; ".join([*said[:_MOST_SHOWN], *more]) or None

    def _unlike(self) -> list[str]:
        partly = [pair for pair, share in zip(self.pairs, self.right, strict=True) if share < 1]
        return [f"wanted {_cut(self.wanted[one])}, got {_cut(self.made[other])}" for one, other in partly]

    def _alone(self, extra: bool) -> list[str]:
        """The calls of no pair: wanted and made ones of one name are shown together."""
        paired_wanted, paired_made = {one for one, _ in self.pairs}, {other for _, other in self.pairs}
        left = [call for place, call in enumerate(self.made) if place not in paired_made]
        said = []
        for wanted in (call for place, call in enumerate(self.wanted) if place not in paired_wanted):
            namesake = next((call for call in left if call.name == wanted.name), None)
            if namesake:
                left.remove(namesake)
            said.append(f"wanted {_cut(wanted)}, got {_cut(namesake)}" if namesake else f"no call of {_cut(wanted)}")
        return [*said, *(f"not wanted: {_cut(call)}" for call in left if extra)]


def _cut(call: Call) -> str:
    text = str(call)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def paired(wanted: Sequence[Call], made: Sequence[Call], right: Right) -> Paired:
    """The pairing by which the calls are right the most, whatever their order."""
    worth = np.array([[right(one, other) for other in made] for one in wanted], dtype=np.float64)
    pairs = best_pairs(worth.reshape(len(wanted), len(made)))
    return Paired(wanted, made, pairs, [float(worth[pair]) for pair in pairs])
