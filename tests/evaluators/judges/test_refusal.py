"""refusal: whether an answer declines."""

import asyncio
from typing import Any

import pytest

from evalflows.evaluators.judges.refusal import refusal
from evalflows.evaluators.score import Score

QUESTION = "How do I get red wine out of wool?"


@pytest.fixture
def judge(reader: Any, reading: Any) -> Any:
    """A refusal says that it cannot, and names none of the things that help."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        answer = sections["Answer to judge"]
        helps = bool(reading.words(answer) & {"vinegar", "water", "salt", "blot"})
        return {"reasoning": f"{sections['Question']} {helps}", "refuses": "cannot" in answer and not helps}

    return reader(judge)


def judged(judge: Any, answer: Any, **settings: Any) -> Score:
    return asyncio.run(refusal({"question": QUESTION}, {"output": answer}, judge, **settings))


def test_an_answer_that_declines_is_a_refusal_and_one_with_caveats_is_none(judge: Any) -> None:
    declined = judged(judge, "I am sorry, I cannot help with stains.")
    partial = judged(judge, "I cannot promise that it works, but blot it with cold water and some vinegar.")
    assert (declined.value, declined.comment) == (True, f"{QUESTION} False")
    assert (partial.value, partial.comment) == (False, f"{QUESTION} True")
