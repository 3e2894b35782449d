"""turn_errors: where an error began, what each turn and the run are worth, and which answers of a judge are refused."""

import asyncio
import json
import re
from typing import Any

import jsonschema
import pytest
from judge_prompts import messages_in

from evalflows.evaluators.conversations import MOST_TURNS, turn_errors
from evalflows.evaluators.score import Score, normalise
from evalflows.specs.protocols import Completion


class Judge:
    """A model that says something given, or else finds wrong weekdays: each but Friday is wrong, and a turn that names
    a wrong one that was named before follows that turn."""

    def __init__(self, **says: str) -> None:
        self.says = says
        self.prompts: list[str] = []
        self.schemas: list[dict[str, Any]] = []

    async def __call__(self, messages: Any, *, schema: Any = None, **parameters: Any) -> Completion:
        self.prompts.append(messages)
        self.schemas.append(schema)
        verdict = {"reasoning": "By the weekdays."} | (self.says or self._found(messages))
        if not self.says:
            jsonschema.validate(verdict, schema)
        return Completion(text=json.dumps(verdict), parsed=verdict, model="m", call_id="c")

    def _found(self, prompt: str) -> dict[str, str]:
        labels: dict[str, str] = {}
        first: dict[str, str] = {}
        for line in messages_in(prompt)[0]:
            if line["role"] != "assistant":
                continue
            number = str(line["turn"])
            wrong = next((day for day in re.findall(r"\b[A-Z]\w+day\b", line["content"]) if day != "Friday"), None)
            labels[f"turn_{number}"] = "good" if wrong is None else "own fault"
            if wrong in first:
                labels[f"turn_{number}"] = f"follows turn {first[wrong]}"
            elif wrong is not None:
                first[wrong] = number
        return labels


def talk(*answers: str) -> list[dict[str, str]]:
    asks = [{"role": "user", "content": f"question {number}"} for number in range(len(answers))]
    said = [{"role": "assistant", "content": answer} for answer in answers]
    return [message for pair in zip(asks, said, strict=True) for message in pair]


def judged(messages: list[Any], judge: Judge | None = None, inputs: Any = None, **settings: Any) -> list[Score]:
    scores = asyncio.run(turn_errors(inputs or {}, {"messages": messages}, judge or Judge(), **settings))
    assert scores is not None
    return scores


def of_turns(scores: list[Score]) -> dict[int | None, tuple[str | None, Any]]:
    return {score.turn: (score.label, score.value) for score in scores[1:]}


GOOD = talk("It comes on Friday.", "Yes, it is sure.", "Someone must be in.", "On Friday, as I said.")
PLANTED = talk("It comes on Monday.", "Yes, it is sure.", "Someone must be in.", "On Monday, as I said.")


def test_a_planted_error_is_its_own_turns_fault_and_a_turn_that_repeats_it_follows() -> None:
    scores = judged(PLANTED)
    assert of_turns(scores) == {1: ("own fault", 0), 2: ("good", 1), 3: ("good", 1), 4: ("follows turn 1", 0.5)}
    # weights 1.5, 1.5, 1, 1: (0 + 1.5 + 1 + 0.5) / 5
    assert scores[0].value == pytest.approx(3 / 5)
    assert scores[0].comment == "By the weekdays."


@pytest.mark.parametrize(
    ("answers", "settings", "value"),
    [
        # weights 1.5, 1.5, 1, 1 of 5
        (["Monday", "x", "x", "x"], {}, 3.5 / 5),
        (["x", "x", "Monday", "x"], {}, 4 / 5),
        (["x", "x", "x", "Monday"], {}, 4 / 5),
        # two faults cost more than one and what follows from it
        (["Monday", "x", "Tuesday", "x"], {}, 2.5 / 5),
        # weights 3, 3, 1, 1 of 8; and all alike
        (["Monday", "x", "x", "x"], {"early_weight": 3}, 5 / 8),
        (["Monday", "x", "x", "x"], {"early_weight": 1}, 3 / 4),
        # what follows costs nothing, or as much as a fault
        (["Monday", "x", "Monday", "x"], {"following_weight": 0}, 3.5 / 5),
        # of five turns two are early (1.5, 1.5, 1, 1, 1 of 6); of three one; of one none
        (["x", "x", "Monday", "x", "x"], {}, 5 / 6),
        (["Monday", "Monday", "Monday", "Monday"], {}, (0 + 0.75 + 0.5 + 0.5) / 5),
        (["Monday", "Tuesday", "Sunday", "Saturday"], {}, 0),
    ],
    ids=str,
)
def test_the_score_is_what_the_formula_says(answers: list[str], settings: dict[str, Any], value: float) -> None:
    assert judged(talk(*answers), **settings)[0].value == pytest.approx(value)


