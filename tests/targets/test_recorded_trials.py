"""Recorded answers to each repetition of an example."""

from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.targets import NoRecordedAnswerError, Target, recorded


def target(*rows: dict[str, Any]) -> Target:
    return recorded(enumerate(rows, start=1), "trials.csv")


def answer(made: Target, repetition: int, example_id: str = "e1", **inputs: Any) -> Any:
    return made.call({"example_id": example_id, "repetition": repetition, "inputs": inputs}).outputs


def missing(made: Target, repetition: int, example_id: str = "e1") -> str:
    with pytest.raises(NoRecordedAnswerError) as caught:
        answer(made, repetition, example_id)
    return str(caught.value)


def refusal(*rows: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        target(*rows)
    return str(caught.value)


@pytest.mark.parametrize("zero", [0, "0", 0.0])
@pytest.mark.parametrize("one", [1, "1", 1.0])
def test_each_repetition_has_its_own_answer_whatever_the_file_makes_of_numbers(zero: object, one: object) -> None:
    made = target({"id": "e1", "repetition": one, "outputs": "b"}, {"id": "e1", "repetition": zero, "outputs": "a"})
    assert [answer(made, 0), answer(made, 1)] == ["a", "b"]


def test_a_repetition_is_found_by_the_inputs_too_and_two_are_told_by_both_lines() -> None:
    rows = [{"inputs": {"q": "Why?"}, "repetition": number, "outputs": number} for number in range(3)]
    assert [answer(target(*rows), number, "any", q="Why?") for number in range(3)] == [0, 1, 2]
    row = {"id": "e1", "repetition": 3, "outputs": 1}
    assert refusal(row, row | {"repetition": "3"}) == (
        "trials.csv:2: answers repetition 3 of the same example as line 1"
    )


@pytest.mark.parametrize("without", [{}, {"repetition": None}, {"repetition": ""}])
def test_a_row_without_repetition_serves_all_that_have_none_of_their_own(without: dict[str, Any]) -> None:
    made = target({"id": "e1", "outputs": "any"} | without, {"id": "e1", "repetition": 1, "outputs": "second"})
    assert [answer(made, number) for number in range(3)] == ["any", "second", "any"]


def test_a_missing_repetition_says_which_there_are_and_an_error_is_told() -> None:
    made = target({"id": "e1", "repetition": 2, "outputs": 1}, {"id": "e1", "repetition": 1, "outputs": 1})
    assert missing(made, 0) == "trials.csv has no answer for repetition 0 of this example, only for 1, 2"
    assert missing(made, 0, "e2") == "trials.csv has no answer for this example"
    made = target({"id": "e1", "outputs": "any"}, {"id": "e1", "repetition": 1, "error": "timed out"})
    assert missing(made, 1) == "timed out"
    assert answer(made, 0) == "any"


@pytest.mark.parametrize("given", [-1, "-1", 0.5, "first", True, [0], "1e3", float("nan"), float("inf")], ids=repr)
def test_a_repetition_that_is_no_whole_number_from_0_is_told_by_its_line(given: object) -> None:
    text = refusal({"id": "e0", "outputs": 1}, {"id": "e1", "repetition": given, "outputs": 1})
    assert text == f"trials.csv:2: repetition: got {given!r}, wanted a whole number from 0"
