"""Recorded answers: of rows, found by id or by inputs, one for each repetition or for all; of a column, of the
reference, of another experiment."""

from typing import Any

import pytest
from store_rows import make_row

from evalflows.evaluators.views import ExampleView
from evalflows.specs.errors import InputError
from evalflows.store.records import OutputRow
from evalflows.targets import Answer, NoRecordedAnswerError, Target, recorded, recorded_column, replayed


def target(*rows: dict[str, Any], first: int = 1) -> Target:
    return recorded(enumerate(rows, start=first), "answers.jsonl")


def answer(made: Target, example_id: str = "e1", repetition: int = 0, **inputs: Any) -> Any:
    return made.call({"example_id": example_id, "repetition": repetition, "inputs": inputs}).outputs


def refusal(*rows: dict[str, Any], first: int = 1) -> str:
    with pytest.raises(InputError) as caught:
        target(*rows, first=first)
    return str(caught.value)


def missing(made: Target, example_id: str = "e1", repetition: int = 0, **inputs: Any) -> str:
    with pytest.raises(NoRecordedAnswerError) as caught:
        answer(made, example_id, repetition, **inputs)
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


def test_a_recorded_error_is_no_answer_and_is_told() -> None:
    for row in ({"id": "e1"}, {"id": "e1", "outputs": None}, {"inputs": {"question": "Why?"}}):
        assert missing(target(row | {"error": "timed out"}), "e1", question="Why?") == "timed out"


def test_a_second_answer_to_an_example_and_a_row_of_another_shape_are_told_by_their_lines() -> None:
    for first, second in (
        ({"id": "e1"}, {"id": "e1"}),
        ({"id": 1}, {"id": "1"}),
        ({"inputs": {"a": 1, "b": 2}}, {"inputs": {"b": 2, "a": 1}}),
        ({"inputs": "Why?"}, {"inputs": {"input": "Why?"}}),
    ):
        rows = (first | {"outputs": "one"}, {"id": "other", "outputs": 0}, second | {"outputs": "two"})
        assert refusal(*rows, first=4) == "answers.jsonl:6: answers the same example as line 4"
    for row, wanted in (
        ({"id": "e1", "output": "one"}, "got id, output, wanted 'outputs' (or 'error')"),
        ({"id": "e1", "error": None}, "got id, error, wanted 'outputs' (or 'error')"),
        ({}, "got nothing, wanted 'outputs' (or 'error')"),
        ({"outputs": "one", "name": "e1"}, "got outputs, name, wanted 'id' or 'inputs' to find the example by"),
    ):
        assert refusal({"id": "e0", "outputs": 0}, row, first=8) == f"answers.jsonl:9: {wanted}"


@pytest.mark.parametrize("inputs", [float("inf"), {"q": ["\ud83d"]}, {"q": b"x"}], ids=repr)
def test_inputs_that_json_cannot_hold_are_told_by_their_line(inputs: object) -> None:
    assert refusal({"inputs": inputs, "outputs": 1}, first=3).startswith("answers.jsonl:3: ")


def test_a_latency_may_be_a_cell_of_csv_and_is_not_known_where_it_is_none() -> None:
    for text, seconds in (
        ("1.5", 1.5),
        ("0", 0.0),
        (" 2 ", 2.0),
        *((bad, None) for bad in ("-1", "nan", "1e308", "1,5")),
    ):
        made = target({"id": "e1", "outputs": "one", "latency_s": text})
        assert made.call({"example_id": "e1", "repetition": 0, "inputs": {}}).latency_s == seconds


def test_each_repetition_has_its_own_answer_whatever_the_file_makes_of_numbers() -> None:
    for zero, one in ((0, "1"), ("0", 1.0), (0.0, 1)):
        made = target({"id": "e1", "repetition": one, "outputs": "b"}, {"id": "e1", "repetition": zero, "outputs": "a"})
        assert [answer(made, repetition=number) for number in (0, 1)] == ["a", "b"]
    rows = [{"inputs": {"q": "Why?"}, "repetition": number, "outputs": number} for number in range(3)]
    assert [answer(target(*rows), "any", number, q="Why?") for number in range(3)] == [0, 1, 2]
    row = {"id": "e1", "repetition": 3, "outputs": 1}
    assert refusal(row, row | {"repetition": "3"}) == (
        "answers.jsonl:2: answers repetition 3 of the same example as line 1"
    )


