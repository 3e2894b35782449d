"""Reading JSONL: rows with their line numbers, and errors that name the line."""

from pathlib import Path

import pytest

from evalflows.specs.errors import InputError
from evalflows.store.ingest.file_formats import read_rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def problem(path: Path) -> str:
    """Return the one-line error of reading the file."""
    with pytest.raises(InputError) as caught:
        list(read_rows(path))
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text.replace(str(path), "PATH")


def test_rows_bear_their_line_numbers_and_empty_lines_count(path: Path) -> None:
    path.write_text('{"a": 1}\n\n   \n{"a": 2}\n', encoding="utf-8")
    assert list(read_rows(path)) == [(1, {"a": 1}), (4, {"a": 2})]


def test_the_last_line_needs_no_end_and_lines_may_end_as_on_windows(path: Path) -> None:
    path.write_bytes(b'{"a": 1}\r\n{"a": 2}')
    assert [row for _, row in read_rows(path)] == [{"a": 1}, {"a": 2}]


def test_a_line_separator_inside_a_text_does_not_end_the_line(path: Path) -> None:
    path.write_text('{"a": "one\u2028two\u0085three"}\n', encoding="utf-8")
    assert list(read_rows(path)) == [(1, {"a": "one\u2028two\u0085three"})]


def test_an_empty_file_has_no_rows(path: Path) -> None:
    path.touch()
    assert list(read_rows(path)) == []


def test_rows_before_a_broken_line_are_given(path: Path) -> None:
    path.write_text('{"a": 1}\n{"a":\n', encoding="utf-8")
    rows = read_rows(path)
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(InputError):
        next(rows)


def test_a_missing_file_is_an_input_error(path: Path) -> None:
    assert problem(path) == "PATH: cannot be read: No such file or directory"


def test_a_folder_is_an_input_error(path: Path) -> None:
    path.mkdir()
    assert problem(path) == "PATH: cannot be read: Is a directory"


def test_broken_json_names_its_line(path: Path) -> None:
    path.write_text('{"a": 1}\n\n{"a": \n', encoding="utf-8")
    assert problem(path).startswith("PATH:3: not JSON: ")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_has_not_are_refused(path: Path, constant: str) -> None:
    path.write_text(f'{{"a": [{constant}]}}\n', encoding="utf-8")
    assert problem(path) == f"PATH:1: not JSON: {constant} is not a JSON value"


@pytest.mark.parametrize(("line", "got"), [("[1, 2]", "list"), ('"text"', "str"), ("3", "int"), ("null", "NoneType")])
def test_a_line_that_is_no_object_names_its_line(path: Path, line: str, got: str) -> None:
    path.write_text(f'{{"a": 1}}\n{line}\n', encoding="utf-8")
    assert problem(path) == f"PATH:2: got {got}, wanted an object"


def test_a_line_nested_too_deeply_names_its_line(path: Path) -> None:
    path.write_text(f'{{"a": 1}}\n{{"a": {"[" * 100_000}\n', encoding="utf-8")
    assert problem(path).startswith("PATH:2: ")


def test_a_file_that_is_not_utf8_is_an_input_error(path: Path) -> None:
    path.write_bytes(b'{"a": "caf\xe9"}\n')
    assert problem(path).startswith("PATH")
    assert "not UTF-8" in problem(path)


def test_the_place_of_a_bad_byte_is_right_in_a_long_file(path: Path) -> None:
    line = b'{"a": "' + b"x" * 90 + b'"}\n'  # 100 bytes
    path.write_bytes(line * 200 + b'{"a": "caf\xe9"}\n')
    named_by_line, named_by_byte = "PATH:201: not UTF-8", "at byte 20010"
    assert named_by_line in problem(path) or named_by_byte in problem(path)
