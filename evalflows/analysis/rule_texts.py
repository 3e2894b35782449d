"""Rules of a gate in words: their figures, their outcomes, and why one is open."""

import math

from evalflows.analysis.figures import estimate as estimate_text
from evalflows.analysis.rules import BoundedEstimate, Kind, Outcome, Rule
from evalflows.specs.metric_names import metric_of
from evalflows.stats.power import least_n
from evalflows.store.records import Reason, ReasonCode

MAX_SUGGESTED_N = 1_000_000
"""The largest sample size that is suggested: beyond it, the estimate is next to the threshold."""

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


def why_open(rule: Rule, estimate: BoundedEstimate, confidence_level: float, threshold: float) -> Reason:
    """Explain why a rule is neither met nor broken."""
    interval = estimate.interval_at(confidence_level)
    if interval is None and rule.kind != "threshold":
        return Reason(estimate.reason_code or "no_interval", f"; {estimate.reason or 'no interval'}")
    is_above = estimate.value is not None and (
        estimate.value >= threshold if rule.kind == "threshold" else interval is not None and interval[0] > threshold
    )
    is_below = interval is not None and interval[1] < threshold
    if estimate.n_missing:
        return _why_missing_matters(estimate, could_flip=is_above or is_below)
    if is_above and estimate.p_value is not None and estimate.p_value > 1 - confidence_level:
        text = f"; the interval excludes zero, but the test is not significant (p = {estimate.p_value:.3f})"
        return Reason("interval_and_test_disagree", text)
    is_worse = rule.kind == "non_inferiority" and interval is not None and interval[1] < 0
    text = "; significantly worse, but not by more than the margin" if is_worse else ""
    needed = _needed_n(estimate, confidence_level, threshold)
    code: ReasonCode = "worse_but_maybe_within_margin" if is_worse else "interval_includes_bound"
    if needed is not None:
        text = f"{text}; about {needed:,} {estimate.noun} would decide if the estimate stays the same"
    return Reason(code, text)


def _why_missing_matters(estimate: BoundedEstimate, *, could_flip: bool) -> Reason:
    missing = f"; {estimate.missing_text}"
    if estimate.worst_case_values is None:
        return Reason("missing_unbounded", f"{missing}, and no declared range bounds the metric")
    if could_flip:
        return Reason("missing_could_flip", f"{missing} could flip this")
    return Reason("interval_includes_bound", f"{missing}")


def _needed_n(estimate: BoundedEstimate, confidence_level: float, threshold: float) -> int | None:
    """Return the n at which the interval excludes the threshold if the value stays the same, rounded up to two digits.

    From 100 on it is rounded; without `interval_of_size`, the interval is narrowed by the root of n.
    """
    interval, value = estimate.interval_at(confidence_level), estimate.value
    if interval is None or value is None or estimate.is_sequence or value == threshold:
        return None
    if estimate.against:  # more examples would narrow one side only
        return None
    half = (interval[1] - interval[0]) / 2

    def decides(n: int) -> bool:
        narrowed = half * math.sqrt(estimate.n / n)
        ends = value - narrowed, value + narrowed
        if estimate.interval_of_size is not None:
            ends = estimate.interval_of_size(n, confidence_level) or ends
        return ends[0] > threshold if value > threshold else ends[1] < threshold

    needed = least_n(decides, estimate.n + 1, MAX_SUGGESTED_N)
    if needed is None:
        return None
    step: int = 10 ** max(0, len(str(needed)) - 2)
    return math.ceil(needed / step) * step


def figures_text(rule: Rule, estimate: BoundedEstimate, confidence_level: float) -> str:
    """Return the value, its interval and n, in the metric's own direction.

    Rounding moves no end onto zero or the bound.
    """
    interval, sign = estimate.interval_at(confidence_level), 1 if estimate.higher_is_better else -1
    if estimate.value is None:
        return ""
    low, high = (None, None) if interval is None else sorted(sign * end for end in interval)
    marks = (0.0, rule.bound, -rule.bound) if rule.is_difference else (rule.bound,)
    texts = estimate_text(
        sign * estimate.value, low, high, metric_of(rule.metric), signed=rule.is_difference, marks=marks
    )
    left_out = f" ({estimate.n_left_out} left out for a missing value)" if estimate.n_left_out else ""
    against = f" against {estimate.against}" if estimate.against else ""
    method = estimate.method if interval else ""
    return f": {' '.join(filter(None, texts))}{method}, {estimate.n} {estimate.noun}{left_out}{against}"


def outcome_text(rule: Rule, outcome: Outcome, confidence_level: float, *, higher_is_better: bool) -> str:
    """Return what the metric does: "is not worse by more than 0.05", "reaches 0.8", "may exceed 2"."""
    bound = f"{rule.bound:g}"
    if rule.is_difference:
        by = "" if rule.kind == "superiority" and not rule.bound else f" by more than {bound}"
        return DIFFERENCE_TEXTS[rule.kind, outcome] + by
    text = (FLOOR_TEXTS if higher_is_better else CEILING_TEXTS)[outcome]
    is_confident = rule.kind == "confident_threshold" and outcome != "open"
    return f"{text} {bound}" + (f" at {100 * confidence_level:g}% confidence" if is_confident else "")
