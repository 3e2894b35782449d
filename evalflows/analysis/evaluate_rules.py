"""Evaluate the rules of a gate, and conclude."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from evalflows.analysis.rule_texts import caution_of, figures_text, outcome_text, why_open, worse_within_margin
from evalflows.analysis.rules import Estimate, Rule, outcomes, p_below_threshold, replicated_rule, threshold_outcome
from evalflows.analysis.verdicts import Verdict, adjusted_p_text
from evalflows.specs.gate import Adjustment
from evalflows.stats.multiple_tests import adjusted
from evalflows.store.described import Outcome, RuleOutcome
from evalflows.store.records import DecisionConclusion, Reason, ReasonCode


def evaluate_rules(
    estimates: Sequence[tuple[Rule, Estimate | Reason]],
    verdicts: Mapping[str, Verdict],
    *,
    confidence_level: float,
    min_examples: int,
    adjustment: Adjustment,
) -> list[RuleOutcome]:
    """Evaluate each rule on its estimate; a Reason instead of an estimate leaves the rule open.

    The verdicts on the metrics decide nothing: texts of rules say what they say.
    Rules in batches have confidence sequences, whose levels are adjusted by Bonferroni; for the others, see `outcomes`.
    """
    could_fail = sum(rule.kind != "threshold" for rule, _ in estimates)
    stricter = confidence_level if adjustment == "none" else 1 - (1 - confidence_level) / max(could_fail, 1)
    p_values = {
        rule: p for rule, estimate in estimates if (p := p_below_threshold(rule, estimate, min_examples)) is not None
    }
    p_adjusted = dict(zip(p_values, adjusted(np.array([*p_values.values()]), adjustment).tolist(), strict=True))
    fixed = [
        replicated_rule(rule, estimate)
        for rule, estimate in estimates
        if not isinstance(estimate, Reason) and rule.kind != "threshold" and not estimate.facts.is_sequence
    ]
    found = outcomes(fixed, confidence_level=confidence_level, min_examples=min_examples, adjustment=adjustment)
    of_fixed = {tested.rule: outcome.tolist()[0] for tested, outcome in zip(fixed, found, strict=True)}
    results = []
    for rule, estimate in estimates:
        if isinstance(estimate, Reason):
            results.append(_result(rule, "open", f"{rule.metric}: {estimate}", estimate.code))
            continue
        if rule.kind == "threshold":
            outcome = threshold_outcome(rule, estimate, confidence_level)
        elif estimate.facts.is_sequence:
            sequence = replicated_rule(rule, estimate)
            outcome = sequence.outcomes(sequence.lies_below(stricter), confidence_level).tolist()[0]
        else:
            outcome = of_fixed[rule]
        result = _evaluated(rule, estimate, verdicts.get(rule.metric), confidence_level, min_examples, outcome)
        result = replace(result, p_below=p_values.get(rule), p_adjusted=p_adjusted.get(rule))
        result = _with_adjustment(result, confidence_level, len(p_values), adjustment)
        facts, (low, high) = estimate.facts, estimate.interval_at(confidence_level) or (None, None)
        results.append(replace(result, value=facts.value, low=low, high=high, n=facts.n, n_missing=facts.n_missing))
    return results


def conclusion_of(results: Sequence[RuleOutcome]) -> DecisionConclusion:
    """FAIL if any rule is broken, PASS if all are met."""
    outcomes = {result.outcome for result in results}
    return "FAIL" if "broken" in outcomes else "NOT ENOUGH EVIDENCE" if "open" in outcomes else "PASS"


def _with_adjustment(result: RuleOutcome, confidence_level: float, n_tests: int, adjustment: Adjustment) -> RuleOutcome:
    """Say so if a rule is open only because its p-value is adjusted."""
    p, p_adjusted, alpha = result.p_below, result.p_adjusted, (1 - confidence_level) / 2
    if result.outcome != "open" or p is None or p_adjusted is None or not p <= alpha < p_adjusted:
        return result
    text = f"{result.text}; {adjusted_p_text(p, p_adjusted, n_tests, adjustment)}"
    return replace(result, text=text, reason_code="not_significant_after_adjustment")


def _evaluated(
    rule: Rule,
    estimate: Estimate,
    verdict: Verdict | None,
    confidence_level: float,
    min_examples: int,
    outcome: Outcome,
) -> RuleOutcome:
    figures, facts = figures_text(rule, estimate, confidence_level), estimate.facts
    if facts.n < min_examples:
        text = outcome_text(rule, "open", confidence_level, higher_is_better=facts.higher_is_better)
        n = figures or f": {facts.n} {facts.noun}"
        text = f"{rule.metric} {text}{n}; wanted at least {min_examples} to decide"
        return _result(rule, "open", text, "below_min_examples")
    why = why_open(rule, estimate, verdict, confidence_level) if outcome == "open" else None
    missing = f"; {facts.missing_text} could not change that"
    note = why or (missing if facts.n_missing else "")
    if outcome == "met":
        note = f"{note}{worse_within_margin(rule, estimate, verdict, confidence_level)}"
    if rule.kind != "threshold" and outcome == "met" and (caution := caution_of(rule, facts)):
        note = f"{note}; {caution}"
    text = outcome_text(rule, outcome, confidence_level, higher_is_better=facts.higher_is_better)
    return _result(rule, outcome, f"{rule.metric} {text}{figures}{note}", why.code if why else None)


def _result(rule: Rule, outcome: Outcome, text: str, code: ReasonCode | None) -> RuleOutcome:
    return RuleOutcome(
        rule=rule.kind, metric=rule.metric, bound=rule.bound, outcome=outcome, text=text, reason_code=code
    )
