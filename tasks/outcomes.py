"""The rules of a gate on many replicates at once: what `tasks.rules` says of each, without words and without p."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specs.gate import Adjustment
from stats.paired_many import PairedDifferences
from store.values import Values
from tasks.rules import Measured, Rule

Codes = npt.NDArray[np.int8]
OPEN, MET, BROKEN = 0, 1, 2
Ends = tuple[Values, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMany:
    """What a rule is held against in each of R replicates, turned so that more is better."""

    sure_at: Callable[[float], Ends]  # by level; without end where there is no interval
    is_known: npt.NDArray[np.bool_]  # whether there is one
    p_value: Values
    n: int
    higher_is_better: bool

    def lies_below(self, rule: Rule, level: float) -> npt.NDArray[np.bool_]:
        return np.asarray(self.sure_at(level)[1] < rule.threshold(higher_is_better=self.higher_is_better))


def many_of_difference(
    plain: PairedDifferences, ends: tuple[PairedDifferences, PairedDifferences] | None, *, higher_is_better: bool
) -> MeasuredMany:
    """Of differences, and of what they were had all that is missing gone one way and the other; None where nothing
    bounds that."""
    lowest, highest = ends or (plain, plain)
    known = lowest.has_interval & highest.has_interval & (ends is not None)

    def sure_at(level: float) -> Ends:
        low, high = lowest.interval_at(level)[0], highest.interval_at(level)[1]
        low, high = np.where(known, low, -np.inf), np.where(known, high, np.inf)
        return (low, high) if higher_is_better else (-high, -low)

    return MeasuredMany(
        sure_at=sure_at,
        is_known=known,
        p_value=plain.p_value,
        n=plain.n_pairs if plain.n_clusters is None else plain.n_clusters,
        higher_is_better=higher_is_better,
    )


def many_of_one(one: Measured, count: int) -> MeasuredMany:
    """What is the same in all replicates."""

    def sure_at(level: float) -> Ends:
        low, high = one.sure_at(level) or (-np.inf, np.inf)
        return np.full(count, low), np.full(count, high)

    return MeasuredMany(
        sure_at=sure_at,
        is_known=np.full(count, one.sure_at(0.5) is not None),
        p_value=np.ones(count) if one.p_value is None else np.full(count, one.p_value),
        n=one.n,
        higher_is_better=one.higher_is_better,
    )


def outcomes(
    measured: Sequence[tuple[Rule, MeasuredMany]], *, level: float, fewest: int, adjustment: Adjustment
) -> list[Codes]:
    """OPEN, MET or BROKEN for each rule in each replicate; no rule is a plain floor.

    The same as `tasks.rules.rulings` says, where an adjusted p is at most alpha just where the interval at the level
    that belongs to it lies below the threshold: for Holm alpha / (m - r), r others being rejected, for Benjamini and
    Hochberg alpha k / m.
    """
    if not measured:
        return []
    alpha, most = (1 - level) / 2, len(measured)
    tests = np.array([one.is_known for _, one in measured]).sum(axis=0)
    rejected = _REJECTED[adjustment](lambda part: _below(measured, alpha * part), tests, most)
    return [
        _codes(rule, one, rejected[place], level=level)
        if one.n >= fewest
        else np.full(tests.shape, OPEN, dtype=np.int8)
        for place, (rule, one) in enumerate(measured)
    ]


Rejected = npt.NDArray[np.bool_]  # rules by replicates
BelowAt = Callable[[float], Rejected]


def _below(measured: Sequence[tuple[Rule, MeasuredMany]], alpha: float) -> Rejected:
    return np.array([one.lies_below(rule, 1 - 2 * alpha) for rule, one in measured])


def _by_holm(below: BelowAt, tests: npt.NDArray[np.int_], most: int) -> Rejected:
    parts = [below(1 / max(1, left)) for left in range(most + 1)]
    count = np.zeros_like(tests)
    for _ in range(most + 1):
        chosen = _picked(parts, np.maximum(tests - count, 0))
        count = np.maximum(count, chosen.sum(axis=0))
    return chosen


def _by_benjamini_hochberg(below: BelowAt, tests: npt.NDArray[np.int_], most: int) -> Rejected:
    chosen = np.zeros((most, len(tests)), dtype=bool)
    for of in range(1, most + 1):
        for rank in range(1, of + 1):
            these = below(rank / of)
            chosen |= these & (tests == of) & (these.sum(axis=0) >= rank)
    return chosen


def _unadjusted(below: BelowAt, tests: npt.NDArray[np.int_], most: int) -> Rejected:
    return below(1.0)


def _picked(parts: Sequence[Rejected], which: npt.NDArray[np.int_]) -> Rejected:
    """Of each replicate, the rules by the part that is said for it."""
    return np.asarray(np.array(parts)[which, :, np.arange(len(which))].T)


_REJECTED: Mapping[Adjustment, Callable[[BelowAt, npt.NDArray[np.int_], int], Rejected]] = {
    "holm": _by_holm,
    "benjamini_hochberg": _by_benjamini_hochberg,
    "none": _unadjusted,
}


def _codes(rule: Rule, one: MeasuredMany, rejected: npt.NDArray[np.bool_], *, level: float) -> Codes:
    met = one.sure_at(level)[0] > rule.threshold(higher_is_better=one.higher_is_better)
    if rule.kind == "goal" and rule.bound == 0:
        met = met & (one.p_value <= 1 - level)
    return np.where(rejected, BROKEN, np.where(met, MET, OPEN)).astype(np.int8)
