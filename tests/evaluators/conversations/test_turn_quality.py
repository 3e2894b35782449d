"""turn_quality: what a judge is shown of each turn, and what becomes of what it says."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from judge_prompts import messages_in

from evalflows.evaluators.conversations import turn_quality
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Completion

Message = dict[str, str]


def said(prompt: str) -> list[list[str]]:
    """Return what is said before the turn to judge, and in it."""
    return [[line["content"] for line in side if "content" in line] for side in messages_in(prompt)]


def by_order_number(before: str, turn: str) -> int:
    """A turn is good if every order number in it was said before."""
    known, named = (re.findall(r"[A-Z]{2}-\d{4}", text) for text in (before, turn))
    return 5 if {*named} <= {*known} else 1


class Judge:
    """A model that reads its prompt, and judges a turn by what was said before it."""

    def __init__(self, judge: Callable[[str, str], int] = by_order_number) -> None:
        self.judge = judge
        self.prompts: list[str] = []
        self.parameters: list[dict[str, Any]] = []

    async def __call__(self, messages: Any, **parameters: Any) -> Completion:
        self.prompts.append(messages)
        self.parameters.append(parameters)
        spoken = ["\n".join(side) for side in said(messages)]
        turn = messages_in(messages)[1][0]["turn"]
        names = [name for name in parameters["schema"]["properties"] if name != "reasoning"]
        says = {"reasoning": f"of turn {turn}"} | dict.fromkeys(names, self.judge(spoken[0], spoken[1]))
        jsonschema.validate(says, parameters["schema"])
        return Completion(text=json.dumps(says), parsed=says, model="m", call_id="c")


def talk(*texts: str) -> list[Message]:
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]


SYSTEM = {"role": "system", "content": "You work for a shop."}
GOOD = talk(
    *("My order KX-4471 has not come.", "I am sorry. I look into KX-4471.", "And?", "KX-4471 is on its way."),
    *("Which one was it?", "It was KX-4471."),
)
PLANTED = [*GOOD[:3], {"role": "assistant", "content": "RB-2098 is on its way."}, *GOOD[4:]]


def judged(messages: list[Message], judge: Judge | None = None, inputs: Any = None, **settings: Any) -> list[Score]:
    scores = asyncio.run(turn_quality(inputs or {}, {"messages": messages}, judge or Judge(), **settings))
    assert scores is not None
    return scores


def values(scores: list[Score]) -> dict[int | None, Any]:
    return {score.turn: score.value for score in scores}


def test_a_planted_wrong_number_costs_its_own_turn_and_the_mean() -> None:
    assert values(judged(GOOD)) == {None: 5, 1: 5, 2: 5, 3: 5}
    assert values(judged(PLANTED)) == {None: (5 + 1 + 5) / 3, 1: 5, 2: 1, 3: 5}
    run, *turns = judged(PLANTED)
    assert run.comment == "turn 2: of turn 2"
    assert [turn.comment for turn in turns] == [f"of turn {number}" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("early_weight", "mean"),
    [(1.0, (5 + 1 + 5 + 5) / 4), (3.0, (3 * 5 + 3 * 1 + 5 + 5) / 8), (0.5, (0.5 * 5 + 0.5 * 1 + 5 + 5) / 3)],
)
def test_turns_of_the_first_half_weigh_as_much_as_is_said(early_weight: float, mean: float) -> None:
    four = [*PLANTED, *talk("Thanks!", "You are welcome.")]
    assert judged(four, early_weight=early_weight)[0].value == pytest.approx(mean)


def test_each_turn_is_one_call_that_sees_what_came_before_and_nothing_of_what_comes_after() -> None:
    judge = Judge()
    judged([SYSTEM, *GOOD], judge)
    assert len(judge.prompts) == 3
    for number, prompt in enumerate(judge.prompts, start=1):
        before, turn = messages_in(prompt)
        earlier = [{"turn": place // 2 + 1} | message for place, message in enumerate(GOOD[: 2 * number - 1])]
        assert before == [SYSTEM, *earlier]
        assert turn == [{"turn": number} | GOOD[2 * number - 1]]


def test_a_segment_is_shown_nothing_but_what_the_user_asked_last() -> None:
    judge = Judge()
    scores = judged([SYSTEM, *GOOD], judge, segments=True)
    before = [said(prompt)[0] for prompt in judge.prompts]
    assert before == [["My order KX-4471 has not come."], ["And?"], ["Which one was it?"]]
    assert values(scores) == {None: (5 + 1 + 1) / 3, 1: 5, 2: 1, 3: 1}  # what was said earlier is not known any more
    judge = Judge()
    judged([*GOOD[:2], *talk("And?")[:1], *talk("Hello?", "KX-4471 is on its way.")], judge, segments=True)
    assert said(judge.prompts[1]) == [["And?", "Hello?"], ["KX-4471 is on its way."]]


def test_what_came_before_is_cut_to_the_budget_and_the_prompt_says_by_how_much() -> None:
    judge = Judge()
    scores = judged([SYSTEM, *GOOD], judge, budget_tokens=45)  # about 22 for the system message, 20 for the question
    before, _ = messages_in(judge.prompts[-1])
    assert before == [{"messages_left_out": 4}, SYSTEM, {"turn": 3} | GOOD[4]]
    assert "messages_left_out" not in judge.prompts[0]
    assert values(scores)[3] == 1


def test_an_answer_to_given_messages_is_the_only_turn_that_is_judged_and_the_given_ones_are_shown() -> None:
    judge, inputs = Judge(), {"messages": PLANTED[:5]}
    scores = asyncio.run(turn_quality(inputs, {"output": "It was KX-4471."}, judge))
    assert scores is not None
    assert values(scores) == {None: 5, 3: 5}
    assert [len(side) for side in messages_in(judge.prompts[0])] == [5, 1]
    every = asyncio.run(turn_quality(inputs, {"output": "It was KX-4471."}, Judge(), given=True))
    assert every is not None
    assert values(every) == {None: (5 + 1 + 5) / 3, 1: 5, 2: 1, 3: 5}


def test_a_turn_with_its_tools_is_shown_whole() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"order": "KX-4471"}'}}
    turn: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "lost"},
        {"role": "assistant", "content": "It is lost."},
    ]
    judge = Judge()
    judged([*GOOD[:1], *turn], judge)
    assert messages_in(judge.prompts[0])[1] == [
        {"turn": 1, "role": "assistant", "tool_calls": [{"name": "look_up", "arguments": {"order": "KX-4471"}}]},
        {"turn": 1, "role": "tool", "content": "lost"},
        {"turn": 1, "role": "assistant", "content": "It is lost."},
    ]
