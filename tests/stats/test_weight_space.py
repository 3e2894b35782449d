"""Other weights: each alone, all there are, the nearest that flip the winner; other examples."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.composite import Part, combined
from specs.metric import CompositeSpec, MetricSpec
from stats.nearest_flip import nearest_flip
from stats.run_parts import RunParts, run_parts
from stats.weight_space import one_at_a_time, share_of_weights, winner_stays

DEMO = [[0.7, 0.2], [0.6, 0.9]]
"""Plain answers contain the reference more often, brief ones are short: means of contains and short."""

TABLES = st.integers(2, 4).flatmap(
    lambda parts: st.lists(
        st.lists(st.integers(0, 20).map(lambda n: n / 20), min_size=parts, max_size=parts), min_size=2, max_size=4
    )
)


def grid(parts: int, steps: int) -> Any:
    """All weights that are whole multiples of 1 / steps."""
    return np.array([w for w in product(range(steps + 1), repeat=parts) if sum(w) == steps]) / steps


def random_runs(seed: int, how: Any, *, systems: int = 3, parts: int = 3, examples: int = 12) -> RunParts:
    rng = np.random.default_rng(seed)
    table = rng.uniform(0.05, 1, (systems * examples, parts))
    return run_parts(table, np.repeat(np.arange(systems), examples), clusters=[*range(examples)] * systems, how=how)


# The composite of a run is what it is elsewhere


@pytest.mark.parametrize("how", ["weighted_mean", "geometric_mean", "minimum"])
def test_scores_are_means_of_the_composites_that_evaluators_make(how: Any) -> None:
    rng = np.random.default_rng(1)
    table = rng.choice([0.0, 0.25, 0.5, 1.0, math.nan], (40, 3))
    table[np.isnan(table).all(axis=1)] = 0.5
    weights = {"a": 3.0, "b": 1.0, "c": 0.5}
    spec = CompositeSpec(name="quality", weights=weights, how=how, missing="leave_out")
    of_run = []
    for row in table:
        parts = {
            name: Part(value=None, status="failed") if np.isnan(value) else Part(value=value, status="scored")
            for name, value in zip(weights, row, strict=True)
        }
        of_run.append(combined(spec, parts, dict.fromkeys(weights, MetricSpec())).value)
    systems = np.repeat([0, 1], 20)
    runs = run_parts(table, systems, how=how)
    wanted = [np.mean(of_run[:20]), np.mean(of_run[20:])]
    assert runs.scores([[3, 1, 0.5]])[0] == pytest.approx(wanted)
    assert runs.distinct().scores([[3, 1, 0.5]])[0] == pytest.approx(wanted)


def test_a_run_counts_as_much_as_it_is_given() -> None:
    runs = run_parts([[1, 0], [0, 0], [0.5, 0.5]], [0, 0, 1], counts=[3, 1, 7])
    assert runs.scores([[1, 0]])[0] == pytest.approx([0.75, 0.5])


# One weight at a time


def test_a_narrow_win_is_lost_when_a_weight_changes_and_a_clear_one_is_not() -> None:
    narrow = one_at_a_time(DEMO, [9, 1])  # 0.65 against 0.63; level where 0.1 a = 0.7 (1 - a), at a = 0.875
    assert narrow.leaders == (0,) and narrow.scores == pytest.approx((0.65, 0.63))
    turned = [(one.part, round(one.factor, 1), one.leaders) for one in narrow.changes if one.changes_winner]
    assert turned == [(0, 0.8, (1,))]
    clear = one_at_a_time(DEMO, [1, 1])
    assert clear.leaders == (1,) and not any(one.changes_winner for one in clear.changes)


def test_the_other_weights_keep_their_ratios_and_no_weight_is_above_one() -> None:
    lower, higher, *_ = one_at_a_time([[1, 0, 0], [0, 1, 0]], [2, 1, 1], 0.2).changes
    assert lower.weights == pytest.approx((0.4, 0.3, 0.3)) and higher.weights == pytest.approx((0.6, 0.2, 0.2))
    highest = one_at_a_time(DEMO, [9, 1]).changes[1]
    assert highest.weights == (1.0, 0.0)


@given(TABLES, st.data())
@settings(max_examples=50, deadline=None)
def test_every_change_is_the_weighted_mean_by_hand(table: Any, data: Any) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(table[0]), max_size=len(table[0])))
    found = one_at_a_time(table, weights, 0.1)
    whole = sum(weights)
    for change in found.changes:
        part, weight = change.part, min(1, change.factor * weights[change.part] / whole)
        rest = whole - weights[part]
        by_hand = [w / rest * (1 - weight) if place != part else weight for place, w in enumerate(weights)]
        assert change.scores == pytest.approx([sum(w * x for w, x in zip(by_hand, row, strict=True)) for row in table])


# All weights


def test_the_demo_case_is_known_in_closed_form() -> None:
    """Contains favours plain by 0.1, short favours brief by 0.7: level where contains weighs 0.7 / 0.8."""
    found = share_of_weights(DEMO)
    assert found.shares == pytest.approx((1 / 8, 7 / 8))
    assert (found.standard_errors, found.draws, found.level, found.reason) == (None, None, (), None)


def test_who_is_better_in_every_part_wins_under_all_weights() -> None:
    assert share_of_weights([[0.9, 0.8, 0.7], [0.8, 0.7, 0.6]]).shares == (1.0, 0.0)
    assert share_of_weights([[0.1, 0.2], [0.8, 0.7]]).shares == (0.0, 1.0)


def test_the_same_systems_are_level_everywhere_and_named() -> None:
    assert share_of_weights([[0.5, 0.5, 0.1]] * 2).level == (((0, 1), 1.0),)
    three = share_of_weights([[0.5, 0.2], [0.5, 0.2], [0.1, 0.4]])
    assert three.shares == pytest.approx((0, 0, 0.2 / 0.6))
    assert three.level == (((0, 1), pytest.approx(0.4 / 0.6)),)
    drawn = share_of_weights([[0.5, 0.5, 0.1], [0.5, 0.5, 0.1], [0.1, 0.1, 0.0]])
    assert (drawn.level, drawn.shares) == ((((0, 1), 1.0),), (0.0, 0.0, 0.0))


@given(st.lists(st.integers(-20, 20).map(lambda n: n / 20), min_size=2, max_size=5))
@settings(max_examples=60, deadline=None)
def test_two_systems_are_exact_by_the_volume_of_a_simplex(differences: list[float]) -> None:
    """Against an even draw of weights, within five standard errors of its share."""
    middle = np.full(len(differences), 0.5)
    found = share_of_weights([middle + np.array(differences) / 2, middle - np.array(differences) / 2])
    drawn = np.random.default_rng(3).dirichlet(np.ones(len(differences)), 40_000) @ np.array(differences)
    if not any(differences):
        assert found.level == (((0, 1), 1.0),)
        return
    assert found.shares is not None
    assert found.shares[0] == pytest.approx((drawn > 0).mean(), abs=5 * 0.5 / math.sqrt(40_000))
    assert sum(found.shares) == pytest.approx(1)


def test_two_systems_agree_with_the_formula_by_divided_differences() -> None:
    """P(sum of d w > 0) = sum over d_j > 0 of d_j^(J-1) / prod over k of (d_j - d_k), for distinct d (Ali 1973)."""
    rng = np.random.default_rng(4)
    for parts in (2, 3, 5, 7):
        d = rng.uniform(-0.5, 0.5, parts)
        wanted = sum(
            d[j] ** (parts - 1) / np.prod([d[j] - d[k] for k in range(parts) if k != j])
            for j in range(parts)
            if d[j] > 0
        )
        found = share_of_weights([0.5 + d / 2, 0.5 - d / 2]).shares
        assert found is not None and found[0] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_two_parts_are_exact_for_any_number_of_systems(seed: int) -> None:
    table = np.random.default_rng(seed).random((5, 2))
    middles = (np.arange(100_000) + 0.5) / 100_000
    wins = (np.column_stack([middles, 1 - middles]) @ table.T).argmax(axis=1)
    assert share_of_weights(table).shares == pytest.approx(np.bincount(wins, minlength=5) / 100_000, abs=1e-4)


@pytest.mark.parametrize("how", ["weighted_mean", "geometric_mean"])
def test_drawn_shares_are_those_of_a_fine_grid_within_their_errors(how: Any) -> None:
    runs = random_runs(5, how)
    inner = (grid(3, 150) * 150 + 1) / 153  # cells of the simplex by their middles, near enough
    wins = np.bincount(runs.scores(inner).argmax(axis=1), minlength=3) / len(inner)
    found = share_of_weights(runs)
    assert found.shares is not None and found.standard_errors is not None
    for share, error, wanted in zip(found.shares, found.standard_errors, wins, strict=True):
        assert abs(share - wanted) < 4 * error + 0.01  # the grid's own error
    assert found == share_of_weights(runs) != share_of_weights(runs, seed=1)


@given(TABLES)
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_systems_does_not_matter(table: Any) -> None:
    one, other = share_of_weights(table, draws=500), share_of_weights(table[::-1], draws=500)
    assert one.shares == pytest.approx(tuple(reversed(other.shares or ())))


# The nearest weights that flip it


def test_the_demo_case_flips_where_the_lines_cross() -> None:
    found = nearest_flip(DEMO, [3, 1])
    assert (found.winner, found.rival, found.overtakes, found.reason) == (1, 0, True, None)
    assert found.weights == pytest.approx((0.875, 0.125)) and found.change == pytest.approx(0.125)


def test_a_winner_in_every_part_is_flipped_by_no_weights() -> None:
    found = nearest_flip([[0.9, 0.8, 0.7], [0.5, 0.7, 0.6]], [1, 1, 1])
    assert (found.weights, found.rival, found.change) == (None, None, None)
    assert found.reason == "it is better in every part than every other: it wins under all weights"


def test_a_rival_that_is_level_in_one_part_only_draws_level_and_one_that_can_lead_comes_first() -> None:
    level = nearest_flip([[0.9, 0.8], [0.5, 0.8]], [1, 1])
    assert (level.overtakes, level.weights, level.change) == (False, pytest.approx((0, 1)), 0.5)
    both = nearest_flip([[0.9, 0.8, 0.5], [0.9, 0.7, 0.5], [0.1, 0.1, 0.6]], [1, 1, 1])
    assert (both.rival, both.overtakes) == (2, True)
    assert both.change is not None and both.change > 1 / 3  # at which the second would be level, its weakness at 0


def test_who_is_level_as_declared_needs_no_change() -> None:
    found = nearest_flip([[1, 0], [0, 1]], [1, 1])
    assert (found.change, found.winner, found.weights, found.reason) == (0, None, (0.5, 0.5), "level as declared")


@pytest.mark.parametrize("seed", range(8))
def test_the_linear_program_finds_what_a_grid_finds(seed: int) -> None:
    """A grid of 1/100 cannot be nearer, and is at most a step and a half farther."""
    rng = np.random.default_rng(seed)
    parts = 3 if seed % 2 else 4
    table, weights = rng.random((3, parts)), rng.integers(1, 6, parts)
    found, steps = nearest_flip(table, weights), 100 if parts == 3 else 40
    check_against_a_grid(table, weights, found, grid(parts, steps), 1.5 / steps)


def check_against_a_grid(parts: Any, weights: Any, found: Any, tried: Any, slack: float) -> None:
    runs = parts if isinstance(parts, RunParts) else run_parts(parts, np.arange(len(parts)))
    scores = runs.scores(np.maximum(tried, 1e-12))
    others = np.delete(scores, found.winner, axis=1).max(axis=1)
    ahead = others >= scores[:, found.winner]
    assert ahead.any() == (found.weights is not None)
    if found.weights is not None:
        nearest = np.abs(tried - np.array(weights) / np.sum(weights)).max(axis=1)[ahead].min()
        assert found.change <= nearest + 1e-6
        assert found.change >= nearest - slack
        at = runs.scores([found.weights])[0]
        assert at[found.rival] == pytest.approx(at[found.winner], abs=1e-6)
        assert sum(found.weights) == pytest.approx(1) and min(found.weights) >= 0


@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_what_a_grid_finds_where_the_composite_is_not_linear(seed: int) -> None:
    runs = random_runs(seed, "geometric_mean")
    weights = np.random.default_rng(seed).integers(1, 6, 3)
    check_against_a_grid(runs, weights, nearest_flip(runs, weights, draws=4000), grid(3, 100), 0.015)


@pytest.mark.parametrize("seed", range(4))
def test_the_search_finds_what_the_program_finds_where_both_can(seed: int) -> None:
    """Parts that are left out make a search necessary; here they are left out of runs that say nothing."""
    rng = np.random.default_rng(seed)
    table, weights = rng.random((20, 4)), [3, 2, 4, 3]
    systems = np.repeat([0, 1], 10)
    even = np.full((2, 4), 0.5)
    even[:, 3] = np.nan  # of equal parts, whatever the weights
    both = run_parts(np.vstack([table, even]), np.append(systems, [0, 1]), counts=[1] * 20 + [1e-9] * 2)
    linear, searched = nearest_flip(run_parts(table, systems), weights), nearest_flip(both, weights, draws=2000)
    assert (linear.method, searched.method) == ("linear program", "search")
    assert searched.change == pytest.approx(linear.change, abs=1e-5)


def test_the_search_says_where_it_finds_nobody() -> None:
    runs = run_parts([[0.9, 0.8], [0.2, 0.3]], [0, 1], how="geometric_mean")
    found = nearest_flip(runs, [1, 1])
    assert (found.weights, found.reason) == (None, "nobody catches up under any of 20000 weights drawn evenly")


# No weights


def test_a_minimum_has_no_weights_and_says_so() -> None:
    runs = run_parts([[0.9, 0.3], [0.4, 0.5]], [0, 1], how="minimum")
    reason = "a minimum has no weights: it is the worst part whatever they are"
    one, share, flip = one_at_a_time(runs, [1, 1]), share_of_weights(runs), nearest_flip(runs, [1, 1])
    assert (one.leaders, one.scores, one.changes) == ((1,), (0.3, 0.4), ())
    assert (share.shares, flip.weights) == (None, None)
    assert {one.reason, share.reason, flip.reason} == {reason}


def test_one_part_leaves_no_other_weights() -> None:
    assert share_of_weights([[0.2], [0.3]]).shares == (0.0, 1.0)
    assert one_at_a_time([[0.2], [0.3]], [5]).reason == nearest_flip([[0.2], [0.3]], [5]).reason
    assert one_at_a_time([[0.2], [0.3]], [5]).changes == ()


def test_a_closed_gate_is_0_whatever_the_weights() -> None:
    """Half of the first system's runs are closed: it never scores more than a half."""
    closed = run_parts([[1, 1], [0, 0], [0.6, 0.6], [0.6, 0.6]], [0, 0, 1, 1])
    opened = run_parts([[1, 1], [1, 1], [0.6, 0.6], [0.6, 0.6]], [0, 0, 1, 1])
    assert share_of_weights(closed).shares == (0, 1) and share_of_weights(opened).shares == (1, 0)


