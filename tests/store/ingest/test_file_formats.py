"""Reading rows from files of every format: values, compression, and one-line errors."""

import csv
import datetime as dt
import gzip
import io
import json
import re
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
from evalflows.store.file_formats import read_rows, stem

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
def test_csv_is_recognized_by_its_suffix(tmp_path: Path, name: str) -> None:
    assert rows(write(tmp_path, name, b'a,b\n1,x\n,"\xc3\xa9\n2"\n')) == [{"a": "1", "b": "x"}, ROWS[1]]


def test_other_suffixes_are_refused_with_the_known_ones_listed(tmp_path: Path) -> None:
    for name, got in {"rows": "no suffix", "rows.txt": ".txt", "rows.csv.zip": ".zip", "rows.gz": "no suffix"}.items():
        said = problem(write(tmp_path, name, b"a\n1\n"))
        assert said == f"FILE: got {got}, wanted one of .jsonl, .ndjson, .json, .csv, .parquet"


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet", "rows.csv.gz"])
def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path, name: str) -> None:
    assert problem(tmp_path / name) == "FILE: cannot be read: No such file or directory"
    (tmp_path / name).mkdir()
    assert problem(tmp_path / name) == "FILE: cannot be read: Is a directory"


def test_an_unset_variable_is_named_and_values_of_set_ones_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.delenv("UNSET", raising=False)
    assert problem("${UNSET}/rows.csv") == "FILE: the environment variable UNSET is not set"
    assert problem("/none/${SECRET}.csv") == "FILE: cannot be read: No such file or directory"


def test_the_stem_is_the_file_name_without_its_suffixes() -> None:
    assert [stem(path) for path in ("faq.csv", "/x/faq.jsonl.gz", "faq", "faq.gz", "${DATA}/faq.csv")] == ["faq"] * 5
    assert stem("data/faq.v2.parquet") == "faq.v2"


# Compression


def packed_noise() -> bytes:
    return gzip.compress(b"".join(b'{"a": %d}\n' % (number * 7919 % 10007) for number in range(3000)))


@pytest.mark.parametrize("kept", [5, -1, -100])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_truncated_gzip_file_is_refused(tmp_path: Path, suffix: str, kept: int) -> None:
    path = tmp_path / f"rows.{suffix}.gz"
    path.write_bytes(packed_noise()[:kept])
    assert problem(path).startswith("FILE: cannot be read: ")


@given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0"))] * 2), min_size=1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_csv_written_by_python_is_read_back(tmp_path: Path, content: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("q", "a"), *content])
    found = rows(write(tmp_path, "rows.csv", text.getvalue().encode()))
    assert found == [{"q": q or None, "a": a or None} for q, a in content if q.strip() or a.strip()]


@pytest.mark.parametrize("content", [b"", b"\n", b"q,a", b"q,a\n", BOM + b"q,a\r\n\r\n", BOM])
def test_a_file_without_rows_has_none(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.csv", content)) == []


def test_a_row_is_numbered_by_its_last_line(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.csv", b'q\nWhy?\n\n"one\ntwo"\nlast\n')
    assert numbers(path) == [2, 5, 6]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"q,a\n1,2\n1\n", "FILE:3: got 1 cells, wanted 2"),
        (b"q,a\n1,2,3\n", "FILE:2: got 3 cells, wanted 2"),
        (b"q,a\n1,2\n ,\n,\nx\n", "FILE:5: got 1 cells, wanted 2"),
        (b",q,a\n0,1,2\nx,1,2\n", "FILE:3: got a cell in column 1, which has no name in the header"),
        (b"q,a,q\n1,2,3\n", "FILE: got two columns of the same name: q, a, q"),
        (b"q,,a\n1,2,3\n", "FILE:2: got a cell in column 2, which has no name in the header"),
        (b'q,a\n"Why?,So.\n', "FILE:"),
        (b'q,a\n"Why"?,So.\n', "FILE:"),
        (
            b"q\ncaf\xe9\n",
            "FILE:2: not UTF-8, perhaps Windows-1252 or Latin-1: invalid continuation byte",
        ),
        (b"q\ncaf\x81\n", "FILE:2: not UTF-8: "),
        (b"\xff\xfeq\x00\n", "FILE: not UTF-16, as its first bytes say: "),
    ],
    ids=lambda value: str(value[:30]),
)
def test_csv_errors_name_the_line(tmp_path: Path, content: bytes, said: str) -> None:
    assert problem(write(tmp_path, "rows.csv", content)).startswith(said)


