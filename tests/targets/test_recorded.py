"""Recorded answers: found by id or by inputs; rows of another shape are told by their line. Those of a column, and
of another experiment."""

from datetime import UTC, datetime
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.store.records import OutputRow
from evalflows.targets import Answer, NoRecordedAnswerError, Target, recorded, recorded_column, replayed


def target(*rows: dict[str, Any], first: int = 1) -> Target:
    return recorded(enumerate(rows, start=first), "answers.jsonl")


def answer(made: Target, example_id: str = "e1", **inputs: Any) -> Any:
    return made.call({"example_id": example_id, "repetition": 0, "inputs": inputs}).outputs


def refusal(*rows: dict[str, Any], first: int = 1) -> str:
    with pytest.raises(InputError) as caught:
        target(*rows, first=first)
    return str(caught.value)


def missing(made: Target, example_id: str = "e1", **inputs: Any) -> str:
    with pytest.raises(NoRecordedAnswerError) as caught:
        answer(made, example_id, **inputs)
    return str(caught.value)


def test_an_answer_is_found_by_the_inputs_whatever_the_order_of_their_fields() -> None:
    made = target(
        {"inputs": {"question": "Why?", "n": 1}, "outputs": "so"}, {"inputs": {"question": "Why?"}, "outputs": "no"}
    )
    assert answer(made, n=1, question="Why?") == "so"
    assert answer(made, question="Why?") == "no"
    assert answer(target({"inputs": "Why?", "outputs": "so"}), input="Why?") == "so"
    assert answer(target({"id": 7, "outputs": "seven"}), "7") == "seven"
    assert answer(target({"id": 0, "outputs": "zero"}), "0") == "zero"
    made = target({"inputs": {"question": "Why?"}, "outputs": "by inputs"}, {"id": "e1", "outputs": "by id"})
    assert answer(made, "e1", question="Why?") == "by id"
    assert answer(made, "e2", question="Why?") == "by inputs"


@pytest.mark.parametrize(
    "row",
    [
        {"id": "e1", "error": "timed out"},
        {"id": "e1", "error": "timed out", "outputs": None},
        {"inputs": {"question": "Why?"}, "error": "timed out"},
    ],
)
def test_a_recorded_error_is_no_answer_and_is_told(row: dict[str, Any]) -> None:
    assert missing(target(row), "e1", question="Why?") == "timed out"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"id": "e1"}, {"id": "e1"}),
        ({"id": 1}, {"id": "1"}),
        ({"inputs": {"a": 1, "b": 2}}, {"inputs": {"b": 2, "a": 1}}),
        ({"inputs": "Why?"}, {"inputs": {"input": "Why?"}}),
    ],
)
def test_a_second_answer_to_an_example_is_told_by_both_lines(first: dict[str, Any], second: dict[str, Any]) -> None:
    other = {"id": "other", "outputs": 0}
    rows = (first | {"outputs": "one"}, other, second | {"outputs": "two"})
    assert refusal(*rows, first=4) == "answers.jsonl:6: answers the same example as line 4"


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"id": "e1", "output": "one"}, "got id, output, wanted 'outputs' (or 'error')"),
        ({"id": "e1", "error": None}, "got id, error, wanted 'outputs' (or 'error')"),
        ({}, "got nothing, wanted 'outputs' (or 'error')"),
        ({"outputs": "one", "name": "e1"}, "got outputs, name, wanted 'id' or 'inputs' to find the example by"),
    ],
)
def test_a_row_of_another_shape_is_told_by_its_line(row: dict[str, Any], wanted: str) -> None:
    assert refusal({"id": "e0", "outputs": 0}, row, first=8) == f"answers.jsonl:9: {wanted}"


@pytest.mark.parametrize("inputs", [float("inf"), {"q": ["\ud83d"]}, {"q": b"x"}], ids=repr)
def test_inputs_that_json_cannot_hold_are_told_by_their_line(inputs: object) -> None:
    assert refusal({"inputs": inputs, "outputs": 1}, first=3).startswith("answers.jsonl:3: ")


# Latency


def latency(value: object) -> float | None:
    made = target({"id": "e1", "outputs": "one", "latency_s": value})
    found: float | None = made.call({"example_id": "e1", "repetition": 0, "inputs": {}}).latency_s
    return found


@pytest.mark.parametrize(("text", "seconds"), [("1.5", 1.5), ("0", 0.0), (" 2 ", 2.0)])
def test_a_latency_may_be_a_cell_of_csv(text: str, seconds: float) -> None:
    assert latency(text) == seconds


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e308", "1,5", "1s"])
def test_a_cell_that_is_no_latency_is_not_known(text: str) -> None:
    assert latency(text) is None


# A column of the dataset


def from_column(metadata: dict[str, Any], column: str = "answer") -> Any:
    return recorded_column(column).call({"example_id": "e1", "inputs": {"answer": "no"}, "metadata": metadata})


@pytest.mark.parametrize("value", ["Paris", "", 0, False, [], {}, {"output": "Paris", "why": None}])
def test_a_column_of_the_metadata_is_the_answer(value: object) -> None:
    assert from_column({"answer": value, "other": 1}) == Answer(outputs=value)


@pytest.mark.parametrize("metadata", [{}, {"answer": None}, {"Answer": "Paris"}, {"a": {"answer": "Paris"}}])
def test_an_example_without_the_column_has_no_answer(metadata: dict[str, Any]) -> None:
    with pytest.raises(NoRecordedAnswerError) as caught:
        from_column(metadata)
    assert str(caught.value) == "the example's metadata has no 'answer'"


# Another experiment


def output(example_id: str = "e1", repetition: int = 0, **fields: Any) -> OutputRow:
    plain = {"outputs": '{"output":"one"}', "status": "ok"}
    return OutputRow(
        run_id=f"run-{example_id}-{repetition}",
        experiment_id="exp-1",
        example_id=example_id,
        repetition=repetition,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        **(plain | fields),
    )


def replay(made: Target, example_id: str = "e1", repetition: int = 0) -> Any:
    return made.call({"example_id": example_id, "repetition": repetition, "inputs": {}, "metadata": {}})


def unplayed(made: Target, example_id: str = "e1", repetition: int = 0) -> str:
    with pytest.raises(NoRecordedAnswerError) as caught:
        replay(made, example_id, repetition)
    return str(caught.value)


def test_an_answer_of_another_experiment_comes_with_what_it_took() -> None:
    row = output(latency_s=1.5, tokens_in=7, tokens_out=0, cost_usd=0.0, steps='[{"name":"call"}]', attempts=3)
    assert replay(replayed([row], "experiment x")) == Answer(
        outputs={"output": "one"},
        latency_s=1.5,
        tokens_in=7,
        tokens_out=0,
        cost_usd=0.0,
        steps='[{"name":"call"}]',
        reused_from="run-e1-0",
    )


def test_a_run_that_the_experiment_has_not_or_that_failed_has_no_answer() -> None:
    made = replayed([output("e1", 0)], "experiment exp-1")
    said = "experiment exp-1 has no answer for this example and repetition"
    assert unplayed(made, "e2") == unplayed(made, "e1", 1) == unplayed(replayed([], "experiment exp-1")) == said
    made = replayed(
        [output(outputs=None, status="failed", error="HTTP 500", error_kind="server_error")], "experiment x"
    )
    assert unplayed(made) == "HTTP 500"
