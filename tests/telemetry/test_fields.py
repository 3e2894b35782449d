"""Fields of observations have the same values in Python and in the views of SQL."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from evalflows.specs.attribute_aliases import (
    FIELDS,
    LONG,
    NOT_CAPTURED,
    Implied,
    Numbered,
    OfEvents,
    OfResource,
    Within,
)
from evalflows.store.observations import split_attributes, write_observations
from evalflows.store.records import derived_id, to_json
from evalflows.store.sql import ask
from evalflows.store.store import Store
from evalflows.store.trace_records import ObservationRow, TraceSource
from evalflows.telemetry.conventions import Fields

AT = datetime(2026, 1, 1, tzinfo=UTC)
IN_VIEW = [field for field in FIELDS if field not in ("type", "tags", "tool_call_id")]
"""Fields that are text or numbers in the view `observations`, under their names."""


def row_of(
    attributes: dict[str, Any], source: TraceSource = "otlp", resource: dict[str, Any] | None = None
) -> ObservationRow:
    text = to_json([attributes, resource])
    short, contents = split_attributes(attributes)
    return ObservationRow(
        trace_id=derived_id(text, source),
        span_id=derived_id(text, source)[:16],
        day="2026-01-01",
        source=source,
        name="a",
        started_at=AT,
        attributes=short,
        contents=contents,
        resource=None if resource is None else to_json(resource),
    )


def every_alias() -> list[ObservationRow]:
    """A row for each name of each field; in long texts too where the field may be long."""
    rows = []
    for field, by_source in FIELDS.items():
        for source, aliases in by_source.items():
            for alias in aliases:
                if isinstance(alias, Numbered | OfEvents):
                    continue  # messages: tests/telemetry/test_recorded_exports.py
                value: Any = "17" if field.startswith(("tokens", "cost")) else "ü value"
                rows.append(_row(alias, value, source))
                if field in LONG and isinstance(alias, str):
                    rows.append(_row(alias, "x" * 2000, source))
    return rows


def _row(alias: Any, value: Any, source: TraceSource) -> ObservationRow:
    if isinstance(alias, OfResource):
        return row_of({}, source, {alias.attribute: value})
    if isinstance(alias, Implied):
        return row_of({alias.attribute: value}, source)
    if isinstance(alias, Within):
        nested = value
        for key in reversed(alias.keys):
            nested = {key: nested}
        return row_of({alias.attribute: json.dumps(nested)}, source)
    return row_of({alias: value}, source)


def odd_values() -> list[ObservationRow]:
    values: list[Any] = [None, "", 0, 1.5, True, [], {}, ["a", "b"], {"k": ["ü", 1]}, "[1", '["a","b"]', NOT_CAPTURED]
    made = [row_of({"input.value": value, "session.id": value, "langfuse.trace.tags": value}) for value in values]
    pairs = [row_of({"gen_ai.input.messages": value, "input.value": "second"}) for value in values]
    long = [row_of({"gen_ai.input.messages": "x" * 2000, "input.value": "second"})]
    numbers = [
        row_of({"gen_ai.usage.input_tokens": value, "llm.cost.total": value})
        for value in ("x", "NaN", "-Infinity", "1.5", 3, -1, None)
    ]
    return [*made, *pairs, *long, *numbers]


def test_every_name_gives_the_same_value_in_python_and_in_sql(store: Store) -> None:
    rows = every_alias() + odd_values()
    write_observations(store, rows)
    found = {
        values[0]: values[1:]
        for values in store_view(store, f"select span_id, type, tags, {', '.join(IN_VIEW)} from observations")
    }
    for row in rows:
        fields = Fields.of(row)
        expected = [fields.type(), fields.tags() or None, *(_expected(fields, field) for field in IN_VIEW)]
        kind, tags, *values = found[row.span_id]
        assert [kind, tags or None, *values] == expected, row


def test_what_was_not_captured_is_null_in_sql_too(store: Store) -> None:
    """Of messages without texts, and of an object that LangSmith emptied."""
    parts = [{"type": "text"}, {"type": "tool_call", "id": "1", "name": "f", "arguments": None}]
    hidden = {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": parts}])}
    write_observations(store, [row_of(hidden), row_of({"langsmith.span.kind": "llm", "gen_ai.prompt": "{}"})])
    assert store_view(store, "select count(*), count(input) from observations") == [(2, 0)]


def _expected(fields: Fields, field: str) -> Any:
    if field.startswith("tokens"):
        return fields.whole_number(field)
    return fields.number(field) if field == "cost_usd" else fields.text(field)


def store_view(store: Store, sql: str) -> list[tuple[Any, ...]]:
    (rows,) = ask(store, (sql, ()))
    return rows


@pytest.mark.parametrize(
    ("source", "attributes"),
    [
        ("otlp", {"langfuse.trace.metadata.plan": '"paid"'}),
        ("otlp", {"metadata": '{"plan": "paid"}'}),
        ("otlp", {"langsmith.metadata.plan": "paid"}),
        ("otlp", {"traceloop.association.properties.plan": "paid"}),
        ("langfuse", {"metadata": {"plan": "paid"}}),
        ("langsmith", {"extra": {"metadata": {"plan": "paid"}}}),
        ("rows", {"metadata": {"plan": "paid"}}),
    ],
)
def test_metadata_of_the_application_has_plain_names(source: TraceSource, attributes: dict[str, Any]) -> None:
    assert Fields.of(row_of(attributes, source)).metadata() == attributes | {"plan": "paid"}
