"""agent: one figure of several parts, weighed, and the parts beside it."""

from typing import Any

import pytest

from evalflows.evaluators.agents.agent import agent
from evalflows.evaluators.score import normalise

WANTED = {"tool_calls": [{"name": "find", "arguments": {"q": "x"}}, {"name": "read", "arguments": {"id": 1}}]}
ANSWERED = WANTED | {"answer": "Paris"}


def parts(outputs: dict[str, Any], reference: Any, **settings: Any) -> dict[str, float | None]:
    """Every row that is kept, by its metric."""
    return {row.metric: row.value for row in normalise(agent(None, outputs, reference, **settings), "agent")}


def test_the_mean_is_weighed_over_the_parts() -> None:
    # Three calls for two: F1 is 2 * 2 / 5, one of three is right, another order, two steps of three, the right answer.
    done = {
        "tool_calls": [
            {"name": "read", "arguments": {"id": 1}},
            {"name": "find", "arguments": {"q": "y"}},
            {"name": "read", "arguments": {"id": 2}},
        ],
        "output": "Paris",
    }
    figures = {"selection": 4 / 5, "arguments": 1 / 3, "order": 0.0, "efficiency": 2 / 3, "answer": 1.0}
    got = parts(done, ANSWERED)
    assert got.pop("agent") == pytest.approx(sum(figures.values()) / 5)
    assert got == pytest.approx({f"agent_{part}": share for part, share in figures.items()})
    weighed = parts(done, ANSWERED, weights={"answer": 3, "selection": 1, "order": 0})
    assert weighed.pop("agent") == pytest.approx((3 * 1 + 4 / 5) / 4)
    assert weighed == pytest.approx({"agent_selection": 4 / 5, "agent_order": 0.0, "agent_answer": 1.0})


def test_a_part_that_does_not_apply_is_left_out_with_its_weight() -> None:
    only_calls = parts(WANTED | {"output": "Lyon"}, WANTED)
    assert only_calls["agent"] == 1 and only_calls["agent_answer"] is None
    only_answer = parts({"output": "Paris"}, {"answer": "Paris"})
    assert only_answer["agent"] == 1 and only_answer["agent_selection"] is None
    for reference in (None, {}, {"tool_calls": None}):
        assert agent(None, WANTED, reference) is None
    weighed_0 = parts({"output": "Paris"}, {"answer": "Paris"}, weights={"answer": 0, "selection": 1})
    assert weighed_0 == {"agent": None, "agent_selection": None, "agent_answer": 1.0}


def test_its_settings_reach_the_parts() -> None:
    done = {"tool_calls": [*reversed(WANTED["tool_calls"]), {"name": "more"}], "output": "It is Paris."}
    strict = parts(done, ANSWERED)
    assert (strict["agent_order"], strict["agent_answer"]) == (0, 0)
    assert strict["agent_arguments"] == pytest.approx(2 / 3)
    lenient = parts(done, ANSWERED, order="superset", answer="contains", extra_calls="ignored")
    assert (lenient["agent_order"], lenient["agent_answer"], lenient["agent_arguments"]) == (1, 1, 1)
    shouted = ANSWERED | {"answer": "PARIS"}
    assert parts(shouted, ANSWERED)["agent_answer"] == 0
    assert parts(shouted, ANSWERED, ignore_case=True)["agent_answer"] == 1
    renamed = {"way": WANTED["tool_calls"], "said": "Paris", "note": 1}
    assert parts(ANSWERED, renamed, key="way", answer_key="said")["agent"] == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"weights": {"luck": 1}},
            "weights: got 'luck', wanted any of selection, arguments, order, efficiency, answer",
        ),
        ({"weights": {}}, "weights: got {}, wanted a mapping"),
        ({"weights": {"order": -1}}, "weights: order: got -1, wanted a number of at least 0"),
        ({"weights": {"order": 0}}, "weights: got weights that are all 0, wanted one above 0"),
        ({"order": "sorted"}, "mode: got 'sorted'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_an_error(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        agent(None, ANSWERED, ANSWERED, **settings)
