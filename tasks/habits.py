"""What a judge's verdicts go by besides the answers: the place, the length, chance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd

from stats import ShareEstimate, agreement, combined_share, mean_estimate, share_estimate
from store.records import CheckRow, derived_id, to_json
from tasks.preference_data import Preferences

POSITION, FLIPS, LENGTH, CONSISTENCY = "position_preference", "flip_share", "length_preference", "self_consistency"

BY_PLACE = 0.5
"""Where more of the verdicts than this share go by the place, a judge decides nothing. Who goes by it so often, and
else by the answers, chooses that place in half of the other verdicts too: in three of four altogether."""

ONE_ORDER = "not identifiable: one order only"


class Estimate(Protocol):
    """A share or a mean, with its interval."""

    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def n(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """One thing that a judge's verdicts tell of it."""

    name: str
    message: str
    passed: bool | None = None  # None where it cannot be told, or says nothing against the judge by itself
    share: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    kappa: float | None = None  # of two judges, of which the interval is then


def habits_of(found: Preferences, level: float) -> list[Habit]:
    """The habits that the verdicts of one metric show."""
    return [_position(found, level), _flips(found, level), _length(found, level), _consistency(found, level)]


def unfit(habits: Sequence[Habit]) -> str | None:
    """Why nothing may rest on a judge; None where it may."""
    of = {habit.name: habit for habit in habits}
    if of[POSITION].message == ONE_ORDER:
        always = "one experiment's answers were always shown first"
        return f"{always}: a preference for that place cannot be told from better answers"
    if of[POSITION].passed is False:
        return f"this judge goes by the place more than by the answers: {of[POSITION].message}"
    if of[FLIPS].passed is False:
        return f"shown the other order, this judge mostly says something else: {of[FLIPS].message}"
    return None


def in_one_order(found: Preferences, candidate: str, baseline: str) -> str | None:
    """Why nothing may rest on the verdicts on two experiments of which the same was always shown first; else None."""
    between = found.judgements[found.judgements.left.isin([candidate, baseline])]
    between = between[between.right.isin([candidate, baseline]) & between.asked]
    if between.shown_first.nunique() != 1:
        return None
    always = "one experiment's answers were always shown first"
    return f"{always}: a preference for that place cannot be told from better answers"


def agreements(metrics: Sequence[Preferences], level: float) -> Iterator[tuple[str, Habit]]:
    """For each two metrics of the same pairs, under the first: how far they agree beyond chance."""
    for place, one in enumerate(metrics):
        for other in metrics[place + 1 :]:
            if (found := _agreement(one, other, level)).n:
                yield one.metric, found


def as_check(comparison_id: str, metric: str, habit: Habit) -> CheckRow:
    return CheckRow(
        check_id=derived_id(comparison_id, metric, habit.name),
        batch_id=comparison_id,
        subject_kind="judge",
        subject_id=metric,
        name=habit.name,
        passed=habit.passed,
        severity="warning",
        n_checked=habit.n,
        observed=to_json({name: getattr(habit, name) for name in ("share", "kappa", "low", "high")}),
        message=habit.message,
    )


def _position(found: Preferences, level: float) -> Habit:
    """Of the pairs of experiments that were shown in both orders, since in one the better one may always be first."""
    asked = found.judgements[found.judgements.asked & (found.judgements.winner != "tie")]
    both = asked.groupby(["left", "right"]).shown_first.transform("nunique") == 2
    if found.judgements.empty:
        return Habit(name=POSITION, message="not known: there is no verdict")
    if found.judgements.groupby(["left", "right"]).shown_first.nunique().max() != 2:
        return Habit(name=POSITION, message=ONE_ORDER)
    decided = asked[both]
    if decided.empty:
        return Habit(name=POSITION, message="not known: no verdict without a tie on two that were shown in both orders")
    estimate = _first_chosen(decided, level)
    place = "first" if (estimate.share or 0) >= 0.5 else "second"
    share, low, high = _of_side(estimate, place == "first")
    by_place = share is not None and share > 0.5 + BY_PLACE / 2 and low is not None and low > 0.5
    message = f"chose the answer shown {place} in {_percent(share, low, high)} of {estimate.n} verdicts without ties"
    if not (decided.orders == 2).all():
        message += ", of which each order counts half"
    return _habit(POSITION, message, not by_place, estimate.share, estimate)


