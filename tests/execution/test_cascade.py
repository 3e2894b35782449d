"""Tiers: when a run goes on to the next, who is said to have decided, and what all of them together cost."""

import time
from dataclasses import replace
from typing import Any

from evalflows.engine.judge_chunk import decided_by, is_undecided, with_earlier_cost
from evalflows.engine.results import EvaluationResult, failed_result, result_of_score
from evalflows.engine.running import RunnableEvaluator
from evalflows.engine.spec_evaluators import bind_evaluator
from evalflows.evaluators.score import normalise
from evalflows.llm.breaker import Breaker
from evalflows.llm.budget import Budget
from evalflows.llm.ledger import Usage
from evalflows.specs.evaluator import TierSpec


def tier(**said: Any) -> RunnableEvaluator:
    """A tier that is called `rule`."""
    spec = TierSpec.model_validate({"use": "contains", "name": "rule"} | said)
    return RunnableEvaluator(
        spec=spec,
        bound=bind_evaluator(spec),
        version="v1",
        may_call=False,
        complete=None,
        embed=None,
        breaker=Breaker(10, 1.0, time.monotonic),
        metrics={},
        budget=Budget(),
        configs={},
    )


def results(returned: object) -> list[EvaluationResult]:
    """What becomes of what an evaluator called `right` returned."""
    return [result_of_score(one) for one in normalise(returned, "right")]


FAILED = failed_result("right", "raised", "ValueError: no")
SKIPPED = failed_result("right", "stopped", "not attempted: down")


def test_what_a_tier_does_not_decide_goes_on() -> None:
    for said, returned, goes_on in (
        ({}, 0.0, False),
        ({}, "odd", False),
        ({}, None, True),
        ({"decides": [True]}, True, False),
        ({"decides": [True]}, False, True),
        ({"decides": [True]}, [True, {"key": "b", "score": False}], False),
        ({"decides": [True]}, [False, {"key": "b", "score": True}], True),
        ({"decides": ["good"]}, "good", False),
        ({"decides": ["good"]}, "bad", True),
        ({"decides_to": 0.1}, 0.1, False),
        ({"decides_to": 0.1}, 0.11, True),
        ({"decides_from": 0.9}, {"score": 0.95, "value": "odd"}, False),
        ({"decides_from": 0.9}, {"score": 0.5, "value": "odd"}, True),
    ):
        assert is_undecided(tier(**said), results(returned)) is goes_on, (said, returned)
    for result in (FAILED, SKIPPED):
        assert not is_undecided(tier(decides=[True]), [result]), "an error is not for the next"


def test_a_score_and_an_error_say_of_which_tier_they_are() -> None:
    found = decided_by(tier(), results([True, {"key": "b", "score": 0.5}]))
    assert [(one.metric, one.value, one.decided_by) for one in found] == [("right", 1.0, "rule"), ("b", 0.5, "rule")]
    (none,) = decided_by(tier(), results(None))
    assert (none.status, none.decided_by) == ("not_applicable", None)
    assert decided_by(tier(), [FAILED]) == [FAILED._replace(metric="rule", error=f"rule: {FAILED.error}")]


COST = EvaluationResult(
    metric="right",
    status="scored",
    latency_s=0.5,
    judge_model="small",
    usage=Usage(calls=1, tokens_in=10, tokens_out=2, cost_usd=0.25),
)


def test_the_first_row_bears_what_all_tiers_cost_and_who_was_asked() -> None:
    usage = Usage(calls=2, calls_cached=1, tokens_in=5, tokens_out=2, cost_usd=0.5)
    second = COST._replace(judge_model="large", usage=usage)
    first, other = with_earlier_cost([second, COST], before=COST)
    assert first == COST._replace(
        latency_s=1.0,
        judge_model="small, large",
        usage=Usage(calls=3, calls_cached=1, tokens_in=15, tokens_out=4, cost_usd=0.75),
    )
    assert other == COST
    assert with_earlier_cost([COST], None) == [COST]


def test_a_rule_before_a_judge_costs_nothing_and_an_unknown_price_makes_the_sum_unknown() -> None:
    rule = EvaluationResult(metric="right", status="scored", latency_s=0.125)
    (found,) = with_earlier_cost([COST], before=rule)
    assert found == COST._replace(latency_s=0.625)
    (alone,) = with_earlier_cost([rule], before=rule)
    assert (alone.judge_model, alone.usage.tokens_in, alone.usage.cost_usd) == (None, None, 0.0)
    unknown = COST._replace(usage=replace(COST.usage, cost_usd=None))
    for before, after in ((unknown, COST), (COST, unknown), (unknown, unknown)):
        (found,) = with_earlier_cost([after], before=before)
        assert found.usage.cost_usd is None
