"""The report of a backtest: what a gate would have decided on past experiments, and how often it errs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from evalflows.store.records import DecisionConclusion

Relation = Literal["baseline", "earlier", "halves"]
"""What a candidate is compared with: the gate's baseline at that time, another earlier experiment, or the other half of
its own repetitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of pairs or replicates, with its interval."""

    count: int
    n: int
    share: float | None
    low: float | None
    high: float | None
    method: str

    @property
    def short_text(self) -> str:
        """The share without its interval, such as `12 %`."""
        return "-" if self.share is None else percent(self.share)

    @property
    def text(self) -> str:
        """The share with its interval, if there is one."""
        span = "" if self.low is None or self.high is None else f" ({percent(self.low)} to {percent(self.high)})"
        return f"{self.short_text}{span}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """The gate's decision on one past pair."""

    candidate_experiment_id: str
    candidate: str
    baseline_experiment_id: str
    baseline: str
    started_at: datetime  # of the candidate
    relation: Relation
    is_same_target: bool
    has_identical_values: bool  # whether candidate and baseline have identical values
    conclusion: DecisionConclusion
    is_refused: bool  # left open because a metric is not comparable
    violates_non_inferiority: bool
    broken: Sequence[str]  # the violated rules, such as `non_inferiority exact_match`
    because: str  # the rules that decided, in words
    n_shared: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Decisions on a group of pairs, counted. Shares exclude pairs that are not comparable or have identical values."""

    n: int
    failed: int
    passed: int
    open: int
    refused: int
    identical: int
    failed_non_inferiority: int  # FAIL by a non-inferiority rule
    experiments: int
    fail: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFall:
    """Decisions on replicates in which the candidate was made worse in one metric."""

    metric: str
    times: int  # the injected fall, as a multiple of the margin
    fall: float
    reached: float  # the mean fall achieved, as far as the values allow
    caught: Share
    passed: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Decisions on sign-flip null replicates: candidate and baseline are swapped at random, thresholds ignored."""

    pairs: int
    replicates: int  # of each pair
    seed: int
    failed: Share
    passed: Share
    open: Share
    falls: Sequence[PlantedFall]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """The backtest of one gate."""

    gate: str
    policy: dict[str, Any]
    experiments: int  # complete ones that have the gate's metrics
    decisions: Sequence[PastDecision]  # newest first
    left_out: int  # older pairs beyond the limit
    past: Counted  # different targets
    same_target: Counted
    halves: Counted
    simulated: Simulated | None
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the backtest as a dict for JSON, with its sentences."""
        return {**asdict(self), "sentences": self.sentences}

    @property
    def sentences(self) -> list[str]:
        """The backtest in sentences."""
        return [
            *_past(self),
            *_same_target(self),
            *(_simulated(self.simulated) if self.simulated else ()),
            *self.notes,
        ]


def percent(share: float) -> str:
    """Format a share as whole percent, with one decimal below 10 and above 90 %."""
    per_cent = 100 * share
    digits = 0 if 10 <= per_cent <= 90 else 1
    return f"{per_cent:.{digits}f}".removesuffix(".0") + " %"


def _past(backtest: Backtest) -> list[str]:
    past = backtest.past
    if not past.n:
        return [
            f"no past pairs of different targets: {backtest.experiments} complete experiments have the gate's metrics"
        ]
    refused = f"; {past.refused} could not be compared (not counted as blocked)" if past.refused else ""
    left_out = f"; {backtest.left_out} older pairs were left out" if backtest.left_out else ""
    return [
        f"of {_pairs(past.n, 'past pair')} of different targets, the gate would have blocked {past.failed} (FAIL), "
        f"passed {past.passed} (PASS) and left {past.open} open (NOT ENOUGH EVIDENCE){refused}{left_out}"
    ]


def _same_target(backtest: Backtest) -> list[str]:
    groups = (("of the same target", backtest.same_target), ("of two halves of repetitions", backtest.halves))
    sentences = [sentence for what, counted in groups for sentence in _without_difference(what, counted)]
    return sentences or [
        "no two experiments have the same target, and none has repetitions: the false-alarm rate is unknown"
    ]


def _without_difference(what: str, counted: Counted) -> Iterator[str]:
    """Yield sentences about pairs without a true difference."""
    if counted.fail.n:
        only_false_alarms = counted.failed_non_inferiority == counted.failed
        false_alarms = (
            ""
            if only_false_alarms
            else f", {counted.failed_non_inferiority} of them by a non-inferiority rule (a false alarm)"
        )
        yield (
            f"on {_pairs(counted.fail.n, 'pair')} {what} (from {counted.experiments} experiments), the gate decided "
            f"FAIL {counted.failed} times, {counted.fail.text}{false_alarms}; "
            f"NOT ENOUGH EVIDENCE {counted.open} times, PASS {counted.passed} times"
        )
    if counted.identical:
        yield f"{_pairs(counted.identical, 'more pair')} {what} had identical values: not counted"


def _simulated(simulated: Simulated) -> list[str]:
    return [
        f"on {simulated.replicates} replicates without a difference of each of {_pairs(simulated.pairs, 'pair')}, the "
        f"gate decided FAIL in {simulated.failed.short_text}, NOT ENOUGH EVIDENCE in {simulated.open.short_text}, "
        f"PASS in {simulated.passed.short_text}",
        *map(_planted, simulated.falls),
    ]


def _planted(fall: PlantedFall) -> str:
    times = {1: "its margin", 2: "twice its margin", 3: "3 times its margin"}[fall.times]
    limited = "" if fall.reached > 0.95 * fall.fall else f"; its values allow {fall.reached:.3g}"
    return (
        f"{fall.metric} worse by {times} ({fall.fall:.3g}{limited}): caught in {fall.caught.short_text}, "
        f"passed in {fall.passed.short_text}"
    )


def _pairs(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
