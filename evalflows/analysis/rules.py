"""Rules of a gate, and their test.

Rules are evaluated on R replicates at once: the pair itself is one, and a backtest draws many. A new rule is a field of
`GateSpec`, and here a kind and its outcome; its estimate is in `rule_estimates.py` and its texts in `rule_texts.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import Adjustment, GateSpec
from evalflows.stats.proportions import one_sided_p
from evalflows.store.described import DIFFERENCES, Kind, Outcome
from evalflows.store.queries.values import Mask, Values
from evalflows.store.records import Reason, ReasonCode

Interval = tuple[float, float]

Ends = tuple[Values, Values]
"""The ends of intervals, each of shape (R,); infinite where there is none."""

Outcomes = npt.NDArray[np.str_]
"""An Outcome for each replicate, shape (R,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of an estimate, besides its intervals."""

    value: float | None
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
    in_quarantine: int = 0  # examples that weigh less
    against: str | None = None  # what the candidate is compared with, if not with the same examples
    caution: str | None = None  # why a rule may be met more often than it should
    largest_size: float | None = None  # of a value, if no range says what one can lose
    missing_as: str = ""  # what a missing value counts as, if nothing declares it
    method: str = ""  # what a reader should know of how the interval was made, in words

    @property
    def missing_text(self) -> str:
        """How many have a missing value, in words."""
        noun = self.noun.removesuffix("s") if self.n_missing == 1 else self.noun
        return f"{self.n_missing} {noun} with a missing value{self.missing_as}"


class Estimate(Protocol):
    """The quantity that a rule tests, in the metric's own direction: the difference from the baseline, or the
    candidate's mean."""

    @property
    def facts(self) -> Facts: ...

    def interval_at(self, confidence_level: float) -> Interval | None:
        """Return the interval without missing values; None if there is none."""

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        """Return the interval with missing values at either extreme; None if there is none."""

    def interval_of_size(self, n: int, confidence_level: float) -> Interval | None:
        """Return the interval that n of the same would give; None if it narrows by the root of n."""
        return None


Number = TypeVar("Number", float, Values)


def turned(low: Number, high: Number, *, higher_is_better: bool) -> tuple[Number, Number]:
    """Return an interval so that more is better. A metric's direction turns figures here, and nowhere else."""
    return (low, high) if higher_is_better else (-high, -low)


@dataclass(frozen=True, slots=True)
class Gain:
    """An estimate as a gain, so that more is better: what is held against a rule's threshold."""

    estimate: Estimate

    @property
    def value(self) -> float | None:
        value, higher = self.estimate.facts.value, self.estimate.facts.higher_is_better
        return None if value is None else turned(value, value, higher_is_better=higher)[0]

    @property
    def worst_case_values(self) -> Interval | None:
        return self._turned(self.estimate.facts.worst_case_values)

    def interval_at(self, confidence_level: float) -> Interval | None:
        return self._turned(self.estimate.interval_at(confidence_level))

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        return self._turned(self.estimate.worst_case_interval_at(confidence_level))

    def interval_of_size(self, n: int, confidence_level: float) -> Interval | None:
        return self._turned(self.estimate.interval_of_size(n, confidence_level))

    def _turned(self, ends: Interval | None) -> Interval | None:
        return None if ends is None else turned(*ends, higher_is_better=self.estimate.facts.higher_is_better)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule on one metric."""

    kind: Kind
    metric: str
    bound: float  # as the spec has it: a margin or a threshold

    @property
    def is_difference(self) -> bool:
        """Whether the rule compares with a baseline."""
        return self.kind in DIFFERENCES

    @property
    def is_of_no_difference(self) -> bool:
        """Whether the rule tests that there is no difference at all."""
        return self.kind == "superiority" and not self.bound

    def threshold(self, *, higher_is_better: bool) -> float:
        """Return the value that the estimate must exceed."""
        if self.is_difference:
            return -self.bound if self.kind == "non_inferiority" else self.bound
        return self.bound if higher_is_better else -self.bound


def rules_of(gate: GateSpec) -> list[Rule]:
    """Return the rules of a gate, in the spec's order."""
    kinds: list[tuple[Kind, dict[str, float]]] = [
        ("non_inferiority", gate.non_inferiority),
        ("superiority", gate.superiority),
        ("threshold", gate.thresholds),
        ("confident_threshold", gate.confident_thresholds),
    ]
    return [Rule(kind=kind, metric=metric, bound=bound) for kind, bounds in kinds for metric, bound in bounds.items()]


def p_below_threshold(rule: Rule, estimate: Estimate | Reason, min_examples: int) -> float | None:
    """Return the one-sided p-value of the estimate lying below the threshold, with missing values at their best.

    None without a test: there is no estimate or interval, there are too few examples, the rule is a plain threshold, or
    the gate has interim analyses.
    """
    if isinstance(estimate, Reason) or rule.kind == "threshold":
        return None
    gain, facts = Gain(estimate), estimate.facts
    if facts.is_sequence or facts.n < min_examples or gain.worst_case_interval_at(0.5) is None:
        return None

    def interval_at(confidence_level: float) -> Interval:
        return gain.worst_case_interval_at(confidence_level) or (-np.inf, np.inf)

    return one_sided_p(interval_at, rule.threshold(higher_is_better=facts.higher_is_better)).p_below


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedRule:
    """A rule, but a plain threshold, and what it tests in each of R replicates; arrays of shape (R,)."""

    rule: Rule
    worst_case_interval_at: Callable[[float], Ends]  # by confidence level
    p_value: Values  # two-sided, of no difference; nan without a test
    n: int
    higher_is_better: bool

    @property
    def is_known(self) -> Mask:
        """Whether there is an interval."""
        low, high = self.worst_case_interval_at(0.5)
        return np.isfinite(low) | np.isfinite(high)

    def lies_below(self, confidence_level: float) -> Mask:
        return np.asarray(self._gains_at(confidence_level)[1] < self._threshold)

    def outcomes(self, broken: Mask, confidence_level: float) -> Outcomes:
        """`met` where the worst-case interval lies above the threshold; superiority without a margin also needs the
        test."""
        met = self._gains_at(confidence_level)[0] > self._threshold
        if self.rule.is_of_no_difference:
            met &= ~(self.p_value > 1 - confidence_level)
        return np.where(broken, "broken", np.where(met, "met", "open"))

    @property
    def _threshold(self) -> float:
        return self.rule.threshold(higher_is_better=self.higher_is_better)

    def _gains_at(self, confidence_level: float) -> Ends:
        return turned(*self.worst_case_interval_at(confidence_level), higher_is_better=self.higher_is_better)


def replicated_rule(rule: Rule, estimate: Estimate, count: int = 1) -> ReplicatedRule:
    """Return a rule on the same estimate in all of `count` replicates."""

    def worst_case_interval_at(confidence_level: float) -> Ends:
        low, high = estimate.worst_case_interval_at(confidence_level) or (-np.inf, np.inf)
        return np.full(count, low), np.full(count, high)

    facts = estimate.facts
    return ReplicatedRule(
        rule=rule,
        worst_case_interval_at=worst_case_interval_at,
        p_value=np.full(count, np.nan if facts.p_value is None else facts.p_value),
        n=facts.n,
        higher_is_better=facts.higher_is_better,
    )


def outcomes(
    tested: Sequence[ReplicatedRule], *, confidence_level: float, min_examples: int, adjustment: Adjustment
) -> list[Outcomes]:
    """Return the outcome of each rule in each replicate, in samples of fixed size.

    To pass, every rule must hold at the confidence level: no adjustment is needed (Berger 1982, intersection-union).
    To fail, one broken rule is enough, so the one-sided tests of the rules that could fail are adjusted: an adjusted p
    is at most alpha exactly where the interval at the matching level lies below the threshold. That level is
    alpha / (m - r) for Holm, with r others rejected, and alpha k / m for Benjamini and Hochberg.
    """
    if not tested:
        return []
    alpha = (1 - confidence_level) / 2
    counted = np.array([rule.is_known & (rule.n >= min_examples) for rule in tested])

    def below(share: float) -> Mask:
        return np.asarray(np.array([rule.lies_below(1 - 2 * alpha * share) for rule in tested]) & counted)

    rejected = _REJECTED[adjustment](below, counted.sum(axis=0), len(tested))
    return [
        rule.outcomes(broken, confidence_level) if rule.n >= min_examples else np.full(broken.shape, "open")
        for rule, broken in zip(tested, rejected, strict=True)
    ]


def _by_holm(below: Callable[[float], Mask], tests: npt.NDArray[np.int_], n_rules: int) -> Mask:
    by_level = np.array([below(1 / max(1, n_left)) for n_left in range(n_rules + 1)])
    count = np.zeros_like(tests)
    for _ in range(n_rules + 1):
        chosen = by_level[np.maximum(tests - count, 0), :, np.arange(len(tests))].T  # each replicate at its own level
        count = np.maximum(count, chosen.sum(axis=0))
    return np.asarray(chosen)


def _by_benjamini_hochberg(below: Callable[[float], Mask], tests: npt.NDArray[np.int_], n_rules: int) -> Mask:
    chosen = np.zeros((n_rules, len(tests)), dtype=bool)
    for n_tests in range(1, n_rules + 1):
        for rank in range(1, n_tests + 1):
            rejected_at_rank = below(rank / n_tests)
            chosen |= rejected_at_rank & (tests == n_tests) & (rejected_at_rank.sum(axis=0) >= rank)
    return chosen


_REJECTED: Mapping[Adjustment, Callable[[Callable[[float], Mask], npt.NDArray[np.int_], int], Mask]] = {
    "holm": _by_holm,
    "benjamini_hochberg": _by_benjamini_hochberg,
    "none": lambda below, tests, n_rules: below(1.0),
}


def threshold_outcome(rule: Rule, estimate: Estimate, confidence_level: float) -> Outcome:
    """Compare the mean itself with a threshold; open if missing or pending values could change the outcome."""
    gain, facts = Gain(estimate), estimate.facts
    threshold = rule.threshold(higher_is_better=facts.higher_is_better)
    values = gain.worst_case_values if facts.is_whole else gain.worst_case_interval_at(confidence_level)
    if values is None:
        return "open"
    return "met" if values[0] >= threshold else "broken" if values[1] < threshold else "open"
