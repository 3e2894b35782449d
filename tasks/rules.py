"""The rules of a gate: whether each surely holds, surely does not, or cannot be told."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from specs.gate import Adjustment, GateSpec
from stats import adjusted, beyond
from store.records import DecisionConclusion
from store.results import figure, span

Kind = Literal["guard", "goal", "floor", "sure_floor"]
Outcome = Literal["met", "broken", "open"]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a rule is held against: a quantity of which more is better, whatever way its metric goes.

    The difference from the baseline, or the candidate's mean, turned round where less is better.
    """

    value: float | None
    interval_at: Callable[[float], Interval | None]  # by level, of what is there
    sure_at: Callable[[float], Interval | None]  # the same had the missing gone one way, and the other
    sure_value: Interval | None  # the value then
    n: int  # examples, or clusters where there are any
    noun: str  # what they are called
    lost: int  # examples of which something is missing
    higher_is_better: bool
    p_value: float | None = None  # two-sided, of no difference
    is_sequence: bool = False  # whether the intervals allow to look again and again; there are no p-values of them
    is_whole: bool = True  # whether all that is to run has run
    reason: str | None = None  # why there is no interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    kind: Kind
    metric: str
    bound: float  # as the spec has it: a margin, a rise, a floor

    def threshold(self, *, higher_is_better: bool) -> float:
        """What the measured quantity must lie above."""
        if self.kind in ("guard", "goal"):
            return -self.bound if self.kind == "guard" else self.bound
        return self.bound if higher_is_better else -self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What became of a rule."""

    rule: Kind
    metric: str
    bound: float
    outcome: Outcome
    text: str  # in words
    value: float | None = None  # the difference, or the mean, as the metric goes; its interval follows
    low: float | None = None
    high: float | None = None
    n: int | None = None
    lost: int | None = None  # of them with a missing value
    p_below: float | None = None  # one-sided, that the bound is broken by what is there and at its best
    p_adjusted: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rules_of(gate: GateSpec) -> list[Rule]:
    """Each rule of a gate, in the spec's order."""
    kinds: list[tuple[Kind, dict[str, float]]] = [
        ("guard", gate.guards),
        ("goal", gate.goals),
        ("floor", gate.floors),
        ("sure_floor", gate.sure_floors),
    ]
    return [Rule(kind=kind, metric=metric, bound=bound) for kind, each in kinds for metric, bound in each.items()]


def rulings(
    measured: Sequence[tuple[Rule, Measured | str]], *, level: float, fewest: int, adjustment: Adjustment
) -> list[Ruling]:
    """What becomes of each rule; a text instead of what was measured says why there is nothing to hold it against.

    To pass, all must hold, each at the level: no adjustment is needed for that (Berger 1982, intersection-union). To
    fail one is enough, so that the one-sided p of those that could are adjusted for being several.
    """
    alpha, could_fail = (1 - level) / 2, sum(rule.kind != "floor" for rule, _ in measured)
    stricter = level if adjustment == "none" else 1 - (1 - level) / max(could_fail, 1)
    below = [_p_below(rule, one, fewest) for rule, one in measured]
    known = [p for p in below if p is not None]
    together = iter(adjusted(np.array(known), adjustment).tolist())
    ruled = []
    for (rule, one), p in zip(measured, below, strict=True):
        p_adjusted = None if p is None else next(together)
        broken = (p_adjusted is not None and p_adjusted <= alpha) or _is_below(rule, one, stricter)
        found = _ruling(rule, one, level, fewest, broken=broken)
        ruled.append(_with_figures(replace(found, p_below=p, p_adjusted=p_adjusted), one, level, len(known)))
    return ruled


def concluded(ruled: Sequence[Ruling]) -> DecisionConclusion:
    """FAIL where a rule surely does not hold, PASS where all surely do."""
    outcomes = {ruling.outcome for ruling in ruled}
    return "FAIL" if "broken" in outcomes else "NOT ENOUGH EVIDENCE" if "open" in outcomes else "PASS"


