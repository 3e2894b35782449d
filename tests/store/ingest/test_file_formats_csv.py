"""Reading rows from CSV, with one-line errors."""

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_files import BOM, numbers, problem, rows, write


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
def test_csv_may_have_a_byte_order_mark_and_any_line_ending(tmp_path: Path, content: bytes) -> None:
    assert rows(write(tmp_path, "rows.csv", content)) == [{"q": "Why?", "a": "So."}]


def test_cells_may_contain_quotes_commas_and_line_ends(tmp_path: Path) -> None:
    cells = ['say "yes"', "a, b", "one\ntwo", "one\r\ntwo", "ü\u2028\u0085;\t", " padded ", "'", "\\", "NULL", "=1+1"]
    text = io.StringIO()
    csv.writer(text).writerows([["q"], *([cell] for cell in cells)])
    assert [row["q"] for row in rows(write(tmp_path, "rows.csv", text.getvalue().encode()))] == cells


@given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0"))] * 2), min_size=1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_csv_written_by_python_is_read_back(tmp_path: Path, content: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("q", "a"), *content])
    found = rows(write(tmp_path, "rows.csv", text.getvalue().encode()))
    assert found == [{"q": q or None, "a": a or None} for q, a in content]


def test_empty_cells_are_none_and_all_others_text(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.csv", b'a,b,c,d,e\n,"", ,0,false\n')
    assert rows(path) == [{"a": None, "b": None, "c": " ", "d": "0", "e": "false"}]


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
def test_csv_errors_name_the_line(tmp_path: Path, content: bytes, said: str) -> None:
    assert problem(write(tmp_path, "rows.csv", content)).startswith(said)


def test_a_malformed_row_is_reported_with_its_own_line(tmp_path: Path) -> None:
    assert problem(write(tmp_path, "rows.csv", b'q,a\n1,2\n3,4\n"5"x,6\n7,8\n')).startswith("FILE:4: not CSV: ")


def test_an_invalid_byte_is_reported_with_its_own_place(tmp_path: Path) -> None:
    line = b"x" * 99 + b"\n"
    said = problem(write(tmp_path, "rows.csv", b"q\n" + line * 200 + b"caf\xe9\n"))
    assert "FILE:202: not UTF-8" in said or "at byte 20005" in said


def test_a_cell_may_be_very_long(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.csv", b"q\n" + b"x" * 200_000 + b"\n")
    assert [len(row["q"]) for row in rows(path)] == [200_000]


STRUCTURED = ["inputs", "reference_outputs", "outputs", "expected_output", "metadata", "attachments"]


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("value", [{"q": "Why?", "n": [1, None]}, [], {}, [{"role": "user"}]])
def test_a_cell_of_a_structured_column_may_contain_json(tmp_path: Path, name: str, value: object) -> None:
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
def test_a_cell_with_invalid_json_is_refused_with_its_line(tmp_path: Path, cell: str, said: str) -> None:
    path = write(tmp_path, "rows.csv", f'inputs,b\nx,1\n"{cell}",2\n'.encode())
    assert problem(path).startswith(said)
