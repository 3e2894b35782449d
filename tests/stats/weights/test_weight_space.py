"""Weights of composites: one changed at a time, and all possible weights."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.composite import MetricPart, combined
from evalflows.specs.metrics import CompositeSpec, MetricSpec
from evalflows.stats.weights import RunParts, one_at_a_time, run_parts, share_of_weights

DEMO = [[0.7, 0.2], [0.6, 0.9]]
"""Plain answers contain the reference more often, brief ones are short: means of contains and short."""

TABLES = st.integers(2, 4).flatmap(
    lambda parts: st.lists(
        st.lists(st.integers(0, 20).map(lambda n: n / 20), min_size=parts, max_size=parts), min_size=2, max_size=4
    )
)


def grid(parts: int, steps: int) -> Any:
    """Return all weights that are whole multiples of 1 / steps."""
    return np.array([w for w in product(range(steps + 1), repeat=parts) if sum(w) == steps]) / steps


def random_runs(seed: int, aggregation: Any, *, systems: int = 3, parts: int = 3, examples: int = 12) -> RunParts:
    rng = np.random.default_rng(seed)
    table = rng.uniform(0.05, 1, (systems * examples, parts))
    return run_parts(table, np.repeat(np.arange(systems), examples), aggregation=aggregation)


# The composite of a run is what it is elsewhere


@pytest.mark.parametrize("aggregation", ["weighted_mean", "geometric_mean", "minimum"])
def test_scores_are_means_of_the_evaluators_composites(aggregation: Any) -> None:
    rng = np.random.default_rng(1)
    table = rng.choice([0.0, 0.25, 0.5, 1.0, math.nan], (40, 3))
    table[np.isnan(table).all(axis=1)] = 0.5
    weights = {"a": 3.0, "b": 1.0, "c": 0.5}
    spec = CompositeSpec(name="quality", weights=weights, aggregation=aggregation, missing="leave_out")
    of_run = []
    for row in table:
        parts = {
            name: MetricPart(value=None, status="failed")
            if np.isnan(value)
            else MetricPart(value=value, status="scored")
            for name, value in zip(weights, row, strict=True)
        }
        of_run.append(combined(spec, parts, dict.fromkeys(weights, MetricSpec())).value)
    systems = np.repeat([0, 1], 20)
    runs = run_parts(table, systems, aggregation=aggregation)
    wanted = [np.mean(of_run[:20]), np.mean(of_run[20:])]
    assert runs.scores([[3, 1, 0.5]])[0] == pytest.approx(wanted)


def test_counts_weight_the_runs() -> None:
    runs = run_parts([[1, 0], [0, 0], [0.5, 0.5]], [0, 0, 1], counts=[3, 1, 7])
    assert runs.scores([[1, 0]])[0] == pytest.approx([0.75, 0.5])


# One weight at a time


@given(TABLES, st.data())
@settings(max_examples=50)
def test_every_change_matches_the_weighted_mean_by_hand(table: Any, data: Any) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(table[0]), max_size=len(table[0])))
    result = one_at_a_time(table, weights, 0.1)
    whole = sum(weights)
    for change in result.changes:
        part, weight = change.part, min(1, change.factor * weights[change.part] / whole)
        rest = whole - weights[part]
        by_hand = [w / rest * (1 - weight) if place != part else weight for place, w in enumerate(weights)]
        assert change.scores == pytest.approx([sum(w * x for w, x in zip(by_hand, row, strict=True)) for row in table])


# All weights


def test_the_demo_case_matches_its_closed_form() -> None:
    """`contains` favours plain by 0.1, `short` favours brief by 0.7: a tie at a weight of 0.7 / 0.8."""
    result = share_of_weights(DEMO)
    assert result.shares is not None and result.standard_errors is not None
    assert result.shares == pytest.approx((1 / 8, 7 / 8), abs=4 * max(result.standard_errors))
    assert max(result.standard_errors) == pytest.approx((7 / 64 / 10_000) ** 0.5, rel=0.1)
    assert (result.draws, result.ties, result.reason) == (10_000, (), None)


def test_equal_systems_are_tied_for_all_weights() -> None:
    assert share_of_weights([[0.5, 0.5, 0.1]] * 2).ties == (((0, 1), 1.0),)
    three = share_of_weights([[0.5, 0.2], [0.5, 0.2], [0.1, 0.4]])
    assert three.shares == pytest.approx((0, 0, 0.2 / 0.6), abs=0.02)
    assert three.ties == (((0, 1), pytest.approx(0.4 / 0.6, abs=0.02)),)
    drawn = share_of_weights([[0.5, 0.5, 0.1], [0.5, 0.5, 0.1], [0.1, 0.1, 0.0]])
    assert (drawn.ties, drawn.shares) == ((((0, 1), 1.0),), (0.0, 0.0, 0.0))


def test_shares_of_two_systems_match_the_divided_difference_formula() -> None:
    """P(sum of d w > 0) = sum over d_j > 0 of d_j^(J-1) / prod over k of (d_j - d_k), for distinct d (Ali 1973)."""
    rng = np.random.default_rng(4)
    for parts in (2, 3, 5, 7):
        d = rng.uniform(-0.5, 0.5, parts)
        wanted = sum(
            d[j] ** (parts - 1) / np.prod([d[j] - d[k] for k in range(parts) if k != j])
            for j in range(parts)
            if d[j] > 0
        )
        result = share_of_weights([0.5 + d / 2, 0.5 - d / 2]).shares
        assert result is not None and result[0] == pytest.approx(wanted, abs=0.02)


@pytest.mark.parametrize("aggregation", ["weighted_mean", "geometric_mean"])
def test_drawn_shares_match_a_fine_grid_within_their_errors(aggregation: Any) -> None:
    runs = random_runs(5, aggregation)
    inner = (grid(3, 150) * 150 + 1) / 153  # approximate centres of the simplex cells
    wins = np.bincount(runs.scores(inner).argmax(axis=1), minlength=3) / len(inner)
    result = share_of_weights(runs)
    assert result.shares is not None and result.standard_errors is not None
    for share, error, wanted in zip(result.shares, result.standard_errors, wins, strict=True):
        assert abs(share - wanted) < 4 * error + 0.01  # the grid's own error
    assert result == share_of_weights(runs) != share_of_weights(runs, seed=1)


# No weights


def test_a_minimum_has_no_weights() -> None:
    runs = run_parts([[0.9, 0.3], [0.4, 0.5]], [0, 1], aggregation="minimum")
    reason = "a minimum has no weights: it is always the worst part"
    original, share = one_at_a_time(runs, [1, 1]), share_of_weights(runs)
    assert (original.leaders, original.scores, original.changes) == ((1,), (0.3, 0.4), ())
    assert (share.shares, share.standard_errors) == (None, None)
    assert {original.reason, share.reason} == {reason}


def test_an_unmet_requirement_is_0_whatever_the_weights() -> None:
    """Half of the first system's runs have an unmet requirement, so it scores at most one half."""
    closed = run_parts([[1, 1], [0, 0], [0.6, 0.6], [0.6, 0.6]], [0, 0, 1, 1])
    opened = run_parts([[1, 1], [1, 1], [0.6, 0.6], [0.6, 0.6]], [0, 0, 1, 1])
    assert share_of_weights(closed).shares == (0, 1) and share_of_weights(opened).shares == (1, 0)
