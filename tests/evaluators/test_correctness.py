"""correctness: what the model is asked, what becomes of what it says, and that an answer cannot speak for it."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judges.correctness import correctness
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Completion


class Judge:
    """A model that finds one thing of all answers, and keeps what it was asked."""

    def __init__(self, correct: bool = True) -> None:
        self.verdict = {"reasoning": "Both say Paris.", "correct": correct}
        self.requests: list[tuple[Any, dict[str, Any]]] = []

    async def __call__(self, messages: Any, **parameters: Any) -> Completion:
        self.requests.append((messages, parameters))
        return Completion(text=json.dumps(self.verdict), parsed=self.verdict, model="m", call_id="c")


QUESTION, REFERENCE = {"question": "What is the capital of France?"}, {"answer": "Paris"}


def judged(
    outputs: dict[str, Any],
    reference: dict[str, Any] | None = REFERENCE,
    judge: Judge | None = None,
    inputs: dict[str, Any] = QUESTION,
    **settings: Any,
) -> Score | None:
    """Its score, but for the hash of the prompt."""
    score = asyncio.run(correctness(inputs, outputs, reference, judge or Judge(), **settings))
    return score and replace(score, prompt_hash=None)


def asked(outputs: dict[str, Any], **settings: Any) -> str:
    """The prompt that goes to the model."""
    judge = Judge()
    judged(outputs, judge=judge, **settings)
    ((prompt, _),) = judge.requests
    assert isinstance(prompt, str)
    return prompt


@pytest.mark.parametrize("reference", [None, {}, {"answer": None}])
def test_without_a_reference_nothing_is_asked(reference: dict[str, Any] | None) -> None:
    judge = Judge()
    assert judged({"output": "Paris"}, reference, judge) is None
    assert judge.requests == []


def test_the_model_is_asked_once_at_temperature_0_for_reasoning_and_then_a_verdict() -> None:
    judge = Judge()
    judged({"output": "Paris"}, judge=judge)
    ((_, parameters),) = judge.requests
    schema = parameters.pop("schema")
    assert parameters == {"temperature": 0}
    assert list(schema["properties"]) == ["reasoning", "correct"]  # it thinks before it judges
    jsonschema.validate(judge.verdict, schema)
    for wrong in (
        {"correct": True},
        {"reasoning": ""},
        {"reasoning": "", "correct": "true"},
        {**judge.verdict, "x": 1},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_several_fields_are_shown_as_json_and_null_as_empty() -> None:
    assert fenced({"city": "Paris", "sure": True}) in asked({"sure": True, "city": "Paris"})
    assert fenced({"a": 1, "b": "é"}) in asked({"output": "x"}, inputs={"b": "é", "a": 1})
    assert fenced("é") in asked({"output": "x"}, inputs={"b": "é", "a": None})
    assert fenced({"a": 1, "b": 2}) in asked({"output": "x"}, reference={"b": 2, "a": 1})
    assert fenced("") in asked({"output": None})
    answered, reference = {"text": "Paris", "contexts": ["a", "b"]}, {"text": "It is Paris.", "source": "wiki"}
    prompt = asked(answered, reference=reference, key="text")
    assert fenced("Paris") in prompt and fenced("It is Paris.") in prompt and "contexts" not in prompt


def test_instructions_are_added_and_a_prompt_of_ones_own_gets_fenced_texts() -> None:
    instructions = "Accept {outputs} in either unit."
    assert f"\n{instructions}\n" in asked({"output": "Paris"}, instructions=instructions)
    assert "Accept" not in asked({"output": "Paris"})
    prompt = asked({"output": "Lyon"}, prompt="{outputs} or {reference_outputs}? {{yes}}")
    assert prompt == f"{fenced('Lyon')} or {fenced('Paris')}? {{yes}}"


def test_without_reasoning_the_verdict_alone_is_asked_for() -> None:
    judge = Judge()
    judge.verdict = {"correct": True}
    assert judged({"output": "Paris"}, judge=judge, reasoning=False, temperature=None) == Score(value=True)
    ((_, parameters),) = judge.requests
    assert parameters["schema"]["required"] == ["correct"] and "temperature" not in parameters


def test_a_prompt_that_hides_a_side_is_an_error() -> None:
    for prompt, says in (("Is {reference_outputs} right?", "wanted {outputs}"), ("{outputs}?", "{reference_outputs}")):
        with pytest.raises(ValueError, match=says):
            judged({"output": "Paris"}, prompt=prompt)