def test_a_row_without_repetition_serves_all_that_have_none_of_their_own() -> None:
    for without in ({}, {"repetition": None}, {"repetition": ""}):
        made = target({"id": "e1", "outputs": "any"} | without, {"id": "e1", "repetition": 1, "error": "timed out"})
        assert (answer(made), missing(made, repetition=1), answer(made, repetition=2)) == ("any", "timed out", "any")


def test_a_missing_repetition_says_which_there_are() -> None:
    made = target({"id": "e1", "repetition": 2, "outputs": 1}, {"id": "e1", "repetition": 1, "outputs": 1})
    assert missing(made) == "answers.jsonl has no answer for repetition 0 of this example, only for 1, 2"
    assert missing(made, "e2") == "answers.jsonl has no answer for this example"


def test_a_repetition_that_is_no_whole_number_from_0_is_told_by_its_line() -> None:
    for given in (-1, "-1", 0.5, "first", True, [0], "1e3", float("nan")):
        text = refusal({"id": "e0", "outputs": 1}, {"id": "e1", "repetition": given, "outputs": 1})
        assert text == f"answers.jsonl:2: repetition: got {given!r}, wanted a whole number from 0"


def from_column(metadata: dict[str, Any], column: str = "answer") -> Any:
    return recorded_column(column).call({"example_id": "e1", "inputs": {"answer": "no"}, "metadata": metadata})


def test_a_column_of_the_metadata_or_the_reference_is_the_answer() -> None:
    for value in ("Paris", "", 0, False, [], {}, {"output": "Paris", "why": None}):
        assert from_column({"answer": value, "other": 1}) == Answer(outputs=value)
    for metadata in ({}, {"answer": None}, {"Answer": "Paris"}, {"a": {"answer": "Paris"}}):
        with pytest.raises(NoRecordedAnswerError, match=r"^the example's metadata has no 'answer'$"):
            from_column(metadata)
    reference = recorded_column("reference_outputs")
    answered = ExampleView(id="e1", inputs={}, reference_outputs={"output": "Paris"})
    assert reference.call({"example": answered}) == Answer(outputs={"output": "Paris"})
    with pytest.raises(NoRecordedAnswerError, match=r"^the example has no 'reference_outputs'$"):
        reference.call({"example": ExampleView(id="e1", inputs={}, reference_outputs=None)})


def output(example_id: str = "e1", repetition: int = 0, **fields: Any) -> OutputRow:
    of = {"run_id": f"run-{example_id}-{repetition}", "example_id": example_id, "repetition": repetition}
    row: OutputRow = make_row("outputs", **of, **{"outputs": '{"output":"one"}', "status": "ok"} | fields)
    return row


def replay(made: Target, example_id: str = "e1", repetition: int = 0) -> Any:
    return made.call({"example_id": example_id, "repetition": repetition, "inputs": {}, "metadata": {}})


def test_an_answer_of_another_experiment_comes_with_what_it_took() -> None:
    took = {"latency_s": 1.5, "tokens_in": 7, "tokens_out": 0, "cost_usd": 0.0, "steps": '[{"name":"call"}]'}
    found = replay(replayed([output(**took, attempts=3)], "experiment x"))
    assert found == Answer(outputs={"output": "one"}, reused_from="run-e1-0", **took)


def test_a_run_that_the_experiment_has_not_or_that_failed_has_no_answer() -> None:
    failed = output("e3", outputs=None, status="failed", error="HTTP 500", error_kind="server_error")
    made, said = replayed([output(), failed], "exp-1"), "exp-1 has no answer for this example and repetition"
    for run, wanted in ((("e2", 0), said), (("e1", 1), said), (("e3", 0), "HTTP 500")):
        with pytest.raises(NoRecordedAnswerError, match=f"^{wanted}$"):
            replay(made, *run)
