"""length_between: neither too short nor too long."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.evaluators.text import length_between


def fits(answer: Any, **settings: Any) -> bool:
    return length_between({"output": answer}, **settings)


@given(st.text(alphabet="ab é漢"), st.integers(1, 9), st.integers(0, 9))
def test_it_is_the_number_of_characters_without_space_around(text: str, least: int, more: int) -> None:
    assert fits(text, least=least, most=least + more) is (least <= len(text.strip()) <= least + more)


def test_words_may_be_counted_one_bound_is_enough_and_a_key_names_the_field() -> None:
    assert fits("a" * 1000, least=3) is True
    assert fits("ab", least=3) is False
    assert fits("", most=3) is True
    assert fits("abcd", most=3) is False
    assert fits("one two\nthree", least=3, most=3, unit="words") is True
    assert fits("one two", least=3, unit="words") is False
    assert fits("a b c d", most=3, unit="words") is False
    assert fits("extraordinarily", most=3, unit="words") is True
    assert fits(" " * 50, least=1) is False
    assert fits("  \n ", least=1, unit="words") is False
    assert fits("one    two", most=2, unit="words") is True
    assert fits("a    b", most=3) is False
    assert fits(None, least=1) is False
    assert fits(None, most=1) is True
    outputs = {"answer": "Paris", "reasoning": "a long way to it"}
    assert length_between(outputs, most=5, key="answer") is True
    assert length_between(outputs, most=5, key="reasoning") is False
    with pytest.raises(ValueError, match="unit: got 'tokens', wanted characters or words"):
        fits("Paris", most=3, unit="tokens")


@pytest.mark.parametrize("settings", [{}, {"least": 0}, {"unit": "words"}])
def test_without_a_bound_nothing_would_be_judged(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="got no bound"):
        fits("Paris", **settings)


@pytest.mark.parametrize(("settings", "says"), [({"least": 5, "most": 3}, "least 5 and most 3"), ({"most": -1}, "-1")])
def test_bounds_that_nothing_fits_are_an_error(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fits("Paris", **settings)
