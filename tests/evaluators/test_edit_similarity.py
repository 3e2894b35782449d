"""edit_similarity: how many edits apart, by length."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.text import edit_similarity
from evalflows.specs.errors import CallError


def similarity(answer: Any, wanted: Any, **settings: Any) -> float:
    value = edit_similarity({"output": answer}, {"answer": wanted}, **settings)
    assert value is not None
    return value


def levenshtein(one: str, other: str) -> int:
    """The textbook's, row by row."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row = row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
    return row[-1]


@settings(deadline=None)
@given(st.text(alphabet="abé 🙂", max_size=12), st.text(alphabet="abé 🙂", max_size=12))
def test_it_is_one_minus_the_edits_by_the_longer_length(one: str, other: str) -> None:
    longer = max(len(one), len(other))
    wanted = 1 - levenshtein(one, other) / longer if longer else 1.0
    assert similarity(one, other, strip=False) == pytest.approx(wanted)
    assert similarity(other, one, strip=False) == pytest.approx(wanted)


def test_case_counts_and_space_around_is_ignored_unless_told_otherwise() -> None:
    assert similarity("PARIS", "paris") == 0.0
    assert similarity("PARIS", "paris", ignore_case=True) == 1.0
    assert similarity("STRASSE", "straße", ignore_case=True) == 1.0
    assert similarity(" Paris\n", "Paris") == 1.0
    assert similarity("Paris", " Paris ") == 1.0
    assert similarity(" ", "") == 1.0
    assert similarity(" abcd", "abcd", strip=False) == pytest.approx(0.8)


def test_null_is_empty_and_what_is_no_text_is_compared_as_json() -> None:
    assert similarity(None, "null") == 0.0
    assert similarity(None, "") == 1.0
    assert similarity(42, "42") == 1.0
    assert similarity({"b": 1, "a": 2}, {"a": 2, "b": 1}) == 1.0
    assert similarity([1, 2], [1, 3]) == pytest.approx(5 / 6)


def test_a_key_names_the_field_and_long_texts_are_no_trouble() -> None:
    outputs = {"answer": "Paris", "reasoning": "xyz"}
    assert edit_similarity(outputs, {"wanted": "Paris"}, key="answer") == 1.0
    assert edit_similarity(outputs, {"wanted": "Paris"}, key="reasoning") == 0.0
    assert edit_similarity(outputs, {"answer": "Paris", "note": "easy"}, key="answer") == 1.0
    assert similarity("a" * 50_000, "a" * 49_999 + "b") == pytest.approx(1 - 1 / 50_000)


@pytest.mark.parametrize("reference", [None, {}, {"answer": None}])
def test_without_a_reference_it_does_not_apply(reference: dict[str, Any] | None) -> None:
    assert edit_similarity({"output": "Paris"}, reference) is None


def test_texts_that_would_take_too_long_are_refused() -> None:
    long = "a" * 180_000
    with pytest.raises(CallError, match="180000 and 180001 characters are too long to compare") as caught:
        edit_similarity({"output": long}, {"output": long + "b"})
    assert caught.value.kind == "too_slow"
    assert edit_similarity({"output": long}, {"output": long}) == 1.0
