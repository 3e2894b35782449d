"""The records of an exported file, one after the other: a line, an element of a JSON list, or a row of a table.

What cannot be read costs only itself: of a truncated file, all records before the cut are kept.
"""

import codecs
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO

import orjson

from evalflows.specs.errors import InputError
from evalflows.specs.paths import located
from evalflows.store.ingest.file_formats import opened, read_rows, suffix

MAX_LINE = 64 << 20
"""Bytes of the longest line that is read, so that one line cannot take all memory."""
MAX_DOCUMENT = 1 << 30
"""Bytes of the largest file that is a single JSON document."""
TABLES = (".csv", ".parquet")
LISTS = ("data", "traces", "observations", "scores", "runs", "feedback")
"""Fields in which an answer of an API holds its records."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its place, or why it cannot be read."""

    place: str  # such as `line 3`
    value: Any = None
    problem: str | None = None


def read_records(path: str) -> Iterator[Record]:
    """Yield the records of a file: JSON lines, a JSON document, CSV or Parquet, also gzipped (.gz).

    Raise InputError, in one line, if there is nothing in it that can be read at all.
    """
    where = located(path)
    if suffix(where) in TABLES:
        yield from _of_table(path)
        return
    try:
        with opened(where) as file:
            yield from _of_json(file, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, ValueError, zlib.error) as error:  # of gzip: a truncated file, a bomb
        raise InputError(f"{path}: cannot be read: {error}") from error


def _of_table(path: str) -> Iterator[Record]:
    rows = read_rows(path)
    for number, row in rows:
        yield Record(f"row {number}", {name: value for name, value in row.items() if value is not None})


def _of_json(file: BinaryIO, path: str) -> Iterator[Record]:
    lines = _lines(file)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: is empty, wanted at least one record")
    _, line = first
    if line is not None and not _is_text(line):
        raise InputError(f"{path}: is no text, wanted JSON lines, JSON, CSV or Parquet (.gz if it is gzipped)")
    if line is None or (value := _parsed(line)) is not None:
        if line is not None and isinstance(value, list):
            yield from _elements(line, path)
        else:
            yield from _of_lines(chain([first], lines))
    else:
        yield from _of_document(file, chain([first], lines), path)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines that are not blank with their numbers, from 1; None for a line that is too long."""
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        elif (bare := line.removeprefix(codecs.BOM_UTF8)).strip():
            yield number, bare


def _is_text(line: bytes) -> bool:
    try:
        line[:4096].decode()
    except UnicodeDecodeError as error:
        return error.start > 4090  # a character that the slice cuts
    return b"\0" not in line[:4096]


def _parsed(line: bytes) -> Any:
    """Return the value of a line; None if it is no JSON value of its own."""
    try:
        return _value(line)
    except (ValueError, RecursionError):
        return None


def _value(line: bytes) -> Any:
    """Return the value of a line. Raise ValueError or RecursionError if it is not JSON.

    Half a character (`"\\ud83d"`, of truncated text) and NaN are read too: the one is mended later, the other missing.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line.decode(), parse_constant=lambda constant: None)


def _of_lines(lines: Iterator[tuple[int, bytes | None]]) -> Iterator[Record]:
    for number, line in lines:
        place = f"line {number}"
        if line is None:
            yield Record(place, problem=f"longer than {MAX_LINE >> 20} MB, wanted shorter lines")
            continue
        try:
            value = _value(line)
        except (ValueError, RecursionError) as error:
            cut = "" if line.endswith(b"\n") else "; the file ends in the middle of it"
            yield Record(place, problem=f"not JSON: {_reason(error)}{cut}")
            continue
        yield from _unfolded(value, place)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else "nested too deeply"


def _unfolded(value: Any, place: str) -> Iterator[Record]:
    """Yield the records of an answer of an API, or the record itself."""
    if isinstance(value, dict) and value.keys() <= {*LISTS, "meta", "cursors"}:
        for name in LISTS:
            listed = value.get(name)
            for number, item in enumerate(listed if isinstance(listed, list) else (), start=1):
                yield Record(f"{place}, {name} {number}", item)
    else:
        yield Record(place, value)


def _of_document(file: BinaryIO, lines: Iterator[tuple[int, bytes | None]], path: str) -> Iterator[Record]:
    """Yield the records of one JSON document over several lines, or of lines of which the first is broken."""
    first, second = next(lines), next(lines, (0, b""))
    start = (first[1] or b"").lstrip()[:1]
    if start not in (b"[", b"{") or second[1] is None or isinstance(_parsed(second[1]), dict):
        yield from _of_lines(chain([first, second] if second[0] else [first], lines))
        return
    text = (first[1] or b"") + second[1] + file.read(MAX_DOCUMENT)
    if len(text) > MAX_DOCUMENT:
        raise InputError(f"{path}: a JSON document of more than {MAX_DOCUMENT >> 30} GB, wanted JSON lines")
    if start == b"[":
        yield from _elements(text, path)
        return
    try:
        yield from _unfolded(_value(text), "the document")
    except (ValueError, RecursionError) as error:
        if not any(isinstance(_parsed(line), dict) for line in text.splitlines()[2:]):
            raise InputError(f"{path}: not JSON: {_reason(error)}") from error
        yield from _of_lines(_lines(io.BytesIO(text)))


def _elements(text: bytes, path: str) -> Iterator[Record]:
    """Yield the elements of a list, one at a time; of a truncated list, those before the cut."""
    try:
        content = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    decoder = json.JSONDecoder(parse_constant=lambda constant: None)  # NaN, which JSON lacks, is missing
    position, number = content.index("[") + 1, 0
    while True:
        position = _past(content, position, ", \t\r\n")
        if content[position : position + 1] == "]":
            return
        number += 1
        try:
            value, position = decoder.raw_decode(content, position)
        except (json.JSONDecodeError, RecursionError) as error:
            text_of = getattr(error, "msg", "nested too deeply")
            yield Record(f"element {number}", problem=f"not JSON: {text_of}; nothing after it can be read")
            return
        yield Record(f"element {number}", value)


def _past(content: str, position: int, skipped: str) -> int:
    while position < len(content) and content[position] in skipped:
        position += 1
    return position
