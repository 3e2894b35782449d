"""context_recall: how much of the reference was retrieved."""

import asyncio
from typing import Any

import pytest

from evalflows.evaluators.judges.context_recall import context_recall
from evalflows.evaluators.score import Score

REFERENCE = {"answer": "Refunds take five days. Shipping is never refunded."}


@pytest.fixture
def judge(reader: Any, reading: Any) -> Any:
    """A statement is a sentence; it is supported where the contexts have all of its words."""

    def judge(sections: dict[str, str]) -> dict[str, Any]:
        known = reading.words(" ".join(reading.contexts(sections)))
        found = {one: reading.words(one) <= known for one in reading.sentences(sections["Reference answer"])}
        return reading.listed("statements", "statement", "supported", found)

    return reader(judge)


def judged(
    judge: Any, context: Any, reference: dict[str, Any] | None = REFERENCE, answer: str = "Five days.", **settings: Any
) -> Score | None:
    inputs = {"question": "How long do refunds take?", "context": context}
    return asyncio.run(context_recall(inputs, {"output": answer}, reference, {}, judge, **settings))


def test_context_that_holds_the_whole_reference_is_1_and_half_of_it_is_a_half(judge: Any) -> None:
    whole = judged(judge, ["Refunds take five days.", "Shipping is never refunded, by the way."])
    half = judged(judge, ["Refunds take five days.", "We ship every morning."])
    assert whole and half
    assert whole.value == 1.0
    assert half.value == 0.5
    assert half.comment == "1 of 2 statements supported; not supported: Shipping is never refunded."


@pytest.mark.parametrize(("context", "reference"), [(None, REFERENCE), (["a"], None), (["a"], {"answer": None})])
def test_without_context_or_reference_there_is_no_score(judge: Any, context: Any, reference: Any) -> None:
    assert judged(judge, context, reference) is None
    assert judge.prompts == []


def test_the_reference_may_lie_beside_the_context_and_a_key_names_it(judge: Any) -> None:
    reference = {"context": ["Refunds take five days."], "answer": "Refunds take five days.", "note": "Cats purr."}

    def value(**settings: Any) -> Any:
        score = asyncio.run(
            context_recall({"q": "?"}, {}, reference, {}, judge, context="reference_outputs.context", **settings)
        )
        return score and score.value

    assert (value(key="answer"), value(key="note")) == (1.0, 0.0)
    del reference["note"]
    assert value() == 1.0  # the context left, there is one field


def test_where_nothing_was_retrieved_it_is_0_and_nothing_is_asked(judge: Any) -> None:
    assert judged(judge, []) == Score(value=0.0, comment="there is no context")
    assert judge.prompts == []
