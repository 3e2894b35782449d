"""Evaluate the rules of a gate, and conclude from their results."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evalflows.analysis.differences.verdicts import adjusted_p_text
from evalflows.analysis.gates.rules import (
    BoundedEstimate,
    Outcome,
    Rule,
    RuleResult,
    is_sequence_below,
    is_significantly_above,
    p_below_threshold,
    threshold_outcome,
)
from evalflows.analysis.gates.wording import figures_text, outcome_text, why_open
from evalflows.specs.gate import Adjustment
from evalflows.stats import adjusted
from evalflows.store.reasons import Reason, ReasonCode
from evalflows.store.records import DecisionConclusion


def evaluate_rules(
    estimates: Sequence[tuple[Rule, BoundedEstimate | Reason]],
    *,
    confidence_level: float,
    min_examples: int,
    adjustment: Adjustment,
) -> list[RuleResult]:
    """Evaluate each rule on its estimate; a Reason instead of an estimate leaves the rule open.

    To pass, every rule must hold at the confidence level: no adjustment is needed (Berger 1982, intersection-union).
    To fail, one broken rule is enough, so the one-sided p-values of the rules that could fail are adjusted.
    """
    alpha, could_fail = (1 - confidence_level) / 2, sum(rule.kind != "threshold" for rule, _ in estimates)
    stricter = confidence_level if adjustment == "none" else 1 - (1 - confidence_level) / max(could_fail, 1)
    p_values = [p_below_threshold(rule, estimate, min_examples) for rule, estimate in estimates]
    known = [p for p in p_values if p is not None]
    all_adjusted = iter(adjusted(np.array(known), adjustment).tolist())
    results = []
    for (rule, estimate), p in zip(estimates, p_values, strict=True):
        p_adjusted = None if p is None else next(all_adjusted)
        broken = (p_adjusted is not None and p_adjusted <= alpha) or is_sequence_below(rule, estimate, stricter)
        result = _result(rule, estimate, confidence_level, min_examples, broken=broken)
        result = replace(result, p_below=p, p_adjusted=p_adjusted)
        result = _with_adjustment(result, confidence_level, len(known), adjustment)
        results.append(result if isinstance(estimate, Reason) else _with_figures(result, estimate, confidence_level))
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


def _result(
    rule: Rule, estimate: BoundedEstimate | Reason, confidence_level: float, min_examples: int, *, broken: bool
) -> RuleResult:
    def result(outcome: Outcome, text: str, code: ReasonCode | None) -> RuleResult:
        return RuleResult(
            rule=rule.kind, metric=rule.metric, bound=rule.bound, outcome=outcome, text=text, reason_code=code
        )

    if isinstance(estimate, Reason):
        return result("open", f"{rule.metric}: {estimate}", estimate.code)
    figures, higher = figures_text(rule, estimate, confidence_level), estimate.higher_is_better
    if estimate.n < min_examples:
        text = f"{rule.metric}: {estimate.n} {estimate.noun}, wanted at least {min_examples} to decide{figures}"
        return result("open", text, "below_min_examples")
    threshold = rule.threshold(higher_is_better=higher)
    outcome = _outcome(rule, estimate, threshold, confidence_level, broken=broken)
    why = why_open(rule, estimate, confidence_level, threshold) if outcome == "open" else None
    missing = f"; {estimate.missing_text} could not change that"
    note = why or (missing if estimate.n_missing else "")
    if rule.kind == "non_inferiority" and outcome == "met" and estimate.caution:
        note = f"{note}; {estimate.caution}"
    text = outcome_text(rule, outcome, confidence_level, higher_is_better=higher)
    return result(outcome, f"{rule.metric} {text}{figures}{note}", why.code if why else None)


def _outcome(
    rule: Rule, estimate: BoundedEstimate, threshold: float, confidence_level: float, *, broken: bool
) -> Outcome:
    if rule.kind == "threshold":
        return threshold_outcome(estimate, threshold, confidence_level)
    if broken:
        return "broken"
    return "met" if is_significantly_above(rule, estimate, confidence_level, threshold) else "open"
