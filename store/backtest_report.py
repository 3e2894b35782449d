"""A gate held against the past, as a person reads it: what it would have said, and how much that can be trusted."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from store.records import DecisionConclusion

Relation = Literal["baseline", "earlier", "halves"]
"""What a candidate is compared with: the gate's baseline then, another earlier experiment, or the other half of its own
repetitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How often something was so, with its interval."""

    count: int
    n: int
    share: float | None
    low: float | None
    high: float | None
    method: str

    @property
    def bare(self) -> str:
        """Such as `12 %`."""
        return "-" if self.share is None else percent(self.share)

    @property
    def text(self) -> str:
        """The same with its interval, where there is one."""
        span = "" if self.low is None or self.high is None else f" ({percent(self.low)} to {percent(self.high)})"
        return f"{self.bare}{span}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """What the gate says of one pair of the past."""

    candidate_experiment_id: str
    candidate: str
    baseline_experiment_id: str
    baseline: str
    started_at: datetime  # the candidate
    relation: Relation
    is_same_target: bool
    is_the_same_twice: bool  # whether both sides have the very same values
    conclusion: DecisionConclusion
    is_refused: bool  # left open since a metric may not be compared
    broken: Sequence[str]  # the rules that are, as `guard exact_match`
    because: str  # the rule that decided, in words
    n_shared: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What became of some pairs. Pairs that could not be compared, or are the same twice, are in no share."""

    n: int
    failed: int
    passed: int
    open: int
    refused: int
    same_twice: int
    guarded: int  # FAIL by a guard
    experiments: int
    fail: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFall:
    """What the gate said where a candidate was made worse in one metric."""

    metric: str
    times: int  # the margin
    fall: float
    reached: float  # the mean fall that the values allow
    caught: Share
    let_through: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What the gate said of pairs whose sides were swapped by chance, floors left aside."""

    pairs: int
    replicates: int  # of each pair
    seed: int
    failed: Share
    passed: Share
    open: Share
    falls: Sequence[PlantedFall]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """One gate, held against the past."""

    gate: str
    policy: dict[str, Any]
    experiments: int  # that are complete and have its metrics
    decisions: Sequence[PastDecision]  # the newest first
    left_out: int  # pairs beyond the limit
    past: Counted  # different targets
    same_target: Counted
    halves: Counted
    simulated: Simulated | None
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it, times as text."""
        return {**asdict(self), "sentences": self.sentences}

    @property
    def sentences(self) -> list[str]:
        """All of it for someone who reads no tables."""
        return [
            *_of_past(self),
            *_of_same(self),
            *(_of_simulated(self.simulated) if self.simulated else ()),
            *self.notes,
        ]


def percent(share: float) -> str:
    """A share for a person: whole per cent, but for small and large ones."""
    per_cent = 100 * share
    digits = 0 if 10 <= per_cent <= 90 else 1
    return f"{per_cent:.{digits}f}".removesuffix(".0") + " %"


def _of_past(found: Backtest) -> list[str]:
    one = found.past
    if not one.n:
        return [
            f"{found.experiments} experiments have its metrics and are complete: no past pairs of different targets"
        ]
    refused = f", and {one.refused} could not be compared (not counted as blocked)" if one.refused else ""
    left = f"; {found.left_out} older pairs were left out" if found.left_out else ""
    return [
        f"of {_pairs(one.n, 'past pair')} of different targets it would have blocked {one.failed} (FAIL), passed "
        f"{one.passed} (PASS) and left {one.open} open (NOT ENOUGH EVIDENCE){refused}{left}"
    ]


def _of_same(found: Backtest) -> list[str]:
    said = []
    for what, one in (("of the same target", found.same_target), ("of two halves of repetitions", found.halves)):
        counted = one.fail.n
        if counted:
            others = "" if one.guarded == one.failed else f", {one.guarded} of them by a guard, which is a false alarm"
            said.append(
                f"on {_pairs(counted, 'pair')} {what} (from {one.experiments} experiments) it said FAIL "
                f"{one.failed} times, {one.fail.text}{others}; NOT ENOUGH EVIDENCE {one.open} times, PASS {one.passed}"
            )
        if one.same_twice:
            said.append(
                f"{_pairs(one.same_twice, 'more pair')} {what} had the very same values: no chance, not counted"
            )
    return said or [
        "no two experiments are of the same target, and none has repetitions: its false alarms are not seen"
    ]


def _of_simulated(one: Simulated) -> list[str]:
    said = [
        f"on {one.replicates} replicates without any difference of each of {_pairs(one.pairs, 'pair')}, it said FAIL "
        f"in {one.failed.bare}, NOT ENOUGH EVIDENCE in {one.open.bare}, PASS in {one.passed.bare}"
    ]
    for fall in one.falls:
        times = {1: "its margin", 2: "twice its margin", 3: "3 times its margin"}[fall.times]
        short = "" if fall.reached > 0.95 * fall.fall else f", of which its values allow {fall.reached:.3g}"
        said.append(
            f"{fall.metric} worse by {times} ({fall.fall:.3g}{short}): caught in {fall.caught.bare}, "
            f"passed in {fall.let_through.bare}"
        )
    return said


def _pairs(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
