"""Text from outside shows what is in it, and does nothing where it is shown."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from evalflows.specs.escaping import csv_cell, escaped, from_csv_cell, json_text, one_line

CONTROLS = "".join(
    chr(code)
    for codes in (range(0x20), range(0x7F, 0xA0), [0x61C, 0x200E, 0x200F], range(0x2028, 0x202F), range(0x2066, 0x206A))
    for code in codes
)
MARKS = "\u061c\u200e\u200f"
TEXTS = st.text(st.sampled_from(CONTROLS + "\ud800\udfff") | st.sampled_from("aäé\u0301\\日🙂ע"))


def shown(character: str, plain: str = "") -> str:
    if character in plain or (character not in CONTROLS and not "\ud800" <= character <= "\udfff"):
        return character
    short = {"\t": "\\t", "\n": "\\n"}
    return short.get(character, f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}")


@given(TEXTS)
@example(CONTROLS + "\ud800")
def test_control_characters_are_shown_as_escapes_and_other_text_is_unchanged(text: str) -> None:
    assert escaped(text) == "".join(shown(character, f"\t\n{MARKS}") for character in text)
    assert one_line(text) == "".join(map(shown, text))


@given(TEXTS)
@example(CONTROLS + "\ud800")
def test_json_has_no_control_characters_and_the_same_value(text: str) -> None:
    value = {f"k{text}": f"ä{text}b"}
    assert escaped(json_text(value)) == json_text(value) and "ä" in json_text(value)
    assert json.loads(json_text(value)) == value
    assert json_text({"a": 1.5, "b": [object]}, default=str, indent=1).splitlines()[1] == ' "a": 1.5,'


def test_a_text_that_looks_like_a_formula_gets_an_apostrophe_and_a_number_stays_one() -> None:
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"):
        assert csv_cell(text) == f"'{text}" and from_csv_cell(csv_cell(text)) == text
    for value in (-1, -1.5, None, True, "", "a=1", "'tis", "' =1", '{"a": "=1"}'):
        assert csv_cell(value) == value and from_csv_cell(value) == value
