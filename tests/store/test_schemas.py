"""The stored format is pinned in schemas.txt: nobody changes it without seeing that they do.

A file that was written once is read for good. Where a change is meant, write the new format down with

    .venv/bin/python tests/store/test_schemas.py
"""

import types
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.store.records import ExperimentRow, new_id
from evalflows.store.schemas import EXPERIMENT_TABLES, TABLES, schema_of, to_arrow, to_rows
from evalflows.store.store import Store

PINNED = Path(__file__).with_name("schemas.txt")
Make = Callable[..., Any]


def described() -> str:
    """Every table with its key, its owner and its columns, as text."""
    return "\n".join(_described(name) for name in TABLES)


def _described(name: str) -> str:
    table = TABLES[name]
    settled = f"  settled: {', '.join(table.settled)}" if table.settled else ""
    lines = [f"{name}  key: {', '.join(table.key)}  owner: {table.owner}{settled}"]
    for field in schema_of(table.record):
        json = " json" if field.metadata else ""
        lines.append(f"    {field.name}: {field.type}{'' if field.nullable else ' not null'}{json}")
    return "\n".join([*lines, ""])


def test_the_stored_format_is_the_pinned_one() -> None:
    assert described() == PINNED.read_text(encoding="utf-8"), (
        "the stored format has changed: files that are there already have the old one. If that is meant, and old "
        "files can still be read, write it down with `.venv/bin/python tests/store/test_schemas.py`"
    )


def test_an_experiment_is_sealed_with_its_own_row_last() -> None:
    assert EXPERIMENT_TABLES[-1] == "experiments"
    owned = {name for name, table in TABLES.items() if table.owner == "experiment_id"}
    assert set(EXPERIMENT_TABLES) == owned - {"estimates"}  # these are made anew from what is sealed


@pytest.mark.parametrize("table", TABLES)
def test_a_column_may_be_null_just_where_its_field_may_be_none(table: str) -> None:
    record = TABLES[table].record
    hints = get_type_hints(record)
    schema = schema_of(record)
    assert schema.names == [f.name for f in fields(record)]
    assert {f.name for f in schema if f.nullable} == {n for n, hint in hints.items() if type(None) in get_args(hint)}


UTC_TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2262, 1, 1), timezones=st.just(UTC))
OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    datetime: UTC_TIMES,
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may have."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is list:
        return st.lists(values_of(get_args(hint)[0]), max_size=3)
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of(*map(values_of, get_args(hint)))
    return st.none() if hint is type(None) else OF_TYPE[hint]


def rows_of(record: type) -> st.SearchStrategy[Any]:
    return st.builds(record, **{name: values_of(hint) for name, hint in get_type_hints(record).items()})


@pytest.mark.parametrize("table", TABLES)
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_rows_of_every_table_come_back_from_arrow_as_they_were(table: str, data: st.DataObject) -> None:
    rows = data.draw(st.lists(rows_of(TABLES[table].record), max_size=3))
    assert to_rows(table, to_arrow(table, rows)) == rows


@settings(deadline=None, max_examples=10)
@given(row=rows_of(ExperimentRow))
def test_a_row_comes_back_from_the_files_as_it_was_open_and_sealed(row: ExperimentRow) -> None:
    store, owner = Store(), new_id("exp")
    row = replace(row, experiment_id=owner)
    store.append("experiments", owner, "p", [row])
    assert store.read("experiments", owner) == [row]
    store.seal(owner, ["experiments"])
    assert store.read("experiments", owner) == [row]


def test_a_time_of_another_zone_is_kept_as_the_same_moment(make: Make) -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=9)))
    (row,) = to_rows("outputs", to_arrow("outputs", [make("outputs", started_at=at)]))
    assert row.started_at == at
    assert row.started_at.utcoffset() == timedelta(0)


if __name__ == "__main__":
    PINNED.write_text(described(), encoding="utf-8")
    print(f"wrote {PINNED}")
