"""Habits of a judge: what its verdicts say of it, and when nothing may rest on them."""

from typing import Any

import pytest
from preferred import Pair, preferences

from evalflows.analysis.judge_biases import (
    CONSISTENCY,
    FLIPS,
    LENGTH,
    POSITION,
    JudgeBias,
    agreements,
    as_check,
    biases_of,
    exclusion,
)
from evalflows.stats.means import mean_estimate, share_estimate
from evalflows.store.records import Reason, from_json

N = 40


def biases(pairs: list[Pair], confidence_level: float = 0.95) -> dict[str, JudgeBias]:
    return {bias.name: bias for bias in biases_of(preferences(pairs), confidence_level)}


def why_judge_failed(pairs: list[Pair]) -> Reason | None:
    return exclusion(biases_of(preferences(pairs), 0.95))


def both(*said: tuple[str, str], **fields: Any) -> list[Pair]:
    """Pairs in both orders: what was said with the left first, and with the right."""
    return [Pair(f"q{i}", first, second, **fields) for i, (first, second) in enumerate(said)]


ALWAYS_FIRST, FAIR = ("left", "right"), ("right", "right")


def shares(found: JudgeBias) -> tuple[float | None, float | None, float | None, int]:
    return found.share, found.low, found.high, found.n


# A preference for a place


def test_the_share_of_verdicts_for_the_first_has_the_interval_of_a_share_over_examples() -> None:
    found = biases(both(*[ALWAYS_FIRST] * 10, *[FAIR] * 30))[POSITION]
    wanted = share_estimate([1.0] * 20 + [0, 1] * 30, [f"q{i // 2}" for i in range(80)])
    assert shares(found) == (wanted.share, wanted.low, wanted.high, 80)
    assert wanted.share == 50 / 80
    assert found.passed is True and found.message.startswith("chose the answer shown first in 62% [")
    tied = both(*[FAIR] * 10, ("tie", "tie"), ("left", "tie"))
    assert shares(biases(tied)[POSITION])[::3] == (11 / 21, 21), "a tie is a verdict for neither place"
    wide, narrow = (biases(both(*[ALWAYS_FIRST] * 10, *[FAIR] * 30), level)[POSITION] for level in (0.99, 0.8))
    assert wide.low < narrow.low < narrow.high < wide.high  # type: ignore[operator]


def test_of_a_judge_that_prefers_the_second_the_second_is_named() -> None:
    found = biases(both(*[("right", "left")] * N))[POSITION]
    assert (found.share, found.passed) == (0.0, False)
    assert found.message.startswith("chose the answer shown second in 100% [")


def test_in_one_order_a_place_cannot_be_told_from_a_better_answer() -> None:
    for first, second in (("left", None), (None, "left")):
        fixed = [Pair(f"q{i}", first, second) for i in range(N)]
        found = biases(fixed)[POSITION]
        assert (found.reason_code, found.passed, found.share) == ("one_presentation_order", None, None)
        assert str(why_judge_failed(fixed)).startswith("one experiment's answers were always shown first: ")


def test_what_was_settled_without_asking_says_nothing_of_the_judge() -> None:
    settled = [Pair(f"f{i}", "left", "left", asked=False, longer=5.0) for i in range(30)]
    asked = both(*[ALWAYS_FIRST] * 20, longer=5.0)
    with_settled, without = biases([*asked, *settled]), biases(asked)
    for name in (POSITION, FLIPS):
        assert shares(with_settled[name]) == shares(without[name])
    assert with_settled[LENGTH].message == "unknown: no verdict between answers of different lengths"


# Flips


def test_verdicts_that_change_with_the_order_are_counted_with_an_interval() -> None:
    pairs = both(*[ALWAYS_FIRST] * 6, *[FAIR] * 12, ("tie", "left"), ("tie", "tie"))
    found, wanted = biases(pairs)[FLIPS], share_estimate([1.0] * 6 + [0.0] * 14, [f"q{i}" for i in range(20)])
    assert shares(found) == (6 / 20, wanted.low, wanted.high, 20)
    assert "in 30% [" in found.message and "called 1 more a tie in one order only" in found.message


# Unfit


def test_a_judge_that_always_says_first_is_unfit_in_both_orders_and_in_a_drawn_one() -> None:
    in_both = both(*[ALWAYS_FIRST] * N)
    assert biases(in_both)[FLIPS].passed is biases(in_both)[POSITION].passed is False
    drawn = [Pair(f"q{i}", "left" if i % 2 else None, None if i % 2 else "right") for i in range(N)]
    for pairs in (in_both, drawn):
        assert str(why_judge_failed(pairs)).startswith(
            "this judge has a position bias: it chose the answer shown first in 100%"
        )


def test_where_one_side_is_always_better_an_uneven_draw_makes_no_judge_unfit() -> None:
    for left_first in (6, 9, 11):
        drawn = [Pair(f"q{i}", "left", None) if i < left_first else Pair(f"q{i}", None, "left") for i in range(12)]
        found = biases(drawn)[POSITION]
        assert found.share == pytest.approx(0.5) and found.passed is True
        assert found.low < 0.5 < found.high  # type: ignore[operator]
        assert why_judge_failed(drawn) is None


