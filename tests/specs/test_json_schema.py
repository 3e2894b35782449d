"""Validation against JSON schemas: violations, and schemas that cannot be used."""

import json
from typing import Any

import pytest

from evalflows.specs.files import schema_errors

DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def errors(value: Any, schema: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in schema_errors(value, json.dumps(schema))]


def test_all_violations_are_returned_with_their_paths() -> None:
    schema = {"properties": {"b": {"type": "string"}, "a": {"minimum": 2}}, "required": ["c"]}
    assert errors({"a": 1, "b": 2, "c": 3}, schema) == [
        "$.b: 2 is not of type 'string'",
        "$.a: 1 is less than the minimum of 2",
    ]
    assert errors({}, schema) == ["$: 'c' is a required property"]
    assert errors({"c": 3}, schema) == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "text"}, r"^schema: \$\.type: 'text' is not valid"),
        ({"$ref": "#/$defs/absent"}, "^schema: .*absent"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "^schema: "),
        ({"$schema": DRAFT_4, "pattern": "("}, r"^schema: "),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_value_error(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        errors("text", schema)
