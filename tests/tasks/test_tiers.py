"""Tiers: when a run goes on to the next, who is said to have decided, and what all of them together cost."""

import time
from typing import Any, cast

import pytest

from evaluators.score import normalise
from llm.breaker import Breaker
from llm.budget import Budget
from specs.evaluator import TierSpec
from tasks.experiment import ReadyEvaluator
from tasks.judge import Fields
from tasks.resolve import bind_evaluator
from tasks.tiers import decided_by, leaves_open, paid_together


def tier(**said: Any) -> ReadyEvaluator:
    """A tier that is called `rule`."""
    spec = TierSpec.model_validate({"use": "contains", "name": "rule"} | said)
    return ReadyEvaluator(
        spec=spec,
        bound=bind_evaluator(spec),
        version="v1",
        complete=None,
        embed=None,
        breaker=Breaker(10, 1.0, time.monotonic),
        metrics={},
        budget=Budget(),
        configs={},
    )


def fields(returned: object) -> list[Fields]:
    """The fields of the scores that an evaluator called `right` returned."""
    names = ("metric", "value", "label", "status")
    return [{name: getattr(one, name) for name in names} for one in normalise(returned, "right")]


FAILED: Fields = {"metric": "right", "status": "failed", "error_kind": "raised", "error": "ValueError: no"}
SKIPPED: Fields = {
    "metric": "right",
    "status": "not_attempted",
    "error_kind": "stopped",
    "error": "not attempted: down",
}


@pytest.mark.parametrize(
    ("said", "returned", "goes_on"),
    [
        ({}, True, False),
        ({}, 0.0, False),
        ({}, "odd", False),
        ({}, None, True),
        ({"decides": [True]}, True, False),
        ({"decides": [True]}, False, True),
        ({"decides": [True]}, None, True),
        ({"decides": ["good"]}, "good", False),
        ({"decides": ["good"]}, "bad", True),
        ({"decides_to": 0.1}, 0.1, False),
        ({"decides_to": 0.1}, 0.11, True),
        ({"decides_from": 0.9}, {"score": 0.95, "value": "odd"}, False),
        ({"decides_from": 0.9}, {"score": 0.5, "value": "odd"}, True),
    ],
    ids=str,
)
def test_what_a_tier_does_not_decide_goes_on(said: dict[str, Any], returned: object, goes_on: bool) -> None:
    assert leaves_open(tier(**said), fields(returned)) is goes_on


def test_of_several_scores_the_first_decides() -> None:
    one = tier(decides=[True])
    assert not leaves_open(one, fields([True, {"key": "b", "score": False}]))
    assert leaves_open(one, fields([False, {"key": "b", "score": True}]))


@pytest.mark.parametrize("fields", [FAILED, SKIPPED], ids=lambda one: cast("str", one["status"]))
@pytest.mark.parametrize("said", [{}, {"decides": [True]}], ids=str)
def test_what_failed_or_was_not_attempted_is_not_for_the_next(fields: Fields, said: dict[str, Any]) -> None:
    assert not leaves_open(tier(**said), [fields])


def test_a_score_says_which_tier_decided_it() -> None:
    found = decided_by(tier(), fields([True, {"key": "b", "score": 0.5}]))
    assert [(one["metric"], one["value"], one["decided_by"]) for one in found] == [
        ("right", 1.0, "rule"),
        ("b", 0.5, "rule"),
    ]


def test_what_applies_to_no_tier_was_decided_by_none() -> None:
    (found,) = decided_by(tier(), fields(None))
    assert (found["status"], found["decided_by"]) == ("not_applicable", None)


@pytest.mark.parametrize("fields", [FAILED, SKIPPED], ids=lambda one: cast("str", one["status"]))
def test_an_error_says_of_which_tier_it_is(fields: Fields) -> None:
    (found,) = decided_by(tier(), [fields])
    assert found == fields | {"metric": "rule", "error": f"rule: {fields['error']}", "decided_by": None}


COST: Fields = {
    "status": "scored",
    "calls": 1,
    "calls_cached": 0,
    "tokens_in": 10,
    "tokens_out": 2,
    "cost_usd": 0.25,
    "latency_s": 0.5,
    "judge_model": "small",
}


def test_the_first_row_bears_what_all_tiers_cost_and_who_was_asked() -> None:
    second = COST | {"calls": 2, "calls_cached": 1, "tokens_in": 5, "cost_usd": 0.5, "judge_model": "large"}
    first, other = paid_together([second, COST], before=COST)
    assert first == COST | {
        "calls": 3,
        "calls_cached": 1,
        "tokens_in": 15,
        "tokens_out": 4,
        "cost_usd": 0.75,
        "latency_s": 1.0,
        "judge_model": "small, large",
    }
    assert other == COST


def test_where_nothing_went_before_nothing_is_added() -> None:
    assert paid_together([COST], None) == [COST]


def test_three_tiers_add_up_one_by_one() -> None:
    (two,) = paid_together([COST], before=COST)
    (three,) = paid_together([COST], before=two)
    assert (three["calls"], three["tokens_in"], three["cost_usd"], three["judge_model"]) == (3, 30, 0.75, "small")


def test_a_rule_before_a_judge_costs_nothing_and_is_no_model() -> None:
    rule = {"status": "scored", "calls": 0, "calls_cached": 0, "cost_usd": 0.0, "latency_s": 0.125, "judge_model": None}
    (found,) = paid_together([COST], before=rule)
    assert found == COST | {"latency_s": 0.625}
    (alone,) = paid_together([rule], before=rule)
    assert (alone["judge_model"], alone["tokens_in"], alone["cost_usd"]) == (None, None, 0.0)


@pytest.mark.parametrize(("before", "after"), [(None, 0.25), (0.25, None), (None, None)])
def test_where_one_price_is_not_known_neither_is_the_sum(before: float | None, after: float | None) -> None:
    (found,) = paid_together([COST | {"cost_usd": after}], before=COST | {"cost_usd": before})
    assert found["cost_usd"] is None
