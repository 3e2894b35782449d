"""What an agent brought about: the state at the end, the calls that had to be and must not be, turns and failures."""

from typing import Any

import pytest

from evalflows.evaluators import actions_match, cost_per_solved, state_matches, tool_errors, turns_to_goal
from evalflows.evaluators.views import Evaluation, Evaluations, ExampleView, ItemResult, RunView

STATE = {"orders": {"A1": {"status": "refunded", "total": 20.004, "at": "now"}}, "log": [1, 2]}


@pytest.mark.parametrize(
    ("expected", "settings", "comment"),
    [
        ({"orders": {"A1": {"status": "refunded"}}}, {}, None),
        ({"orders": {"A1": {"status": "paid"}}}, {}, "orders.A1.status: 'refunded', wanted 'paid'"),
        ({"orders": {"B2": {}}}, {}, "orders.B2: None, wanted {}"),
        ({"orders": {"A1": {"total": 20}}}, {}, "orders.A1.total: 20.004, wanted 20"),
        ({"orders": {"A1": {"total": 20}}}, {"tolerance": 0.01}, None),
        ({"log": [1]}, {}, "log: 2 elements, wanted 1"),
        ({"log": [1, True]}, {}, "log.1: 2, wanted True"),
        (
            {"log": [1, 2]},
            {"whole": True},
            "orders: {'A1': {'status': 'refunded', 'total': 20.004, 'at': 'now'}}, wanted None",
        ),
        (
            STATE | {"orders": {"A1": {"status": "refunded", "total": 20.004, "at": "then"}}},
            {"ignore": ["orders.*.at"]},
            None,
        ),
        ({"log": [3, 4], "orders": {"A1": {"status": 1, "total": 2, "at": 3, "by": 4}}}, {}, "; and 1 more"),
    ],
)
def test_a_state_is_compared_in_what_is_expected(expected: Any, settings: dict[str, Any], comment: str | None) -> None:
    score = state_matches({}, {"state": STATE}, {"state": expected}, **settings)
    assert score is not None
    assert score.value is (comment is None)
    assert score.comment == comment if comment is None else str(score.comment).endswith(comment)


def test_a_state_without_an_expected_one_has_no_score_and_outputs_without_a_state_are_an_error() -> None:
    assert state_matches({}, {"state": STATE}, None) is None
    with pytest.raises(ValueError, match="wanted outputs that have it"):
        state_matches({}, {"messages": []}, {"state": {}})
    with pytest.raises(ValueError, match="tolerance"):
        state_matches({}, {"state": STATE}, {"state": {}}, tolerance=-1)


CALLS = [
    {"name": "look_up", "arguments": {"order": "A1"}},
    {"name": "refund", "arguments": {"order": "A1", "reason": "late"}},
    {"name": "look_up", "arguments": {"order": "B2"}},
]


@pytest.mark.parametrize(
    ("reference", "settings", "comment"),
    [
        ({"actions": ["look_up", {"name": "refund", "arguments": {"order": "A1"}}]}, {}, None),
        ({"actions": ["look_up", "look_up", "look_up"]}, {}, "no call of look_up"),
        ({"actions": [{"name": "refund", "arguments": {"order": "B2"}}]}, {}, 'no call of refund({"order": "B2"})'),
        ({"actions": ["refund", {"name": "look_up", "arguments": {"order": "A1"}}]}, {}, None),
        (
            {"actions": ["refund", {"name": "look_up", "arguments": {"order": "A1"}}]},
            {"order": "in_order"},
            'no call of look_up({"order": "A1"})',
        ),
        ({"forbidden": ["refund"]}, {}, "refund was called"),
        ({}, {"forbidden": ["delete"], "at_most": {"look_up": 1}}, "look_up was called 2 times, at most 1 wanted"),
        ({"at_most": {"delete": 0, "refund": 0}}, {}, "refund was called once, at most 0 wanted"),
    ],
)
def test_calls_that_had_to_be_and_must_not_be(reference: Any, settings: dict[str, Any], comment: str | None) -> None:
    score = actions_match({}, {"tool_calls": CALLS}, reference, **settings)
    assert score is not None
    assert (score.value, score.comment) == (comment is None, comment)


def test_calls_of_which_nothing_is_wanted_have_no_score() -> None:
    assert actions_match({}, {"tool_calls": CALLS}, {}) is None
    for reference, settings, wanted in (
        ({"actions": "refund"}, {}, "required"),
        ({"actions": ["x"]}, {"order": "some"}, "order"),
        ({"at_most": {"x": -1}}, {}, "at_most: x"),
    ):
        with pytest.raises(ValueError, match=wanted):
            actions_match({}, {"tool_calls": []}, reference, **settings)


def test_turns_of_what_was_solved_and_tools_that_failed() -> None:
    messages = [
        {"role": role, "content": "x"} for role in ("user", "assistant", "tool", "assistant", "user", "assistant")
    ]
    outputs = {"messages": messages}
    assert turns_to_goal(outputs) == 2
    assert turns_to_goal({"output": "x"}) is None
    for value, wanted in ((1.0, 2), (0.0, None), (None, None)):
        assert turns_to_goal(outputs, Evaluations([Evaluation(name="done", value=value)]), solved="done") == wanted
    steps = [
        {"kind": "tool", "name": "refund", "error": "no"},
        {"kind": "tool", "name": "refund"},
        {"kind": "llm", "error": "x"},
    ]
    score = tool_errors(outputs, RunView(id="r", inputs={}, outputs=outputs, steps=steps))
    assert (score.value, score.comment) == (1, "refund failed once")


def test_what_a_solved_task_costs() -> None:
    def result(cost: float | None, value: float | None) -> ItemResult:
        scores = Evaluations([Evaluation(name="state_matches", value=value)])
        run = RunView(id="r", inputs={}, outputs={}, cost_usd=cost)
        return ItemResult(item=ExampleView(id="q", inputs={}), output=None, evaluations=scores, run=run)

    score = cost_per_solved([result(0.1, 1.0), result(0.2, 0.0), result(0.3, 1.0), result(0.0, None)])
    assert score is not None and score.value == pytest.approx(0.3)
    assert score.comment == "0.6 USD for 2 of 4 solved"
    assert cost_per_solved([result(0.1, 0.0)]) is None
    assert cost_per_solved([result(0.1, 1.0), result(None, 1.0)]) is None
