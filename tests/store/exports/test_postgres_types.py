"""PostgreSQL's types for DuckDB's, and values that it can hold."""

import json

import pytest

from evalflows.store.postgres import expression_of, fitting_json, type_of


def test_types() -> None:
    for kind, wanted in {
        "VARCHAR": "text",
        "VARCHAR[]": "text[]",
        "VARCHAR[][]": "jsonb",
        "JSON": "jsonb",
        "HUGEINT": "bigint",
        "DECIMAL(18,3)": "numeric(18,3)",
        "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
        "STRUCT(a INTEGER)": "jsonb",
        "INTERVAL": "text",
    }.items():
        assert type_of(kind) == wanted


def test_what_postgres_has_no_type_for_is_cast() -> None:
    assert expression_of('a"b', "INTERVAL") == '"a""b"::varchar'
    assert expression_of("a", "STRUCT(a INTEGER)") == 'to_json("a")'
    assert expression_of("a", "JSON") == expression_of("a", "BIGINT") == '"a"'


def test_json_that_fits_is_left_as_it_is() -> None:
    for text in ("null", '{"a": "NaN and Infinity"}', '"1e99999"', "[" * 499 + "]" * 499, '{"digits": 12e10}'):
        assert fitting_json(text) == text


@pytest.mark.parametrize(
    ("text", "wanted"), [(r'"\u0000"', '"␀"'), (r'"\\u0000"', r'"\\u0000"'), (r'"\\\u0000"', r'"\\␀"')]
)
def test_a_nul_is_shown_as_a_symbol(text: str, wanted: str) -> None:
    assert fitting_json(text) == wanted


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', "-Infinity", "1e10001", "1E-99999", "9" * 10_001, "[" * 5_000 + "]" * 5_000]
)
def test_json_that_postgres_cannot_hold_becomes_a_string(text: str) -> None:
    assert json.loads(fitting_json(text)) == text