def test_an_invalid_byte_is_reported_with_its_own_place(tmp_path: Path) -> None:
    line = b"x" * 99 + b"\n"
    said = problem(write(tmp_path, "rows.csv", b"q\n" + line * 200 + b"caf\xe9\n"))
    assert "FILE:202: not UTF-8" in said or "at byte 20005" in said


STRUCTURED = ["inputs", "reference_outputs", "outputs", "expected_output", "metadata", "attachments"]


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("value", [{"q": "Why?", "n": [1, None]}, [], {}, [{"role": "user"}]])
def test_a_cell_of_a_structured_column_may_contain_json(tmp_path: Path, name: str, value: object) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([[name, "other"], [f"\n {json.dumps(value)} ", json.dumps(value)]])
    path = write(tmp_path, "rows.csv", text.getvalue().encode())
    assert rows(path) == [{name: value, "other": json.dumps(value)}]


@pytest.mark.parametrize(
    ("cells", "noted"),
    [
        (["Why?", "7", "null", "'[1]'"], ""),
        (["{{name}} asks where", "[1] see note"], ""),
        (["[citation needed]", "{}{", "[" * 20_000], ""),
        (
            ['{"a": 1}', "[Bonn](http://x) and Köln", "hello"],
            "evalflows: FILE: inputs: read as text, since not all of its",
        ),
    ],
    ids=["text", "brackets", "not JSON", "mixed"],
)
def test_a_structured_column_is_text_if_one_of_its_cells_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cells: list[str], noted: str
) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["inputs"], *([cell] for cell in cells)])
    path = write(tmp_path, "rows.csv", text.getvalue().encode())
    assert rows(path) == [{"inputs": cell} for cell in cells]
    said = capsys.readouterr().err.replace(str(path), "FILE")
    assert said.startswith(noted) and bool(said) is bool(noted)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("{'q': 1}", "FILE:3: inputs: not JSON: Expecting property name enclosed in double quotes at character 2"),
        ("['q']", "FILE:3: inputs: not JSON: Expecting value at character 2"),
        ('{""q"": Infinity}', "FILE:3: inputs: not JSON: Infinity is not a JSON value"),
        ("{}{}", "FILE:3: inputs: not JSON: got 2 values, wanted one"),
    ],
    ids=lambda value: value[:20],
)
def test_a_cell_with_invalid_json_is_refused_with_its_line(tmp_path: Path, cell: str, said: str) -> None:
    path = write(tmp_path, "rows.csv", f'inputs,b\n{{}},1\n"{cell}",2\n'.encode())
    assert problem(path).startswith(said)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.csv", b"sep=;\r\nq;a\r\nWhy?;So.\r\n", [{"q": "Why?", "a": "So."}]),
        ("a.csv", b"q,a\rWhy?,So.\r", [{"q": "Why?", "a": "So."}]),
        ("a.csv", b'q, a\nWhy?, "So, so"\n', [{"q": "Why?", "a": "So, so"}]),
        ("a.csv", b" q ,a ,,\nWhy?,So.,,\n", [{"q": "Why?", "a": "So."}]),
        ("a.csv", b",q,a\n0,Why?,So.\n7,Who?,\n", [{"q": "Why?", "a": "So."}, {"q": "Who?", "a": None}]),
        ("a.csv", b",,\nq,a,\nWhy?,So.\n", [{"q": "Why?", "a": "So."}]),
        ("a.csv", "q,a\nWhy?,K\u00f6ln\n".encode("utf-16"), [{"q": "Why?", "a": "K\u00f6ln"}]),
        ("a.csv", "q,a\nWhy?,K\u00f6ln\n".encode("utf-16-le"), [{"q": "Why?", "a": "K\u00f6ln"}]),
        ("a.jsonl", '{"q": "K\u00f6ln"}\n{"q": 1}'.encode("utf-16-be"), [{"q": "K\u00f6ln"}, {"q": 1}]),
        ("a.jsonl", b'{"q": NaN}\n{"q": 1}', [{"q": 1}]),
        ("a.jsonl", b'[{"q": 1}, {"q": 2}]', [{"q": 1}, {"q": 2}]),
        ("a.jsonl", b'{\n "q": 1\n}\n{\n "q": 2\n}\n', [{"q": 1}, {"q": 2}]),
        ("a.jsonl", b'{"q": ["a", "b"]}', [{"q": ["a", "b"]}]),
        ("a.json", b'{"q": ["a", "b"], "a": [1, NaN]}', [{"q": "a", "a": 1}, {"q": "b", "a": None}]),
        ("a.json", b'{"q": {"0": "a", "5": "b"}, "a": {"0": 1, "5": 2}}', [{"q": "a", "a": 1}, {"q": "b", "a": 2}]),
        ("a.json", b'{"columns": ["q"], "index": [0, 1], "data": [["a"], ["b"]]}', [{"q": "a"}, {"q": "b"}]),
        ("a.json", b'{"x": {"q": "a"}, "y": {"q": "b", "id": 7}}', [{"id": "x", "q": "a"}, {"id": 7, "q": "b"}]),
        ("a.json", b'{"version": "1",\n "examples": [\n{"q": "a"}]}', [{"q": "a"}]),
        ("a.json", b'{"anything": [{"q": "a"}, {"q": "b"}]}', [{"q": "a"}, {"q": "b"}]),
        ("a.json", b'{"q": "a", "contexts": ["b", "c"]}', [{"q": "a", "contexts": ["b", "c"]}]),
        ("a.json", b'{"messages": [{"role": "user"}]}', [{"messages": [{"role": "user"}]}]),
        ("a.json", b'{"inputs": {"q": 1}, "outputs": {"q": 2}}', [{"inputs": {"q": 1}, "outputs": {"q": 2}}]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_rows_are_read_as_people_and_their_tools_save_them(
    tmp_path: Path, name: str, content: bytes, wanted: list[dict[str, Any]]
) -> None:
    for packed in ("", ".gz"):
        assert rows(write(tmp_path, name + packed, content)) == wanted


def test_blank_rows_are_skipped_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "a.csv", b"q,a\nWhy?,So.\n,\nWho?,\n , \n")
    assert numbers(path) == [2, 4]
    assert capsys.readouterr().err == f"evalflows: {path}: skipped 2 blank rows, the first at 3\n"


