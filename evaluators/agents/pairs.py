"""Expected calls paired one to one with actual calls."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalflows.evaluators.agents.arguments import Right
from evalflows.evaluators.agents.assignment import best_pairs
from evalflows.evaluators.agents.calls import Call

_MOST_SHOWN = 3
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Paired:
    """Pairs of expected and actual calls with a score above 0, and the score of each pair."""

    wanted: Sequence[Call]
    made: Sequence[Call]
    pairs: Sequence[tuple[int, int]]
    right: Sequence[float]

    @property
    def total(self) -> float:
        return float(sum(self.right))

    def faults(self, *, extra: bool = True) -> str | None:
        """Return the first three faults of the calls, with `extra` also extra calls; None without faults."""
        faults = [*self._partial(), *self._unpaired(extra)]
        more = [f"and {len(faults) - _MOST_SHOWN} more"] if len(faults) > _MOST_SHOWN else []
        return "; ".join([*faults[:_MOST_SHOWN], *more]) or None

    def _partial(self) -> list[str]:
        partial = [pair for pair, share in zip(self.pairs, self.right, strict=True) if share < 1]
        return [f"wanted {_cut(self.wanted[row])}, got {_cut(self.made[column])}" for row, column in partial]

    def _unpaired(self, extra: bool) -> list[str]:
        """Return faults for calls without a partner; expected and actual calls of one tool are shown together."""
        paired_wanted, paired_made = {row for row, _ in self.pairs}, {column for _, column in self.pairs}
        left = [call for place, call in enumerate(self.made) if place not in paired_made]
        faults = []
        for wanted in (call for place, call in enumerate(self.wanted) if place not in paired_wanted):
            namesake = next((call for call in left if call.name == wanted.name), None)
            if namesake:
                left.remove(namesake)
            faults.append(f"wanted {_cut(wanted)}, got {_cut(namesake)}" if namesake else f"no call of {_cut(wanted)}")
        return [*faults, *(f"not wanted: {_cut(call)}" for call in left if extra)]


def _cut(call: Call) -> str:
    text = str(call)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def paired(wanted: Sequence[Call], made: Sequence[Call], right: Right) -> Paired:
    """Pair the calls so that the total score is largest, whatever their order."""
    worth = np.array([[right(expected, actual) for actual in made] for expected in wanted], dtype=np.float64)
    pairs = best_pairs(worth.reshape(len(wanted), len(made)))
    return Paired(wanted, made, pairs, [float(worth[pair]) for pair in pairs])
