"""Reading rows from files of every format: values, compression, and one-line errors."""

import csv
import datetime as dt
import gzip
import io
import json
import re
from decimal import Decimal
from itertools import product
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


def test_the_same_rows_are_read_from_every_format(tmp_path: Path) -> None:
    for suffix, content in CONTENT.items():
        for packed in ("", ".gz"):
            assert rows(write(tmp_path, f"rows{suffix}{packed}", content)) == ROWS, suffix
    for name in ("rows.csv", "ROWS.CSV", "rows.csv.gz", "my.rows.csv"):
        assert rows(write(tmp_path, name, b'a,b\n1,x\n,"\xc3\xa9\n2"\n')) == [{"a": "1", "b": "x"}, ROWS[1]]


def test_other_suffixes_are_refused_with_the_known_ones_listed(tmp_path: Path) -> None:
    for name, got in {"rows": "no suffix", "rows.txt": ".txt", "rows.csv.zip": ".zip", "rows.gz": "no suffix"}.items():
        said = problem(write(tmp_path, name, b"a\n1\n"))
        assert said == f"FILE: got {got}, wanted one of .jsonl, .ndjson, .json, .csv, .parquet"


def test_a_missing_file_and_a_folder_are_refused_and_values_of_variables_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rows.jsonl", "rows.json", "rows.csv", "rows.parquet", "rows.csv.gz"):
        assert problem(tmp_path / name) == "FILE: cannot be read: No such file or directory"
        (tmp_path / name).mkdir()
        assert problem(tmp_path / name) == "FILE: cannot be read: Is a directory"
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.delenv("UNSET", raising=False)
    assert problem("${UNSET}/rows.csv") == "FILE: the environment variable UNSET is not set"
    assert problem("/none/${SECRET}.csv") == "FILE: cannot be read: No such file or directory"
    paths = ("faq.csv", "/x/faq.jsonl.gz", "faq", "faq.gz", "${DATA}/faq.csv", "data/faq.v2.parquet")
    assert [stem(path) for path in paths] == ["faq"] * 5 + ["faq.v2"]


# Compression


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b'{"a": %d}\n' % (number * 7919 % 10007) for number in range(3000)))
    for suffix in ("jsonl", "parquet"):
        for kept in (5, -1, -100):
            (path := tmp_path / f"rows.{suffix}.gz").write_bytes(packed[:kept])
            assert problem(path).startswith("FILE: cannot be read: ")


@given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0"))] * 2), min_size=1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_csv_written_by_python_is_read_back(tmp_path: Path, content: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("q", "a"), *content])
    found = rows(write(tmp_path, "rows.csv", text.getvalue().encode()))
    assert found == [{"q": q or None, "a": a or None} for q, a in content if q.strip() or a.strip()]


def test_a_file_without_rows_has_none(tmp_path: Path) -> None:
    for content in (b"", b"\n", b"q,a", b"q,a\n", BOM + b"q,a\r\n\r\n", BOM):
        assert rows(write(tmp_path, "rows.csv", content)) == []
    for content in (b"[]", b" \n [ ] \n", b"", b"\n", b"  "):
        assert rows(write(tmp_path, "rows.json", content)) == []


