"""Why there is no conclusion, interval or check: codes to branch on and query, each with a text to read."""

from dataclasses import dataclass
from typing import Literal

LimitChange = Literal["began", "grown", "refused", "refused_waiting"]

ReasonCode = Literal[
    # the interval or the test is inconclusive
    "no_significant_difference",  # the interval includes zero
    "interval_includes_bound",  # of a gate's rule: the interval includes the margin or the threshold
    "worse_but_maybe_within_margin",  # significantly worse, but not by more than the margin
    "interval_and_test_disagree",
    "not_significant_after_adjustment",
    "missing_unbounded",  # values are missing, and no declared range bounds them
    "missing_could_flip",  # missing values could change the conclusion
    # there is no estimate, no interval or no test
    "no_data",
    "too_few",
    "below_min_examples",  # fewer than the gate asks for
    "no_spread",
    "not_identifiable",
    "not_converged",
    "no_interval",
    "no_test",
    # the judge
    "judge_failed_validation",
    "judge_not_validated",  # its known-answer controls could not be judged
    "judge_position_bias",
    "one_presentation_order",  # the same answer was always shown first
    "order_unknown",  # of recorded verdicts: which answer was shown first
    "order_drawn",  # at random, without a record
    # a gate's rule could not be evaluated
    "no_baseline",
    "candidate_is_baseline",
    "not_comparable",
    "not_side_by_side",  # of a latency: the answers were not made in the same rounds
    "no_such_metric",
    "no_such_slice",  # no example has the value that the rule names
    "ambiguous_metric",  # several evaluators gave it
    "not_numeric",
    "run_level_metric",  # one number for all runs, without an interval
    "incomplete",
    "margin_too_wide",  # as wide as the metric's range
    "no_finished_batch",
    "not_for_batches",
    # a watch rule
    "no_reference",  # no previous window, or no such experiment
    "learning",  # the change detector has too few windows before
    "rule_removed",  # of an incident: its rule is no longer in the spec
    "evaluator_changed",  # of an incident: its metric is no longer judged by the same version
    "closed_by_person",
]
"""Codes that code and queries branch on, instead of the text."""

JUDGE_FAILED: tuple[ReasonCode, ...] = ("judge_failed_validation", "judge_not_validated")
"""Codes of judges that known-answer controls did not validate."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A code to branch on, and a text to read."""

    code: ReasonCode
    text: str

    def __str__(self) -> str:
        return self.text
