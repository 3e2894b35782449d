"""The two sides of a comparison: which field of an answer, and which of a reference."""

from typing import Any

import pytest

from evalflows.evaluators.text import answer_text, reference_value


def test_the_only_field_of_an_answer_is_its_text() -> None:
    assert answer_text({"output": "Paris"}, None) == answer_text({"response": "Paris"}, None) == "Paris"


def test_a_key_names_the_field_of_an_answer() -> None:
    assert answer_text({"answer": "Paris", "note": "sure"}, "answer") == "Paris"
    with pytest.raises(KeyError, match="no field 'answer', got output"):
        answer_text({"output": "Paris"}, "answer")


def test_an_answer_that_is_null_is_empty_and_not_the_word_null() -> None:
    assert answer_text({"output": None}, None) == ""


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (False, "false"), ([1], "[1]"), ({"b": 1, "a": "é"}, None)])
def test_what_is_no_text_is_json(value: Any, text: str | None) -> None:
    assert answer_text({"output": value}, None) == (text or '{"a": "é", "b": 1}')


def test_a_reference_of_one_field_needs_no_key_and_heeds_none() -> None:
    assert reference_value({"expected": 7}, None) == reference_value({"expected": 7}, "output") == 7


def test_a_key_names_the_field_of_a_reference_of_several() -> None:
    assert reference_value({"answer": 7, "note": "easy"}, "answer") == 7
    with pytest.raises(KeyError, match="no field 'output', got answer, note"):
        reference_value({"answer": 7, "note": "easy"}, "output")


@pytest.mark.parametrize("reference", [None, {}, {"answer": None}])
def test_there_may_be_no_reference(reference: dict[str, Any] | None) -> None:
    assert reference_value(reference, None) is None


@pytest.mark.parametrize("value", [0, False, "", []])
def test_a_reference_that_is_false_or_empty_is_one(value: Any) -> None:
    assert reference_value({"answer": value}, None) == value
