"""Biases of a pairwise judge: position, order inconsistency, length, and self-consistency."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from evalflows.analysis.preferences import Preferences
from evalflows.specs.frozen import dataclass
from evalflows.stats.agreement import Agreement, agreement
from evalflows.stats.means import MeanEstimate, ShareEstimate, combined_share, mean_estimate, share_estimate
from evalflows.store.records import CheckRow, Reason, ReasonCode, derived_id, to_json

POSITION, FLIPS, LENGTH, CONSISTENCY = "position_preference", "flip_share", "length_preference", "self_consistency"

POSITION_BIAS_THRESHOLD = 0.5
"""A judge that decides more than this share of its verdicts by position is excluded. At the threshold it picks its
preferred position about 75 % of the time: always when position decides, and half of the time otherwise."""

ALWAYS_FIRST = Reason(
    "one_presentation_order",
    "one experiment's answers were always shown first: position bias cannot be told apart from better answers",
)
ORDER_UNKNOWN = Reason(
    "order_unknown",
    "the order in which the answers were shown is unknown: a preference for a position would look like better answers",
)
ORDER_DRAWN = Reason(
    "order_drawn", "not measured: the order of the answers was drawn at random and not recorded, so it favours nobody"
)

OBSERVED = ("share", "kappa", "standard_error", "low", "high", "method")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeBias:
    """One measured bias of a judge."""

    name: str
    message: str
    reason_code: ReasonCode | None = None  # why it is unknown, or excludes the judge
    passed: bool | None = None  # None if unknown, or if the bias does not exclude the judge by itself
    share: float | None = None
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None
    method: str | None = None  # of the interval
    n: int = 0
    kappa: float | None = None  # agreement of two judges; interval and standard error are then those of kappa


def biases_of(preferences: Preferences, confidence_level: float) -> list[JudgeBias]:
    """Return the biases of the verdicts of one metric."""
    return [
        _position(preferences, confidence_level),
        _order_inconsistency(preferences, confidence_level),
        _length(preferences, confidence_level),
        _consistency(preferences, confidence_level),
    ]


def exclusion(biases: Sequence[JudgeBias]) -> Reason | None:
    """Return why a judge's verdicts are excluded; None if they are not."""
    by_name = {bias.name: bias for bias in biases}
    if by_name[POSITION].reason_code == ALWAYS_FIRST.code:
        return ALWAYS_FIRST
    if by_name[POSITION].passed is False:
        text = f"this judge has a position bias: it {by_name[POSITION].message}"
        return Reason("judge_position_bias", text)
    if by_name[FLIPS].passed is False:
        text = f"this judge is inconsistent between presentation orders: it {by_name[FLIPS].message}"
        return Reason("judge_position_bias", text)
    return None


def shown_in_one_order(preferences: Preferences, candidate: str, baseline: str) -> Reason | None:
    """Return why verdicts between two experiments are excluded: one was always shown first. None if they are not."""
    pair = (min(candidate, baseline), max(candidate, baseline))
    return ALWAYS_FIRST if pair in preferences.pairs_in_one_order else None


def agreements(metrics: Sequence[Preferences], confidence_level: float) -> Iterator[tuple[str, JudgeBias]]:
    """Yield the agreement of every two metrics on the same pairs, with the name of the first metric."""
    for number, first in enumerate(metrics):
        for second in metrics[number + 1 :]:
            if (bias := _agreement(first, second, confidence_level)).n:
                yield first.metric, bias


def as_check(comparison_id: str, metric: str, bias: JudgeBias) -> CheckRow:
    return CheckRow(
        check_id=derived_id(comparison_id, metric, bias.name),
        batch_id=comparison_id,
        subject_kind="judge",
        subject_id=metric,
        name=bias.name,
        passed=bias.passed,
        severity="warning",
        n_checked=bias.n,
        observed=to_json({name: getattr(bias, name) for name in OBSERVED}),
        message=bias.message,
        reason_code=bias.reason_code,
    )


def _position(preferences: Preferences, confidence_level: float) -> JudgeBias:
    """Position bias over experiments shown in both orders: with one order, the better one may always come first."""
    if preferences.judgements.empty:
        return _unknown(POSITION, "there are no verdicts")
    known = preferences.judgements[preferences.judgements.order_status == "known"]
    if known.empty:
        is_unknown = (preferences.judgements.order_status == "unknown").any()
        reason = ORDER_UNKNOWN if is_unknown else ORDER_DRAWN
        return JudgeBias(name=POSITION, message=reason.text, reason_code=reason.code)
    without_ties = known[known.asked & (known.winner != "tie")]
    in_both_orders = without_ties.groupby(["left", "right"]).shown_first.transform("nunique") == 2
    if known.groupby(["left", "right"]).shown_first.nunique().max() != 2:
        return JudgeBias(name=POSITION, message="not identifiable: one order only", reason_code=ALWAYS_FIRST.code)
    decided = without_ties[in_both_orders]
    if decided.empty:
        return _unknown(POSITION, "no verdict without a tie on experiments shown in both orders")
    is_plain = preferences.of_votes or bool((decided.orders == 2).all())
    estimate = _first_chosen(decided, confidence_level, is_plain)
    position = "first" if (estimate.share or 0) >= 0.5 else "second"
    share, low, high = _preferred_position_share(estimate, position == "first")
    is_biased = share is not None and share > 0.5 + POSITION_BIAS_THRESHOLD / 2 and low is not None and low > 0.5
    message = f"chose the answer shown {position} in {_percent(share, low, high)} of {estimate.n} verdicts without ties"
    if not is_plain:
        message += ", with equal weight on both orders"
    return _bias(POSITION, message, not is_biased, estimate.share, estimate)


