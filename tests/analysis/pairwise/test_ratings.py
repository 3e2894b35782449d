"""Where experiments stand: ratings, ranks, win rates over all others, and circles."""

import math
from itertools import combinations
from typing import Any

import pytest
from preferred import Pair, agreed, preferences

from evalflows.analysis.preferences import Preferences
from evalflows.analysis.win_rates import AVERAGE, ELO, intransitive_cycles, ratings_of
from evalflows.specs.comparison import ComparisonSpec
from evalflows.stats.means import mean_estimate
from evalflows.store.records import RatingRow, from_json

N = 30


def spec(*experiments: str, **fields: Any) -> ComparisonSpec:
    return ComparisonSpec.model_validate({"experiments": list(experiments), "evaluators": "app:judge"} | fields)


def tournament(wins: dict[tuple[str, str], int], n: int = N, **fields: Any) -> Preferences:
    """Every pair, in both orders: of `n` examples, the older of two wins so many."""
    said = [
        agreed(f"q{i}", "left" if i < won else "right", left=left, right=right, **fields)
        for (left, right), won in wins.items()
        for i in range(n)
    ]
    return preferences(said)


def rated(found: Preferences, *experiments: str, **fields: Any) -> dict[str, RatingRow]:
    rows = ratings_of("cmp-1", found, spec(*experiments, **fields))
    assert [row.experiment_id for row in rows] == list(experiments)
    return {row.experiment_id: row for row in rows}


def test_points_are_those_of_chess() -> None:
    """Odds of 10 to 1 are 400 points."""
    found = rated(tournament({("a", "b"): 200}, 220), "a", "b")
    assert found["a"].rating - found["b"].rating == pytest.approx(400, abs=1e-6)  # type: ignore[operator]
    assert found["a"].rating + found["b"].rating == pytest.approx(2 * AVERAGE)  # type: ignore[operator]
    assert pytest.approx(400) == ELO * math.log(10)


def test_the_order_of_ratings_is_that_of_strength_and_the_ranks_say_it() -> None:
    found = rated(tournament({("a", "b"): 10, ("a", "c"): 5, ("b", "c"): 11}), "b", "c", "a")
    assert [found[one].rank for one in "cba"] == [1, 2, 3]
    assert found["c"].rating > AVERAGE > found["a"].rating  # type: ignore[operator]
    for row in found.values():
        assert row.ci_low < row.rating < row.ci_high  # type: ignore[operator]


def test_an_experiment_that_wins_all_has_a_finite_rating_and_one_that_loses_all_too() -> None:
    found = rated(tournament({("a", "b"): N, ("a", "c"): N, ("b", "c"): N}), "a", "b", "c")
    assert [found[one].rank for one in "abc"] == [1, 2, 3]
    for row in found.values():
        figures = (row.rating, row.ci_low, row.ci_high)
        assert all(math.isfinite(figure) and abs(figure) < 10_000 for figure in figures)  # type: ignore[arg-type]
    assert found["a"].ci_low > found["c"].ci_high  # type: ignore[operator]


def test_a_preference_for_a_place_is_no_strength() -> None:
    """The better one of each two wins half of the pairs in both orders, the rest goes to who is shown first."""

    def drawn(first: str, second: str) -> list[Pair]:
        return [Pair(f"q{i}", first, second, left=a, right=b) for a, b in combinations("ab", 2) for i in range(N)]

    always_first = rated(preferences(drawn("left", "right")), "a", "b")
    assert always_first["a"].rating == pytest.approx(always_first["b"].rating)
    effect = from_json(always_first["a"].settings)
    assert effect["order_effect"] > 3 and effect["order_low"] > 0


def test_shown_in_one_order_only_the_place_is_not_told_and_says_so() -> None:
    fixed = preferences([Pair(f"q{i}", "left" if i % 3 else "right") for i in range(N)])
    settings = from_json(rated(fixed, "a", "b")["a"].settings)
    assert settings["order_effect"] is None
    assert settings["order_reason"].startswith("no two entries were shown in both orders")


# Win rates