def _first_chosen(decided: pd.DataFrame, level: float) -> ShareEstimate:
    """The share of verdicts for the answer shown first, as if either side had been shown first as often as the other.

    In both orders it was. Where the order was drawn, the better side may have come first more often by chance, so that
    each order counts half.
    """
    first = (decided.winner == decided.shown_first).astype(float)
    if (decided.orders == 2).all():
        return share_estimate(first, list(decided.together), level=level)
    parts, weights = [], []
    for _, of_pair in decided.groupby(["left", "right"]):
        for _, rows in of_pair.groupby("shown_first"):
            parts.append(share_estimate(first[rows.index], list(rows.together), level=level))
            weights.append(len(of_pair) / 2)
    return combined_share(parts, weights)


def _of_side(estimate: Any, is_first: bool) -> tuple[float | None, float | None, float | None]:
    """Share and interval of the place that is preferred."""
    if is_first or estimate.share is None:
        return estimate.share, estimate.low, estimate.high
    ends = (estimate.high, estimate.low)
    low, high = (None if end is None else 1 - end for end in ends)
    return 1 - estimate.share, low, high


def _flips(found: Preferences, level: float) -> Habit:
    both = found.outcomes[found.outcomes.asked & (found.outcomes.shown == 0) & (found.outcomes.status == "scored")]
    if both.empty:
        return Habit(name=FLIPS, message="not known: no pair was shown in both orders")
    flipped = (both.outcome == "flipped").astype(float)
    estimate = share_estimate(flipped, list(both.together), level=level)
    message = f"changed its verdict with the order in {_said(estimate.share, estimate)} of {estimate.n} pairs"
    return _habit(FLIPS, message, (estimate.share or 0) <= BY_PLACE, estimate.share, estimate)


def _length(found: Preferences, level: float) -> Habit:
    """Longer answers may be better ones, so that this alone says nothing against a judge."""
    decided = found.outcomes[found.outcomes.asked & found.outcomes.points.isin([0.0, 1.0])]
    decided = decided[decided.longer.notna() & (decided.longer != 0)]
    if decided.empty:
        return Habit(name=LENGTH, message="not known: no verdict between answers of different lengths")
    longer = ((decided.longer > 0) == (decided.points == 1)).astype(float)
    estimate = share_estimate(longer, list(decided.together), level=level)
    message = f"chose the longer answer in {_said(estimate.share, estimate)} of {estimate.n} pairs without ties"
    return _habit(LENGTH, message, None, estimate.share, estimate)


def _consistency(found: Preferences, level: float) -> Habit:
    asked = found.outcomes[found.outcomes.agreement.notna()]
    if asked.empty:
        return Habit(name=CONSISTENCY, message="not known: it was asked once each (repeats)")
    estimate = mean_estimate(asked.agreement, list(asked.together), level=level)
    low, high = (None if end is None else min(max(end, 0.0), 1.0) for end in (estimate.low, estimate.high))
    estimate = replace(estimate, low=low, high=high)
    message = f"said the same again in {_said(estimate.mean, estimate)} of repeats, over {estimate.n} pairs"
    return _habit(CONSISTENCY, message, None, estimate.mean, estimate)


def _agreement(one: Preferences, other: Preferences, level: float) -> Habit:
    keys = ["example_id", "repetition", "left", "right"]
    asked = (side.outcomes[side.outcomes.asked & side.outcomes.points.notna()] for side in (one, other))
    ours, theirs = (side[[*keys, "together", "points"]] for side in asked)
    both = pd.merge(ours, theirs, on=keys, suffixes=("_one", "_other"))
    found = agreement(list(both.points_one), list(both.points_other), list(both.together_one), level=level)
    kappa = "" if found.kappa is None else f", kappa {found.kappa:.2f}"
    span = f" [{found.low:.2f}, {found.high:.2f}]" if found.low is not None and found.high is not None else ""
    share = "-" if found.share is None else f"{found.share:.1%}"
    message = f"the same verdict on {share} of {found.n} pairs{kappa}{span}"
    return Habit(
        name=f"agreement with {other.metric}",
        message=message,
        share=found.share,
        kappa=found.kappa,
        low=found.low,
        high=found.high,
        n=found.n,
    )


def _habit(name: str, message: str, passed: bool | None, share: float | None, estimate: Estimate) -> Habit:
    return Habit(
        name=name, message=message, passed=passed, share=share, low=estimate.low, high=estimate.high, n=estimate.n
    )


def _said(share: float | None, estimate: Estimate) -> str:
    return _percent(share, estimate.low, estimate.high)


def _percent(share: float | None, low: float | None, high: float | None) -> str:
    span = f" [{low:.0%}, {high:.0%}]" if low is not None and high is not None else ""
    return f"{np.nan if share is None else share:.0%}{span}"
