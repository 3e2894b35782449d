"""Rows of any schema: which columns become what, and what is said of a column that is not there."""

from typing import Any

import pytest

from evalflows.specs.columns import AnswerColumns, ExampleColumns, answer_row, example_row
from evalflows.specs.errors import InputError


def example(row: dict[str, Any], **columns: Any) -> dict[str, Any]:
    return example_row(row, ExampleColumns.model_validate({"inputs": "question"} | columns))


def answer(row: dict[str, Any], **columns: Any) -> dict[str, Any]:
    return answer_row(row, AnswerColumns.model_validate({"outputs": "answer"} | columns))


def problem(row: dict[str, Any], **columns: Any) -> str:
    """The one line that a row is refused with."""
    with pytest.raises(InputError) as caught:
        example(row, **columns)
    assert "\n" not in str(caught.value)
    return str(caught.value)


ROW = {"question": "Why?", "best": "So.", "topic": "sky"}


def test_named_columns_become_fields_and_all_others_metadata() -> None:
    assert example(ROW, reference_outputs={"answer": "best"}) == {
        "inputs": {"question": "Why?"},
        "reference_outputs": {"answer": "So."},
        "metadata": {"topic": "sky"},
    }
    assert example(ROW, metadata={"about": "topic"})["metadata"] == {"about": "sky"}
    assert example(ROW, metadata=["topic"])["metadata"] == {"topic": "sky"}
    assert example({"question": "Why?"})["metadata"] is None
    assert example(ROW, metadata={})["metadata"] is None


def test_a_column_of_a_usual_name_is_taken_if_there_is_one_and_a_named_one_must_be_there_and_may_be_empty() -> None:
    for name in ("id", "split", "cluster"):
        row = example({"question": "Why?", name: "x"})
        assert (row[name], row["metadata"]) == ("x", None)
        assert name not in example({"question": "Why?"})
        assert problem({"question": "Why?", name: "x"}, **{name: "number"}).startswith("no column 'number', got ")
        assert example({"question": "Why?", "number": None}, **{name: "number"})[name] is None
    for value in (0, False, "", [], {}):
        row = example({"question": "Why?", "best": value}, reference_outputs="best")
        assert row["reference_outputs"] == {"best": value}, "what is falsy is a reference"


def test_a_missing_column_is_told_with_those_that_there_are() -> None:
    assert problem({"Question": "Why?", "topic": "sky"}) == "no column 'question', got Question, topic"
    assert problem({}) == "no column 'question', got an empty row"
    assert problem(ROW, reference_outputs="answer") == "no column 'answer', got question, best, topic"
    assert problem(ROW, metadata="tag") == "no column 'tag', got question, best, topic"


NESTED = {"data": {"question": "Why?", "deep": {"er": [1]}, "none": None}, "list": [{"x": 1}]}


def test_a_path_leads_into_nested_objects_unless_a_column_has_its_name() -> None:
    row = example(NESTED, inputs={"q": "data.question", "all": "data", "n": "data.deep.er"}, cluster="data.none")
    assert row["inputs"] == {"q": "Why?", "all": NESTED["data"], "n": [1]}
    assert row["cluster"] is None
    row = {"data.question": "whole", "data": {"question": "nested"}}
    assert example(row, inputs={"q": "data.question"})["inputs"] == {"q": "whole"}


@pytest.mark.parametrize(
    "path", ["data.x", "data.deep.x", "data.question.x", "data.none.x", "list.0.x", "x.question", ".", "data.", ".data"]
)
def test_a_path_that_leads_nowhere_is_told_whole(path: str) -> None:
    assert problem(NESTED, inputs={"q": path}) == f"no column {path!r}, got data, list"


def test_an_answer_has_its_outputs_and_what_its_example_is_found_by() -> None:
    row = {"number": 7, "q": "Why?", "answer": "So.", "model": "m"}
    assert answer(row, id="number") == {"id": 7, "outputs": {"answer": "So."}}
    assert answer(row, inputs={"question": "q"}) == {"inputs": {"question": "Why?"}, "outputs": {"answer": "So."}}
    assert answer({"id": 7, "answer": "So."}) == {"id": 7, "outputs": {"answer": "So."}}
    assert answer(row) == {"outputs": {"answer": "So."}}
    row = {"id": 7, "answer": "So.", "latency_s": 0.0, "error": None, "cost": 1}
    assert answer(row) == {"id": 7, "outputs": {"answer": "So."}, "latency_s": 0.0}
    assert answer(row | {"answer": None, "error": "timed out"}) == {
        "id": 7,
        "outputs": None,
        "latency_s": 0.0,
        "error": "timed out",
    }
    assert answer({"id": 7, "error": "timed out"}) == {"id": 7, "outputs": None, "error": "timed out"}
    for columns in ({"outputs": "text"}, {"id": "text"}, {"inputs": "text"}):
        with pytest.raises(InputError, match=r"^no column 'text', got id, answer$"):
            answer({"id": 7, "answer": "So."}, **columns)
