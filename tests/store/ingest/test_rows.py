"""Reading rows from files as users have them, with one-line errors."""

import csv
import datetime as dt
import gzip
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalflows.specs.errors import InputError
from evalflows.store.ingest.rows import read_rows, stem

BOM = b"\xef\xbb\xbf"
ROWS = [{"a": 1, "b": "x"}, {"a": None, "b": "é\n2"}]


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(path)]


def numbers(path: Path) -> list[int]:
    return [number for number, _ in read_rows(path)]


def problem(path: str | Path) -> str:
    """Return the one-line error of reading a file, with its path replaced by FILE."""
    with pytest.raises(InputError) as caught:
        list(read_rows(path))
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text.replace(str(path), "FILE")


def as_parquet(*content: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([*content]), sink)
    return sink.getvalue()


def column(folder: Path, values: pa.Array) -> list[Any]:
    """Return the values read from a Parquet file with one column."""
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"a": values}), path)
    return [row["a"] for row in rows(path)]


# Any file

CONTENT = {
    ".jsonl": "\n".join(map(json.dumps, ROWS)).encode(),
    ".ndjson": "\n".join(map(json.dumps, ROWS)).encode(),
    ".json": json.dumps(ROWS, indent=2).encode(),
    ".parquet": as_parquet(*ROWS),
}


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("suffix", CONTENT)
def test_the_same_rows_are_read_from_every_format(tmp_path: Path, suffix: str, packed: str) -> None:
    path = write(tmp_path, f"rows{suffix}{packed}", CONTENT[suffix])
    assert rows(path) == ROWS


@pytest.mark.parametrize("name", ["rows.csv", "ROWS.CSV", "rows.csv.gz", "my.rows.csv"])
def test_csv_is_read_by_its_name(tmp_path: Path, name: str) -> None:
    assert rows(write(tmp_path, name, b'a,b\n1,x\n,"\xc3\xa9\n2"\n')) == [{"a": "1", "b": "x"}, ROWS[1]]


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("rows", "no suffix"),
        ("rows.txt", ".txt"),
        ("rows.xlsx", ".xlsx"),
        ("rows.csv.zip", ".zip"),
        ("rows.gz", "no suffix"),
        ("rows.txt.gz", ".txt"),
        (".csv", "no suffix"),
    ],
)
def test_another_suffix_is_refused_with_those_that_there_are(tmp_path: Path, name: str, got: str) -> None:
    said = problem(write(tmp_path, name, b"a\n1\n"))
    assert said == f"FILE: got {got}, wanted one of .jsonl, .ndjson, .json, .csv, .parquet"


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet", "rows.csv.gz"])
def test_a_missing_file_and_a_folder_are_told(tmp_path: Path, name: str) -> None:
    assert problem(tmp_path / name) == "FILE: cannot be read: No such file or directory"
    (tmp_path / name).mkdir()
    assert problem(tmp_path / name) == "FILE: cannot be read: Is a directory"


def test_a_path_may_hold_an_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "rows.csv", b"a\n1\n")
    monkeypatch.setenv("DATA", str(tmp_path))
    assert [row for _, row in read_rows("${DATA}/rows.csv")] == [{"a": "1"}]


def test_a_variable_that_is_not_set_is_told_and_no_value_of_one_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.delenv("UNSET", raising=False)
    assert problem("${UNSET}/rows.csv") == "FILE: the environment variable UNSET is not set"
    assert problem("/none/${SECRET}.csv") == "FILE: cannot be read: No such file or directory"


def test_a_path_that_no_file_can_have_is_told() -> None:
    assert "FILE" in problem("a\0b.csv")


def test_rows_are_read_one_at_a_time(tmp_path: Path) -> None:
    for name, content in (("rows.jsonl", b'{"a": 1}\n{'), ("rows.csv", b"a\n1\n2,3\n")):
        found = read_rows(write(tmp_path, name, content))
        assert next(found)[1] in ({"a": 1}, {"a": "1"})
        with pytest.raises(InputError):
            next(found)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("faq.csv", "faq"),
        ("data/faq.v2.parquet", "faq.v2"),
        ("/x/faq.jsonl.gz", "faq"),
        ("faq", "faq"),
        ("faq.gz", "faq"),
        ("${DATA}/faq.csv", "faq"),
    ],
)
def test_a_file_is_called_by_its_name_without_its_format(path: str, name: str) -> None:
    assert stem(path) == name