# Other examples


def test_a_winner_by_every_example_always_stays_and_one_by_a_hair_does_not() -> None:
    n = 40
    better = run_parts([[0.9, 0.9]] * n + [[0.1, 0.1]] * n, [0] * n + [1] * n, clusters=[*range(n)] * 2)
    assert winner_stays(better, [1, 1]).stays == 1.0
    ahead = np.where(np.arange(n) < n // 2 + 1, 1.0, 0.0)
    hair = run_parts(np.column_stack([np.append(ahead, 1 - ahead)] * 2), [0] * n + [1] * n, clusters=[*range(n)] * 2)
    found = winner_stays(hair, [1, 1])
    assert found.leaders == (0,) and found.stays is not None
    # Of 40 coins that fall right in 21 of 40 cases, more than 20 do so in this share of all throws.
    chance = sum(math.comb(n, k) * (21 / 40) ** k * (19 / 40) ** (n - k) for k in range(21, n + 1))
    assert found.stays == pytest.approx(chance, abs=5 * 0.5 / math.sqrt(found.resamples))


def test_what_stands_together_is_drawn_together() -> None:
    """Ten times the same examples are no more evidence."""
    rng = np.random.default_rng(2)
    table = rng.random((24, 2))
    systems = np.repeat([0, 1], 12)
    once = run_parts(table, systems, clusters=[*range(12)] * 2)
    copied = run_parts(np.tile(table, (10, 1)), np.tile(systems, 10), clusters=([*range(12)] * 2) * 10)
    assert winner_stays(copied, [1, 1]).stays == winner_stays(once, [1, 1]).stays
    alone = run_parts(np.tile(table, (10, 1)), np.tile(systems, 10), clusters=[*np.repeat(np.arange(120), 2)])
    with pytest.raises(ValueError, match="a system has no run"):
        winner_stays(alone, [1, 1])


def test_one_cluster_says_nothing_of_chance() -> None:
    found = winner_stays(DEMO, [3, 1])
    assert (found.stays, found.reason) == (None, "all runs are in one cluster: there is nothing to draw anew")


BAD = {
    "a part outside": (lambda: run_parts([[1.5], [0]], [0, 1]), "parts[0]: got [1.5], wanted 0 to 1"),
    "a run without parts": (lambda: run_parts([[math.nan], [0]], [0, 1]), "parts[0]: got [nan]"),
    "one system": (lambda: run_parts([[1], [0]], [0, 0]), "systems: got [0], wanted runs of 0, 1"),
    "a system without runs": (lambda: run_parts([[1], [0]], [0, 2]), "systems: got [0, 2]"),
    "no count": (lambda: run_parts([[1], [0]], [0, 1], counts=[1, 0]), "counts[1]: got 0.0, wanted more than 0"),
    "another way": (lambda: run_parts([[1], [0]], [0, 1], how="median"), "how: got 'median'"),  # type: ignore[arg-type]
    "a weight of 0": (lambda: nearest_flip(DEMO, [1, 0]), "weights[1]: got 0.0, wanted more than 0"),
    "too few weights": (lambda: winner_stays(DEMO, [1]), "weights: got 1, wanted one for each of 2"),
    "a change of all": (lambda: one_at_a_time(DEMO, [1, 1], 1.0), "change: got 1.0"),
    "few draws": (lambda: share_of_weights(DEMO, draws=5), "draws: got 5, wanted 100"),
    "few resamples": (lambda: winner_stays(DEMO, [1, 1], resamples=9), "resamples: got 9, wanted 100"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)
