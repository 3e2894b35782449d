"""Rules of a gate in words: their figures, their outcomes, and why one is open."""

import math

from evalflows.analysis.figures import estimate as estimate_text
from evalflows.analysis.rules import Estimate, Facts, Gain, Rule
from evalflows.analysis.verdicts import WORSE_WITHIN_MARGIN, Verdict, disagreeing_test, missing_unbounded
from evalflows.specs.metric_names import metric_of
from evalflows.stats.power import least_n
from evalflows.store.described import Kind, Outcome
from evalflows.store.records import Reason, ReasonCode

MAX_SUGGESTED_N = 1_000_000
"""The largest sample size that is suggested: beyond it, the estimate is next to the threshold."""

ENOUGH_FOR_TAILS = 300
"""Pairs, or clusters, from which a met rule does not warn of a long tail: a loss equal to the margin then passes in 2.7
%."""

DIFFERENCE_TEXTS: dict[tuple[Kind, Outcome], str] = {
    ("non_inferiority", "met"): "is not worse",
    ("non_inferiority", "broken"): "is worse",
    ("non_inferiority", "open"): "may be worse",
    ("superiority", "met"): "is better",
    ("superiority", "broken"): "is not better",
    ("superiority", "open"): "may not be better",
}

FLOOR_TEXTS: dict[Outcome, str] = {"met": "reaches", "broken": "does not reach", "open": "may not reach"}

CEILING_TEXTS: dict[Outcome, str] = {"met": "does not exceed", "broken": "exceeds", "open": "may exceed"}


def why_open(rule: Rule, estimate: Estimate, verdict: Verdict | None, confidence_level: float) -> Reason:
    """Explain why a rule is neither met nor broken, given the verdict on its metric."""
    gain, facts = Gain(estimate), estimate.facts
    interval, threshold = gain.interval_at(confidence_level), rule.threshold(higher_is_better=facts.higher_is_better)
    if interval is None and rule.kind != "threshold":
        return Reason(facts.reason_code or "no_interval", f"; {facts.reason or 'no interval'}")
    is_above = gain.value is not None and (
        gain.value >= threshold if rule.kind == "threshold" else interval is not None and interval[0] > threshold
    )
    is_below = interval is not None and interval[1] < threshold
    if facts.n_missing:
        return _why_missing_matters(facts, could_flip=is_above or is_below)
    if is_above and facts.p_value is not None and facts.p_value > 1 - confidence_level:
        return _after(disagreeing_test(facts.p_value, confidence_level))
    is_worse = rule.kind == "non_inferiority" and _is_significantly_worse(gain, verdict, confidence_level)
    text = "; significantly worse, and whether by more than the margin is open" if is_worse else ""
    needed = _needed_n(gain, confidence_level, threshold)
    code: ReasonCode = "worse_but_maybe_within_margin" if is_worse else "interval_includes_bound"
    if needed is not None:
        text = f"{text}; about {needed:,} {facts.noun} would decide if the estimate stays the same"
    return Reason(code, text)


def worse_within_margin(rule: Rule, estimate: Estimate, verdict: Verdict | None, confidence_level: float) -> str:
    """Return what a met rule of non-inferiority does not say: that it is worse all the same; else empty."""
    is_worse = _is_significantly_worse(Gain(estimate), verdict, confidence_level)
    return f"; {WORSE_WITHIN_MARGIN}" if rule.kind == "non_inferiority" and rule.bound and is_worse else ""


def _is_significantly_worse(gain: Gain, verdict: Verdict | None, confidence_level: float) -> bool:
    """Return what the verdict says, whose p-value is adjusted; without a test what the interval says, and in interim
    analyses what both say."""
    tested = None if verdict is None or verdict.p_adjusted is None else verdict.is_worse
    if tested is not None and not gain.estimate.facts.is_sequence:
        return tested
    interval = gain.interval_at(confidence_level)
    return tested is not False and interval is not None and interval[1] < 0