def _with_figures(ruling: Ruling, one: Measured | str, level: float, looked_at: int) -> Ruling:
    """A ruling with what it was made of, as the metric goes; where it is open for being one of several, with that."""
    if isinstance(one, str):
        return ruling
    interval, sign, text = one.interval_at(level), 1 if one.higher_is_better else -1, ruling.text
    low, high = (None, None) if interval is None else sorted(sign * end for end in interval)
    p, p_adjusted, alpha = ruling.p_below, ruling.p_adjusted, (1 - level) / 2
    if ruling.outcome == "open" and p is not None and p_adjusted is not None and p <= alpha < p_adjusted:
        text += f"; one of {looked_at} rules may look broken by chance (p {p:.3f}, adjusted {p_adjusted:.3f})"
    return replace(
        ruling,
        text=text,
        value=None if one.value is None else sign * one.value,
        low=low,
        high=high,
        n=one.n,
        lost=one.lost,
    )


def _p_below(rule: Rule, one: Measured | str, fewest: int) -> float | None:
    """One-sided, that the quantity lies below the threshold even had all that is missing gone for the candidate."""
    if isinstance(one, str) or rule.kind == "floor" or one.is_sequence or one.n < fewest or one.sure_at(0.5) is None:
        return None

    def interval_at(level: float) -> Interval:
        return one.sure_at(level) or (-np.inf, np.inf)

    return beyond(interval_at, rule.threshold(higher_is_better=one.higher_is_better)).p_below


def _is_below(rule: Rule, one: Measured | str, level: float) -> bool:
    """Of what is looked at again and again: whether it surely lies below the threshold, at the level (Bonferroni's)."""
    if isinstance(one, str) or rule.kind == "floor" or not one.is_sequence:
        return False
    sure = one.sure_at(level)
    return sure is not None and sure[1] < rule.threshold(higher_is_better=one.higher_is_better)


def _ruling(rule: Rule, one: Measured | str, level: float, fewest: int, *, broken: bool) -> Ruling:
    def ruling(outcome: Outcome, text: str) -> Ruling:
        return Ruling(rule=rule.kind, metric=rule.metric, bound=rule.bound, outcome=outcome, text=text)

    if isinstance(one, str):
        return ruling("open", f"{rule.metric}: {one}")
    shown, threshold = _shown(rule, one, level), rule.threshold(higher_is_better=one.higher_is_better)
    if one.n < fewest:
        return ruling("open", f"{rule.metric}: {one.n} {one.noun}, wanted {fewest} at least to decide anything{shown}")
    if rule.kind == "floor":
        outcome = _of_floor(one, threshold, level)
    else:
        outcome = "broken" if broken else "met" if _surely_above(rule, one, level, threshold) else "open"
    lost = f"; {one.lost} {one.noun} with a missing value could not change that" if one.lost else ""
    why = _why_open(rule, one, level, threshold) if outcome == "open" else lost
    said = _SAID[rule.kind, outcome](_bound(rule))
    if rule.kind in ("floor", "sure_floor") and not one.higher_is_better:
        said = _CEILING[outcome](_bound(rule))
    return ruling(outcome, f"{rule.metric} {said}{shown}{why}")


def _surely_above(rule: Rule, one: Measured, level: float, threshold: float) -> bool:
    sure = one.sure_at(level)
    if sure is None or sure[0] <= threshold:
        return False
    agreed = one.p_value is None or one.p_value <= 1 - level
    return agreed if rule.kind == "goal" and rule.bound == 0 else True


def _of_floor(one: Measured, threshold: float, level: float) -> Outcome:
    """A floor is held against the mean itself; what is missing, or has not run yet, must not be able to turn that."""
    sure = one.sure_value if one.is_whole else one.sure_at(level)
    if sure is None:
        return "open"
    return "met" if sure[0] >= threshold else "broken" if sure[1] < threshold else "open"


