"""The two sides of a comparison: which field of an answer, and which of a reference."""

from typing import Any

import pytest

from evalflows.evaluators.score import answer_text, reference_value


def test_a_key_names_the_field_of_an_answer_and_of_a_reference_of_several() -> None:
    assert answer_text({"answer": "Paris", "note": "sure"}, "answer") == "Paris"
    with pytest.raises(KeyError, match="no field 'answer', got output"):
        answer_text({"output": "Paris"}, "answer")
    assert answer_text({"output": None}, None) == ""
    assert reference_value({"expected": 7}, None) == reference_value({"expected": 7}, "output") == 7
    assert reference_value({"answer": 7, "note": "easy"}, "answer") == 7
    with pytest.raises(KeyError, match="no field 'output', got answer, note"):
        reference_value({"answer": 7, "note": "easy"}, "output")


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (False, "false"), ([1], "[1]"), ({"b": 1, "a": "é"}, None)])
def test_what_is_no_text_is_json(value: Any, text: str | None) -> None:
    assert answer_text({"output": value}, None) == (text or '{"a": "é", "b": 1}')


@pytest.mark.parametrize("value", [0, False, "", []])
def test_a_reference_that_is_false_or_empty_is_one(value: Any) -> None:
    assert reference_value({"answer": value}, None) == value
