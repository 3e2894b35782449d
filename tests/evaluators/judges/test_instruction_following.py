"""instruction_following: the share of instructions that an answer follows."""

import asyncio
from typing import Any

import pytest

from evalflows.evaluators.judges.instruction_following import instruction_following
from evalflows.evaluators.score import Score

INPUT = "Name a fruit. Write in capitals. End with a full stop."


def follows(instruction: str, answer: str) -> bool:
    return {
        "Name a fruit.": "plum" in answer.casefold(),
        "Write in capitals.": answer.isupper(),
        "End with a full stop.": answer.endswith("."),
        "Be short.": len(answer) < 20,
    }[instruction]


@pytest.fixture
def judge(reader: Any, reading: Any) -> Any:
    """Checks each sentence of the input by rule."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        answer = sections["Answer to judge"]
        given = {one: follows(one, answer) for one in reading.sentences(sections["Input"]) if one != "It is raining."}
        return reading.listed("instructions", "instruction", "followed", given)

    return reader(judge)


def judged(judge: Any, answer: Any, given: str = INPUT, **settings: Any) -> Score | None:
    return asyncio.run(instruction_following({"question": given}, {"output": answer}, judge, **settings))


def test_each_instruction_counts_and_those_not_followed_are_named(judge: Any) -> None:
    all_three, planted, none = judged(judge, "A PLUM."), judged(judge, "A plum."), judged(judge, "nothing")
    assert all_three and planted and none
    assert (all_three.value, all_three.comment) == (1.0, "3 of 3 instructions followed")
    assert planted.value == pytest.approx(2 / 3)
    assert planted.comment == "2 of 3 instructions followed; not followed: Write in capitals."
    assert none.value == 0.0


def numbered(*verdicts: tuple[int, bool]) -> dict[str, Any]:
    """What a model says of instructions that have numbers."""
    return {"instructions": [{"number": n, "reasoning": "as I read it", "followed": done} for n, done in verdicts]}


GIVEN = ["Be short.", "Write in capitals."]


def test_instructions_of_the_setting_are_judged_instead_and_named_as_they_were_given(reader: Any) -> None:
    score = judged(reader(lambda _: numbered((1, True), (2, False))), "A plum.", instructions=GIVEN)
    assert score and score.value == 0.5
    assert score.comment == "1 of 2 instructions followed; not followed: Write in capitals."
    assert score.metadata == {
        "instructions": [
            {"number": 1, "instruction": "Be short.", "reasoning": "as I read it", "followed": True},
            {"number": 2, "instruction": "Write in capitals.", "reasoning": "as I read it", "followed": False},
        ]
    }


def test_verdicts_go_by_the_numbers_of_the_instructions(reader: Any) -> None:
    judge = reader(lambda _: numbered((2, False), (1, True)))
    score = judged(judge, "A plum.", instructions=GIVEN)
    assert score and (score.comment or "").endswith("not followed: Write in capitals.")
    assert "Instructions to judge by:\n1. Be short.\n2. Write in capitals.\n" in judge.prompts[0]
    one = judged(reader(lambda _: numbered((1, True))), "A plum.", instructions="Be short.")
    assert one and one.value == 1.0
    says = "instruction_following: got verdicts on the instructions 1, 1, wanted each of 1 to 2 once"
    with pytest.raises(ValueError, match=says):
        judged(reader(lambda _: numbered((1, True), (1, True))), "A plum.", instructions=GIVEN)
    judge = reader(lambda _: numbered((1, True)))
    hashes = [judged(judge, "a", instructions=text).prompt_hash for text in ("Say {outputs}.", "Say {inputs}.")]  # type: ignore[union-attr]
    assert "1. Say {outputs}." in judge.prompts[0]
    assert len({*hashes}) == 2


@pytest.mark.parametrize(
    ("instructions", "says"),
    [
        ([], r"instructions: got \[\], wanted a text, or a list"),
        ("", "instructions: got '', wanted a text"),
        (["a", None], "instructions: got None, wanted a text"),
        ({"a": 1}, "instructions: got {'a': 1}, wanted a text"),
    ],
)
def test_a_setting_that_cannot_be_used_is_an_error(judge: Any, instructions: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        judged(judge, "A plum.", instructions=instructions)
    assert judge.prompts == []
