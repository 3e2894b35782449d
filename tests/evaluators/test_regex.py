"""regex: the pattern stands in the answer, or is the whole of it."""

import pytest

from evalflows.evaluators.text import regex
from evalflows.specs.errors import CallError


def test_a_pattern_is_found_anywhere_in_the_answer() -> None:
    assert regex({"output": "Order A-123 was sent."}, pattern=r"[A-Z]-\d{3}") is True
    assert regex({"output": "Order A-12 was sent."}, pattern=r"[A-Z]-\d{3}") is False


@pytest.mark.parametrize("answer", ["A-123.", " A-123", "A-123\n"])
def test_with_full_nothing_may_stand_around(answer: str) -> None:
    assert regex({"output": "A-123"}, pattern=r"[A-Z]-\d{3}", full=True) is True
    assert regex({"output": answer}, pattern=r"[A-Z]-\d{3}", full=True) is False
    assert regex({"output": answer}, pattern=r"[A-Z]-\d{3}") is True


def test_case_counts_unless_told_otherwise_and_a_key_names_the_field() -> None:
    assert regex({"output": "PARIS"}, pattern="paris") is False
    assert regex({"output": "PARIS"}, pattern="paris", ignore_case=True) is True
    assert regex({"output": "PARIS"}, pattern="paris") is False  # what is kept of the last pattern does not matter
    outputs = {"answer": "Rome", "reasoning": "not Paris"}
    assert regex(outputs, pattern="Paris", key="reasoning") is True
    assert regex(outputs, pattern="Paris", key="answer") is False
    assert regex({"output": {"city": "Paris"}}, pattern=r'"city": "P') is True
    assert regex({"output": ["Paris"]}, pattern="Rome") is False


@pytest.mark.parametrize("pattern", ["null", "None", "."])
def test_an_answer_that_is_null_has_nothing_to_find(pattern: str) -> None:
    assert regex({"output": None}, pattern=pattern) is False


@pytest.mark.parametrize("full", [True, False])
def test_a_pattern_that_takes_for_ever_is_too_slow(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(regex.__globals__, "MAX_S", 0.05)
    with pytest.raises(CallError, match=r"the pattern took longer than 0.05 s on 5001 characters") as caught:
        regex({"output": "a" * 5000 + "!"}, pattern="(a|aa|aaa)+b", full=full)
    assert caught.value.kind == "too_slow"


@pytest.mark.parametrize("pattern", ["(", "[a", "*a", "a{2,1}", "(?P<x>a)(?P<x>b)", "a{99999999999999999999}", "\n("])
def test_a_pattern_that_does_not_compile_is_told_in_one_line(pattern: str) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="does not compile: ") as caught:
            regex({"output": "a"}, pattern=pattern)
        assert "\n" not in str(caught.value)
