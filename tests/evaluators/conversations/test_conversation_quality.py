"""conversation_quality: the whole conversation under one rubric, in one call."""

import asyncio
import json
import re
from typing import Any

import jsonschema

from evalflows.evaluators.conversations import GOOD_CONVERSATION, conversation_quality
from evalflows.specs.errors import Completion

PART = re.compile(r"^([A-Z][^\n]*):\n\[BEGIN (\w+)\]\n(.*?)\n\[END \2\]$", re.M | re.S)


class Judge:
    """A model that finds a conversation good if the last thing that the assistant says is no contradiction of the
    first: the price that it names."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.parameters: list[dict[str, Any]] = []

    async def __call__(self, messages: Any, **parameters: Any) -> Completion:
        self.prompts.append(messages)
        self.parameters.append(parameters)
        said = [match[3] for match in PART.finditer(messages) if match[1].startswith("Assistant")]
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
    assert [match[1] for match in PART.finditer(prompt)] == [
        *("System message", "User, before turn 1", "Assistant, turn 1", "User, before turn 2", "Assistant, turn 2"),
        *("User, before turn 3", "Assistant, turn 3"),
    ]
    assert GOOD_CONVERSATION in prompt and "left out here" not in prompt


def test_with_a_budget_the_beginning_is_left_out_and_the_prompt_says_so() -> None:
    judge = Judge()
    assert judged(PLANTED, judge, budget_tokens=20).value == 5  # what it contradicts is not seen any more
    assert "(Messages left out here, since there are too many: 4)" in judge.prompts[0]