def test_the_win_rate_over_all_others_takes_each_example_once() -> None:
    """a against b and c on q0 and so on: the mean of both is one value of the example."""
    said = [("left", "left"), ("left", "tie"), ("right", "left"), ("right", "right")]
    pairs = [Pair(f"q{i}", one, one, left="a", right="b") for i, (one, _) in enumerate(said)]
    pairs += [Pair(f"q{i}", other, other, left="a", right="c") for i, (_, other) in enumerate(said)]
    found, wanted = rated(preferences(pairs), "a", "b", "c")["a"], mean_estimate([1.0, 0.75, 0.5, 0.0])
    assert (found.wins, found.losses, found.ties, found.missing) == (4, 3, 1, 0)
    assert found.win_rate == wanted.mean == 0.5625
    assert found.win_rate_low == max(wanted.low, 0.0)  # type: ignore[type-var]
    assert found.win_rate_high == min(wanted.high, 1.0)  # type: ignore[type-var]


def test_what_is_missing_or_left_out_is_in_no_win_rate() -> None:
    pairs = [Pair("q0", "left", "left"), Pair("q1", "right", "right"), Pair("q2", "left", "left", missing=True)]
    pairs += [Pair("q3", status="left_out")]
    found = rated(preferences(pairs), "a", "b")["b"]
    assert (found.wins, found.losses, found.ties, found.missing, found.win_rate) == (1, 1, 0, 1, 0.5)
    flipped = rated(preferences([Pair("q0", "left", "right"), Pair("q1", "left", "left")]), "a", "b")["a"]
    assert (flipped.wins, flipped.ties, flipped.win_rate) == (1, 1, 0.75), "a flip is a tie"
    for row in rated(tournament({("a", "b"): 3}, 4), "a", "b").values():
        assert 0.0 <= row.win_rate_low < row.win_rate < row.win_rate_high <= 1.0  # type: ignore[operator]


def test_clusters_are_what_is_sampled() -> None:
    pairs = [agreed(f"q{i}", "left" if i < 18 else "right", cluster=f"c{i // 6}") for i in range(N)]
    alone = [agreed(f"q{i}", "left" if i < 18 else "right") for i in range(N)]
    together, single = rated(preferences(pairs), "a", "b")["a"], rated(preferences(alone), "a", "b")["a"]
    assert (together.n_clusters, single.n_clusters) == (5, N)
    assert together.win_rate == single.win_rate
    assert together.win_rate_low < single.win_rate_low  # type: ignore[operator]


def test_experiments_that_never_met_have_no_ratings_and_say_why() -> None:
    pairs = [Pair(f"q{i}", "left", "left", left=a, right=b) for a, b in ("ab", "cd") for i in range(5)]
    found = rated(preferences(pairs), "a", "b", "c", "d")
    assert {(row.rating, row.ci_low, row.rank) for row in found.values()} == {(None, None, None)}
    assert str(found["a"].reason).startswith("a and c are not connected")
    assert (found["a"].wins, found["b"].losses) == (5, 5)


def test_where_nothing_was_judged_nothing_is_rated() -> None:
    found = rated(preferences([Pair(f"q{i}", "left", missing=True) for i in range(4)]), "a", "b")["a"]
    assert (found.rating, found.rank, found.win_rate, found.wins, found.missing) == (None, None, None, 0, 4)
    assert str(found.reason).startswith("no judgements")


# Circles


def test_a_circle_is_told_by_names_in_its_direction() -> None:
    ring = tournament({("a", "b"): 20, ("b", "c"): 20, ("a", "c"): 10})
    found = intransitive_cycles(ring, spec("a", "b", "c"), ["old", "new", "newest"])
    assert found.passed is None
    assert found.message == "intransitive, possibly by chance: old beats new beats newest beats old"
    other_way = tournament({("a", "b"): 10, ("b", "c"): 10, ("a", "c"): 20})
    turned = intransitive_cycles(other_way, spec("a", "b", "c"), ["old", "new", "newest"])
    assert turned.message == "intransitive, possibly by chance: old beats newest beats new beats old"


def test_who_is_even_with_another_is_in_no_circle() -> None:
    for even in (("a", "b"), ("b", "c"), ("a", "c")):
        wins = {("a", "b"): 20, ("b", "c"): 20, ("a", "c"): 10} | {even: N // 2}
        found = intransitive_cycles(tournament(wins), spec("a", "b", "c"), ["x", "y", "z"])
        assert (found.passed, found.message) == (True, "no intransitive cycles")
