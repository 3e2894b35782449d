"""Who wins: win rates that cover the truth though a judge prefers a place, and what keeps them from deciding."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from matched import FAILED, NEVER, asked, compared, experiment, rows_of
from numpy.typing import NDArray
from preferred import Pair, agreed, preferences

from evalflows.analysis.pairwise import ratings as ranking
from evalflows.analysis.pairwise.judge_biases import biases_of, exclusion
from evalflows.analysis.pairwise.preferences import MAX_SLICE_VALUES, Preferences, preferences_in, slices
from evalflows.analysis.pairwise.win_rates import _classified, _Matchup, estimate_win_rates
from evalflows.execution.running_comparison import experiments_of
from evalflows.specs.comparison import ComparisonSpec
from evalflows.stats import length_controlled, paired_difference
from evalflows.store.parquet import Store
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.reasons import Reason
from evalflows.store.records import VerdictRow

BASE, CANDIDATE = "exp-00", "exp-01"
Order = Literal["both", "fixed", "drawn"]
N = 40


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "RESAMPLES", 50)


# A judge that prefers a place by 20 points

EYE, BETTER = 0.8, 0.6
"""How probably the judge, if it preferred no place, would choose the better answer, and how often that is the
candidate's."""
TRUE_WIN_RATE = BETTER * EYE + (1 - BETTER) * (1 - EYE)
BIAS = 0.2
Simulated = tuple[NDArray[np.bool_], NDArray[np.bool_]]


def simulated(order: Order, sims: int, seed: int) -> Iterator[Simulated]:
    """Of each comparison of 100 to 200 pairs: whether the candidate was shown first, and whether it was said to be
    better, shape (pairs, orders)."""
    rng = np.random.default_rng(seed)
    for pairs in rng.integers(100, 201, sims):
        eye = np.where(rng.random((pairs, 1)) < BETTER, EYE, 1 - EYE)
        candidate_first = {
            "both": np.tile([True, False], (pairs, 1)),
            "fixed": np.ones((pairs, 1), dtype=bool),
            "drawn": rng.random((pairs, 1)) < 0.5,
        }[order]
        first_is_better = np.where(candidate_first, eye, 1 - eye)
        says_first = rng.random(candidate_first.shape) < np.clip(first_is_better + BIAS, 0, 1)
        yield candidate_first, says_first == candidate_first


def as_preferences(candidate_first: NDArray[np.bool_], candidate_wins: NDArray[np.bool_]) -> Preferences:
    """The candidate is the right one."""
    pairs, orders = candidate_wins.shape
    examples, won = np.array([f"q{i}" for i in range(pairs)]), candidate_wins.mean(axis=1)
    of = {"left": BASE, "right": CANDIDATE, "asked": True}
    outcomes = {
        "example_id": examples,
        "repetition": 0,
        "points": 1 - won,
        "status": "scored",
        "outcome": np.select([won == 1, won == 0], ["right", "left"], "flipped"),
        "longer": np.nan,
        "shown": 0.0 if orders == 2 else np.where(candidate_first[:, 0], -1.0, 1.0),
        "agreement": np.nan,
        "cluster_id": examples,
    }
    judgements = {
        "metric": "m",
        "example_id": examples.repeat(orders),
        "winner": np.where(candidate_wins.ravel(), "right", "left"),
        "shown_first": np.where(candidate_first.ravel(), "right", "left"),
        "orders": orders,
        "cluster_id": examples.repeat(orders),
    }
    frames = (pd.DataFrame(one | of) for one in (outcomes, judgements))
    return Preferences(metric="m", evaluator="m", **dict(zip(("outcomes", "judgements"), frames, strict=True)))


def verdicts(matchup: _Matchup, found: Preferences, parts: Sequence[tuple[str, Preferences]] = ()) -> list[VerdictRow]:
    """As they are kept, by themselves."""
    return list(_classified(list(matchup.verdicts(found, parts)), "holm"))


