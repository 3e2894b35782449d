"""From differences with their intervals to conclusions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specs.gate import Adjustment
from stats import PairedDifference, adjusted
from store.records import Conclusion


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a conclusion on one metric rests on."""

    found: PairedDifference  # of the pairs that both sides have
    lowest: PairedDifference | None = None  # had what is missing made the difference as small as it could be
    highest: PairedDifference | None = None  # and as large; both None where nothing bounds the metric
    lost: int = 0  # examples of which something is missing
    higher_is_better: bool = True
    margin: float | None = None  # a difference of less does not matter
    unfit: str | None = None  # why nothing may rest on it

    @property
    def is_bounded(self) -> bool:
        """Whether it is known how far what is missing could go; it is where nothing is."""
        return not self.lost or self.lowest is not None

    def gain(self) -> tuple[float, float] | None:
        """The interval of how much better the candidate is, in the metric's unit; None where there is none."""
        return self._turned(self.found, self.found)

    def sure_gain(self) -> tuple[float, float] | None:
        """The same had what is missing gone all one way, and all the other."""
        if not self.lost:
            return self.gain()
        return self._turned(self.lowest, self.highest) if self.lowest and self.highest else None

    def _turned(self, lowest: PairedDifference, highest: PairedDifference) -> tuple[float, float] | None:
        if lowest.low is None or highest.high is None:
            return None
        return (lowest.low, highest.high) if self.higher_is_better else (-highest.high, -lowest.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concluded:
    conclusion: Conclusion
    reason: str | None = None
    p_adjusted: float | None = None
    adjustment: Adjustment | None = None


def conclude(evidence: Sequence[Evidence], adjustment: Adjustment) -> list[Concluded]:
    """A conclusion each, their p-values adjusted for being that many. What cannot decide anything is not counted."""
    counted = [one.found.p_value is not None and one.unfit is None for one in evidence]
    values = [one.found.p_value for one, counts in zip(evidence, counted, strict=True) if counts]
    together = iter(adjusted(np.array(values, dtype=float), adjustment).tolist())
    return [
        _concluded(one, next(together), len(values), adjustment) if counts else _undecided(one)
        for one, counts in zip(evidence, counted, strict=True)
    ]


def _undecided(one: Evidence) -> Concluded:
    return Concluded(conclusion="not_enough_evidence", reason=one.unfit or one.found.reason)


def _concluded(one: Evidence, p: float, looked_at: int, adjustment: Adjustment) -> Concluded:
    """Better or worse where the interval, the test and the worst case agree; within the margin where the worst case is;
    else why not."""
    conclusion = _of_difference(one, p) or "not_enough_evidence"
    reason = None if conclusion != "not_enough_evidence" else _why_not(one, p, looked_at, adjustment)
    return Concluded(conclusion=conclusion, reason=reason, p_adjusted=p, adjustment=adjustment)


def _of_difference(one: Evidence, p: float) -> Conclusion | None:
    is_found, gain = p <= 1 - one.found.level, one.sure_gain()
    if not one.is_bounded:
        return None
    if gain is None:
        return _of_all_alike(one) if is_found else None
    if is_found and gain[0] > 0:
        return "better"
    if one.margin is not None and gain[0] > -one.margin:
        return "equivalent" if gain[1] < one.margin else "no_worse"
    return "worse" if is_found and gain[1] < 0 else None


def _of_all_alike(one: Evidence) -> Conclusion | None:
    """Without spread there is no interval, and the exact test alone decides: all pairs differ in the same way."""
    ends = [one.found.difference, *(case.difference for case in (one.lowest, one.highest) if case is not None)]
    gains = [end if one.higher_is_better else -end for end in ends if end is not None]
    return "better" if min(gains) > 0 else "worse" if max(gains) < 0 else None


def _why_not(one: Evidence, p: float, looked_at: int, adjustment: Adjustment) -> str:
    found, gain = one.found, one.gain()
    if gain is None:
        return found.reason or "no interval"
    if gain[0] <= 0 <= gain[1]:
        return f"the difference may be none ({found.n_pairs} pairs)"
    raw = found.p_value if found.p_value is not None else p
    if raw > 1 - found.level:
        return f"the interval excludes none, but the test does not agree (p {raw:.3f})"
    if p > 1 - found.level:
        return f"p {raw:.3f} by itself is {p:.3f} among {looked_at} ({adjustment}): one of so many may look like this"
    if not one.is_bounded:
        return f"{one.lost} missing, and the metric declares no range that would bound them"
    worst = one.sure_gain()
    span = f" ({worst[0]:+.3g} to {worst[1]:+.3g})" if worst else ""
    return f"{one.lost} missing could turn it{span}"
