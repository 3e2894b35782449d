"""PostgreSQL's types for DuckDB's, and values that it can hold."""

import json

from evalflows.store.postgres import expression_of, fitting_json, type_of


def test_types_and_what_postgres_has_no_type_for_is_cast() -> None:
    for kind, wanted in {
        "VARCHAR": "text",
        "VARCHAR[]": "text[]",
        "VARCHAR[][]": "jsonb",
        "JSON": "jsonb",
        "INTERVAL": "text",
        "HUGEINT": "bigint",
        "DECIMAL(18,3)": "numeric(18,3)",
        "STRUCT(a INTEGER)": "jsonb",
        "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
    }.items():
        assert type_of(kind) == wanted
    assert expression_of('a"b', "INTERVAL") == '"a""b"::varchar'
    assert expression_of("a", "STRUCT(a INTEGER)") == 'to_json("a")'
    assert expression_of("a", "JSON") == expression_of("a", "BIGINT") == '"a"'


def test_json_that_postgres_cannot_hold_becomes_a_string_and_a_nul_a_symbol() -> None:
    for text in ("null", '{"a": "NaN and Infinity"}', '"1e99999"', "[" * 499 + "]" * 499, '{"digits": 12e10}'):
        assert fitting_json(text) == text
    for text, wanted in ((r'"\u0000"', '"␀"'), (r'"\\u0000"', r'"\\u0000"'), (r'"\\\u0000"', r'"\\␀"')):
        assert fitting_json(text) == wanted
    for text in ('{"a": NaN}', "-Infinity", "1e10001", "1E-99999", "9" * 10_001, "[" * 5_000 + "]" * 5_000):
        assert json.loads(fitting_json(text)) == text
