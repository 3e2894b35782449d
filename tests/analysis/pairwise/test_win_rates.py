"""Verdicts on win rates: their figures, missing pairs, repetitions, clusters, length control and slices."""

import numpy as np
import pytest
from matchups import agreed_pairs, verdict_between, verdicts
from preferred import Pair, agreed, preferences

from evalflows.analysis.win_rates import _Matchup, estimate_win_rates
from evalflows.specs.comparison import ComparisonSpec
from evalflows.stats.length_control import length_controlled_rates
from evalflows.stats.paired import paired_difference
from evalflows.store.records import Reason

N = 40


def test_a_verdict_has_the_figures_of_the_paired_test() -> None:
    found = verdict_between(agreed_pairs(*["right"] * 32, *["left"] * 8))
    wins = [1.0] * 32 + [0.0] * 8
    wanted = paired_difference(wins, [1 - one for one in wins], binary=True)
    assert (found.conclusion, found.reason, found.method) == ("better", None, wanted.method)
    assert (found.candidate_mean, found.baseline_mean, found.difference) == pytest.approx((0.8, 0.2, 0.6))
    assert (found.ci_low, found.ci_high, found.p_value) == (wanted.low, wanted.high, wanted.p_value)
    assert (found.n_pairs, found.candidate_missing, found.settings) == (
        *(40, 0),
        '{"decided_without_judge":0,"flipped":0,"half":0,"left_out":0,"losses":8,"missing":0,"ties":0,"wins":32}',
    )


def test_a_flipped_pair_counts_as_flipped_and_as_a_tie() -> None:
    found = verdict_between(
        [*agreed_pairs(*["right"] * 6, *["left"] * 2, "tie"), Pair("f", "left", "right"), Pair("g", "tie", "right")]
    )
    counts = '"flipped":1,"half":1,"left_out":0,"losses":2,"missing":0,"ties":3,"wins":6'
    assert found.settings == f'{{"decided_without_judge":0,{counts}}}'
    assert found.candidate_mean == pytest.approx((6 + 1.5) / 11)


@pytest.mark.parametrize("drawn", [False, True])
def test_a_judge_that_always_picks_the_first_answer_is_excluded(drawn: bool) -> None:
    if drawn:  # by chance b was shown first more often than not
        pairs = [Pair(f"q{i}", *(["left"] if i < 6 else [None, "right"])) for i in range(N)]
    else:
        pairs = [Pair(f"q{i}", "left", "right") for i in range(N)]
    found = verdict_between(pairs)
    assert found.conclusion == "not_enough_evidence"
    assert found.reason_code == "judge_position_bias"
    assert verdict_between(pairs, exclusion=None).conclusion == ("better" if drawn else "not_enough_evidence"), (
        "else it would"
    )


def test_missing_pairs_that_could_change_the_verdict_leave_it_open() -> None:
    clear = agreed_pairs(*["right"] * 30, *["left"] * 6)
    few, many = (
        verdict_between([*clear, *(Pair(f"z{i}", "right", "right", missing=True) for i in range(n_missing))])
        for n_missing in (10, 30)
    )
    assert (few.conclusion, few.candidate_missing) == ("better", 10)
    assert (many.conclusion, many.candidate_missing, many.n_pairs) == ("not_enough_evidence", 30, 36)
    assert (many.worst_case_low, many.worst_case_high) == pytest.approx((2 * 30 / 66 - 1, 2 * 60 / 66 - 1))
    assert "30 pairs with a missing value" in many.reason and "-0.325 to +0.939" in many.reason  # type: ignore[operator]
    assert many.difference == few.difference, "what is missing is in no mean"


def test_a_missing_repetition_makes_its_example_missing() -> None:
    pairs = [Pair("q0", "right", "right", repetition=0), Pair("q0", "left", "left", repetition=1, missing=True)]
    pairs += agreed_pairs(*["right"] * 5)[1:]
    found = verdict_between(pairs)
    assert (found.n_pairs, found.candidate_missing, found.candidate_scored) == (4, 1, 5)


def test_left_out_and_not_applicable_pairs_are_neither_missing_nor_ties() -> None:
    pairs = [*agreed_pairs(*["right"] * 20), Pair("x", status="left_out"), Pair("y", status="not_applicable")]
    found = verdict_between(pairs)
    assert (found.conclusion, found.n_pairs, found.candidate_missing, found.candidate_mean) == ("better", 20, 0, 1.0)
    assert '"left_out":2' in str(found.settings)


def test_without_judgements_there_are_no_figures() -> None:
    found = verdict_between([Pair(f"q{i}", "left", "left", missing=True) for i in range(3)])
    assert (found.conclusion, found.candidate_mean, found.difference, found.ci_low) == (
        *("not_enough_evidence", None),
        *(None, None),
    )
    assert (found.candidate_missing, found.reason is None) == (3, False)


