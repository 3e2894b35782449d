"""exact_match: equal is equal, and nothing that only looks so."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.text import exact_match


def match(answer: Any, wanted: Any, **settings: Any) -> bool | None:
    """One field a side, under different names."""
    return exact_match({"output": answer}, {"answer": wanted}, **settings)


@settings(deadline=None)
@given(st.text(), st.text())
def test_without_settings_texts_match_if_they_are_equal_but_for_the_space_around(one: str, other: str) -> None:
    assert match(one, f" {one}\n") is True
    assert match(one, other) is (one.strip() == other.strip())


def test_strip_and_case_may_be_set() -> None:
    assert match("Paris ", "Paris", strip=False) is False
    assert match("Paris ", "Paris ", strip=False) is True
    assert match("paris", "Paris") is False
    assert match("paris", "Paris", ignore_case=False) is False
    assert match("paris", "Paris", ignore_case=True) is True


@pytest.mark.parametrize(
    ("answer", "wanted", "equal"),
    [(42, 42, True), (42, 42.0, True), (42, 43, False), (42, "42", False), ("42", 42, False), ("42.0", "42", False)],
)
def test_numbers_match_numbers_and_no_texts(answer: object, wanted: object, equal: bool) -> None:
    assert match(answer, wanted) is equal


@pytest.mark.parametrize(
    ("answer", "equal"),
    [(["a", "b"], True), (["b", "a"], False), (["a"], False), ("a, b", False), ('["a", "b"]', False)],
)
def test_lists_match_element_by_element(answer: object, equal: bool) -> None:
    assert match(answer, ["a", "b"]) is equal


def test_settings_reach_the_texts_of_lists_and_fields() -> None:
    assert match(["PARIS ", "Lyon"], ["paris", "lyon"], ignore_case=True) is True
    assert match(["PARIS ", "Nice"], ["paris", "lyon"], ignore_case=True) is False
    wanted = {"city": "paris", "country": "france"}
    assert exact_match({"city": "PARIS ", "country": "France"}, wanted, ignore_case=True) is True
    assert exact_match({"city": "PARIS ", "country": "Spain"}, wanted, ignore_case=True) is False


def test_with_several_fields_the_whole_is_compared_unless_a_key_names_one() -> None:
    wanted = {"city": "Paris", "country": "France"}
    assert exact_match({"country": "France", "city": "Paris"}, wanted) is True
    assert exact_match({"city": "Paris", "country": "Spain"}, wanted) is False
    assert exact_match({"city": "Paris"}, wanted) is False
    outputs, wanted = {"city": "Paris", "tokens": 12}, {"city": "Paris", "note": "easy"}
    assert exact_match(outputs, wanted, key="city") is True
    assert exact_match(outputs, wanted) is False
    assert exact_match({"city": "Rome", "tokens": 12}, wanted, key="city") is False
    with pytest.raises(KeyError, match="no field 'city', got town, tokens"):
        exact_match({"town": "Paris", "tokens": 1}, {"city": "Paris"}, key="city")
    with pytest.raises(KeyError, match="no field 'city', got answer"):
        exact_match({"city": "Paris"}, {"answer": "Paris"}, key="city")
    assert exact_match({"output": "Paris"}, None) is None
