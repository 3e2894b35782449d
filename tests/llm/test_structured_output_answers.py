"""The three response formats: how answers are read, and which are refused."""

import json
import time
from copy import deepcopy
from typing import Any

import pytest
from response_formats import CORRECT, GOOD, GRADE, REASONING, SCORE, VERDICT, call, fault, flat, said

from evalflows.llm.structured_output import read_answer
from evalflows.specs.connection import AnswerForm
from evalflows.specs.json_schema import schema_validator

# Reading


def test_json_is_parsed_and_validated() -> None:
    answer = {"reasoning": "It says Lyon.", "correct": False}
    for content in (json.dumps(answer), f"\n {json.dumps(answer)}\n", f"```json\n{json.dumps(answer)}\n```\n"):
        assert read_answer({"content": content}, VERDICT, "json_schema", "stop") == answer
    assert read_answer({"content": f"```{json.dumps(answer)}```"}, VERDICT, "json_schema", "stop") == answer


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        [{"type": "text", "text": GOOD}],
        "true",
        "[[correct: true]]",
        '{"reasoning": "", "correct": "true"}',
        '{"reasoning": "", "correct": 1}',
        '{"correct": true}',
        '{"reasoning": "", "correct": true, "more": 1}',
        f"The answer says {GOOD}, which is not so.",
        f"{GOOD}\nBut that is what the answer says of itself.",
        f"The answer is:\n```json\n{GOOD}\n```",
        f"```json\n{GOOD}\n```\nis what it says.",
        f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
        f"{GOOD} {GOOD}",
        '{"reasoning": "", "correct": NaN}',
        "```",
        pytest.param("[" * 100_000, id="deep"),
        pytest.param(f'{{"reasoning": "{"x" * 10_000}", "correct": null}}', id="long"),
    ],
)
def test_anything_but_valid_json_is_a_bad_answer(content: Any) -> None:
    assert fault({"content": content}, "json_schema")[0] == "bad_answer"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_non_finite_numbers_are_a_bad_answer(number: str) -> None:
    schema = flat(score={"type": "number"})
    assert fault({"content": f'{{"score": {number}}}'}, "json_schema", schema)[0] == "bad_answer"
    assert fault({"content": f"[[score: {number}]]"}, "text", schema)[0] == "bad_answer"


def test_the_arguments_of_the_tool_call_are_read() -> None:
    calls = [call("{}", "another"), call(GOOD), call('{"reasoning": "", "correct": false}')]
    assert read_answer({"content": None, "tool_calls": calls}, VERDICT, "tool_call", "tool_calls")["correct"] is True


@pytest.mark.parametrize(
    "message",
    [
        {"content": GOOD},
        {"content": GOOD, "tool_calls": []},
        {"content": GOOD, "tool_calls": None},
        {"tool_calls": [call(GOOD, "another")]},
        {"tool_calls": [{"id": "1", "type": "custom"}]},
        {"tool_calls": [call(None)]},
        {"tool_calls": [call("{")]},
        {"tool_calls": [call('{"reasoning": "", "correct": "yes"}'), call("[]")]},
    ],
)
def test_a_missing_or_invalid_tool_call_is_a_bad_answer(message: dict[str, Any]) -> None:
    assert fault(message, "tool_call")[0] == "bad_answer"


def test_tags_and_the_text_before_them_become_the_fields() -> None:
    schema = flat(reasoning=REASONING, correct=CORRECT, score=SCORE, grade=GRADE)
    answer = "Both say Paris.\n\nSo it fits.\n\n[[correct: true]]\n[[score: 4]]\n[[grade: not good]]\n"
    expected = {"reasoning": "Both say Paris.\n\nSo it fits.", "correct": True, "score": 4, "grade": "not good"}
    assert said(answer, schema) == expected
    assert [*said("x\n[[grade: B]] [[score: 1]] [[correct: false]]", schema).values()] == [False, 1, "B", "x"]


@pytest.mark.parametrize(
    ("end", "correct"),
    [
        ("[[correct: true]]", True),
        ("[[Correct: FALSE]]", False),
        ("[[ correct :False ]]", False),
        ("**[[correct: true]]**", True),
        ("- `[[correct: true]]`.", True),
        ("Verdict: [[correct: true]]", True),
        ("**Final verdict:** [[correct: true]]\n\n", True),
    ],
)
def test_tags_may_vary_in_case_spacing_and_decoration(end: str, correct: bool) -> None:
    assert said(f"It fits.\n{end}")["correct"] is correct


def test_a_tag_may_follow_a_sentence() -> None:
    assert said("Both say Paris. [[correct: true]]") == {"reasoning": "Both say Paris.", "correct": True}


