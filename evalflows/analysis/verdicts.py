"""Classify differences: better, worse, within the margin, or not enough evidence."""

from collections.abc import Sequence

import numpy as np

from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import Adjustment
from evalflows.stats.multiple_tests import adjusted
from evalflows.stats.paired import PairedDifference
from evalflows.store.records import Conclusion, Reason, ReasonCode

ADJUSTMENT_NAMES: dict[Adjustment, str] = {
    "holm": "Holm",
    "benjamini_hochberg": "Benjamini-Hochberg",
    "none": "no adjustment",
}


WORSE_WITHIN_MARGIN = "significantly worse, but not by more than the margin"

MISSING_DECIDES: frozenset[ReasonCode] = frozenset({"missing_unbounded", "missing_could_flip"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceTest:
    """The evidence for the verdict on one metric."""

    estimate: PairedDifference  # over the pairs without missing values
    lowest: PairedDifference | None = None  # with missing values making the difference as small as possible
    highest: PairedDifference | None = None  # and as large as possible; both None for an unbounded metric
    n_missing: int = 0  # examples with a missing value
    higher_is_better: bool = True
    margin: float | None = None  # smaller differences do not matter
    exclusion: Reason | None = None  # why this metric cannot be used

    @property
    def is_bounded(self) -> bool:
        """Whether the effect of missing values is bounded; true if none are missing."""
        return not self.n_missing or self.lowest is not None

    def gain(self) -> tuple[float, float] | None:
        """Return the interval of the candidate's gain, in the metric's unit; None if there is no interval."""
        return self._turned(self.estimate.low, self.estimate.high)

    def worst_case_gain(self) -> tuple[float, float] | None:
        """Return the interval of the gain over all possible missing values."""
        return self._turned(self._extremes[0].low, self._extremes[1].high) if self._extremes else None

    def tested_gain(self) -> tuple[float, float] | None:
        """Return the interval of the gain that the p-value is of: without values that were not drawn."""
        return self._turned(self.estimate.tested_low, self.estimate.tested_high)

    def worst_case_tested_gain(self) -> tuple[float, float] | None:
        """Return the same over all possible missing values."""
        return self._turned(self._extremes[0].tested_low, self._extremes[1].tested_high) if self._extremes else None

    @property
    def missing_could_flip(self) -> bool:
        """Whether missing values alone could make it better or worse, or undo that it is within the margin."""
        if not self.n_missing:
            return False
        if self._extremes is None:
            return True
        lowest, highest = self._extremes
        high = lowest.high if lowest.tested_high is None else lowest.tested_high
        low = highest.low if highest.tested_low is None else highest.tested_low
        if (high is not None and high < 0) or (low is not None and low > 0):
            return True
        gain = self.gain()
        return self.margin is not None and gain is not None and gain[0] > -self.margin

    @property
    def _extremes(self) -> tuple[PairedDifference, PairedDifference] | None:
        if not self.n_missing:
            return self.estimate, self.estimate
        return (self.lowest, self.highest) if self.lowest and self.highest else None

    def _turned(self, low: float | None, high: float | None) -> tuple[float, float] | None:
        if low is None or high is None:
            return None
        return (low, high) if self.higher_is_better else (-high, -low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The conclusion on one metric, and why."""

    conclusion: Conclusion
    reason: str | None = None
    reason_code: ReasonCode | None = None
    p_adjusted: float | None = None
    adjustment: Adjustment | None = None

    @property
    def is_worse(self) -> bool:
        """Whether the metric is significantly worse, if only within the margin."""
        return self.conclusion == "worse" or self.reason_code == "worse_within_margin"

    @classmethod
    def undecided(cls, why: Reason) -> "Verdict":
        """Return the verdict without a conclusion, for this reason."""
        return cls(conclusion="not_enough_evidence", reason=why.text, reason_code=why.code)


def classify(tests: Sequence[DifferenceTest], adjustment: Adjustment) -> list[Verdict]:
    """Return a verdict per test, their p-values adjusted together; tests without a p-value or excluded do not count."""
    counted = [test.estimate.p_value is not None and test.exclusion is None for test in tests]
    p_values = [test.estimate.p_value for test, counts in zip(tests, counted, strict=True) if counts]
    all_adjusted = iter(adjusted(np.array(p_values, dtype=float), adjustment).tolist())
    return [
        _verdict(test, next(all_adjusted), len(p_values), adjustment) if counts else _undecided(test)
        for test, counts in zip(tests, counted, strict=True)
    ]


def _undecided(test: DifferenceTest) -> Verdict:
    code = test.exclusion.code if test.exclusion else test.estimate.reason_code or "no_test"
    reason = test.exclusion.text if test.exclusion else test.estimate.reason
    return Verdict(conclusion="not_enough_evidence", reason=reason, reason_code=code)


def _verdict(test: DifferenceTest, p_adjusted: float, n_tests: int, adjustment: Adjustment) -> Verdict:
    """Better or worse if the interval, the test and the worst case agree; equivalent or no worse if the worst case is
    within the margin, and why not better if the interval says so, or that it is worse all the same; else not enough
    evidence, and why."""
    conclusion, gain = _conclusion(test, p_adjusted), test.tested_gain()
    is_significant, why = p_adjusted <= 1 - test.estimate.confidence_level, None
    if conclusion is None or (conclusion != "better" and gain is not None and gain[0] > 0):
        why = _why_undecided(test, p_adjusted, n_tests, adjustment)
    elif conclusion in ("no_worse", "equivalent") and is_significant and gain is not None and gain[1] < 0:
        why = Reason("worse_within_margin", WORSE_WITHIN_MARGIN)
    return Verdict(
        conclusion=conclusion or "not_enough_evidence",
        reason=None if why is None else why.text,
        reason_code=None if why is None else why.code,
        p_adjusted=p_adjusted,
        adjustment=adjustment,
    )


def _conclusion(test: DifferenceTest, p_adjusted: float) -> Conclusion | None:
    is_significant, gain = p_adjusted <= 1 - test.estimate.confidence_level, test.worst_case_gain()
    tested = test.worst_case_tested_gain()
    if gain is None or tested is None or not test.is_bounded:
        return None
    if is_significant and tested[0] > 0:
        return "better"
    if test.margin is not None and gain[0] > -test.margin:
        return "equivalent" if gain[1] < test.margin else "no_worse"
    return "worse" if is_significant and tested[1] < 0 else None


def adjusted_p_text(p: float, p_adjusted: float, n_tests: int, adjustment: Adjustment) -> str:
    """Say that a p-value is significant only before adjustment."""
    method = f"{ADJUSTMENT_NAMES[adjustment]} over {n_tests} comparisons"
    return f"p = {p:.3f} unadjusted, {p_adjusted:.3f} after {method}: not significant"


def _why_undecided(test: DifferenceTest, p_adjusted: float, n_tests: int, adjustment: Adjustment) -> Reason:
    estimate, gain = test.estimate, test.tested_gain()
    includes_zero = estimate.difference == 0 if gain is None else gain[0] <= 0 <= gain[1]
    if includes_zero and test.missing_could_flip:
        return why_missing(test)
    if gain is None and estimate.difference == 0:  # in each pair
        return Reason("no_significant_difference", f"{no_difference(estimate.n_pairs)}; {estimate.reason}")
    if gain is None:
        is_significant = p_adjusted <= 1 - estimate.confidence_level
        alone = "; p alone decides nothing" if is_significant else ""
        return Reason(estimate.reason_code or "no_interval", f"{estimate.reason or 'no interval'}{alone}")
    if includes_zero:
        return no_difference(estimate.n_pairs)
    p = estimate.p_value if estimate.p_value is not None else p_adjusted
    if p > 1 - estimate.confidence_level:
        return disagreeing_test(p, estimate.confidence_level)
    if p_adjusted > 1 - estimate.confidence_level:
        text = adjusted_p_text(p, p_adjusted, n_tests, adjustment)
        return Reason("not_significant_after_adjustment", text)
    return why_missing(test)


def disagreeing_test(p: float, confidence_level: float) -> Reason:
    level = f"{1 - confidence_level:.3g}"
    text = f"the interval excludes zero, but the test is not significant at {level} (p = {p:.3f})"
    return Reason("interval_and_test_disagree", text)


def missing_unbounded(missing: str) -> Reason:
    """Return why values, of which so many are `missing` in words, decide nothing."""
    return Reason("missing_unbounded", f"{missing}, and no declared range bounds the metric")


def no_difference(n_pairs: int) -> Reason:
    return Reason("no_significant_difference", f"no significant difference ({n_pairs} pairs)")


def why_missing(test: DifferenceTest) -> Reason:
    """Return why missing values leave a difference undecided."""
    missing = f"{test.n_missing} pair{'s' * (test.n_missing != 1)} with a missing value"
    worst = test.worst_case_gain()
    if not test.is_bounded:
        return missing_unbounded(missing)
    interval = f" (worst-case interval {worst[0]:+.3g} to {worst[1]:+.3g})" if worst else ""
    return Reason("missing_could_flip", f"{missing} could change the conclusion{interval}")