def verdict_of(found: Preferences, **changes: Any) -> VerdictRow:
    """The first verdict of candidate against baseline, of all examples."""
    if "exclusion" not in changes:
        changes["exclusion"] = exclusion(biases_of(found, 0.95))
    matchup = {
        "comparison_id": "cmp-1",
        "metric": "m",
        "candidate": CANDIDATE,
        "baseline": BASE,
        "confidence_level": 0.95,
    }
    return verdicts(_Matchup(**{**matchup, **changes}), found)[0]


def quick_interval(candidate_wins: NDArray[np.bool_]) -> tuple[float, float]:
    """The interval of the win rate as the verdict has it, straight from the statistics."""
    points = candidate_wins.mean(axis=1)
    binary = bool(np.isin(points, (0.0, 1.0)).all())
    found = paired_difference(points, 1 - points, list(range(points.size)), binary=binary)
    assert found.low is not None and found.high is not None
    return (1 + found.low) / 2, (1 + found.high) / 2


def covered(order: Order, sims: int, seed: int = 1) -> float:
    """How often the interval holds the true win rate."""
    ends = np.array([quick_interval(wins) for _, wins in simulated(order, sims, seed)])
    return float(np.mean((ends[:, 0] <= TRUE_WIN_RATE) & (ends[:, 1] >= TRUE_WIN_RATE)))


@pytest.mark.parametrize("order", ["both", "fixed", "drawn"])
def test_the_quick_interval_is_that_of_the_verdict(order: Order) -> None:
    for candidate_first, wins in simulated(order, 8, 3):
        verdict = verdict_of(as_preferences(candidate_first, wins), exclusion=None)
        assert verdict.candidate_mean == pytest.approx(wins.mean())
        assert (verdict.ci_low, verdict.ci_high) == pytest.approx([2 * end - 1 for end in quick_interval(wins)])


@pytest.mark.parametrize("order", ["both", "drawn"])
def test_both_orders_and_a_drawn_one_cover_the_true_win_rate(order: Order) -> None:
    assert covered(order, 2000) >= 0.94


def test_a_fixed_order_misses_the_true_win_rate() -> None:
    assert covered("fixed", 500) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("order", ["both", "fixed", "drawn"])
def test_comparisons_cover_through_the_verdicts_too(order: Order) -> None:
    """As above, by the whole way from judgements to verdicts: its habits, its length control, its doubts.

    In short form, as each takes a tenth of a second; of 2,000, 94.3 % (both) and 95.7 % (drawn) hold the truth.
    """
    verdicts, place = [], []
    for candidate_first, wins in simulated(order, 200, 1):
        found = as_preferences(candidate_first, wins)
        biases = biases_of(found, 0.95)
        verdicts.append(verdict_of(found, exclusion=exclusion(biases)))
        place.append(biases[0])
    held = [(1 + v.ci_low) / 2 <= TRUE_WIN_RATE <= (1 + v.ci_high) / 2 for v in verdicts]  # type: ignore[operator]
    wrong = sum(v.conclusion == "worse" for v in verdicts)
    decided = sum(v.conclusion == "better" for v in verdicts)
    print(f"{order}: {np.mean(held):.4f} cover, {decided} better, {wrong} worse of {len(verdicts)}")
    assert wrong <= 0.025 * len(verdicts)
    if order == "fixed":
        assert np.mean(held) < 0.05 and decided == 0
        assert {str(v.reason).partition(":")[0] for v in verdicts} == {
            "one experiment's answers were always shown first"
        }
        return
    assert np.mean(held) >= 0.91
    told = [h.low <= 0.5 + BIAS <= h.high for h in place]  # type: ignore[operator]
    print(f"{order}: {np.mean(told):.4f} of the intervals for the place hold {0.5 + BIAS}")
    assert np.mean(told) >= 0.91


