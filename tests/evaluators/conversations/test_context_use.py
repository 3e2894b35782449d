"""context_use: which of the things that the user said earlier the answers rest on."""

import asyncio
import json
import re
from typing import Any

import jsonschema
import pytest
from judge_prompts import messages_in

from evalflows.evaluators.conversations import CONTRADICTED, context_use
from evalflows.evaluators.score import Score, normalise
from evalflows.specs.protocols import Completion

FACT = re.compile(r"My (\w+) is (\w+)\.")


class Judge:
    """A model that knows facts of one form. For each that the user stated and asks about later ("my …?"), it looks
    whether the turns to judge behind it say what the user said, something else of that form, or nothing of it."""

    def __init__(self, *facts: dict[str, Any]) -> None:
        self.facts = facts
        self.prompts: list[str] = []
        self.schemas: list[dict[str, Any]] = []

    async def __call__(self, messages: Any, *, schema: Any = None, **parameters: Any) -> Completion:
        self.prompts.append(messages)
        self.schemas.append(schema)
        facts = [*self.facts] or self._found(messages)
        says = {"reasoning": f"{len(facts)} facts matter.", "facts": facts}
        if not self.facts:
            jsonschema.validate(says, schema)
        return Completion(text=json.dumps(says), parsed=says, model="m", call_id="c")

    def _found(self, prompt: str) -> list[dict[str, Any]]:
        to_judge = re.search(r"by their numbers: ([\d, ]+)", prompt)
        assert to_judge is not None
        numbers = [int(number) for number in to_judge[1].split(",")]
        spoken = [(line["role"], line["turn"], line["content"]) for line in messages_in(prompt)[0]]
        found = []
        for _, place, text in (one for one in spoken if one[0] == "user"):
            for thing, value in FACT.findall(text):
                later = [number for role, number, said in spoken if role == "user" and f"my {thing}?" in said]
                answers = [
                    said
                    for role, number, said in spoken
                    if role == "assistant" and number in later and number in numbers and number > place
                ]
                if answers:
                    uses = {self._use(thing, value, answer) for answer in answers}
                    use = next(use for use in ("contradicted", "ignored", "used") if use in uses)
                    found.append({"fact": f"{thing}: {value}", "before_turn": place, "use": use})
        return found

    @staticmethod
    def _use(thing: str, value: str, answer: str) -> str:
        if value in answer:
            return "used"
        return "contradicted" if f"Your {thing} is" in answer else "ignored"


def talk(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


TOLD = ("My room is 12. My diet is vegan.", "Noted.", "Is breakfast at 8?", "Yes, at 8.")
ASKED = ("Which is my room? And what may I eat, by my diet?",)
GOOD = talk(*TOLD, *ASKED, "Your room is 12, and for vegan guests there is porridge.")
IGNORED = talk(*TOLD, *ASKED, "Your room is 12. Do you eat eggs?")
CONTRADICTING = talk(*TOLD, *ASKED, "Your room is 21. Have some ham.")


def judged(messages: list[dict[str, str]], judge: Judge | None = None, **settings: Any) -> list[Score] | None:
    return asyncio.run(context_use({}, {"messages": messages}, judge or Judge(), **settings))


def shares(messages: list[dict[str, str]], **settings: Any) -> tuple[Any, Any]:
    """The share that is used, and the one that is contradicted."""
    scores = judged(messages, **settings)
    assert scores is not None
    own, contradicted = scores
    assert (own.key, contradicted.key) == (None, CONTRADICTED)
    return own.value, contradicted.value


def test_what_is_ignored_costs_its_share_and_what_is_contradicted_is_counted_besides() -> None:
    assert shares(GOOD) == (1, 0)
    assert shares(IGNORED) == (0.5, 0)
    assert shares(CONTRADICTING) == (0, 0.5)
    assert judged(talk("My room is 12.", "Noted.", "Is it sunny?", "It is.")) is None


@pytest.mark.parametrize(
    "messages",
    [
        talk("What is my room?", "I do not know."),
        [{"role": "assistant", "content": "Welcome!"}, *talk("What is my room?", "I do not know.")],
        [*talk("My room is 12.", "Noted.")[1:], *talk("What is my room?", "I do not know.")],
    ],
)
def test_where_the_user_said_nothing_earlier_nothing_is_asked(messages: list[dict[str, str]]) -> None:
    judge = Judge()
    assert judged(messages, judge) is None
    assert judge.prompts == []


def test_it_is_one_call_that_shows_every_message_and_keeps_a_list_of_facts() -> None:
    judge = Judge()
    judged(GOOD, judge, instructions="Names matter too.")
    (prompt,), (schema,) = judge.prompts, judge.schemas
    assert messages_in(prompt) == [[{"turn": place // 2 + 1} | message for place, message in enumerate(GOOD)]]
    assert "\nNames matter too.\n" in prompt
    assert list(schema["properties"]) == ["reasoning", "facts"]
    assert schema["properties"]["facts"]["items"]["properties"]["before_turn"]["maximum"] == 2
    scores = judged(IGNORED)
    assert scores is not None and scores[0].metadata is not None
    assert scores[0].metadata["facts"] == [
        {"fact": "room: 12", "before_turn": 1, "use": "used"},
        {"fact": "diet: vegan", "before_turn": 1, "use": "ignored"},
    ]
    assert scores[0].comment == "2 facts matter."
    assert [one.metric for one in normalise(scores, "memory")] == ["memory", CONTRADICTED]


@pytest.mark.parametrize(
    ("fact", "says"),
    [
        ({"fact": "x", "before_turn": 3, "use": "used"}, "facts: the judge says 'x' before turn 3, wanted one of the"),
        ({"fact": "x", "before_turn": 9, "use": "used"}, "facts: the judge says 'x' before turn 9, wanted one of the"),
        ({"fact": "x", "before_turn": 1, "use": "known"}, "facts: the judge says 'known', wanted used, ignored"),
    ],
)
def test_a_fact_that_cannot_be_is_an_error_and_no_score(fact: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as caught:
        judged(GOOD, Judge(fact))
    assert str(caught.value).startswith(says)


def test_without_messages_it_does_not_apply_and_without_a_turn_it_fails() -> None:
    assert asyncio.run(context_use({"question": "Which is my room?"}, {"output": "12"}, Judge())) is None
    with pytest.raises(ValueError, match="no turn of the assistant"):
        judged(GOOD[:1])
