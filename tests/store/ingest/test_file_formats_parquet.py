"""Reading rows from Parquet, with one-line errors."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from row_files import ROWS, as_parquet, problem, rows, write

from evalflows.specs.errors import InputError
from evalflows.store.ingest.file_formats import read_rows


def column(folder: Path, values: pa.Array) -> list[Any]:
    """Return the values read from a Parquet file with one column."""
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"a": values}), path)
    return [row["a"] for row in rows(path)]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([1, None, 2**63 - 1]), [1, None, 2**63 - 1]),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
        (pa.array([1.5, float("nan"), None, -0.0]), [1.5, None, None, -0.0]),
        (pa.array(np.array([1.5], dtype=np.float16)), [1.5]),
        (pa.array([True, None]), [True, None]),
        (pa.array(["a", "", None, "é\n"]), ["a", "", None, "é\n"]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.array(["a"], pa.string_view()), ["a"]),
        (pa.array(["a", "b", None, "a"]).dictionary_encode(), ["a", "b", None, "a"]),
        (pa.nulls(2), [None, None]),
        (pa.array([Decimal("1.50"), None]), [1.5, None]),
        (pa.array([dt.date(2026, 1, 2)]), ["2026-01-02"]),
        (pa.array([dt.datetime(2026, 1, 2, 3, 4, 5)]), ["2026-01-02T03:04:05"]),
        (pa.array([dt.datetime(2026, 1, 2, tzinfo=dt.UTC)]), ["2026-01-02T00:00:00+00:00"]),
        (pa.array([1], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001"]),
        (pa.array([None], pa.timestamp("ns", "Europe/Zurich")), [None]),
        (pa.array([{"x": [{"y": float("nan"), "z": dt.date(2026, 1, 2)}]}]), [{"x": [{"y": None, "z": "2026-01-02"}]}]),
        (pa.array([{"x": 1}, None]), [{"x": 1}, None]),
        (pa.array([[], None, ["a", None]]), [[], None, ["a", None]]),
        (pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), [[1.0, 2.0]]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_parquet_values_are_read_as_json_values(tmp_path: Path, values: pa.Array, wanted: list[Any]) -> None:
    found = column(tmp_path, values)
    assert found == wanted
    assert json.loads(json.dumps(found, allow_nan=False)) == wanted


@pytest.mark.parametrize(
    "values",
    [
        pa.array([dt.time(1, 2, 3)]),
        pa.array([dt.timedelta(seconds=1.5)]),
        pa.array([bytes(16)], pa.uuid()),
        pa.array([[("k", dt.date(2026, 1, 2))]], pa.map_(pa.string(), pa.date32())),
    ],
    ids=lambda values: str(values.type),
)
def test_unusual_parquet_values_are_read_as_json_or_refused(tmp_path: Path, values: pa.Array) -> None:
    pq.write_table(pa.table({"a": values}), tmp_path / "rows.parquet")
    try:
        found = rows(tmp_path / "rows.parquet")
    except InputError as error:
        assert ":1: a: got " in str(error)
    else:
        json.dumps(found, allow_nan=False)


def test_a_parquet_map_becomes_a_dict(tmp_path: Path) -> None:
    assert column(tmp_path, pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64()))) == [{"k": 1}, {}, None]


def test_a_map_with_a_duplicate_key_is_read_or_refused(tmp_path: Path) -> None:
    values = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"a": values}), tmp_path / "rows.parquet")
    try:
        json.dumps(rows(tmp_path / "rows.parquet"))
    except InputError as error:
        assert "rows.parquet" in str(error)


def test_integral_decimals_become_integers(tmp_path: Path) -> None:
    values = pa.array([Decimal(2**60), Decimal(2**60 + 1)], pa.decimal128(38, 0))
    assert column(tmp_path, values) == [2**60, 2**60 + 1]


@pytest.mark.parametrize("values", [pa.array([None, b"x"]), pa.array([None, [b"x"]]), pa.array([None, {"x": b"x"}])])
def test_bytes_are_refused_with_row_and_column(tmp_path: Path, values: pa.Array) -> None:
    pq.write_table(pa.table({"a": values}), tmp_path / "rows.parquet")
    said = "FILE:2: a: got bytes, wanted text, a number, a list or a mapping"
    assert problem(tmp_path / "rows.parquet") == said


def test_rows_are_numbered_across_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": list(range(7))}), path, row_group_size=2)
    assert [*read_rows(path)] == [(number, {"a": number - 1}) for number in range(1, 8)]


def test_a_parquet_file_may_have_no_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), tmp_path / "rows.parquet")
    assert rows(tmp_path / "rows.parquet") == []


def test_a_pandas_table_is_read(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "question": ["Why?", None],
            "topic": pd.Categorical(["sky", None]),
            "when": pd.to_datetime(["2026-01-02", None]),
            "n": [1, None],
            "whole": pd.array([1, None], dtype="Int64"),
            "tags": [["a", "b"], None],
        }
    )
    table.to_parquet(tmp_path / "rows.parquet")
    first = {
        "question": "Why?",
        "topic": "sky",
        "when": "2026-01-02T00:00:00",
        "n": 1.0,
        "whole": 1,
        "tags": ["a", "b"],
    }
    assert rows(tmp_path / "rows.parquet") == [first, dict.fromkeys(first)]


def test_the_pandas_index_is_not_read_as_a_column(tmp_path: Path) -> None:
    table = pd.DataFrame({"inputs": ["c", "a", "b"]}).sort_values("inputs")
    table.to_parquet(tmp_path / "rows.parquet")
    assert rows(tmp_path / "rows.parquet") == [{"inputs": "a"}, {"inputs": "b"}, {"inputs": "c"}]


def test_two_columns_with_the_same_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["mine"]), pa.array(["yours"])], names=["a", "a"])
    pq.write_table(table, tmp_path / "rows.parquet")
    assert "got two columns of the same name" in problem(tmp_path / "rows.parquet")


def damaged(content: bytes) -> bytes:
    return content[:10] + b"\xff" * 20 + content[30:]


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"a,b\n1,2\n", as_parquet(*ROWS)[:-20], as_parquet(*ROWS)[20:], damaged(as_parquet(*ROWS))],
    ids=["empty", "begun", "csv", "cut off", "beheaded", "damaged"],
)
def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    said = problem(write(tmp_path, "rows.parquet", content))
    assert said.startswith(("FILE: not Parquet: ", "FILE: cannot be read: "))


def test_parquet_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    buffers = [None, pa.py_buffer(np.array([0, 1], dtype=np.int32).tobytes()), pa.py_buffer(b"\xff")]
    pq.write_table(pa.table({"a": pa.Array.from_buffers(pa.string(), 1, buffers)}), tmp_path / "rows.parquet")
    assert "UTF-8" in problem(tmp_path / "rows.parquet")