def test_a_judge_that_leans_to_a_place_may_decide_all_the_same() -> None:
    """Four in ten verdicts change with the order, and 70 % go to the first: much, but it still tells the answers."""
    fits = [exclusion(biases_of(as_preferences(*one), 0.95)) for one in simulated("both", 100, 5)]
    assert fits.count(None) >= 90


# What a verdict says


def between(pairs: Sequence[Pair], candidate: str = "b", baseline: str = "a", **changes: Any) -> VerdictRow:
    """Left is a and right is b, unless the pairs say so."""
    return verdict_of(preferences(pairs), candidate=candidate, baseline=baseline, **changes)


def said(*winners: str, **fields: Any) -> list[Pair]:
    return [Pair(f"q{i}", one, one, **fields) for i, one in enumerate(winners)]


def test_a_fair_judge_decides_with_the_figures_that_the_statistics_give() -> None:
    found = between(said(*["right"] * 32, *["left"] * 8))
    wins = [1.0] * 32 + [0.0] * 8
    wanted = paired_difference(wins, [1 - one for one in wins], binary=True)
    assert (found.conclusion, found.reason, found.method) == ("better", None, wanted.method)
    assert (found.candidate_mean, found.baseline_mean, found.difference) == pytest.approx((0.8, 0.2, 0.6))
    assert (found.ci_low, found.ci_high, found.p_value) == (wanted.low, wanted.high, wanted.p_value)
    assert (found.n_pairs, found.candidate_missing, found.settings) == (
        *(40, 0),
        '{"flipped":0,"left_out":0,"losses":8,"missing":0,"settled":0,"ties":0,"wins":32}',
    )


def test_the_other_way_round_it_is_the_other_verdict() -> None:
    pairs = [*said(*["right"] * 30, *["left"] * 6), Pair("t", "tie", "tie"), Pair("f", "left", "right")]
    one, other = between(pairs), between(pairs, candidate="a", baseline="b")
    assert (one.conclusion, other.conclusion) == ("better", "worse")
    turned = [-end for end in (other.difference, other.ci_high, other.ci_low) if end is not None]
    assert [one.difference, one.ci_low, one.ci_high] == pytest.approx(turned)
    assert one.p_value == pytest.approx(other.p_value)


def test_flips_are_ties_and_counted_as_both() -> None:
    found = between(
        [*said(*["right"] * 6, *["left"] * 2, "tie"), Pair("f", "left", "right"), Pair("g", "tie", "right")]
    )
    assert found.settings == '{"flipped":2,"left_out":0,"losses":2,"missing":0,"settled":0,"ties":3,"wins":6}'
    assert found.candidate_mean == pytest.approx((6 + 1.5) / 11)


def test_too_small_a_difference_decides_nothing() -> None:
    found = between(said(*["right"] * 11, *["left"] * 9))
    assert (found.conclusion, found.reason_code) == ("not_enough_evidence", "no_significant_difference")


def test_one_order_only_decides_nothing_however_clear_it_is() -> None:
    found = between([Pair(f"q{i}", "right") for i in range(N)])
    assert (found.conclusion, found.candidate_mean) == ("not_enough_evidence", 1.0)
    assert str(found.reason).startswith(
        "one experiment's answers were always shown first: position bias cannot be told from better answers"
    )


@pytest.mark.parametrize("drawn", [False, True])
def test_a_judge_that_always_says_first_decides_nothing(drawn: bool) -> None:
    if drawn:  # by chance b was shown first more often than not
        pairs = [Pair(f"q{i}", *(["left"] if i < 6 else [None, "right"])) for i in range(N)]
    else:
        pairs = [Pair(f"q{i}", "left", "right") for i in range(N)]
    found = between(pairs)
    assert found.conclusion == "not_enough_evidence"
    assert found.reason_code == "judge_position_bias"
    assert str(found.reason).startswith("this judge has a position bias: it ")
    assert between(pairs, exclusion=None).conclusion == ("better" if drawn else "not_enough_evidence"), "else it would"