# gzip


def test_a_file_that_is_not_packed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(b'{"a": 1}\n')
    assert problem(path).startswith("FILE: cannot be read: Not a gzipped file")


def packed_noise() -> bytes:
    return gzip.compress(b"".join(b'{"a": %d}\n' % (number * 7919 % 10007) for number in range(3000)))


@pytest.mark.parametrize("kept", [5, 20, -1, -8, -100])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_a_packed_file_that_was_cut_off_is_told(tmp_path: Path, suffix: str, kept: int) -> None:
    path = tmp_path / f"rows.{suffix}.gz"
    path.write_bytes(packed_noise()[:kept])
    assert problem(path).startswith("FILE: cannot be read: ")


def test_a_packed_file_whose_sum_is_wrong_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(packed_noise()[:-8] + bytes(8))
    assert problem(path).startswith("FILE: cannot be read: CRC check failed")


def test_a_packed_file_that_was_damaged_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    packed = packed_noise()
    path.write_bytes(packed[:10] + b"\x07" + packed[11:])  # a kind of block that there is not
    assert problem(path).startswith("FILE: cannot be read: ")


# JSONL and JSON


def test_lines_may_begin_with_a_mark_and_end_as_on_windows(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.jsonl", BOM + b'{"a": 1}\r\n\r\n{"a": 2}\r\n')
    assert [*read_rows(path)] == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize("content", [b"[]", b" \n [ ] \n", b"", b"\n", b"  "])
def test_a_list_without_rows_and_an_empty_file_have_none(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.json", content)) == []


@pytest.mark.parametrize("content", [b'{"a": 1}\n{"a": 2}\n', b'{"a": 1}\r\n\r\n{"a": 2}', BOM + b'{"a": 1}\n{"a": 2}'])
def test_lines_under_the_name_of_json_are_read(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.json", content)) == [{"a": 1}, {"a": 2}]


def test_the_rows_of_a_list_are_numbered(tmp_path: Path) -> None:
    assert numbers(write(tmp_path, "rows.json", b'\n[\n{"a": 1},\n\n{"a": 2}]')) == [1, 2]


@pytest.mark.parametrize("content", [b'[{"a": 1}]', b'[\r\n  {"a": 1}\r\n]\r\n'])
def test_a_list_may_begin_with_a_mark(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.json", BOM + content)) == [{"a": 1}]


@pytest.mark.parametrize("content", [BOM, BOM + b"\r\n"])
def test_a_file_of_just_a_mark_has_no_rows(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.jsonl", content)) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'[{"a": 1}, 2]', "FILE:2: got int, wanted an object"),
        (b"[null]", "FILE:1: got NoneType, wanted an object"),
        (b'[{"a": 1},]', "FILE: not JSON: "),
        (b'[\n{"a": 1}\n{"a": 2}]', "FILE: not JSON: Expecting ',' delimiter at line 3, character 1"),
        (b'[{"a": 1}', "FILE: not JSON: "),
        (b'[{"a": 1},\n {"b" 2}]', "FILE: not JSON: Expecting ':' delimiter at line 2, character 7"),
        (b'[{"a" 1}]', "FILE: not JSON: Expecting ':' delimiter at character 7"),
        (b'[{"a": NaN}]', "FILE: not JSON: NaN is not a JSON value"),
        (b'[{"a": "caf\xe9"}]', "FILE: not UTF-8: "),
        (b"[" * 100_000, "FILE: not JSON: nested too deeply"),
        (b'{"rows": [{"a": 1}\n', "FILE:1: not JSON: "),
        (b'"text"', "FILE:1: got str, wanted an object"),
        ('[{"a": 1}]'.encode("utf-16"), "FILE:1: not UTF-8: "),
    ],
    ids=lambda value: str(value[:30]),
)
def test_what_is_wrong_with_a_list_is_told(tmp_path: Path, content: bytes, said: str) -> None:
    assert problem(write(tmp_path, "rows.json", content)).startswith(said)


# CSV


@pytest.mark.parametrize(
    "content",
    [
        b"q,a\nWhy?,So.\n",
        b"q,a\r\nWhy?,So.\r\n",
        b"q,a\rWhy?,So.\r",
        BOM + b"q,a\r\nWhy?,So.",
        BOM + b'"q","a"\n"Why?","So."\n',
        b"q,a\n\n\nWhy?,So.\n\n",
    ],
)
def test_csv_may_begin_and_end_its_lines_as_it_likes(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.csv", content)) == [{"q": "Why?", "a": "So."}]


def test_cells_may_hold_quotes_commas_and_line_ends(tmp_path: Path) -> None:
    cells = ['say "yes"', "a, b", "one\ntwo", "one\r\ntwo", "ü\u2028\u0085;\t", " padded ", "'", "\\", "NULL", "=1+1"]
    text = io.StringIO()
    csv.writer(text).writerows([["q"], *([cell] for cell in cells)])
    assert [row["q"] for row in rows(write(tmp_path, "rows.csv", text.getvalue().encode()))] == cells


@given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0"))] * 2), min_size=1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_python_writes_comes_back(tmp_path: Path, content: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("q", "a"), *content])
    found = rows(write(tmp_path, "rows.csv", text.getvalue().encode()))
    assert found == [{"q": q or None, "a": a or None} for q, a in content]


def test_an_empty_cell_is_no_value_and_all_else_is_text(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.csv", b'a,b,c,d,e\n,"", ,0,false\n')
    assert rows(path) == [{"a": None, "b": None, "c": " ", "d": "0", "e": "false"}]


@pytest.mark.parametrize("content", [b"", b"\n", b"q,a", b"q,a\n", BOM + b"q,a\r\n\r\n", BOM])
def test_a_file_without_rows_has_none(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.csv", content)) == []


def test_a_row_is_numbered_by_the_line_that_it_ends_with(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.csv", b'q\nWhy?\n\n"one\ntwo"\nlast\n')
    assert numbers(path) == [2, 5, 6]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"q,a\n1,2\n1\n", "FILE:3: got 1 cells, wanted 2"),
        (b"q,a\n1,2,3\n", "FILE:2: got 3 cells, wanted 2"),
        (b"q,a\n1,2,\n", "FILE:2: got 3 cells, wanted 2"),
        (b"q,a\n1,2\n ,\n,\n \n", "FILE:5: got 1 cells, wanted 2"),
        (b"q,a,q\n1,2,3\n", "FILE: got two columns of the same name: q, a, q"),
        (b"q,,\n1,2,3\n", "FILE: got two columns of the same name: q, ,"),
        (b'q,a\n"Why?,So.\n', "FILE:"),
        (b'q,a\n"Why"?,So.\n', "FILE:"),
        (b"q\ncaf\xe9\n", "FILE:2: not UTF-8: "),
        ("q,a\n1,2\n".encode("utf-16"), "FILE:1: not UTF-8: "),
    ],
    ids=lambda value: str(value[:30]),
)
def test_what_is_wrong_with_csv_is_told(tmp_path: Path, content: bytes, said: str) -> None:
    assert problem(write(tmp_path, "rows.csv", content)).startswith(said)


def test_a_broken_row_is_told_by_its_own_line(tmp_path: Path) -> None:
    assert problem(write(tmp_path, "rows.csv", b'q,a\n1,2\n3,4\n"5"x,6\n7,8\n')).startswith("FILE:4: not CSV: ")


def test_a_byte_that_is_no_text_is_told_by_its_own_place(tmp_path: Path) -> None:
    line = b"x" * 99 + b"\n"
    said = problem(write(tmp_path, "rows.csv", b"q\n" + line * 200 + b"caf\xe9\n"))
    assert "FILE:202: not UTF-8" in said or "at byte 20005" in said


def test_a_cell_may_be_a_whole_document(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.csv", b"q\n" + b"x" * 200_000 + b"\n")
    assert [len(row["q"]) for row in rows(path)] == [200_000]


STRUCTURED = ["inputs", "reference_outputs", "outputs", "expected_output", "metadata", "attachments"]


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("value", [{"q": "Why?", "n": [1, None]}, [], {}, [{"role": "user"}]])
def test_a_cell_of_a_structured_column_may_hold_json(tmp_path: Path, name: str, value: object) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([[name, "other"], [f"\n {json.dumps(value)} ", json.dumps(value)]])
    path = write(tmp_path, "rows.csv", text.getvalue().encode())
    assert rows(path) == [{name: value, "other": json.dumps(value)}]


@pytest.mark.parametrize("text", ["Why?", "7", "true", "null", "'[1]'", "- [x]"])
def test_any_other_cell_of_a_structured_column_is_text(tmp_path: Path, text: str) -> None:
    assert rows(write(tmp_path, "rows.csv", f"inputs\n{text}\n".encode())) == [{"inputs": text}]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("{'q': 1}", "FILE:3: inputs: not JSON: Expecting property name enclosed in double quotes at character 2"),
        ("[1", "FILE:3: inputs: not JSON: "),
        ('{""q"": NaN}', "FILE:3: inputs: not JSON: NaN is not a JSON value"),
        ("{}{}", "FILE:3: inputs: not JSON: Extra data at character 3"),
        ("[citation needed]", "FILE:3: inputs: not JSON: "),
        ("[" * 20_000, "FILE:3: inputs: not JSON: nested too deeply"),
    ],
    ids=lambda value: value[:20],
)
def test_a_cell_that_only_begins_like_json_is_told_with_its_line(tmp_path: Path, cell: str, said: str) -> None:
    path = write(tmp_path, "rows.csv", f'inputs,b\nx,1\n"{cell}",2\n'.encode())
    assert problem(path).startswith(said)


# Parquet


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
def test_a_value_of_parquet_is_read_as_json_has_it(tmp_path: Path, values: pa.Array, wanted: list[Any]) -> None:
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
def test_an_unusual_value_of_parquet_is_read_as_json_has_it_or_told(tmp_path: Path, values: pa.Array) -> None:
    pq.write_table(pa.table({"a": values}), tmp_path / "rows.parquet")
    try:
        found = rows(tmp_path / "rows.parquet")
    except InputError as error:
        assert ":1: a: got " in str(error)
    else:
        json.dumps(found, allow_nan=False)


def test_a_map_is_a_mapping(tmp_path: Path) -> None:
    assert column(tmp_path, pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64()))) == [{"k": 1}, {}, None]


def test_a_map_with_a_key_twice_is_read_or_told(tmp_path: Path) -> None:
    values = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"a": values}), tmp_path / "rows.parquet")
    try:
        json.dumps(rows(tmp_path / "rows.parquet"))
    except InputError as error:
        assert "rows.parquet" in str(error)


