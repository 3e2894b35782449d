"""Expected calls paired one to one with actual calls."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalflows.evaluators.agents.arguments import CallScore
from evalflows.evaluators.agents.assignment import best_pairs
from evalflows.evaluators.agents.calls import Call

_MOST_SHOWN = 3
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Paired:
    """Pairs of expected and actual calls with a score above 0, and the score of each pair."""

    expected: Sequence[Call]
    actual: Sequence[Call]
    pairs: Sequence[tuple[int, int]]
    scores: Sequence[float]

    @property
    def total(self) -> float:
        return float(sum(self.scores))

    def faults(self, *, extra: bool = True) -> str | None:
        """Return the first three faults of the calls, with `extra` also extra calls; None without faults."""
        faults = [*self._partial(), *self._unpaired(extra)]
        more = [f"and {len(faults) - _MOST_SHOWN} more"] if len(faults) > _MOST_SHOWN else []
        return "; ".join([*faults[:_MOST_SHOWN], *more]) or None

    def _partial(self) -> list[str]:
        partial = [pair for pair, share in zip(self.pairs, self.scores, strict=True) if share < 1]
        return [f"wanted {_cut(self.expected[row])}, got {_cut(self.actual[column])}" for row, column in partial]

    def _unpaired(self, extra: bool) -> list[str]:
        """Return the faults of unpaired calls; an expected and an actual call of the same tool make one fault."""
        paired_expected, paired_actual = {row for row, _ in self.pairs}, {column for _, column in self.pairs}
        left = [call for index, call in enumerate(self.actual) if index not in paired_actual]
        faults = []
        for expected in (call for index, call in enumerate(self.expected) if index not in paired_expected):
            namesake = next((call for call in left if call.name == expected.name), None)
            if namesake:
                left.remove(namesake)
            faults.append(
                f"wanted {_cut(expected)}, got {_cut(namesake)}" if namesake else f"no call of {_cut(expected)}"
            )
        return [*faults, *(f"not wanted: {_cut(call)}" for call in left if extra)]


def _cut(call: Call) -> str:
    text = str(call)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def paired(expected: Sequence[Call], actual: Sequence[Call], score_call: CallScore) -> Paired:
    """Pair the calls so that the total score is largest, whatever their order."""
    scores = [[score_call(expected_call, actual_call) for actual_call in actual] for expected_call in expected]
    worth = np.array(scores, dtype=np.float64)
    pairs = best_pairs(worth.reshape(len(expected), len(actual)))
    return Paired(expected, actual, pairs, [float(worth[pair]) for pair in pairs])
