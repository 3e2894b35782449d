"""Texts made harmless where they are shown: on a terminal, in JSON, in CSV."""

import csv
import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

_SPOOFING = "\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
"""Line and paragraph separators, embeddings, overrides and isolates of direction, surrogates, which cannot be encoded,
and two characters that XML forbids."""

_MARKS = "\u061c\u200e\u200f"
"""Invisible marks of direction: ordinary in Arabic and Hebrew texts beside Latin, without a place in names."""

_ACTIVE = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_SPOOFING}]")
_ACTIVE_OR_BREAK = re.compile(rf"[\x00-\x1f\x7f-\x9f{_MARKS}{_SPOOFING}]")
_ACTIVE_IN_JSON = re.compile(rf"[\x7f-\x9f{_SPOOFING}]")  # json.dumps escapes the others

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The characters with which a cell begins that a spreadsheet may take for a formula."""


def escaped(text: str) -> str:
    r"""Show control characters as escapes such as `\x1b`: C0 except newline and tab, DEL, C1, bidi, U+2028 and U+2029.

    A terminal obeys such characters: they move the cursor, change colours, or reorder the text around them. Marks of
    direction stay.
    """
    return _ACTIVE.sub(_escape, text)


def one_line(text: str) -> str:
    """Show newlines, tabs and marks of direction as escapes too: a text cannot pretend to be a line of its own."""
    return _ACTIVE_OR_BREAK.sub(_escape, text)


def print_note(message: str) -> None:
    """Print a message of evalflows on standard error, as one line."""
    print(one_line(f"evalflows: {message}"), file=sys.stderr, flush=True)


def joined(text: str) -> str:
    """Put a text of several lines on one, with a space for every run of spaces, tabs and line ends."""
    return re.sub(r"[ \t\r\n]+", " ", text).strip(" ")


def last_line(text: str, limit: int = 400) -> str:
    """Return the last line of a process's output that is not blank, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:limit] if lines else "no output"


def json_text(value: Any, **options: Any) -> str:
    r"""Format a value as JSON like `json.dumps`, keeping letters, but with active characters as `\uXXXX`."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return _ACTIVE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csv_cell(value: Any) -> Any:
    """Return a cell for CSV: a text that a spreadsheet may take for a formula gets a leading apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def write_csv(file: TextIO, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a table as CSV; texts that a spreadsheet may take for formulas get a leading apostrophe."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(csv_cell, columns))
    writer.writerows(map(csv_cell, row) for row in rows)


def from_csv_cell(value: Any) -> Any:
    """Return the value that `csv_cell` has turned into this cell."""
    is_marked = isinstance(value, str) and value.startswith("'") and value[1:].startswith(FORMULA)
    return value[1:] if is_marked else value


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    named = {9: "\\t", 10: "\\n"}
    return named.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