# Missing


def test_what_is_missing_may_turn_a_verdict_and_then_it_decides_nothing() -> None:
    clear = said(*["right"] * 30, *["left"] * 6)
    few, many = (
        between([*clear, *(Pair(f"z{i}", "right", "right", missing=True) for i in range(n_missing))])
        for n_missing in (10, 30)
    )
    assert (few.conclusion, few.candidate_missing) == ("better", 10)
    assert (many.conclusion, many.candidate_missing, many.n_pairs) == ("not_enough_evidence", 30, 36)
    assert (many.worst_case_low, many.worst_case_high) == pytest.approx((2 * 30 / 66 - 1, 2 * 60 / 66 - 1))
    assert (
        many.reason
        == "30 pairs with a missing value could change the conclusion (worst-case interval -0.325 to +0.939)"
    )  # the ends of the intervals then
    assert many.difference == few.difference, "what is missing is in no mean"


def test_of_repetitions_one_that_is_missing_leaves_the_example_open() -> None:
    pairs = [Pair("q0", "right", "right", repetition=0), Pair("q0", "left", "left", repetition=1, missing=True)]
    pairs += said(*["right"] * 5)[1:]
    found = between(pairs)
    assert (found.n_pairs, found.candidate_missing, found.candidate_scored) == (4, 1, 5)


def test_left_out_and_not_applicable_are_neither_missing_nor_ties() -> None:
    pairs = [*said(*["right"] * 20), Pair("x", status="left_out"), Pair("y", status="not_applicable")]
    found = between(pairs)
    assert (found.conclusion, found.n_pairs, found.candidate_missing, found.candidate_mean) == ("better", 20, 0, 1.0)
    assert '"left_out":2' in str(found.settings)


def test_nothing_judged_is_no_verdict_and_no_number() -> None:
    found = between([Pair(f"q{i}", "left", "left", missing=True) for i in range(3)])
    assert (found.conclusion, found.candidate_mean, found.difference, found.ci_low) == (
        *("not_enough_evidence", None),
        *(None, None),
    )
    assert (found.candidate_missing, found.reason is None) == (3, False)


@pytest.mark.parametrize("pairs", [[], [Pair("x", status="left_out"), Pair("y", status="not_applicable")]], ids=len)
def test_where_nothing_counts_there_is_no_verdict_either(pairs: list[Pair]) -> None:
    found = preferences([*said(*["right"] * 20, left="a", right="c"), *pairs])
    for row in verdicts(_Matchup("cmp-1", "m", "b", "a", 0.95, None), found, [("split=test", found)]):
        assert (row.conclusion, row.n_pairs, row.candidate_mean) == ("not_enough_evidence", 0, None)
        assert row.reason


# Repetitions and clusters


def test_repetitions_are_one_value_of_their_example() -> None:
    rng = np.random.default_rng(2)
    points = rng.choice([0.0, 1.0], size=(20, 3), p=[0.3, 0.7])
    pairs = [
        agreed(f"q{i}", "right" if won else "left", repetition=which)
        for i, row in enumerate(points)
        for which, won in enumerate(row)
    ]
    found, wanted = between(pairs), paired_difference(points.mean(axis=1), 1 - points.mean(axis=1))
    assert (found.n_pairs, found.candidate_scored) == (20, 60)
    assert (found.difference, found.ci_low, found.ci_high) == pytest.approx(
        (wanted.difference, wanted.low, wanted.high)
    )


