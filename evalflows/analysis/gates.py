"""The rules of a gate: their bounds, and what each is compared with.

A new rule is a field of `GateSpec`, a kind here, its outcome in `rule_results`, its texts in `wording`, and its
vectorised form in `analysis.backtest.vectorised_rules`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from evalflows.specs.gate import GateSpec
from evalflows.stats import one_sided_p
from evalflows.store.reasons import Reason, ReasonCode

Kind = Literal["non_inferiority", "superiority", "threshold", "confident_threshold"]

Outcome = Literal["met", "broken", "open"]

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedEstimate:
    """The quantity that a rule tests: the difference from the baseline, or the candidate's mean.

    It is negated if less is better, so that more is always better here.
    """

    value: float | None
    interval_at: Callable[[float], Interval | None]  # by confidence level, without missing values
    worst_case_interval_at: Callable[[float], Interval | None]  # the same, with missing values at either extreme
    worst_case_values: Interval | None  # the value, with missing values at either extreme
    n: int  # examples, or clusters if there are any
    noun: str  # what n counts
    n_missing: int  # examples with a missing value
    higher_is_better: bool
    p_value: float | None = None  # two-sided, under no difference
    is_sequence: bool = False  # whether the intervals are anytime-valid; these have no p-values
    is_whole: bool = True  # whether all planned examples have run
    reason: str | None = None  # why there is no interval
    reason_code: ReasonCode | None = None
    n_left_out: int = 0  # pairs left out for a missing value, by the metric's policy
    against: str | None = None  # what the candidate is compared with, if not with the same examples
    caution: str | None = None  # why a non-inferiority rule may be met more often than it should

    @property
    def missing_text(self) -> str:
        """How many have a missing value, in words."""
        noun = self.noun.removesuffix("s") if self.n_missing == 1 else self.noun
        return f"{self.n_missing} {noun} with a missing value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule on one metric."""

    kind: Kind
    metric: str
    bound: float  # as the spec has it: a margin or a threshold

    @property
    def is_difference(self) -> bool:
        """Whether the rule compares with a baseline."""
        return self.kind in ("non_inferiority", "superiority")

    def threshold(self, *, higher_is_better: bool) -> float:
        """The value that the estimate must exceed."""
        if self.is_difference:
            return -self.bound if self.kind == "non_inferiority" else self.bound
        return self.bound if higher_is_better else -self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """The outcome of a rule, with its figures."""

    rule: Kind
    metric: str
    bound: float
    outcome: Outcome
    text: str
    reason_code: ReasonCode | None = None  # why it is open
    value: float | None = None  # the difference or the mean, in the metric's own direction; low and high likewise
    low: float | None = None
    high: float | None = None
    n: int | None = None
    n_missing: int | None = None
    p_below: float | None = None  # one-sided p for a broken bound, in the candidate's best case
    p_adjusted: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rules_of(gate: GateSpec) -> list[Rule]:
    """Return the rules of a gate, in the spec's order."""
    kinds: list[tuple[Kind, dict[str, float]]] = [
        ("non_inferiority", gate.non_inferiority),
        ("superiority", gate.superiority),
        ("threshold", gate.thresholds),
        ("confident_threshold", gate.confident_thresholds),
    ]
    return [Rule(kind=kind, metric=metric, bound=bound) for kind, bounds in kinds for metric, bound in bounds.items()]


def p_below_threshold(rule: Rule, estimate: BoundedEstimate | Reason, min_examples: int) -> float | None:
    """Return the one-sided p-value of the estimate lying below the threshold, with missing values at their best.

    None without a test: there is no estimate or interval, there are too few examples, the rule is a plain threshold, or
    the gate has interim analyses.
    """
    if (
        isinstance(estimate, Reason)
        or rule.kind == "threshold"
        or estimate.is_sequence
        or estimate.n < min_examples
        or estimate.worst_case_interval_at(0.5) is None
    ):
        return None

    def interval_at(confidence_level: float) -> Interval:
        return estimate.worst_case_interval_at(confidence_level) or (-np.inf, np.inf)

    return one_sided_p(interval_at, rule.threshold(higher_is_better=estimate.higher_is_better)).p_below


def is_sequence_below(rule: Rule, estimate: BoundedEstimate | Reason, confidence_level: float) -> bool:
    """Whether a confidence sequence lies below the threshold; the caller adjusts the level (Bonferroni)."""
    if isinstance(estimate, Reason) or rule.kind == "threshold" or not estimate.is_sequence:
        return False
    interval = estimate.worst_case_interval_at(confidence_level)
    return interval is not None and interval[1] < rule.threshold(higher_is_better=estimate.higher_is_better)


def is_significantly_above(rule: Rule, estimate: BoundedEstimate, confidence_level: float, threshold: float) -> bool:
    """Whether the worst-case interval lies above the threshold; superiority without a margin also needs the test."""
    interval = estimate.worst_case_interval_at(confidence_level)
    if interval is None or interval[0] <= threshold:
        return False
    is_significant = estimate.p_value is None or estimate.p_value <= 1 - confidence_level
    return is_significant if rule.kind == "superiority" and rule.bound == 0 else True


def threshold_outcome(estimate: BoundedEstimate, threshold: float, confidence_level: float) -> Outcome:
    """Compare the mean itself with a threshold; open if missing or pending values could change the outcome."""
    values = estimate.worst_case_values if estimate.is_whole else estimate.worst_case_interval_at(confidence_level)
    if values is None:
        return "open"
    return "met" if values[0] >= threshold else "broken" if values[1] < threshold else "open"


def oriented(low: float | None, high: float | None, *, higher_is_better: bool) -> Interval | None:
    """Negate an interval if less is better, so that more is better; None if an end is None."""
    if low is None or high is None:
        return None
    return (low, high) if higher_is_better else (-high, -low)