@pytest.mark.parametrize("pairs", [[], [Pair("x", status="left_out"), Pair("y", status="not_applicable")]], ids=len)
def test_without_counted_pairs_there_is_no_verdict(pairs: list[Pair]) -> None:
    found = preferences([*agreed_pairs(*["right"] * 20, left="a", right="c"), *pairs])
    for row in verdicts(_Matchup("cmp-1", "m", "b", "a", 0.95, None), found, [("split=test", found)]):
        assert (row.conclusion, row.n_pairs, row.candidate_mean) == ("not_enough_evidence", 0, None)
        assert row.reason


def test_repetitions_of_an_example_are_averaged() -> None:
    rng = np.random.default_rng(2)
    points = rng.choice([0.0, 1.0], size=(20, 3), p=[0.3, 0.7])
    pairs = [
        agreed(f"q{i}", "right" if won else "left", repetition=which)
        for i, row in enumerate(points)
        for which, won in enumerate(row)
    ]
    means = points.mean(axis=1)
    found, wanted = verdict_between(pairs), paired_difference(means, 1 - means, bounds=(0.0, 1.0))
    assert (found.n_pairs, found.candidate_scored) == (20, 60)
    assert (found.difference, found.ci_low, found.ci_high) == pytest.approx(
        (wanted.difference, wanted.low, wanted.high)
    )


def test_pairs_that_were_not_drawn_may_be_lost_or_won_even_if_all_drawn_ones_are_ties() -> None:
    found, unseen = verdict_between(agreed_pairs(*["tie"] * N)), 1 - 0.025 ** (1 / N)
    assert (found.difference, found.ci_low, found.ci_high) == pytest.approx((0.0, -unseen, unseen))


def test_clusters_are_the_sampling_unit() -> None:
    wins = [1.0 if i % 20 < 14 else 0.0 for i in range(N)]
    winners = ["right" if won else "left" for won in wins]
    alone = verdict_between(agreed_pairs(*winners))
    together = verdict_between([Pair(f"q{i}", one, one, cluster=f"c{i // 4}") for i, one in enumerate(winners)])
    wanted = paired_difference(wins, [1 - one for one in wins], [i // 4 for i in range(N)], binary=True)
    assert (together.n_clusters, together.difference) == (10, alone.difference)
    assert (together.ci_low, together.ci_high) == pytest.approx((wanted.low, wanted.high))
    assert together.ci_low < alone.ci_low  # type: ignore[operator]


def test_the_length_controlled_win_rate_comes_from_the_regression() -> None:
    """Every answer of the candidate is longer and nearly all win; the shorter ones do not."""
    rng = np.random.default_rng(4)
    longer = rng.normal(40, 40, 80)
    wins = (rng.random(80) < 1 / (1 + np.exp(-longer / 15))).astype(float)
    pairs = [
        agreed(f"q{i}", "right" if w else "left", longer=-d) for i, (w, d) in enumerate(zip(wins, longer, strict=True))
    ]
    found = preferences(pairs)
    plain, controlled = verdicts(_Matchup("cmp-1", "m", "b", "a", 0.95, None), found)
    (wanted,) = length_controlled_rates(
        np.ones(80), np.zeros(80), wins, longer, [f"q{i}" for i in range(80)], pairs=[(1, 0)], order=np.zeros(80)
    )
    assert controlled.candidate_mean == pytest.approx(wanted.rate)
    assert (plain.length_controlled, controlled.length_controlled) == (False, True)
    assert (plain.conclusion, controlled.conclusion) == ("better", "not_enough_evidence")
    assert plain.candidate_mean > 0.75 > controlled.candidate_mean  # type: ignore[operator]
    assert plain.verdict_id != controlled.verdict_id
    (_, unfit_one) = verdicts(
        _Matchup("cmp-1", "m", "b", "a", 0.95, Reason("judge_failed_validation", "no judge")), found
    )
    assert (unfit_one.reason, unfit_one.reason_code) == ("no judge", "judge_failed_validation")


def test_each_slice_has_its_own_verdict() -> None:
    winners = ["right"] * 30 + ["left"] * 30
    found = preferences(agreed_pairs(*winners))
    halves = {"topic=x": range(30), "topic=y": range(30, 60)}
    parts = [(name, frozenset(f"q{i}" for i in which)) for name, which in halves.items()]
    spec = ComparisonSpec.model_validate({"experiments": ["a", "b"], "evaluators": "app:judge"})
    weighed = estimate_win_rates("cmp-1", [found], spec, parts, ["old", "new"])
    verdicts = {v.slice: v.conclusion for v in weighed.verdicts if not v.length_controlled}
    assert verdicts == {None: "not_enough_evidence", "topic=x": "better", "topic=y": "worse"}
    ranks = {(r.slice, r.experiment_id): r.rank for r in weighed.ratings}
    better = [(None, "a"), (None, "b"), ("topic=x", "b"), ("topic=y", "a")]
    assert ranks == dict.fromkeys(better, 1) | {("topic=x", "a"): 2, ("topic=y", "b"): 2}
    assert len({v.verdict_id for v in weighed.verdicts}) == len(weighed.verdicts) == 4