def test_the_lines_of_jsonl_are_numbered_with_empty_ones(tmp_path: Path) -> None:
    text = '{"a": "one\\u2028two"}\n\n   \n{"a": "three\u0085four"}'
    found = [*read_rows(write(tmp_path, "rows.jsonl", text.encode()))]
    assert found == [(1, {"a": "one\u2028two"}), (4, {"a": "three\u0085four"})]


def test_rows_before_a_broken_line_are_read(tmp_path: Path) -> None:
    found = read_rows(write(tmp_path, "rows.jsonl", b'{"a": 1}\n\n{"a":\n'))
    assert next(found) == (1, {"a": 1})
    with pytest.raises(InputError, match=":3: not JSON: "):
        next(found)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"a": -Infinity}', "FILE:2: not JSON: -Infinity is not a JSON value"),
        (b"[1, 2]", "FILE:2: got list, wanted an object"),
        (b"null", "FILE:2: got NoneType, wanted an object"),
        (b'{"a": ' + b"[" * 100_000, "FILE:2: "),
        (b'{"a": "caf\xe9"}', "FILE"),
    ],
    ids=lambda value: str(value[:30]),
)
def test_errors_of_jsonl_name_the_line(tmp_path: Path, line: bytes, said: str) -> None:
    path = write(tmp_path, "rows.jsonl", b'{"a": 1}\n' + line + b"\n")
    assert problem(path).startswith(said)
    if b"\xe9" in line:
        assert "not UTF-8" in problem(path)


