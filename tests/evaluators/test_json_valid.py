"""json_valid: JSON is JSON, and of the schema, and nothing that a lenient parser lets through."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.json import json_valid, schema_adherence
from evalflows.evaluators.score import Score

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


def judged(answer: Any, **settings: Any) -> Score:
    return json_valid({"output": answer}, **settings)


def valid(answer: Any, **settings: Any) -> bool:
    value = judged(answer, **settings).value
    assert isinstance(value, bool)
    return value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=50)
@given(JSON, st.booleans())
def test_whatever_json_writes_is_json(value: Any, ascii_only: bool) -> None:
    assert valid(json.dumps(value, ensure_ascii=ascii_only)) is True


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "Paris", "{", '{"a": 1', "{'a': 1}", '{"a": 1,}', "[1, 2,]", "{a: 1}", "True", "None", "undefined"),
        *("NaN", "[Infinity]", '{"a": -Infinity}', "01", "+1", ".5", "1.", "0x1F", "1_000", "[1٢]"),
        *('{"a": 1} {"b": 2}', '{"a": 1}\n{"b": 2}', 'Here it is: {"a": 1}', '{"a": 1} // done', '"a\nb"', '"\\x41"'),
    ],
)
def test_what_only_resembles_json_is_not_valid(text: str) -> None:
    score = judged(text)
    assert score.value is False
    assert score.comment and score.comment.startswith("not JSON: ") and "\n" not in score.comment


def test_very_long_numbers_are_json_and_too_deep_nesting_is_told() -> None:
    assert valid("[" + "9" * 10_000 + ", 1e999]") is True
    assert valid("9" * 10_000 + "x") is False
    assert "nested too deeply" in (judged("[" * 200_000 + "]" * 200_000).comment or "")
    assert len(judged(json.dumps(["x" * 10_000]), schema=PERSON).comment or "") < 300


FENCED = '```json\n{"a": 1}\n```'


@pytest.mark.parametrize("text", [FENCED, '```\n{"a": 1}\n```', f"\n{FENCED}\n", '````JSON\n{"a": "```"}\n````'])
def test_a_fence_is_taken_off_only_when_told(text: str) -> None:
    assert valid(text) is False
    assert valid(text, fenced=True) is True


@pytest.mark.parametrize(
    "text",
    [
        *(f"Here it is:\n{FENCED}", f"{FENCED}\nDone.", f"{FENCED}\n{FENCED}", '```json\n{"a": 1}', '{"a": 1}\n```'),
        *("```json\n{'a': 1}\n```", "```json\nNaN\n```", '```python\n{"a": 1}\n```', "```\n```", '```json {"a": 1}```'),
    ],
)
def test_with_fenced_there_is_one_fence_with_json_inside_and_nothing_around(text: str) -> None:
    assert valid(text, fenced=True) is False


def test_a_key_names_the_field_of_a_structure_and_null_is_none() -> None:
    assert json_valid({"city": "Paris", "note": "{"}).value is True
    outputs = {"answer": '{"a": 1}', "reasoning": "{"}
    assert json_valid(outputs, key="answer").value is True
    assert json_valid(outputs, key="reasoning").value is False
    assert judged(None) == Score(value=False, comment="no answer")
    assert valid("null") is True


def test_json_of_the_schema_is_valid() -> None:
    assert judged('{"name": "Ada", "age": 36}', schema=PERSON) == Score(value=True)
    assert valid({"name": "Ada", "age": 36}, schema=PERSON) is True
    assert valid(f"```json\n{json.dumps({'name': 'Ada'})}\n```", schema=PERSON, fenced=True) is True
    assert valid("{}", schema=True) is True
    assert valid("{}", schema=False) is False
    assert valid('{"a": 1}', fenced=True) is True


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('{"age": 36}', "$: 'name' is a required property"),
        ('{"name": "Ada", "age": "36"}', "$.age: '36' is not of type 'integer'"),
        ('{"name": "Ada", "age": -1}', "$.age: -1 is less than the minimum of 0"),
        ('{"name": "Ada", "age": true}', "$.age: True is not of type 'integer'"),
        ('{"name": "Ada", "born": 1815}', "$: Additional properties are not allowed ('born' was unexpected)"),
        ('["Ada"]', "$: ['Ada'] is not of type 'object'"),
        ('"name"', "$: 'name' is not of type 'object'"),
        ({"name": 7}, "$.name: 7 is not of type 'string'"),
    ],
)
def test_json_of_another_schema_is_not_valid_and_the_problem_is_told(answer: Any, problem: str) -> None:
    assert judged(answer, schema=PERSON) == Score(value=False, comment=f"does not fit the schema: {problem}")


@pytest.mark.parametrize(
    "schema",
    [
        *({"type": "text"}, {"properties": 5}, {"pattern": "("}, {"required": "name"}, "object", ["object"]),
        *({"$ref": "#/nowhere"}, {"$ref": "https://schemas.example/person.json"}),
    ],
)
def test_a_schema_that_is_none_is_an_error_in_one_line(schema: Any) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="schema: ") as caught:
            judged("{}", schema=schema)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "http://json-schema.org/draft-04/schema#", "patternProperties": {"(": {}}},
        {"beside": {"patternProperties": {"(": {}}}, "$ref": "#/beside"},
    ],
)
def test_a_broken_pattern_that_the_check_of_the_schema_passes_over_is_an_error_of_the_schema(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"schema: the pattern '\(': missing \), unterminated subpattern"):
        judged('{"a": 1}', schema=schema)
    with pytest.raises(ValueError, match=r"schema: the pattern '\(': missing \)"):
        schema_adherence({"output": {"a": 1}}, schema=schema)


def test_nothing_is_fetched_for_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *request, **_: fetched.append(request))
    with pytest.raises(ValueError, match="schema: "):
        judged("{}", schema={"$ref": "http://127.0.0.1:9/person.json"})
    assert valid("{}", schema={"$ref": "https://json-schema.org/draft/2020-12/schema"}) is True
    assert fetched == []
