"""contains: what is looked for stands in the answer, or it does not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.text import contains


def found(answer: Any, wanted: Any = None, **settings: Any) -> bool | None:
    """One field a side, under different names."""
    return contains({"output": answer}, None if wanted is None else {"answer": wanted}, **settings)


def test_the_reference_must_stand_in_the_answer_and_not_the_other_way_round() -> None:
    assert found("Paris", "Paris, France") is False
    assert contains({"output": "Paris"}) is None
    assert contains({"output": "Paris"}, all_of=["paris"]) is True
    assert found("The answer is 42.", 42) is True
    assert found("The answer is 41.", 42) is False
    assert found("It is 0.", 0) is True
    assert found("It is ten.", 0) is False


@settings(deadline=None)
@given(st.text(), st.text(min_size=1), st.text())
def test_with_case_counting_a_text_is_found_between_any_others(before: str, text: str, after: str) -> None:
    assert found(before + text + after, text, ignore_case=False) is True


@pytest.mark.parametrize("reference", [None, {"answer": ""}, {"answer": None}, {"answer": []}, {"answer": [""]}, {}])
def test_with_nothing_to_look_for_it_does_not_apply(reference: dict[str, Any] | None) -> None:
    assert contains({"output": "Paris"}, reference) is None


def test_every_text_of_the_reference_and_of_all_of_and_one_of_any_of_is_needed() -> None:
    assert found("Paris and Lyon", ["Lyon", "Paris"]) is True
    assert found("Paris and Nice", ["Lyon", "Paris"]) is False
    assert found("red, green", all_of=["red", "green"]) is True
    assert found("red, green", all_of=["red", "blue"]) is False
    assert found("red, green", any_of=["blue", "green"]) is True
    assert found("red, green", any_of=["blue", "black"]) is False
    assert found("red, green", any_of=["green", "blue"], all_of=["red"]) is True
    assert found("red, green", any_of=["blue"], all_of=["red"]) is False
    assert found("red, green", any_of=["green"], all_of=["blue"]) is False
    assert found("Rome", "Paris", any_of=["Rome"]) is True
    assert found("Paris", "Paris", all_of=["Rome"]) is False


@pytest.mark.parametrize("setting", ["any_of", "all_of"])
def test_a_single_text_is_one_thing_to_look_for_and_not_its_letters(setting: str) -> None:
    assert found("is it Rap?", **{setting: "Paris"}) is False
    assert found("It is Paris.", **{setting: "Paris"}) is True


@pytest.mark.parametrize(("answer", "wanted"), [("HAUPTSTRASSE 1", "straße"), ("ΣΊΣΥΦΟΣ!", "σίσυφος"), ("ﬁne", "FINE")])
def test_ignoring_case_folds_unicode(answer: str, wanted: str) -> None:
    assert found(answer, wanted) is True
    assert found(answer, wanted, ignore_case=False) is False


def test_an_answer_that_is_no_text_is_searched_as_json() -> None:
    assert found(["Paris", "Lyon"], "lyon") is True
    assert found({"city": "Zürich"}, "Zürich") is True
    assert found(42, "42") is True
    assert found(["Paris"], "Lyon") is False
    assert found({"city": "Paris", "area": 105}, {"area": 105, "city": "Paris"}) is True
    assert found({"city": "Paris", "area": 105}, {"area": 106, "city": "Paris"}) is False


def test_a_key_names_the_field_on_both_sides() -> None:
    outputs = {"answer": "Rome", "reasoning": "not Paris"}
    assert contains(outputs, {"answer": "Paris"}) is True
    assert contains(outputs, {"answer": "Paris"}, key="answer") is False
    assert contains(outputs, {"answer": "Paris"}, key="reasoning") is True
    reference = {"answer": "Paris", "note": "easy"}
    assert contains({"answer": "It is Paris.", "tokens": 4}, reference, key="answer") is True
    assert contains({"answer": "It is Rome.", "tokens": 4}, reference, key="answer") is False
    with pytest.raises(KeyError, match="no field 'answer', got output"):
        contains({"output": "Paris"}, {"answer": "Paris"}, key="answer")