def _first_chosen(decided: pd.DataFrame, confidence_level: float, is_plain: bool) -> ShareEstimate:
    """Return the share of verdicts for the answer shown first, with equal weight on both orders unless `is_plain`.

    If the order was drawn at random, the better side may have come first more often by chance. Votes are spread over
    too many pairs of systems for that to matter, and for an interval of each.
    """
    first = (decided.winner == decided.shown_first).astype(float)
    if is_plain:
        return share_estimate(first, list(decided.cluster_id), confidence_level=confidence_level)
    parts, weights = [], []
    for _, of_pair in decided.groupby(["left", "right"]):
        for _, rows in of_pair.groupby("shown_first"):
            parts.append(share_estimate(first[rows.index], list(rows.cluster_id), confidence_level=confidence_level))
            weights.append(len(of_pair) / 2)
    return combined_share(parts, weights)


def _preferred_position_share(
    estimate: ShareEstimate, is_first: bool
) -> tuple[float | None, float | None, float | None]:
    """Return the share of the preferred position, with its interval."""
    if is_first or estimate.share is None:
        return estimate.share, estimate.low, estimate.high
    ends = (estimate.high, estimate.low)
    low, high = (None if end is None else 1 - end for end in ends)
    return 1 - estimate.share, low, high


def _order_inconsistency(preferences: Preferences, confidence_level: float) -> JudgeBias:
    outcomes = preferences.outcomes
    in_both_orders = outcomes[outcomes.asked & outcomes.consistency.notna()]
    if in_both_orders.empty:
        return _unknown(FLIPS, "no pair was shown in both orders")
    flipped = (in_both_orders.outcome == "flipped").astype(float)
    estimate = share_estimate(flipped, list(in_both_orders.cluster_id), confidence_level=confidence_level)
    share = _percent(estimate.share, estimate.low, estimate.high)
    message = f"changed its verdict with the order in {share} of {estimate.n} pairs"
    if half := int((in_both_orders.consistency == "half").sum()):
        message += f", and called {half} more a tie in one order only"
    return _bias(FLIPS, message, (estimate.share or 0) <= POSITION_BIAS_THRESHOLD, estimate.share, estimate)


def _length(preferences: Preferences, confidence_level: float) -> JudgeBias:
    """Preference for longer answers. These may be better, so it does not exclude the judge by itself."""
    decided = preferences.outcomes[preferences.outcomes.asked & preferences.outcomes.discrete.isin([0.0, 1.0])]
    decided = decided[decided.longer.notna() & (decided.longer != 0)]
    if decided.empty:
        return _unknown(LENGTH, "no verdict between answers of different lengths")
    longer = ((decided.longer > 0) == (decided.discrete == 1)).astype(float)
    estimate = share_estimate(longer, list(decided.cluster_id), confidence_level=confidence_level)
    share = _percent(estimate.share, estimate.low, estimate.high)
    message = f"chose the longer answer in {share} of {estimate.n} pairs without ties"
    return _bias(LENGTH, message, None, estimate.share, estimate)


def _consistency(preferences: Preferences, confidence_level: float) -> JudgeBias:
    repeated = preferences.outcomes[preferences.outcomes.agreement.notna()]
    if repeated.empty:
        return _unknown(CONSISTENCY, "each pair was judged once (repeats)")
    estimate = mean_estimate(repeated.agreement, list(repeated.cluster_id), confidence_level=confidence_level)
    low, high = (None if end is None else min(max(end, 0.0), 1.0) for end in (estimate.low, estimate.high))
    estimate = replace(estimate, low=low, high=high)
    share = _percent(estimate.mean, low, high)
    message = f"repeated its verdict in {share} of repeats, over {estimate.n} pairs"
    return _bias(CONSISTENCY, message, None, estimate.mean, estimate)


def _agreement(first: Preferences, second: Preferences, confidence_level: float) -> JudgeBias:
    keys = ["example_id", "repetition", "left", "right"]
    asked = (metric.outcomes[metric.outcomes.asked & metric.outcomes.discrete.notna()] for metric in (first, second))
    left, right = (outcomes[[*keys, "cluster_id", "discrete"]] for outcomes in asked)
    shared = pd.merge(left, right, on=keys, suffixes=("_first", "_second"))
    clusters = list(shared.cluster_id_first)
    estimate = agreement(
        list(shared.discrete_first), list(shared.discrete_second), clusters, confidence_level=confidence_level
    )
    kappa = "" if estimate.kappa is None else f", kappa {estimate.kappa:.2f}"
    low, high = estimate.low, estimate.high
    span = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    share = "-" if estimate.share is None else f"{estimate.share:.1%}"
    message = f"the same verdict on {share} of {estimate.n} pairs{kappa}{span}"
    bias = _bias(f"agreement with {second.metric}", message, None, estimate.share, estimate)
    return replace(bias, kappa=estimate.kappa)


def _bias(
    name: str,
    message: str,
    passed: bool | None,
    share: float | None,
    estimate: ShareEstimate | MeanEstimate | Agreement,
) -> JudgeBias:
    return JudgeBias(
        name=name,
        message=message,
        reason_code="judge_position_bias" if passed is False else None,
        passed=passed,
        share=share,
        low=estimate.low,
        high=estimate.high,
        standard_error=estimate.standard_error,
        method=estimate.method,
        n=estimate.n,
    )


def _unknown(name: str, why: str) -> JudgeBias:
    return JudgeBias(name=name, message=f"unknown: {why}", reason_code="no_data")


def _percent(share: float | None, low: float | None, high: float | None) -> str:
    span = f" [{low:.0%}, {high:.0%}]" if low is not None and high is not None else ""
    return f"{np.nan if share is None else share:.0%}{span}"
