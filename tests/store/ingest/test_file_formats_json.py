"""Reading rows from JSON and JSONL, with one-line errors."""

from pathlib import Path

import pytest
from row_files import BOM, numbers, problem, rows, write

from evalflows.store.ingest.file_formats import read_rows


def test_jsonl_may_have_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.jsonl", BOM + b'{"a": 1}\r\n\r\n{"a": 2}\r\n')
    assert [*read_rows(path)] == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize("content", [b"[]", b" \n [ ] \n", b"", b"\n", b"  "])
def test_an_empty_list_and_an_empty_file_have_no_rows(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.json", content)) == []


@pytest.mark.parametrize("content", [b'{"a": 1}\n{"a": 2}\n', b'{"a": 1}\r\n\r\n{"a": 2}', BOM + b'{"a": 1}\n{"a": 2}'])
def test_a_json_file_may_contain_jsonl(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.json", content)) == [{"a": 1}, {"a": 2}]


def test_the_rows_of_a_list_are_numbered(tmp_path: Path) -> None:
    assert numbers(write(tmp_path, "rows.json", b'\n[\n{"a": 1},\n\n{"a": 2}]')) == [1, 2]


@pytest.mark.parametrize("content", [b'[{"a": 1}]', b'[\r\n  {"a": 1}\r\n]\r\n'])
def test_a_list_may_begin_with_a_byte_order_mark(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.json", BOM + content)) == [{"a": 1}]


@pytest.mark.parametrize("content", [BOM, BOM + b"\r\n"])
def test_a_file_with_only_a_byte_order_mark_has_no_rows(tmp_path: Path, content: bytes) -> None:
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
def test_json_errors_name_the_place(tmp_path: Path, content: bytes, said: str) -> None:
    assert problem(write(tmp_path, "rows.json", content)).startswith(said)
