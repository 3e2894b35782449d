"""contains: what is looked for stands in the answer, or it does not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.contains import contains


def found(answer: Any, wanted: Any = None, **settings: Any) -> bool | None:
    """One field a side, under different names."""
    return contains({"output": answer}, None if wanted is None else {"answer": wanted}, **settings)


def test_the_reference_inside_the_answer_is_found() -> None:
    assert found("It is Paris, of course.", "Paris") is True


@pytest.mark.parametrize("answer", ["It is Rome.", "Par is", "Pari", ""])
def test_an_answer_without_the_reference_is_false(answer: str) -> None:
    assert found(answer, "Paris") is False


def test_it_is_not_the_reference_that_must_contain_the_answer() -> None:
    assert found("Paris", "Paris, France") is False


@settings(deadline=None)
@given(st.text(), st.text(min_size=1), st.text())
def test_with_case_counting_a_text_is_found_between_any_others(before: str, text: str, after: str) -> None:
    assert found(before + text + after, text, ignore_case=False) is True


@pytest.mark.parametrize("reference", [None, {"answer": ""}, {"answer": None}, {"answer": []}, {"answer": [""]}, {}])
def test_with_nothing_to_look_for_it_does_not_apply(reference: dict[str, Any] | None) -> None:
    assert contains({"output": "Paris"}, reference) is None


def test_the_reference_may_be_left_out() -> None:
    assert contains({"output": "Paris"}) is None
    assert contains({"output": "Paris"}, all_of=["paris"]) is True


def test_each_element_of_a_reference_list_is_needed() -> None:
    assert found("Paris and Lyon", ["Lyon", "Paris"]) is True
    assert found("Paris and Nice", ["Lyon", "Paris"]) is False


def test_all_of_needs_every_one() -> None:
    assert found("red, green", all_of=["red", "green"]) is True
    assert found("red, green", all_of=["red", "blue"]) is False


def test_any_of_needs_one() -> None:
    assert found("red, green", any_of=["blue", "green"]) is True
    assert found("red, green", any_of=["blue", "black"]) is False


def test_any_of_and_all_of_are_both_needed() -> None:
    assert found("red, green", any_of=["green", "blue"], all_of=["red"]) is True
    assert found("red, green", any_of=["blue"], all_of=["red"]) is False
    assert found("red, green", any_of=["green"], all_of=["blue"]) is False


def test_what_is_set_goes_before_the_reference() -> None:
    assert found("Rome", "Paris", any_of=["Rome"]) is True
    assert found("Paris", "Paris", all_of=["Rome"]) is False


@pytest.mark.parametrize("setting", ["any_of", "all_of"])
def test_a_single_text_is_one_thing_to_look_for_and_not_its_letters(setting: str) -> None:
    assert found("is it Rap?", **{setting: "Paris"}) is False
    assert found("It is Paris.", **{setting: "Paris"}) is True


@pytest.mark.parametrize("setting", ["any_of", "all_of"])
def test_a_number_may_be_looked_for(setting: str) -> None:
    assert found("The answer is 42.", **{setting: [42]}) is True
    assert found("The answer is 41.", **{setting: [42]}) is False


def test_case_is_ignored_unless_told_otherwise() -> None:
    assert found("it is PARIS", "Paris") is True
    assert found("it is PARIS", "Paris", ignore_case=False) is False
    assert found("it is Paris", "Paris", ignore_case=False) is True


@pytest.mark.parametrize(("answer", "wanted"), [("HAUPTSTRASSE 1", "straße"), ("ΣΊΣΥΦΟΣ!", "σίσυφος"), ("ﬁne", "FINE")])
def test_ignoring_case_folds_unicode(answer: str, wanted: str) -> None:
    assert found(answer, wanted) is True
    assert found(answer, wanted, ignore_case=False) is False


def test_space_within_counts() -> None:
    assert found("New  York", "New York") is False


def test_a_number_as_reference_is_looked_for_as_text() -> None:
    assert found("The answer is 42.", 42) is True
    assert found("The answer is 41.", 42) is False
    assert found("It is 0.", 0) is True
    assert found("It is ten.", 0) is False


def test_an_answer_that_is_no_text_is_searched_as_json() -> None:
    assert found(["Paris", "Lyon"], "lyon") is True
    assert found({"city": "Zürich"}, "Zürich") is True
    assert found(42, "42") is True
    assert found(["Paris"], "Lyon") is False


def test_the_order_of_fields_does_not_matter() -> None:
    assert found({"city": "Paris", "area": 105}, {"area": 105, "city": "Paris"}) is True
    assert found({"city": "Paris", "area": 105}, {"area": 106, "city": "Paris"}) is False


def test_a_key_names_the_field_that_is_searched() -> None:
    outputs = {"answer": "Rome", "reasoning": "not Paris"}
    assert contains(outputs, {"answer": "Paris"}) is True
    assert contains(outputs, {"answer": "Paris"}, key="answer") is False
    assert contains(outputs, {"answer": "Paris"}, key="reasoning") is True


def test_a_key_names_the_field_of_a_reference_that_has_several() -> None:
    reference = {"answer": "Paris", "note": "easy"}
    assert contains({"answer": "It is Paris.", "tokens": 4}, reference, key="answer") is True
    assert contains({"answer": "It is Rome.", "tokens": 4}, reference, key="answer") is False


def test_a_key_that_the_outputs_lack_is_told_with_what_they_have() -> None:
    with pytest.raises(KeyError, match="no field 'answer', got output"):
        contains({"output": "Paris"}, {"answer": "Paris"}, key="answer")