def test_a_whole_decimal_stays_whole(tmp_path: Path) -> None:
    values = pa.array([Decimal(2**60), Decimal(2**60 + 1)], pa.decimal128(38, 0))
    assert column(tmp_path, values) == [2**60, 2**60 + 1]


@pytest.mark.parametrize("values", [pa.array([None, b"x"]), pa.array([None, [b"x"]]), pa.array([None, {"x": b"x"}])])
def test_bytes_are_told_with_their_row_and_column(tmp_path: Path, values: pa.Array) -> None:
    pq.write_table(pa.table({"a": values}), tmp_path / "rows.parquet")
    said = "FILE:2: a: got bytes, wanted text, a number, a list or a mapping"
    assert problem(tmp_path / "rows.parquet") == said


def test_the_rows_of_several_groups_are_numbered_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": list(range(7))}), path, row_group_size=2)
    assert [*read_rows(path)] == [(number, {"a": number - 1}) for number in range(1, 8)]


def test_a_table_without_rows_has_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), tmp_path / "rows.parquet")
    assert rows(tmp_path / "rows.parquet") == []


def test_a_table_of_pandas_is_read(tmp_path: Path) -> None:
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


def test_the_index_of_pandas_is_no_column(tmp_path: Path) -> None:
    table = pd.DataFrame({"inputs": ["c", "a", "b"]}).sort_values("inputs")
    table.to_parquet(tmp_path / "rows.parquet")
    assert rows(tmp_path / "rows.parquet") == [{"inputs": "a"}, {"inputs": "b"}, {"inputs": "c"}]


def test_two_columns_of_one_name_are_told(tmp_path: Path) -> None:
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
def test_a_file_that_is_no_parquet_is_told(tmp_path: Path, content: bytes) -> None:
    said = problem(write(tmp_path, "rows.parquet", content))
    assert said.startswith(("FILE: not Parquet: ", "FILE: cannot be read: "))


def test_a_text_of_parquet_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    buffers = [None, pa.py_buffer(np.array([0, 1], dtype=np.int32).tobytes()), pa.py_buffer(b"\xff")]
    pq.write_table(pa.table({"a": pa.Array.from_buffers(pa.string(), 1, buffers)}), tmp_path / "rows.parquet")
    assert "UTF-8" in problem(tmp_path / "rows.parquet")
