"""schema_adherence: how many fields of an answer are right, reckoned by hand, and by json_valid where all are."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.evaluators.json import json_valid, schema_adherence
from evalflows.evaluators.score import Score

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "email": {"type": "string"},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            "required": ["street", "city"],
        },
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age", "address"],
    "additionalProperties": False,
}
ADDRESS = {"street": "Elm 1", "city": "Bern"}


def judged(answer: Any, schema: Any = PERSON, **settings: Any) -> Score:
    score = schema_adherence({"output": answer}, schema=schema, **settings)
    assert score is not None
    return score


@pytest.mark.parametrize(
    ("answer", "right", "fields"),
    [
        # name, age, address.street, address.city are required: four fields.
        ({"name": "Ada", "age": 36, "address": ADDRESS}, 4, 4),
        ({"name": "Ada", "age": "36", "address": ADDRESS}, 3, 4),
        ({"name": "Ada", "address": ADDRESS}, 3, 4),
        ({"name": "Ada", "age": 36}, 2, 4),  # both fields of the address are missing
        ({"name": "Ada", "age": 36, "address": "Elm 1, Bern"}, 2, 4),
        # A field that is not required counts where it is there.
        ({"name": "Ada", "age": 36, "address": ADDRESS, "email": "ada@example.org"}, 5, 5),
        ({"name": "Ada", "age": 36, "address": ADDRESS, "email": None}, 4, 5),
        # A list is one field, however much is wrong in it.
        ({"name": "Ada", "age": 36, "address": ADDRESS, "tags": ["a", 1, 2]}, 4, 5),
        # Each field that is not allowed is one more that is wrong.
        ({"name": "Ada", "age": 36, "address": ADDRESS, "born": 1815, "x": 1}, 4, 6),
        ({}, 0, 4),
        (7, 0, 4),
    ],
)
def test_the_share_of_right_fields_by_hand(answer: Any, right: int, fields: int) -> None:
    for given_as in (answer, json.dumps(answer)):
        score = judged(given_as)
        assert score.value == pytest.approx(right / fields)
        assert score.metadata == {"valid": right == fields, "fields": fields, "wrong": fields - right}


def test_the_first_problems_are_named_and_the_others_counted() -> None:
    assert judged({"name": "Ada", "age": 36, "address": ADDRESS}).comment is None
    comment = judged({"age": "36", "address": {"city": 3, "street": 4}, "x": 1}).comment or ""
    assert comment.count("; ") == 3 and comment.endswith("; and 2 more")
    assert "$.age: '36' is not of type 'integer'" in (judged({"age": "36"}).comment or "")
    assert "$: 'name' is a required property" in (judged({"age": 36, "address": ADDRESS}).comment or "")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "Ada"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*PERSON["properties"], "street", "city", "x"]), inner, max_size=5)
    ),
    max_leaves=8,
)
PEOPLE = st.fixed_dictionaries(
    {"name": st.just("Ada"), "age": st.integers(-1, 2), "address": st.just(ADDRESS) | VALUES},
    optional={"email": VALUES, "tags": VALUES, "x": VALUES},
)
SCHEMAS = [
    PERSON,
    True,
    {"allOf": [PERSON, {"required": ["email"]}]},
    {**PERSON, "allOf": [{"required": ["x"]}], "minProperties": 4},
    {**PERSON, "additionalProperties": {"type": "integer"}},
    {**PERSON, "not": {"required": ["tags"]}},
    {"$ref": "#/$defs/person", "$defs": {"person": PERSON}},
    {"type": "array", "items": PERSON},
    {"dependentRequired": {"age": ["email"]}, "properties": {"age": {}}},
]


@settings(max_examples=80)
@given(VALUES | PEOPLE, st.sampled_from(SCHEMAS))
def test_it_is_1_just_where_json_valid_says_yes_and_always_from_0_to_1(value: Any, schema: Any) -> None:
    value = {"nothing": value} if value is None or isinstance(value, str) else value
    score, valid = judged(value, schema), json_valid({"output": value}, schema=schema).value
    assert isinstance(score.value, float) and 0.0 <= score.value <= 1.0
    assert (score.value == 1.0) is valid is (score.metadata or {})["valid"]


@pytest.mark.parametrize("as_text", [False, True])
def test_each_example_may_bring_its_own_schema(as_text: bool) -> None:
    schema: Any = {"required": ["city"]}
    schema = json.dumps(schema) if as_text else schema
    by_metadata = schema_adherence({"output": {"town": "Bern"}}, None, {"schema": schema})
    by_reference = schema_adherence(
        {"output": {"city": "Bern"}}, {"form": {"of": schema}}, schema="reference_outputs.form.of"
    )
    assert by_metadata and by_reference
    assert (by_metadata.value, by_reference.value) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "text"}, "schema: "),
        ({"$ref": "#/nowhere"}, "schema: "),
        ({"$ref": "https://schemas.example/person.json"}, "schema: "),
        ("metadata", "schema: got 'metadata', wanted a path: metadata.…, reference_outputs.…"),
        ("outputs.schema", "schema: got 'outputs.schema', wanted a path"),
        (7, "schema: got 7, wanted a JSON schema"),
        ("metadata.text", "schema: got '{no', wanted a JSON schema"),
        ("metadata.number", "schema: got 7, wanted a JSON schema"),
    ],
)
def test_a_schema_that_is_none_is_an_error_in_one_line(schema: Any, says: str) -> None:
    with pytest.raises(ValueError) as raised:
        schema_adherence({"output": {"a": 1}}, None, {"text": "{no", "number": 7}, schema=schema)
    assert says in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("metadata", [None, {}, {"schema": None}, {"other": 1}])
def test_without_a_schema_there_is_no_score(metadata: Any) -> None:
    assert schema_adherence({"output": "{}"}, None, metadata) is None


@pytest.mark.parametrize(("answer", "comment"), [("Ada, 36", "not JSON: "), ("", "not JSON: "), (None, "no answer")])
def test_what_is_no_json_is_0(answer: Any, comment: str) -> None:
    score = judged(answer)
    assert score.value == 0.0 and (score.comment or "").startswith(comment)
