"""Verdicts on win rates of judgements in memory."""

from collections.abc import Sequence
from typing import Any

from preferred import Pair, preferences

from evalflows.analysis.judge_biases import biases_of, exclusion
from evalflows.analysis.preferences import Preferences, rates_at_equal_length
from evalflows.analysis.win_rates import _classified, _Matchup
from evalflows.store.records import VerdictRow

BASE, CANDIDATE = "exp-00", "exp-01"


def verdicts(
    matchup: _Matchup, judged: Preferences, slices: Sequence[tuple[str, Preferences]] = ()
) -> list[VerdictRow]:
    """The verdicts of one matchup, classified together."""
    pair = matchup.candidate, matchup.baseline
    at_equal_length = rates_at_equal_length(judged, [pair], matchup.confidence_level)[pair]
    return list(_classified(list(matchup.verdicts(judged, at_equal_length, slices)), "holm"))


def first_verdict(judged: Preferences, **changes: Any) -> VerdictRow:
    """The verdict of the candidate against the baseline on all examples."""
    if "exclusion" not in changes:
        changes["exclusion"] = exclusion(biases_of(judged, 0.95))
    matchup = {
        "comparison_id": "cmp-1",
        "metric": "m",
        "candidate": CANDIDATE,
        "baseline": BASE,
        "confidence_level": 0.95,
    }
    return verdicts(_Matchup(**{**matchup, **changes}), judged)[0]


def verdict_between(pairs: Sequence[Pair], candidate: str = "b", baseline: str = "a", **changes: Any) -> VerdictRow:
    """The verdict of the right side, b, against the left side, a, unless named otherwise."""
    return first_verdict(preferences(pairs), candidate=candidate, baseline=baseline, **changes)


def agreed_pairs(*winners: str, **fields: Any) -> list[Pair]:
    """One pair per winner, with the same verdict in both orders."""
    return [Pair(f"q{i}", winner, winner, **fields) for i, winner in enumerate(winners)]
