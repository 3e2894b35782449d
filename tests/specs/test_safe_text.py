"""Text from outside shows what is in it, and does nothing where it is shown."""

import csv
import io
import json

import pytest

from evalflows.specs.safe_text import csv_cell, escaped, from_csv_cell, json_text, one_line

C0 = [code for code in range(0x20) if chr(code) not in "\t\n"]
C1 = [*range(0x7F, 0xA0)]
BIDI = [0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]


@pytest.mark.parametrize("code", [*C0, *C1, *BIDI, 0xD800, 0xDFFF], ids=hex)
def test_a_control_character_is_shown_as_an_escape(code: int) -> None:
    shown = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    assert escaped(f"a{chr(code)}b") == one_line(f"a{chr(code)}b") == f"a{shown}b"


@pytest.mark.parametrize("text", ["plain", "größe 日本語 🙂", "a\tb\nc", "עברית", "é and e\u0301", "back\\slash"])
def test_other_text_is_unchanged(text: str) -> None:
    assert escaped(text) == text


def test_newlines_and_tabs_are_escaped_on_one_line() -> None:
    assert one_line("a\tb\nc") == "a\\tb\\nc"


@pytest.mark.parametrize("code", [*C0, *C1, *BIDI, 0xD800], ids=hex)
def test_json_has_no_control_characters_and_the_same_value(code: int) -> None:
    value = {f"k{chr(code)}": f"ä{chr(code)}b"}
    text = json_text(value)
    assert escaped(text) == text and "ä" in text
    assert json.loads(text) == value


def test_json_takes_the_options_of_dumps() -> None:
    assert json_text({"a": 1.5, "b": [object]}, default=str, indent=1).splitlines()[1] == ' "a": 1.5,'


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_text_that_looks_like_a_formula_gets_an_apostrophe(text: str) -> None:
    assert csv_cell(text) == f"'{text}"
    assert from_csv_cell(csv_cell(text)) == text


@pytest.mark.parametrize("value", [-1, -1.5, None, True, "", "a=1", "'tis", "' =1", '{"a": "=1"}'])
def test_other_cells_are_unchanged(value: object) -> None:
    assert csv_cell(value) == value
    assert from_csv_cell(value) == value


def test_a_negative_number_stays_a_number_in_csv() -> None:
    out = io.StringIO()
    csv.writer(out).writerow(map(csv_cell, [-1.5, "-1.5"]))
    assert out.getvalue().strip() == "-1.5,'-1.5"