def test_an_error_may_follow_one_that_follows_and_scores_are_kept_one_a_turn() -> None:
    judge = Judge(turn_1="own fault", turn_2="follows turn 1", turn_3="follows turn 2", turn_4="good")
    assert [label for label, _ in of_turns(judged(GOOD, judge)).values()] == [
        *("own fault", "follows turn 1", "follows turn 2", "good")
    ]
    kept = normalise(judged(PLANTED), "turn_errors")
    assert [(one.metric, one.turn, one.data_type) for one in kept] == [
        ("turn_errors", turn, "NUMERIC") for turn in (None, 1, 2, 3, 4)
    ]
    assert len({one.prompt_hash for one in kept}) == 1


@pytest.mark.parametrize(
    ("says", "error"),
    [
        ({"turn_2": "follows turn 1"}, "turn 2: the judge says 'follows turn 1', but rates that turn good"),
        ({"turn_2": "follows turn 3", "turn_3": "own fault"}, "turn 2: the judge says 'follows turn 3', wanted one"),
        ({"turn_2": "follows turn 2"}, "turn 2: the judge says 'follows turn 2', wanted one of its choices"),
        ({"turn_2": "follows turn 9"}, "turn 2: the judge says 'follows turn 9', wanted one of its choices"),
        ({"turn_2": "bad"}, "turn 2: the judge says 'bad', wanted one of its choices"),
        ({"turn_4": None}, "turn 4: the judge says None, wanted one of its choices"),
    ],
)
def test_an_answer_that_contradicts_itself_is_an_error_and_no_score(says: dict[str, Any], error: str) -> None:
    good = dict.fromkeys(("turn_1", "turn_2", "turn_3", "turn_4"), "good")
    with pytest.raises(ValueError) as caught:
        judged(GOOD, Judge(**(good | says)))
    assert str(caught.value).startswith(error)


def test_it_is_one_call_that_shows_every_message_and_lets_turns_follow_earlier_ones() -> None:
    judge = Judge()
    judged(PLANTED, judge, instructions="A wrong weekday is wrong.")
    (prompt,) = judge.prompts
    assert messages_in(prompt) == [[{"turn": place // 2 + 1} | message for place, message in enumerate(PLANTED)]]
    assert "\nA wrong weekday is wrong.\n" in prompt
    judge = Judge()
    judged(GOOD, judge)
    (schema,) = judge.schemas
    assert list(schema["properties"]) == ["reasoning", "turn_1", "turn_2", "turn_3", "turn_4"]
    assert schema["required"] == list(schema["properties"])
    assert schema["properties"]["turn_1"]["enum"] == ["good", "own fault"]
    assert schema["properties"]["turn_3"]["enum"] == ["good", "own fault", "follows turn 1", "follows turn 2"]


def test_what_cannot_be_judged_is_not_asked_about() -> None:
    judge = Judge()
    assert len(judged(talk(*["x"] * MOST_TURNS))) == MOST_TURNS + 1
    with pytest.raises(ValueError, match="got 41 turns of the assistant, wanted at most 40"):
        judged(talk(*["x"] * (MOST_TURNS + 1)), judge)
    assert judge.prompts == []
    judge = Judge()
    assert asyncio.run(turn_errors({"question": "When?"}, {"output": "Monday"}, judge)) is None
    assert judge.prompts == []


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"early_weight": 0}, "early_weight: got 0, wanted a number above 0"),
        ({"following_weight": 1.5}, "following_weight: got 1.5, wanted a number from 0 to 1"),
        ({"following_weight": -0.5}, "following_weight: got -0.5, wanted a number from 0 to 1"),
        ({"following_weight": True}, "following_weight: got True, wanted a number from 0 to 1"),
        ({"prompt": "Find them."}, "prompt: wanted {conversation} in it"),
        ({"temperature": -1}, "temperature: got -1"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_before_anything_is_asked(setting: dict[str, Any], says: str) -> None:
    judge = Judge()
    with pytest.raises(ValueError) as caught:
        judged(GOOD, judge, **setting)
    assert str(caught.value).startswith(says)
    assert judge.prompts == []