def test_labels_before_tags_are_removed_from_the_text() -> None:
    schema = flat(reasoning=REASONING, correct=CORRECT, score=SCORE)
    answer = said("It fits.\n\n- Correct: [[correct: true]]\n- **Score:** [[score: 2]]", schema)
    assert answer == {"correct": True, "score": 2, "reasoning": "It fits."}


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "It fits.",
        "true",
        "[[true]]",
        "[correct: true]",
        "[[correct: true",
        "[[correct: yes]]",
        "[[correct: 1]]",
        "[[correct: ]]",
        "[[correct: …]]",
        "[[correct: true or false]]",
        "[[correct: true\n]]",
        "[[score: 5]]",
        "[[incorrect: true]]",
        '{"reasoning": "", "correct": true}',
    ],
)
def test_a_text_without_its_tag_is_a_bad_answer(answer: str) -> None:
    assert fault({"content": answer}, "text")[0] == "bad_answer"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *[("4", 4), ("+4", 4), ("4.0", 4.0)],
        *[(wrong, None) for wrong in ("4.5", "4/5", "four", "0x4", "٤", "6", "0", "4,0", "4 5", "1_0", "4 of 5")],
        pytest.param("9" * 5000, None, id="long"),
    ],
)
def test_numbers_are_read_strictly(value: str, number: float | None) -> None:
    if number is None:
        assert fault({"content": f"[[score: {value}]]"}, "text", flat(score=SCORE))[0] == "bad_answer"
    else:
        assert said(f"[[score: {value}]]", flat(score=SCORE)) == {"score": number}


@pytest.mark.parametrize("value", ["1.5e2", "+150", "150.0"])
def test_a_number_may_have_a_fraction_and_an_exponent(value: str) -> None:
    assert said(f"[[score: {value}]]", flat(score={"type": "number"})) == {"score": 150}


def test_enum_values_take_the_spelling_of_the_schema() -> None:
    assert said("[[grade: b]]", flat(grade=GRADE)) == {"grade": "B"}
    assert said('[[grade: "NOT good"]]', flat(grade=GRADE)) == {"grade": "not good"}
    assert said("[[grade: a]]", flat(grade={"enum": ["A", "a"]})) == {"grade": "a"}
    assert said("[[n: 2]]", flat(n={"enum": [1, 2, "two"]})) == {"n": 2}
    assert said("[[n: only]]", flat(n={"const": "only"})) == {"n": "only"}
    for wrong in ("A or B", "C", "", "good"):
        assert fault({"content": f"[[grade: {wrong}]]"}, "text", flat(grade=GRADE))[0] == "bad_answer"


def test_when_reasoning_follows_the_tags_the_final_tags_count() -> None:
    schema = flat(correct=CORRECT, reasoning=REASONING)
    answer = said('[[correct: false]]\nIt says "[[correct: true]]", but Lyon is wrong.\n[[correct: false]]', schema)
    assert answer == {"correct": False, "reasoning": 'It says "[[correct: true]]", but Lyon is wrong.'}
    assert (
        fault({"content": "[[correct: false]]\nIt says [[correct: true]], but no."}, "text", schema)[0] == "bad_answer"
    )


# Truncation, the validator, and speed


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("json_schema", {"content": '{"reasoning": "It'}),
        ("json_schema", {"content": None}),
        ("tool_call", {"tool_calls": [call('{"reasoning": "It')]}),
        ("tool_call", {"content": ""}),
        ("text", {"content": "It says\n\n"}),
        ("text", {"content": "It says\n\n[[correct: true]]"}),  # quoted, as far as one can know
    ],
)
def test_an_incomplete_answer_at_the_limit_is_truncated(form: AnswerForm, message: dict[str, Any]) -> None:
    assert fault(message, form, finish_reason="length")[0] == "truncated"


@pytest.mark.parametrize(
    ("form", "message"), [("json_schema", {"content": GOOD}), ("tool_call", {"tool_calls": [call(GOOD)]})]
)
def test_a_complete_answer_at_the_limit_is_read(form: AnswerForm, message: dict[str, Any]) -> None:
    assert read_answer(message, VERDICT, form, "length")["correct"] is True


def test_json_against_the_schema_at_the_limit_is_a_bad_answer() -> None:
    assert fault({"content": "{}"}, "json_schema", finish_reason="length")[0] == "bad_answer"


def test_remote_schema_references_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Any] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *given: fetched.append(given))
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    assert fault({"content": '{"a": 1}'}, "json_schema", schema)[0] == "bad_request"
    assert fetched == []


def test_the_validator_is_built_once_per_schema() -> None:
    built_before = schema_validator.cache_info().misses
    schema = flat(reasoning=REASONING, correct=CORRECT, only_here=CORRECT)
    for number in range(20):
        answer = json.dumps({"reasoning": str(number), "correct": True, "only_here": False})
        assert read_answer({"content": answer}, deepcopy(schema), "json_schema", "stop")["reasoning"] == str(number)
    assert schema_validator.cache_info().misses == built_before + 1
    schema["properties"]["only_here"] = SCORE  # the same object, another schema
    assert fault({"content": answer}, "json_schema", schema)[0] == "bad_answer"


@pytest.mark.parametrize(
    "flood",
    ["[[correct: false]]", "[[correct: never]]", "\n", " ", "*", "[", "a: ", "[[correct:", "word ", "[[a: b]] "],
)
def test_long_answers_are_read_quickly(flood: str) -> None:
    """The time is linear in the length: quadratic time would take minutes for 100,000 characters."""
    began = time.perf_counter()
    for schema in (VERDICT, flat(correct=CORRECT, reasoning=REASONING)):
        assert said(f"{flood * (100_000 // len(flood))}\n\n[[correct: false]]", schema)["correct"] is False
    assert time.perf_counter() - began < 5
