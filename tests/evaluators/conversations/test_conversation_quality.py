"""conversation_quality: the whole conversation under one rubric, in one call."""

import asyncio
import json
import re
from typing import Any

import jsonschema
from judge_prompts import messages_in

from evalflows.evaluators.conversations import GOOD_CONVERSATION, conversation_quality
from evalflows.specs.protocols import Completion


class Judge:
    """A model that finds a conversation good if the last thing that the assistant says is no contradiction of the
    first: the price that it names."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.parameters: list[dict[str, Any]] = []

    async def __call__(self, messages: Any, **parameters: Any) -> Completion:
        self.prompts.append(messages)
        self.parameters.append(parameters)
        said = [line["content"] for line in messages_in(messages)[0] if line.get("role") == "assistant"]
        prices = [price for text in said for price in re.findall(r"(\d+) euros", text)]
        is_good = len({*prices}) <= 1
        fields = parameters["schema"]["properties"]
        answers: dict[str, Any] = {"score": 5 if is_good else 2, "label": "clear" if is_good else "muddled"}
        says = {"reasoning": f"Prices: {prices}"} | {
            name: answers.get(name, answers["score"]) for name in fields if name != "reasoning"
        }
        jsonschema.validate(says, parameters["schema"])
        return Completion(text=json.dumps(says), parsed=says, model="m", call_id="c")


def talk(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


GOOD = talk("What is it?", "It costs 40 euros.", "With the case?", "The case comes along.", "So?", "40 euros in all.")
PLANTED = [*GOOD[:5], {"role": "assistant", "content": "55 euros in all."}]


def judged(messages: list[dict[str, str]], judge: Judge | None = None, **settings: Any) -> Any:
    return asyncio.run(conversation_quality({}, {"messages": messages}, judge or Judge(), **settings))


def test_a_conversation_that_contradicts_itself_is_not_good_though_no_turn_is_wrong() -> None:
    good, planted = judged(GOOD), judged(PLANTED)
    assert (good.value, planted.value) == (5, 2)
    assert (good.turn, planted.comment) == (None, "Prices: ['40', '55']")
    assert judged(PLANTED[4:]).value == 5


def test_it_is_one_call_of_the_whole_conversation_under_the_rubric() -> None:
    judge = Judge()
    judged([{"role": "system", "content": "Be kind."}, *GOOD], judge)
    (prompt,) = judge.prompts
    turns = [{"turn": number // 2 + 1} | message for number, message in enumerate(GOOD)]
    assert messages_in(prompt) == [[{"role": "system", "content": "Be kind."}, *turns]]
    assert GOOD_CONVERSATION in prompt


def test_with_a_budget_the_beginning_is_left_out_and_the_prompt_says_so() -> None:
    judge = Judge()
    assert judged(PLANTED, judge, budget_tokens=20).value == 5  # what it contradicts is not seen any more
    assert messages_in(judge.prompts[0])[0][0] == {"messages_left_out": 4}