def caution_of(rule: Rule, facts: Facts) -> str | None:
    """Return why a met rule may be met more often than it should.

    Without a range, values that were not drawn could be 0 where the largest is now. Up to 3 of n go unseen in one of 20
    samples (Hanley & Lippman-Hand 1983), so the rule warns if fewer than that would change it, and of small samples.
    """
    if facts.caution or facts.largest_size is None or facts.value is None:
        return facts.caution
    threshold = rule.threshold(higher_is_better=facts.higher_is_better)
    gap = abs((facts.value if facts.higher_is_better else -facts.value) - threshold)
    if facts.n >= ENOUGH_FOR_TAILS and facts.n * gap >= 3 * facts.largest_size:
        return None
    return f"no range is declared: {facts.n} {facts.noun} may miss rare values that would be a loss"


def _why_missing_matters(facts: Facts, *, could_flip: bool) -> Reason:
    if facts.worst_case_values is None:
        return _after(missing_unbounded(facts.missing_text))
    if could_flip:
        return Reason("missing_could_flip", f"; {facts.missing_text} could flip this")
    return Reason("interval_includes_bound", f"; {facts.missing_text}")


def _after(reason: Reason) -> Reason:
    """Return a reason as it follows the figures of a rule."""
    return Reason(reason.code, f"; {reason.text}")


def _needed_n(gain: Gain, confidence_level: float, threshold: float) -> int | None:
    """Return the n at which the interval excludes the threshold if the value stays the same, rounded up to two digits.

    From 100 on it is rounded; without `interval_of_size`, the interval is narrowed by the root of n.
    """
    interval, value, facts = gain.interval_at(confidence_level), gain.value, gain.estimate.facts
    if interval is None or value is None or facts.is_sequence or value == threshold:
        return None
    if facts.against:  # more examples would narrow one side only
        return None
    half = (interval[1] - interval[0]) / 2

    def decides(n: int) -> bool:
        narrowed = half * math.sqrt(facts.n / n)
        ends = gain.interval_of_size(n, confidence_level) or (value - narrowed, value + narrowed)
        return ends[0] > threshold if value > threshold else ends[1] < threshold

    needed = least_n(decides, facts.n + 1, MAX_SUGGESTED_N)
    if needed is None:
        return None
    step: int = 10 ** max(0, len(str(needed)) - 2)
    return math.ceil(needed / step) * step


def figures_text(rule: Rule, estimate: Estimate, confidence_level: float) -> str:
    """Return the value, its interval and n. Rounding moves no end onto zero or the bound."""
    interval, facts = estimate.interval_at(confidence_level), estimate.facts
    if facts.value is None:
        return ""
    marks = (0.0, rule.bound, -rule.bound) if rule.is_difference else (rule.bound,)
    low, high = interval or (None, None)
    texts = estimate_text(facts.value, low, high, metric_of(rule.metric), signed=rule.is_difference, marks=marks)
    left_out = f" ({facts.n_left_out} left out for a missing value)" if facts.n_left_out else ""
    left_out += f", {facts.in_quarantine} in quarantine" if facts.in_quarantine else ""
    against = f" against {facts.against}" if facts.against else ""
    method = facts.method if interval else ""
    return f": {' '.join(filter(None, texts))}{method}, {facts.n} {facts.noun}{left_out}{against}"


def outcome_text(rule: Rule, outcome: Outcome, confidence_level: float, *, higher_is_better: bool) -> str:
    """Return what the metric does: "is not worse by more than 0.05", "reaches 0.8", "may exceed 2"."""
    bound = f"{rule.bound:g}"
    if rule.is_difference:
        by = "" if rule.kind == "superiority" and not rule.bound else f" by more than {bound}"
        return DIFFERENCE_TEXTS[rule.kind, outcome] + by
    text = (FLOOR_TEXTS if higher_is_better else CEILING_TEXTS)[outcome]
    is_confident = rule.kind == "confident_threshold" and outcome != "open"
    return f"{text} {bound}" + (f" at {100 * confidence_level:g}% confidence" if is_confident else "")