def test_a_judge_that_contradicts_itself_without_liking_a_place_is_told_so() -> None:
    last = ("right", "left")  # with the left answer first it says right, and the other way round
    pairs = both(*[ALWAYS_FIRST] * 15, *[last] * 15, *[FAIR] * 10)
    assert str(why_judge_failed(pairs)).startswith(
        "this judge is inconsistent between presentation orders: it changed its verdict with the order in 75%"
    )


def test_a_judge_that_goes_by_the_place_in_more_than_half_of_the_pairs_is_unfit() -> None:
    """It chooses one place in half of the other verdicts too: in three of four altogether."""
    assert why_judge_failed(both(*[ALWAYS_FIRST] * 20, *[FAIR] * 20)) is None
    assert "the answer shown first in 76% [" in str(why_judge_failed(both(*[ALWAYS_FIRST] * 21, *[FAIR] * 19)))


def test_two_verdicts_are_too_few_to_call_a_judge_unfit_by_its_place_alone() -> None:
    few = [Pair("q0", "left"), Pair("q1", second="right")]
    assert biases(few)[POSITION].low < 0.5  # type: ignore[operator]
    assert why_judge_failed(few) is None


# Length, consistency


def test_the_longer_answer_is_counted_where_lengths_differ_and_there_is_no_tie() -> None:
    pairs = [Pair(f"q{i}", "left", "left", longer=3.0) for i in range(6)]
    pairs += [Pair(f"r{i}", "left", "left", longer=-3.0) for i in range(2)]
    pairs += [Pair("s0", "tie", "tie", longer=9.0), Pair("s1", "left", "left", longer=0.0), Pair("s2", "left", "left")]
    found, wanted = biases(pairs)[LENGTH], share_estimate([1.0] * 6 + [0.0] * 2, [f"{i}" for i in range(8)])
    assert shares(found) == (0.75, wanted.low, wanted.high, 8)
    assert found.passed is None, "longer answers may be the better ones"


def test_how_often_repeats_say_the_same_is_a_mean_over_pairs() -> None:
    agreement = [1.0, 1 / 3, 1.0, 1.0, 0.5]
    pairs = [Pair(f"q{i}", "left", "left", agreement=one) for i, one in enumerate(agreement)]
    found, wanted = biases(pairs)[CONSISTENCY], mean_estimate(agreement)
    assert wanted.low is not None
    assert shares(found) == pytest.approx((wanted.mean, max(wanted.low, 0.0), 1.0, 5))
    assert biases(both(FAIR))[CONSISTENCY].message == "unknown: each pair was judged once (repeats)"


def test_clusters_make_every_interval_wider() -> None:
    alike = [ALWAYS_FIRST if i % 20 < 8 else FAIR for i in range(N)]
    alone = [
        Pair(f"q{i}", *said, longer=[5, -5][i % 20 < 8], agreement=[1, 0][i % 20 < 8]) for i, said in enumerate(alike)
    ]
    together = [Pair(**{**vars(pair), "cluster": f"c{i // 4}"}) for i, pair in enumerate(alone)]
    for name in (POSITION, FLIPS, CONSISTENCY):
        one, other = biases(alone)[name], biases(together)[name]
        assert one.share == other.share
        assert other.high - other.low > 1.2 * (one.high - one.low), name  # type: ignore[operator]


# Two judges


def labelled(said: str, metric: str) -> Any:
    letters = {"l": "left", "r": "right", "t": "tie", "-": None}
    pairs = (Pair(f"q{i}", letters[one], letters[one], missing=letters[one] is None) for i, one in enumerate(said))
    return preferences(pairs, metric)


def test_two_judges_agree_beyond_chance_by_kappa_over_pairs_that_both_judged() -> None:
    one, other = labelled("llllrrrrtt--", "one"), labelled("lllrrrrltt-l", "other")
    ((under, found),) = agreements([one, other], 0.95)
    chance = 0.4 * 0.4 + 0.4 * 0.4 + 0.2 * 0.2
    assert (under, found.name, found.n) == ("one", "agreement with other", 10)
    assert (found.share, found.kappa) == pytest.approx((0.8, (0.8 - chance) / (1 - chance)))
    assert found.low < found.kappa < found.high  # type: ignore[operator]
    assert found.message.startswith("the same verdict on 80.0% of 10 pairs, kappa 0.69 [")
    three = [labelled("lrlr", name) for name in ("x", "y", "z")]
    assert [(under, bias.name) for under, bias in agreements(three, 0.95)] == [
        ("x", "agreement with y"),
        ("x", "agreement with z"),
        ("y", "agreement with z"),
    ]
    assert list(agreements([labelled("ll--", "one"), labelled("--rr", "other")], 0.95)) == []


# As a check


def test_a_habit_is_kept_as_a_check_of_the_judge() -> None:
    found = biases(both(*[ALWAYS_FIRST] * N))[POSITION]
    check = as_check("cmp-1", "m", found)
    assert (check.batch_id, check.subject_kind, check.subject_id, check.name) == ("cmp-1", "judge", "m", POSITION)
    assert (check.passed, check.severity, check.n_checked, check.message) == (False, "warning", 80, found.message)
    observed = {name: getattr(found, name) for name in ("share", "standard_error", "low", "high", "method")}
    assert found.method == "cluster-robust wilson" and found.standard_error is not None
    observed["kappa"] = None
    assert from_json(check.observed) == observed
    assert as_check("cmp-1", "other", found).check_id != check.check_id
