"""answer_relevance: the share of statements that address the question, and 0 where it is avoided."""

import asyncio
from typing import Any

import pytest

from evalflows.evaluators.judges.answer_relevance import answer_relevance
from evalflows.evaluators.score import Score

QUESTION = {"question": "When does the museum open?"}


@pytest.fixture
def judge(reader: Any, reading: Any) -> Any:
    """A sentence is relevant that has a word of the question in it, or an hour."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        asked, answer = reading.words(sections["Question"]) | {"10"}, sections["Answer to judge"]
        found = {one: bool(reading.words(one) & asked) for one in reading.sentences(answer) if reading.words(one)}
        return reading.listed("statements", "statement", "relevant", found, evasive="hard to say" in answer)

    return reader(judge)


def judged(judge: Any, answer: Any, **settings: Any) -> Score:
    return asyncio.run(answer_relevance(QUESTION, {"output": answer}, judge, **settings))


def test_an_answer_to_the_question_is_relevant_and_one_to_another_is_not(judge: Any) -> None:
    assert judged(judge, "The museum opens at 10.").value == 1.0
    planted = judged(judge, "Tickets cost twelve pounds.")
    assert planted.value == 0.0
    assert planted.comment == "0 of 1 statements relevant; not relevant: Tickets cost twelve pounds."


def test_an_answer_that_avoids_the_question_or_states_nothing_is_0(judge: Any) -> None:
    score = judged(judge, "It is hard to say when the museum opens.")
    assert score.value == 0.0 and score.metadata and score.metadata["evasive"] is True
    assert score.comment == "evasive; 1 of 1 statements relevant"
    score = judged(judge, "Oh. Ah.")
    assert (score.value, score.comment) == (0.0, "the answer states nothing")


@pytest.mark.parametrize("answer", ["", "  ", None])
def test_an_empty_answer_addresses_nothing_and_nothing_is_asked(judge: Any, answer: Any) -> None:
    assert judged(judge, answer) == Score(value=0.0, comment="the answer is empty")
    assert judge.prompts == []