def test_rows_are_numbered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In CSV by their last lines, in JSONL with empty lines, in Parquet across row groups."""
    path = write(tmp_path, "a.csv", b'q,a\nWhy?,So.\n\n,\n"one\ntwo",\nlast,\n , \n')
    assert [number for number, _ in read_rows(path)] == [2, 6, 7]
    assert capsys.readouterr().err == f"evalflows: {path}: skipped 2 blank rows, the first at 4\n"
    text = '{"a": "one\\u2028two"}\n\n   \n{"a": "three\u0085four"}\n{"a":'
    lines = read_rows(write(tmp_path, "rows.jsonl", text.encode()))
    assert [next(lines), next(lines)] == [(1, {"a": "one\u2028two"}), (4, {"a": "three\u0085four"})]
    with pytest.raises(InputError, match=":5: not JSON: "):
        next(lines)
    pq.write_table(pa.table({"a": list(range(7))}), tmp_path / "rows.parquet", row_group_size=2)
    found = [*read_rows(tmp_path / "rows.parquet")]
    assert found == [(number, {"a": number - 1}) for number in range(1, 8)]


def test_csv_errors_name_the_line(tmp_path: Path) -> None:
    for content, said in (
        (b"q,a\n1,2\n1\n", "FILE:3: got 1 cells, wanted 2"),
        (b"q,a\n1,2,3\n", "FILE:2: got 3 cells, wanted 2"),
        (b"q,a\n1,2\n ,\n,\nx\n", "FILE:5: got 1 cells, wanted 2"),
        (b",q,a\n0,1,2\nx,1,2\n", "FILE:3: got a cell in column 1, which has no name in the header"),
        (b"q,a,q\n1,2,3\n", "FILE: got two columns of the same name: q, a, q"),
        (b"q,,a\n1,2,3\n", "FILE:2: got a cell in column 2, which has no name in the header"),
        (b'q,a\n"Why?,So.\n', "FILE:"),
        (b'q,a\n"Why"?,So.\n', "FILE:"),
        (b"q\ncaf\xe9\n", "FILE:2: not UTF-8, perhaps Windows-1252 or Latin-1: invalid continuation byte"),
        (b"q\ncaf\x81\n", "FILE:2: not UTF-8: "),
        (b"\xff\xfeq\x00\n", "FILE: not UTF-16, as its first bytes say: "),
    ):
        assert problem(write(tmp_path, "rows.csv", content)).startswith(said)
    said = problem(write(tmp_path, "rows.csv", b"q\n" + (b"x" * 99 + b"\n") * 200 + b"caf\xe9\n"))
    assert "FILE:202: not UTF-8" in said or "at byte 20005" in said


STRUCTURED = ["inputs", "reference_outputs", "outputs", "expected_output", "metadata", "attachments"]


def test_a_cell_of_a_structured_column_may_contain_json(tmp_path: Path) -> None:
    for name, value in product(STRUCTURED, ({"q": "Why?", "n": [1, None]}, [], {}, [{"role": "user"}])):
        text = io.StringIO()
        csv.writer(text).writerows([[name, "other"], [f"\n {json.dumps(value)} ", json.dumps(value)]])
        path = write(tmp_path, "rows.csv", text.getvalue().encode())
        assert rows(path) == [{name: value, "other": json.dumps(value)}]


def test_a_structured_column_is_text_if_one_of_its_cells_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = ['{"a": 1}', "[Bonn](http://x) and Köln", "hello"]
    bracketed = ["{{name}} asks where", "[1] see note"], ["[citation needed]", "{}{", "[" * 20_000]
    for cells in (["Why?", "7", "null", "'[1]'"], *bracketed, mixed):
        text = io.StringIO()
        csv.writer(text).writerows([["inputs"], *([cell] for cell in cells)])
        path = write(tmp_path, "rows.csv", text.getvalue().encode())
        assert rows(path) == [{"inputs": cell} for cell in cells]
        said = capsys.readouterr().err
        noted = f"evalflows: {path}: inputs: read as text, since not all of its"
        assert said.startswith(noted) if cells is mixed else not said


def test_a_cell_with_invalid_json_is_refused_with_its_line(tmp_path: Path) -> None:
    for cell, said in (
        ("{'q': 1}", "FILE:3: inputs: not JSON: Expecting property name enclosed in double quotes at character 2"),
        ("['q']", "FILE:3: inputs: not JSON: Expecting value at character 2"),
        ('{""q"": Infinity}', "FILE:3: inputs: not JSON: Infinity is not a JSON value"),
        ("{}{}", "FILE:3: inputs: not JSON: got 2 values, wanted one"),
    ):
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


def test_errors_of_jsonl_name_the_line(tmp_path: Path) -> None:
    for line, said in (
        (b'{"a": -Infinity}', "FILE:2: not JSON: -Infinity is not a JSON value"),
        (b"[1, 2]", "FILE:2: got list, wanted an object"),
        (b"null", "FILE:2: got NoneType, wanted an object"),
        (b'{"a": ' + b"[" * 100_000, "FILE:2: "),
        (b'{"a": "caf\xe9"}', "FILE:2: not UTF-8"),
    ):
        assert problem(write(tmp_path, "rows.jsonl", b'{"a": 1}\n' + line + b"\n")).startswith(said)


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


def test_the_pandas_index_is_not_read_as_a_column(tmp_path: Path) -> None:
    table = pd.DataFrame({"inputs": ["c", "a", "b"]}).sort_values("inputs")
    table.to_parquet(tmp_path / "rows.parquet")
    assert rows(tmp_path / "rows.parquet") == [{"inputs": "a"}, {"inputs": "b"}, {"inputs": "c"}]


def test_what_cannot_be_read_of_parquet_is_refused(tmp_path: Path) -> None:
    whole = as_parquet(*ROWS)
    for content in (b"", b"PAR1", b"a,b\n1,2\n", whole[:-20], whole[20:], whole[:10] + b"\xff" * 20 + whole[30:]):
        said = problem(write(tmp_path, "rows.parquet", content))
        assert said.startswith(("FILE: not Parquet: ", "FILE: cannot be read: "))
    latin = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    of_bytes = r"FILE:2: a(\.[0x])?: got bytes, wanted text, a number, a list or a mapping"
    for arrays, said in (
        *(([pa.array([None, value])], of_bytes) for value in (b"x", [b"x"], {"x": b"x"})),
        ([pa.array(["mine"]), pa.array(["yours"])], ".*got two columns of the same name.*"),
        ([latin], ".*UTF-8.*"),
    ):
        pq.write_table(pa.Table.from_arrays(arrays, names=["a"] * len(arrays)), tmp_path / "rows.parquet")
        assert re.fullmatch(said, problem(tmp_path / "rows.parquet"))
