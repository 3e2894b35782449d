"""Evaluate the rules of a gate, and conclude."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evalflows.analysis.rule_texts import figures_text, outcome_text, why_open
from evalflows.analysis.rules import (
    BoundedEstimate,
    Outcome,
    Rule,
    RuleResult,
    outcomes,
    p_below_threshold,
    replicated_rule,
    threshold_outcome,
)
from evalflows.analysis.verdicts import adjusted_p_text
from evalflows.specs.gate import Adjustment
from evalflows.stats.multiple_tests import adjusted
from evalflows.store.records import DecisionConclusion, Reason, ReasonCode


def evaluate_rules(
    estimates: Sequence[tuple[Rule, BoundedEstimate | Reason]],
    *,
    confidence_level: float,
    min_examples: int,
    adjustment: Adjustment,
) -> list[RuleResult]:
    """Evaluate each rule on its estimate; a Reason instead of an estimate leaves the rule open.

    Rules in batches have confidence sequences, whose levels are adjusted by Bonferroni; for the others, see `outcomes`.
    """
    could_fail = sum(rule.kind != "threshold" for rule, _ in estimates)
    stricter = confidence_level if adjustment == "none" else 1 - (1 - confidence_level) / max(could_fail, 1)
    p_values = [p_below_threshold(rule, estimate, min_examples) for rule, estimate in estimates]
    known = [p for p in p_values if p is not None]
    all_adjusted = iter(adjusted(np.array(known), adjustment).tolist())
    fixed = [
        replicated_rule(rule, estimate)
        for rule, estimate in estimates
        if not isinstance(estimate, Reason) and rule.kind != "threshold" and not estimate.is_sequence
    ]
    of_fixed = iter(
        outcomes(fixed, confidence_level=confidence_level, min_examples=min_examples, adjustment=adjustment)
    )
    results = []
    for (rule, estimate), p in zip(estimates, p_values, strict=True):
        if isinstance(estimate, Reason):
            results.append(_result(rule, "open", f"{rule.metric}: {estimate}", estimate.code))
            continue
        if rule.kind == "threshold":
            threshold = rule.threshold(higher_is_better=estimate.higher_is_better)
            outcome = threshold_outcome(estimate, threshold, confidence_level)
        elif estimate.is_sequence:
            sequence = replicated_rule(rule, estimate)
            outcome = sequence.outcomes(sequence.lies_below(stricter), confidence_level).tolist()[0]
        else:
            outcome = next(of_fixed).tolist()[0]
        result = _evaluated(rule, estimate, confidence_level, min_examples, outcome)
        result = replace(result, p_below=p, p_adjusted=None if p is None else next(all_adjusted))
        result = _with_adjustment(result, confidence_level, len(known), adjustment)
        results.append(_with_figures(result, estimate, confidence_level))
    return results


def conclusion_of(results: Sequence[RuleResult]) -> DecisionConclusion:
    """FAIL if any rule is broken, PASS if all are met."""
    outcomes = {result.outcome for result in results}
    return "FAIL" if "broken" in outcomes else "NOT ENOUGH EVIDENCE" if "open" in outcomes else "PASS"


def _with_figures(result: RuleResult, estimate: BoundedEstimate, confidence_level: float) -> RuleResult:
    """Add the estimate to a result, in the metric's own direction."""
    interval, sign = estimate.interval_at(confidence_level), 1 if estimate.higher_is_better else -1
    low, high = (None, None) if interval is None else sorted(sign * end for end in interval)
    return replace(
        result,
        value=None if estimate.value is None else sign * estimate.value,
        low=low,
        high=high,
        n=estimate.n,
        n_missing=estimate.n_missing,
    )


def _with_adjustment(result: RuleResult, confidence_level: float, n_tests: int, adjustment: Adjustment) -> RuleResult:
    """Say so if a rule is open only because its p-value is adjusted."""
    p, p_adjusted, alpha = result.p_below, result.p_adjusted, (1 - confidence_level) / 2
    if result.outcome != "open" or p is None or p_adjusted is None or not p <= alpha < p_adjusted:
        return result
    text = f"{result.text}; {adjusted_p_text(p, p_adjusted, n_tests, adjustment)}"
    return replace(result, text=text, reason_code="not_significant_after_adjustment")


def _evaluated(
    rule: Rule, estimate: BoundedEstimate, confidence_level: float, min_examples: int, outcome: Outcome
) -> RuleResult:
    figures, higher = figures_text(rule, estimate, confidence_level), estimate.higher_is_better
    if estimate.n < min_examples:
        text = outcome_text(rule, "open", confidence_level, higher_is_better=higher)
        n = figures or f": {estimate.n} {estimate.noun}"
        text = f"{rule.metric} {text}{n}; wanted at least {min_examples} to decide"
        return _result(rule, "open", text, "below_min_examples")
    threshold = rule.threshold(higher_is_better=higher)
    why = why_open(rule, estimate, confidence_level, threshold) if outcome == "open" else None
    missing = f"; {estimate.missing_text} could not change that"
    note = why or (missing if estimate.n_missing else "")
    if rule.kind != "threshold" and outcome == "met" and estimate.caution:
        note = f"{note}; {estimate.caution}"
    text = outcome_text(rule, outcome, confidence_level, higher_is_better=higher)
    return _result(rule, outcome, f"{rule.metric} {text}{figures}{note}", why.code if why else None)


def _result(rule: Rule, outcome: Outcome, text: str, code: ReasonCode | None) -> RuleResult:
    return RuleResult(
        rule=rule.kind, metric=rule.metric, bound=rule.bound, outcome=outcome, text=text, reason_code=code
    )