def _why_open(rule: Rule, one: Measured, level: float, threshold: float) -> str:
    plain = one.interval_at(level)
    if plain is None and rule.kind != "floor":
        return f"; {one.reason or 'no interval'}"
    decided = one.value is not None and (
        one.value >= threshold if rule.kind == "floor" else plain is not None and plain[0] > threshold
    )
    broken = plain is not None and plain[1] < threshold
    if one.lost:
        failures = f"{one.lost} {one.noun} with a missing value"
        if one.sure_value is None:
            return f"; {failures}, and no range says how far they could go"
        return f"; {failures} could flip this" if decided or broken else f"; and there are {failures}"
    if decided and one.p_value is not None and one.p_value > 1 - level:
        return f"; the test does not agree (p {one.p_value:.3f})"
    sure_fall = rule.kind == "guard" and plain is not None and plain[1] < 0
    said = "; that it is worse is sure, that it is so by more than the margin is not" if sure_fall else ""
    wanted = _wanted(one, level, threshold)
    return said if wanted is None else f"{said}; some {wanted:,} {one.noun} would tell"


MOST_WANTED = 1_000_000
"""Examples that anyone would ask for: beyond it, the estimate is next to the threshold, and no number is said."""


def _wanted(one: Measured, level: float, threshold: float) -> int | None:
    """How many would make the interval so narrow that it leaves out the threshold, the value staying what it is."""
    interval = one.interval_at(level)
    if interval is None or one.value is None or one.is_sequence or one.value == threshold:
        return None
    wanted = one.n * ((interval[1] - interval[0]) / 2 / abs(one.value - threshold)) ** 2
    if not one.n < wanted <= MOST_WANTED:
        return None
    size = int(10 ** (len(str(round(wanted))) - 2))
    return math.ceil(wanted / size) * size


def _bound(rule: Rule) -> str:
    return f"{rule.bound:g}"


def _shown(rule: Rule, one: Measured, level: float) -> str:
    """The figures, the way the metric goes."""
    interval, sign = one.interval_at(level), 1 if one.higher_is_better else -1
    if one.value is None:
        return ""
    ends = ""
    if interval is not None:
        low, high = sorted(sign * end for end in interval)
        ends = span(low, high, rule.metric, signed=_is_difference(rule))
    value = figure(sign * one.value, rule.metric, signed=_is_difference(rule))
    return f": {value} {ends}".rstrip() + f", {one.n} {one.noun}"


def turned(low: float | None, high: float | None, *, higher_is_better: bool) -> Interval | None:
    """An interval as one of which more is better; None where an end is."""
    if low is None or high is None:
        return None
    return (low, high) if higher_is_better else (-high, -low)


def _is_difference(rule: Rule) -> bool:
    return rule.kind in ("guard", "goal")


_SAID: dict[tuple[Kind, Outcome], Callable[[str], str]] = {
    ("guard", "met"): lambda bound: f"is not worse by more than {bound}",
    ("guard", "broken"): lambda bound: f"is worse by more than the {bound} allowed",
    ("guard", "open"): lambda bound: f"may be worse by more than the {bound} allowed",
    ("goal", "met"): lambda bound: f"is better{_by(bound)}",
    ("goal", "broken"): lambda bound: f"is not better{_by(bound)}",
    ("goal", "open"): lambda bound: f"may not be better{_by(bound)}",
    ("floor", "met"): lambda bound: f"reaches {bound}",
    ("floor", "broken"): lambda bound: f"does not reach {bound}",
    ("floor", "open"): lambda bound: f"may not reach {bound}",
    ("sure_floor", "met"): lambda bound: f"surely reaches {bound}",
    ("sure_floor", "broken"): lambda bound: f"surely does not reach {bound}",
    ("sure_floor", "open"): lambda bound: f"may not reach {bound}",
}


_CEILING: dict[Outcome, Callable[[str], str]] = {
    "met": lambda bound: f"does not exceed {bound}",
    "broken": lambda bound: f"exceeds {bound}",
    "open": lambda bound: f"may exceed {bound}",
}


def _by(bound: str) -> str:
    return "" if not float(bound) else f" by {bound}"
