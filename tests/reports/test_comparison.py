"""A comparison's report: what stands in it, and what is said in words."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from typing import Any

import pytest
from compared import Compared

from evalflows.reports.comparison import ComparisonReport, comparison_report
from evalflows.store.records import CheckRow, RatingRow, VerdictRow, to_json
from evalflows.store.store import Store

COUNTS = {"wins": 6, "losses": 2, "ties": 2, "flipped": 1, "missing": 0, "left_out": 0}


def verdict(candidate: int = 1, baseline: int = 0, **fields: Any) -> VerdictRow:
    """exp-01 against exp-00, better by 0.4, unless it is said otherwise."""
    given: dict[str, Any] = {
        "verdict_id": f"{fields.get('metric')} {candidate} {baseline} {fields.get('slice')} {fields.get('method')}",
        "comparison_id": "cmp-1",
        "metric": "preference",
        "candidate_experiment_id": f"exp-0{candidate}",
        "baseline_experiment_id": f"exp-0{baseline}",
        "candidate_mean": 0.7,
        "baseline_mean": 0.3,
        "difference": 0.4,
        "ci_low": 0.1,
        "ci_high": 0.7,
        "confidence_level": 0.95,
        "p_value": 0.012,
        "method": "t",
        "n_pairs": 10,
        "candidate_scored": 10,
        "candidate_missing": 0,
        "baseline_scored": 10,
        "baseline_missing": 0,
        "conclusion": "better",
        "settings": to_json(COUNTS),
    }
    given |= fields
    return VerdictRow(**{"run_group": given["comparison_id"], **given})


def rating(place: int, rank: int | None, **fields: Any) -> RatingRow:
    given = {
        "rating_id": f"r{place} {fields}",
        "comparison_id": "cmp-1",
        "metric": "preference",
        "method": "bradley-terry",
    }
    figures = {"rating": 1000.0 - place, "ci_low": 900.0, "ci_high": 1100.0, "win_rate": 0.5}
    counts = {"wins": 1, "losses": 2, "ties": 3, "missing": 4}
    return RatingRow(**given | figures | counts | {"experiment_id": f"exp-0{place}", "rank": rank} | fields)


def report(
    store: Store, *rows: VerdictRow | RatingRow | CheckRow, of: Compared | None = None, **of_set: Any
) -> ComparisonReport:
    """The report of a comparison of old, new and newest with these rows."""
    one = of or Compared(store, names=("old", "new", "newest"), examples=("q0", "q1"), **of_set)
    one.write()
    for table, kind in (("verdicts", VerdictRow), ("ratings", RatingRow), ("checks", CheckRow)):
        store.publish(table, "cmp-1", [row for row in rows if isinstance(row, kind)])
    return comparison_report(store, "cmp-1")


# What stands in it


def test_the_overview_tells_how_far_it_is(store: Store) -> None:
    one = Compared(store, examples=("q0", "q1", "q2", "q3"), both_orders=True, n_left_out=2, state="incomplete")
    one.judge("q0", "left", "left")
    one.judge("q1", "failed", "left")
    one.judge("q2", "right unasked", "right unasked")
    found = report(store, of=one).overview
    assert (found.n_experiments, found.n_shared, found.n_left_out, found.state) == (2, 4, 2, "incomplete")
    assert (found.planned, found.judged, found.decided_without_judge, found.missing) == (8, 3, 2, 3)
    assert (found.both_orders, found.randomize_order, found.failed_output_policy) == (True, True, "loses")


def test_a_win_rate_is_between_0_and_1_with_its_interval_and_counts(store: Store) -> None:
    one = report(store, verdict())
    assert one.sentences[0] == "new against old, preference: better, win rate 70% [55%, 85%]"
    (found,) = one.win_rates
    assert (found.candidate, found.baseline, found.slice, found.conclusion) == ("new", "old", "all", "better")
    assert (found.win_rate, found.win_rate_low, found.win_rate_high) == pytest.approx((0.7, 0.55, 0.85))
    assert {name: getattr(found, name) for name in COUNTS} == COUNTS
    assert (found.rate_text, found.p_text, found.ties_text, found.what) == (
        "70% [55%, 85%]",
        "0.012",
        "2 (1 flipped)",
        "all",
    )


def test_standings_are_of_all_examples_the_best_first(store: Store) -> None:
    rows = [rating(0, 2), rating(1, 3), rating(2, 1), rating(0, 1, slice="split=test")]
    found = report(store, *rows).ranking
    assert [(one.rank, one.experiment) for one in found] == [(1, "newest"), (2, "old"), (3, "new")]
    assert (found[1].rating_text, found[1].rate_text) == ("1000 [900, 1100]", "50.0%")
    assert (found[1].wins, found[1].losses, found[1].ties) == (1, 2, 3)


def test_a_judge_of_ties_alone_comes_last_and_is_said_to_distinguish_nothing(store: Store) -> None:
    ties = to_json(COUNTS | {"wins": 0, "losses": 0, "ties": 30})
    of_ties = verdict(metric="always ties", **UNDECIDED | {"settings": ties})
    found = report(store, verdict(), of_ties, rating(0, 1), rating(1, 1, metric="always ties"))
    assert [row.metric for row in found.ranking_by_decided] == ["preference", "always ties"]
    assert "always ties cannot distinguish these answers: 30 of 30 pairs are ties" in found.sentences
    assert not any(sentence.startswith("preference cannot") for sentence in found.sentences)


def test_another_comparison_has_no_part_in_it(store: Store) -> None:
    other = Compared(store, comparison_id="cmp-2", examples=("q9",))
    other.judge("q9", "failed", error="not mine")
    other.write()
    store.publish("verdicts", "cmp-2", [verdict(comparison_id="cmp-2")])
    found = report(store, verdict(candidate=2))
    assert [one.candidate for one in found.win_rates] == ["newest"] and found.errors == []


# In words


def said(store: Store, *rows: VerdictRow | RatingRow | CheckRow, **fields: Any) -> list[str]:
    return report(store, *rows, **fields).sentences


UNDECIDED: dict[str, Any] = {
    "conclusion": "not_enough_evidence",
    "reason": "3 pairs with a missing value could change the conclusion",
}


def test_why_nothing_was_decided_is_said_unless_the_interval_shows_it(store: Store) -> None:
    none = {**UNDECIDED, "reason": "10 pairs", "reason_code": "no_significant_difference"}
    sentences = said(store, verdict(**UNDECIDED), verdict(metric="other", **none))
    assert [one for one in sentences if one.startswith("not enough evidence in")] == [
        "not enough evidence in preference: 3 pairs with a missing value could change the conclusion"
    ]
    assert "new against old, other: no significant difference, win rate 70% [55%, 85%]" in sentences


def test_what_holds_between_all_is_said_once_and_of_some_it_is_said_which(store: Store) -> None:
    def doubts(*rows: VerdictRow) -> list[str]:
        return [one for one in said(store, *rows) if one.startswith("not enough evidence in")]

    every = [verdict(1, 0, **UNDECIDED), verdict(2, 0, **UNDECIDED)]
    assert doubts(*every) == [f"not enough evidence in preference: {UNDECIDED['reason']}"]
    some = [verdict(1, 0, **UNDECIDED), verdict(2, 1, **UNDECIDED), verdict(2, 0)]
    wanted = f"not enough evidence in preference between newest and new; new and old: {UNDECIDED['reason']}"
    assert doubts(*some) == [wanted]


@pytest.mark.parametrize(
    ("policy", "became"), [("loses", "the failed run loses"), ("left_out", "such pairs are left out")]
)
def test_what_was_not_compared_not_asked_or_is_missing_is_said(store: Store, policy: str, became: str) -> None:
    one = Compared(store, examples=("q0", "q1", "q2"), n_left_out=2, failed_output_policy=policy)
    one.judge("q0", "left unasked" if policy == "loses" else "left_out")
    one.judge("q1", "left")
    one.judge("q2", "failed")
    assert said(store, of=one) == [
        "2 examples were not compared: not all experiments have them with the same inputs",
        f"1 judgements needed no judge, as a run had failed: {became}",
        "1 of 3 judgements are missing",
    ]
