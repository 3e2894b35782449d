"""Recorded answers: found by id or by inputs; rows of another shape are told by their line."""

from typing import Any

import pytest

from specs.errors import InputError
from targets.recorded import NoRecordedAnswerError, recorded
from targets.target import Target


def target(*rows: dict[str, Any], first: int = 1) -> Target:
    return recorded(enumerate(rows, start=first), "answers.jsonl")


def answer(made: Target, example_id: str = "e1", **inputs: Any) -> Any:
    return made.call({"example_id": example_id, "inputs": inputs}).outputs


def refusal(*rows: dict[str, Any], first: int = 1) -> str:
    with pytest.raises(InputError) as caught:
        target(*rows, first=first)
    return str(caught.value)


def missing(made: Target, example_id: str = "e1", **inputs: Any) -> str:
    with pytest.raises(NoRecordedAnswerError) as caught:
        answer(made, example_id, **inputs)
    return str(caught.value)


def test_an_answer_is_found_by_the_examples_id() -> None:
    made = target({"id": "e1", "outputs": {"output": "one"}}, {"id": "e2", "outputs": {"output": "two"}})
    assert made.is_async is False
    assert answer(made, "e1") == {"output": "one"}
    assert answer(made, "e2") == {"output": "two"}


def test_a_number_as_id_is_found_by_its_text() -> None:
    assert answer(target({"id": 7, "outputs": "seven"}), "7") == "seven"
    assert answer(target({"id": 0, "outputs": "zero"}), "0") == "zero"


def test_an_answer_is_found_by_the_inputs_whatever_the_order_of_their_fields() -> None:
    made = target(
        {"inputs": {"question": "Why?", "n": 1}, "outputs": "so"}, {"inputs": {"question": "Why?"}, "outputs": "no"}
    )
    assert answer(made, n=1, question="Why?") == "so"
    assert answer(made, question="Why?") == "no"


def test_inputs_that_are_no_mapping_are_found_as_a_dataset_wraps_them() -> None:
    assert answer(target({"inputs": "Why?", "outputs": "so"}), input="Why?") == "so"


def test_inputs_that_differ_in_type_are_not_found() -> None:
    made = target({"inputs": {"n": "1"}, "outputs": "so"})
    assert "has no answer" in missing(made, n=1)


def test_the_id_goes_before_the_inputs() -> None:
    made = target({"inputs": {"question": "Why?"}, "outputs": "by inputs"}, {"id": "e1", "outputs": "by id"})
    assert answer(made, "e1", question="Why?") == "by id"
    assert answer(made, "e2", question="Why?") == "by inputs"


def test_an_id_of_none_leaves_the_inputs_to_find_by() -> None:
    assert answer(target({"id": None, "inputs": {"n": 1}, "outputs": "so"}), n=1) == "so"


@pytest.mark.parametrize("outputs", [{"output": "one"}, "one", ["one"], 0, "", {}])
def test_outputs_are_given_back_as_they_are(outputs: object) -> None:
    assert answer(target({"id": "e1", "outputs": outputs})) == outputs


def test_without_an_answer_the_file_is_named() -> None:
    assert missing(target({"id": "e2", "outputs": "two"})) == "answers.jsonl has no answer for this example"
    assert missing(target()) == "answers.jsonl has no answer for this example"


@pytest.mark.parametrize(
    "row",
    [
        {"id": "e1", "error": "timed out"},
        {"id": "e1", "error": "timed out", "outputs": None},
        {"inputs": {"question": "Why?"}, "error": "timed out"},
    ],
)
def test_a_recorded_error_is_no_answer_and_is_told(row: dict[str, Any]) -> None:
    assert missing(target(row), "e1", question="Why?") == "timed out"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"id": "e1"}, {"id": "e1"}),
        ({"id": 1}, {"id": "1"}),
        ({"inputs": {"a": 1, "b": 2}}, {"inputs": {"b": 2, "a": 1}}),
        ({"inputs": "Why?"}, {"inputs": {"input": "Why?"}}),
    ],
)
def test_a_second_answer_to_an_example_is_told_by_both_lines(first: dict[str, Any], second: dict[str, Any]) -> None:
    other = {"id": "other", "outputs": 0}
    rows = (first | {"outputs": "one"}, other, second | {"outputs": "two"})
    assert refusal(*rows, first=4) == "answers.jsonl:6: answers the same example as line 4"


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"id": "e1", "output": "one"}, "got id, output, wanted 'outputs' (or 'error')"),
        ({"id": "e1", "error": None}, "got id, error, wanted 'outputs' (or 'error')"),
        ({}, "got nothing, wanted 'outputs' (or 'error')"),
        ({"outputs": "one", "name": "e1"}, "got outputs, name, wanted 'id' or 'inputs' to find the example by"),
    ],
)
def test_a_row_of_another_shape_is_told_by_its_line(row: dict[str, Any], wanted: str) -> None:
    assert refusal({"id": "e0", "outputs": 0}, row, first=8) == f"answers.jsonl:9: {wanted}"