@pytest.mark.parametrize("content", [b"[]", b" \n [ ] \n", b"", b"\n", b"  "])
def test_an_empty_list_and_an_empty_file_have_no_rows(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.json", content)) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'[{"a": 1}, 2]', "FILE:2: got int, wanted an object"),
        (b"[null]", "FILE:1: got NoneType, wanted an object"),
        (b'[{"a": 1},]', "FILE:1: not JSON: "),
        (b'[\n{"a": 1}\n{"a": 2}]', "FILE:3: not JSON: Expecting ',' delimiter at character 1"),
        (b'[{"a": 1}', "FILE:1: not JSON: "),
        (b'[{"a": 1},\n {"b" 2}]', "FILE:2: not JSON: Expecting ':' delimiter at character 7"),
        (b'[{"a" 1}]', "FILE:1: not JSON: Expecting ':' delimiter at character 7"),
        (b'[{"a": 1},\n {"a": -Infinity}]', "FILE:2: not JSON: -Infinity is not a JSON value"),
        (b'{"rows": [{"a": 1e999}]}', "FILE:1: not JSON: 1e999 is too large for a number"),
        (b'[{"a": 1}\n,\n{"a": 1, "a": 2}]', "FILE:3: not JSON: got the key 'a' twice"),
        (b'{"a": 1}\n\n{"a": "\nb"}', "FILE:3: not JSON: Invalid control character at character 8"),
        (b'{"q": ["a", "b"], "a": [1]}', "FILE: got columns of 1 and 2 values, wanted as many in each"),
        (
            b'[{"a": "b"},\n{"a": "caf\xe9"}]',
            "FILE:2: not UTF-8, perhaps Windows-1252 or Latin-1: invalid continuation byte at byte 10 of",
        ),
        (b"[" * 100_000, "FILE: not JSON: nested too deeply"),
        (b'{"rows": [{"a": 1}\n', "FILE:2: not JSON: "),
        (b'"text"', "FILE:1: got str, wanted an object"),
    ],
    ids=lambda value: str(value[:30]),
)
def test_json_errors_name_the_place(tmp_path: Path, content: bytes, said: str) -> None:
    assert problem(write(tmp_path, "rows.json", content)).startswith(said)


def column(folder: Path, values: pa.Array) -> list[Any]:
    """Return the values read from a Parquet file with one column."""
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"a": values, "b": ["filled"] * len(values)}), path)
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
        (pa.array([Decimal(2**60), Decimal(2**60 + 1)], pa.decimal128(38, 0)), [2**60, 2**60 + 1]),
        (pa.array([dt.date(2026, 1, 2)]), ["2026-01-02"]),
        (pa.array([dt.datetime(2026, 1, 2, 3, 4, 5)]), ["2026-01-02T03:04:05"]),
        (pa.array([dt.datetime(2026, 1, 2, tzinfo=dt.UTC)]), ["2026-01-02T00:00:00+00:00"]),
        (pa.array([1], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001"]),
        (pa.array([None], pa.timestamp("ns", "Europe/Zurich")), [None]),
        (pa.array([{"x": [{"y": float("nan"), "z": dt.date(2026, 1, 2)}]}]), [{"x": [{"y": None, "z": "2026-01-02"}]}]),
        (pa.array([{"x": 1}, None]), [{"x": 1}, None]),
        (pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())), [{"k": 1}, {}, None]),
        (pa.array([[], None, ["a", None]]), [[], None, ["a", None]]),
        (pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), [[1.0, 2.0]]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_parquet_values_are_read_as_json_values(tmp_path: Path, values: pa.Array, wanted: list[Any]) -> None:
    found = column(tmp_path, values)
    assert found == wanted
    assert json.loads(json.dumps(found, allow_nan=False)) == wanted


@pytest.mark.parametrize("values", [pa.array([None, b"x"]), pa.array([None, [b"x"]]), pa.array([None, {"x": b"x"}])])
def test_bytes_are_refused_with_row_and_column(tmp_path: Path, values: pa.Array) -> None:
    pq.write_table(pa.table({"a": values}), tmp_path / "rows.parquet")
    said = r"FILE:2: a(\.[0x])?: got bytes, wanted text, a number, a list or a mapping"
    assert re.fullmatch(said, problem(tmp_path / "rows.parquet"))


def test_rows_are_numbered_across_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": list(range(7))}), path, row_group_size=2)
    assert [*read_rows(path)] == [(number, {"a": number - 1}) for number in range(1, 8)]


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
