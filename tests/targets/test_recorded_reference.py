"""The reference as a recorded answer: what a person said, as a target beside others."""

import json
from typing import Any

import pytest

from evalflows.evaluators.conversations import conversation
from evalflows.evaluators.score import ExampleView
from evalflows.specs.dataset import DatasetSpec
from evalflows.store.ingest import load_dataset
from evalflows.store.records import ExampleRow
from evalflows.store.store import Store
from evalflows.targets import NoRecordedAnswerError, as_outputs, recorded_column


def talk(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


TALK = talk("My order is KX-4471.", "I have noted KX-4471.", "Which one?", "It is RB-2098.", "No.", "KX-4471, sorry.")


def examples(store: Store, turns: str, messages: list[dict[str, str]] = TALK) -> list[ExampleRow]:
    rows = [{"id": "c1", "inputs": {"messages": messages}}]
    return load_dataset(store, DatasetSpec.model_validate({"rows": rows, "turns": turns})).selected


def answered(example: ExampleRow) -> dict[str, Any]:
    """The outputs of the target, of what the flow offers to it."""
    reference = None if example.reference_outputs is None else json.loads(example.reference_outputs)
    view = ExampleView(id=example.example_id, inputs=json.loads(example.inputs), reference_outputs=reference)
    available = {"inputs": view.inputs, "metadata": {}, "example": view, "example_id": view.id, "attachments": {}}
    return as_outputs(recorded_column("reference_outputs").call(available).outputs)


@pytest.fixture
def store() -> Store:
    return Store()


def test_the_persons_turn_is_the_answer_to_what_came_before_it(store: Store) -> None:
    assert [answered(example) for example in examples(store, "next")] == [
        {"output": "I have noted KX-4471."},
        {"output": "It is RB-2098."},
        {"output": "KX-4471, sorry."},
    ]


@pytest.mark.parametrize("turns", ["next", "whole"])
def test_with_what_the_example_gives_it_is_the_conversation_as_it_was(store: Store, turns: str) -> None:
    last = examples(store, turns)[-1]
    found = conversation(json.loads(last.inputs), answered(last))
    assert found is not None and found.messages == TALK
    assert [turn.number for turn in found.judged(False)] == ([3] if turns == "next" else [1, 2, 3])


def test_an_example_without_a_reference_has_no_answer(store: Store) -> None:
    *_, last = examples(store, "next", TALK[:5])
    with pytest.raises(NoRecordedAnswerError, match=r"^the example has no 'reference_outputs'$"):
        answered(last)
