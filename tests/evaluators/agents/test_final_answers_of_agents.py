"""final_answer: what an agent said in the end against what it should have said."""

from typing import Any

import pytest

from evalflows.evaluators.agents.final_answer import final_answer


def found(outputs: dict[str, Any], reference: Any, **settings: Any) -> Any:
    score = final_answer(None, outputs, reference, **settings)
    return None if score is None else score.value


def talk(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": text} for text in texts]}


def test_the_last_answer_counts_and_case_unless_told_otherwise() -> None:
    assert found(talk("Lyon", "Paris"), {"answer": "Paris"}) is True
    assert found(talk("Paris", "Lyon"), {"answer": "Paris"}) is False
    for how in ("exact", "contains"):
        assert found({"output": "paris"}, {"answer": "Paris"}, how=how) is False
        assert found({"output": "paris"}, {"answer": "Paris"}, how=how, ignore_case=True) is True
    with pytest.raises(ValueError, match="how: got 'fuzzy', wanted one of exact, contains, number"):
        found({"output": "x"}, {"answer": "x"}, how="fuzzy")


@pytest.mark.parametrize(
    ("how", "answer", "wanted", "right"),
    [
        ("exact", "Paris", "Paris ", True),
        ("exact", "It is Paris.", "Paris", False),
        ("contains", "It is Paris.", "Paris", True),
        ("contains", "It is Lyon.", "Paris", False),
        ("contains", "Rome, then Oslo", ["Rome", "Oslo"], True),
        ("contains", "Rome, then Nice", ["Rome", "Oslo"], False),
        ("number", "It costs $1,250.00", 1250, True),
        ("number", "It costs $1,250.00, or 3 a day", 1250, False),
        ("number", "It is free", 1250, False),
    ],
)
def test_each_way_of_comparing_is_right_and_wrong_where_it_should(
    how: Any, answer: str, wanted: Any, right: bool
) -> None:
    assert found({"final_answer": answer}, {"final_answer": wanted}, how=how) is right


def test_it_needs_an_answer_in_the_reference_and_an_agent_without_one_is_wrong() -> None:
    for reference in (None, {}, {"tool_calls": []}, {"answer": None}):
        assert found({"output": "Paris"}, reference) is None
    for outputs in ({"tool_calls": []}, {}, {"messages": []}):
        for how in ("exact", "contains", "number"):
            assert found(outputs, {"answer": "4"}, how=how) is False
    assert found({"output": "Paris"}, {"a": "x", "b": "Paris"}, key="b") is True
    assert found({"output": "Paris"}, {"a": "Paris", "b": "x"}, key="b") is False