def test_clusters_are_what_is_sampled() -> None:
    wins = [1.0 if i % 20 < 14 else 0.0 for i in range(N)]
    winners = ["right" if won else "left" for won in wins]
    alone = between(said(*winners))
    together = between([Pair(f"q{i}", one, one, cluster=f"c{i // 4}") for i, one in enumerate(winners)])
    wanted = paired_difference(wins, [1 - one for one in wins], [i // 4 for i in range(N)], binary=True)
    assert (together.n_clusters, together.difference) == (10, alone.difference)
    assert (together.ci_low, together.ci_high) == pytest.approx((wanted.low, wanted.high))
    assert together.ci_low < alone.ci_low  # type: ignore[operator]


# At equal length


def test_at_equal_length_the_win_rate_is_that_of_the_regression_and_the_plain_one_stays() -> None:
    """Every answer of the candidate is longer and nearly all win; the shorter ones do not."""
    rng = np.random.default_rng(4)
    longer = rng.normal(40, 40, 80)
    wins = (rng.random(80) < 1 / (1 + np.exp(-longer / 15))).astype(float)
    pairs = [
        agreed(f"q{i}", "right" if w else "left", longer=-d) for i, (w, d) in enumerate(zip(wins, longer, strict=True))
    ]
    found = preferences(pairs)
    plain, controlled = verdicts(_Matchup("cmp-1", "m", "b", "a", 0.95, None), found)
    wanted = length_controlled(wins, longer, [f"q{i}" for i in range(80)], order=np.zeros(80))
    assert controlled.candidate_mean == pytest.approx(wanted.rate)
    assert (plain.length_controlled, controlled.length_controlled) == (False, True)
    assert (plain.conclusion, controlled.conclusion) == ("better", "not_enough_evidence")
    assert plain.candidate_mean > 0.75 > controlled.candidate_mean  # type: ignore[operator]
    assert plain.verdict_id != controlled.verdict_id
    (_, unfit_one) = verdicts(
        _Matchup("cmp-1", "m", "b", "a", 0.95, Reason("judge_failed_validation", "no judge")), found
    )
    assert (unfit_one.reason, unfit_one.reason_code) == ("no judge", "judge_failed_validation")


# Slices


def test_each_value_of_a_slice_has_a_verdict_of_its_own() -> None:
    winners = ["right"] * 30 + ["left"] * 30
    found = preferences(said(*winners))
    halves = {"topic=x": range(30), "topic=y": range(30, 60)}
    parts = [(name, frozenset(f"q{i}" for i in which)) for name, which in halves.items()]
    spec = ComparisonSpec.model_validate({"experiments": ["a", "b"], "evaluators": "app:judge"})
    weighed = estimate_win_rates("cmp-1", found, spec, parts, ["old", "new"])
    verdicts = {v.slice: v.conclusion for v in weighed.verdicts if not v.length_controlled}
    assert verdicts == {None: "not_enough_evidence", "topic=x": "better", "topic=y": "worse"}
    ranks = {(r.slice, r.experiment_id): r.rank for r in weighed.ratings}
    better = [(None, "a"), (None, "b"), ("topic=x", "b"), ("topic=y", "a")]
    assert ranks == dict.fromkeys(better, 1) | {("topic=x", "a"): 2, ("topic=y", "b"): 2}
    assert len({v.verdict_id for v in weighed.verdicts}) == len(weighed.verdicts) == 4


def test_slices_are_the_splits_where_there_are_several_and_the_fields_asked_for() -> None:
    a = experiment("a", dict.fromkeys("pqr", "yes"), rows=[
        *rows_of("p", split="train", metadata={"topic": "x"}),
        *rows_of("q", split="test", metadata={"topic": "y"}),
        *rows_of("r", split="test"),
    ])  # fmt: skip
    examples = Store().read("examples", Store().read("experiments", a)[0].snapshot_id)
    assert dict(slices(examples, ["metadata.topic", "split"])) == {
        "split=test": {"q", "r"},
        "split=train": {"p"},
        "metadata.topic=x": {"p"},
        "metadata.topic=y": {"q"},
    }
    assert list(slices(examples[:1], [])) == [], "one split is no slice"


def test_a_field_of_too_many_values_is_no_slice() -> None:
    for count, wanted in ((MAX_SLICE_VALUES, MAX_SLICE_VALUES), (MAX_SLICE_VALUES + 1, 0)):
        names = [f"q{i}" for i in range(count)]
        rows = [rows_of([name], metadata={"id": name})[0] for name in names]
        one = experiment(f"e{count}", dict.fromkeys(names, "yes"), rows=rows)
        examples = Store().read("examples", Store().read("experiments", one)[0].snapshot_id)
        assert len(list(slices(examples, ["metadata.id"]))) == wanted


# From the store


def prefers(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Two metrics: the better by its name, and always the first."""
    return {"results": [{"key": "fair", "winner": _by_name(outputs)}, {"key": "first", "winner": "A"}]}


def _by_name(outputs: list[dict[str, Any]]) -> str:
    one, other = (output["answer"] for output in outputs)
    return "tie" if one == other else "A" if one > other else "B"


def test_the_frames_of_these_tests_are_those_that_the_store_gives() -> None:
    rows = [*rows_of(["q0", "q1", "q2", "q3", "q4"]), *rows_of(["q5"], cluster="k")]
    answers = {"q0": "a", "q1": "bbb", "q2": "c", "q3": FAILED, "q4": NEVER, "q5": "z"}
    old = experiment("old", answers, place=0, rows=rows)
    new = experiment("new", {"q0": "b", "q1": "a", "q2": "c", "q3": "d", "q4": "e", "q5": "z"}, place=1, rows=rows)
    row = compared([new, old], prefers, both_orders=True)
    examples = shared_examples(Store(), experiments_of(Store(), [new, old])).examples
    fair, first = preferences_in(Store(), row, examples)
    names: dict[str, Any] = {"left": old, "right": new}
    pairs = [
        Pair("q0", "right", "right", longer=0.0, **names),
        Pair("q1", "left", "left", longer=2.0, **names),
        Pair("q2", "tie", "tie", longer=0.0, **names),
        Pair("q3", "right", "right", asked=False, **names),
        Pair("q4", "tie", "tie", missing=True, **names),
        Pair("q5", "tie", "tie", longer=0.0, cluster="k", **names),
    ]
    wanted = preferences(pairs, "fair")
    keys = ["example_id", "shown_first"]
    assert [one.metric for one in (fair, first)] == ["fair", "first"]
    pd.testing.assert_frame_equal(fair.outcomes[list(wanted.outcomes)], wanted.outcomes, check_dtype=False)
    pd.testing.assert_frame_equal(
        fair.judgements.sort_values(keys, ignore_index=True),
        wanted.judgements.sort_values(keys, ignore_index=True),
        check_dtype=False,
    )
    assert list(first.outcomes.outcome[:3]) == ["flipped"] * 3


def test_everything_is_kept_and_made_anew_whenestimate_win_rates_again() -> None:
    old = experiment("old", {f"q{i}": "a" for i in range(20)}, place=0)
    new = experiment("new", {f"q{i}": "b" for i in range(20)}, place=1)
    row = compared([old, new], prefers, both_orders=True)
    compared([old, new], prefers, both_orders=True, resume=row.comparison_id)
    verdicts = asked(
        """select metric, conclusion, slice, count(*) from win_rates where not length_controlled
           group by all order by all"""
    )
    assert verdicts == [("fair", "better", "all", 1), ("first", "not_enough_evidence", "all", 1)]
    assert asked("select metric, bias, count(*) from judge_biases group by all having count(*) > 1") == []
    assert {bias for (bias,) in asked("select bias from judge_biases where metric = 'fair'")} == {
        *("position_preference", "flip_share", "length_preference", "self_consistency"),
        "agreement with first",
    }
    board = asked("select experiment, rank from leaderboard where metric = 'fair' order by rank")
    assert board == [("new", 1), ("old", 2)]
