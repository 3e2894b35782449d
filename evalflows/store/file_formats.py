"""Read numbered rows from a file in any supported format, with the position in every error message.

JSON may be a list, lines, one object, columns, or rows by id or under one name. Rows without any value are skipped and
counted in a note.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.files import check_regular, located, unique_object
from evalflows.specs.frozen import dataclass
from evalflows.specs.values import is_blank, stored_row
from evalflows.store.arrow import pa, pc, pq
from evalflows.store.stop import Stop, StoppedError

Numbered = Iterator[tuple[int, dict[str, Any]]]

MAX_UNPACKED, MAX_RATIO = 64 << 20, 200
"""Bytes that any gzipped file may unpack to, and how many times its own size a larger one may."""

LARGEST_CELL = 1 << 30
"""In characters: a cell may be a whole document."""

DELIMITERS = ",;\t|"
"""What may separate the cells of a CSV file, the first by default."""

LARGEST_HEADER = 1 << 16
"""In bytes: as much of a CSV file is read to find its delimiter."""

STRUCTURED = ("inputs", "reference_outputs", "outputs", "expected_output", "metadata", "attachments")
"""Columns of a CSV file whose cells are JSON if all of them are objects or lists."""

_UTF_16 = re.compile(rb"(?:[^\0]\0)+[^\0]?|(?:\0[^\0])+\0?")

_BLANKS = re.compile(r"[ \t\r\n]*")

_ROWS = re.compile(
    r"(test_?)?(rows?|data|dataset|examples?|items|records|samples|cases|tests|questions|entries|results)"
)

_LIKE_JSON = re.compile(r"""\s*(?:\{\s*["'}]|\[\s*["'{\]])""")
"""What JSON begins with, and Python's literals in its place, and text hardly ever."""

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

ROWS_AT_ONCE = 2_000
"""Rows of a Parquet file that are Python objects at a time."""

SENT_ROWS, SENT_COLUMNS, SENT_CELLS = 200_000, 1_000, 2_000_000
"""Most rows, columns, and cells or values of a file that was sent."""
SENT_UNPACKED = 256 << 20
"""Bytes that a Parquet file which was sent may unpack to."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A file that was sent: read within limits, and until nobody waits for it. A small one may stand for much."""

    name: str
    stop: Stop

    def check(self, rows: int, columns: int, cells: int) -> None:
        """Raise InputError for more than allowed, and StoppedError if nobody waits any more."""
        if rows > SENT_ROWS or columns > SENT_COLUMNS or cells > SENT_CELLS:
            most = f"{SENT_ROWS:,} rows, {SENT_COLUMNS:,} columns and {SENT_CELLS:,} values"
            raise InputError(f"{self.name}: got too much, wanted at most {most}")
        if self.stop.is_set():
            raise StoppedError

    def rows(self, rows: Numbered) -> Numbered:
        """Yield rows as long as they are within the limits."""
        cells = 0
        for count, (number, row) in enumerate(rows, start=1):
            cells += len(row)
            self.check(count, len(row), cells)
            yield number, row

    def parquet(self, file: BinaryIO) -> pq.ParquetFile:
        """Open a Parquet file within what its footer says; a text that its cells repeat is read once."""
        footer = pq.read_metadata(file)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(footer.num_columns)]
        self.check(footer.num_rows, footer.num_columns, sum(chunk.num_values for chunk in chunks))
        self.check_unpacked(sum(group.total_byte_size for group in groups))
        return pq.ParquetFile(file, read_dictionary=sorted({chunk.path_in_schema for chunk in chunks}))

    def check_unpacked(self, size: int) -> None:
        if size > SENT_UNPACKED:
            raise InputError(f"{self.name}: got more than {SENT_UNPACKED >> 20} MB unpacked, wanted at most that")


def read_rows(path: str | os.PathLike[str]) -> Numbered:
    """Yield the rows of a .jsonl, .json, .csv or .parquet file, optionally gzipped (.gz), with their numbers.

    `${NAME}` in the path is an environment variable. The number is the line's or else the row's, from 1.
    Raise InputError, in one line, if the file cannot be read in the format that its name implies.
    """
    where = located(path)
    if suffix(where) not in READERS:
        raise InputError(f"{path}: got {suffix(where) or 'no suffix'}, wanted one of {', '.join(READERS)}")
    try:
        with open_file(where) as file:
            yield from rows_of(file, suffix(where), str(path))
    except OSError as error:  # gzip's own has no strerror
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, ValueError, OverflowError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def rows_in(content: bytes, name: str, stop: Stop) -> Numbered:
    """Yield the rows of a file that was sent, with their numbers, as `read_rows` does; its name tells the format.

    Raise StoppedError once nobody waits for them.
    """
    if (ending := Path(name).suffix.lower()) not in READERS:
        raise InputError(f"{name}: got {ending or 'no suffix'}, wanted one of {', '.join(READERS)}")
    sent = Sent(name, stop)
    if ending not in (".parquet", ".csv"):
        sent.check(0, 0, sum(map(content.count, (b",", b"[", b"{"))) // 2)  # before they are objects
    try:
        yield from rows_of(io.BytesIO(content), ending, name, sent)
    except (EOFError, ValueError, OverflowError) as error:
        raise InputError(f"{name}: cannot be read: {error}") from error


def rows_of(file: BinaryIO, ending: str, where: str, sent: Sent | None = None) -> Numbered:
    """Yield the rows of an open file with their numbers, as `read_rows` does. `ending` is a key of READERS."""
    text = file if ending == ".parquet" else in_utf8(file, where)
    rows = READERS[ending](text, where, sent)
    return filled_rows(rows if sent is None else sent.rows(rows), where)


def filled_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], where: str) -> Numbered:
    """Yield the rows that have a value; print a note if there are others."""
    blank, first = 0, 0
    for number, row in rows:
        if not all(map(is_blank, row.values())):
            yield number, dict(row)
            continue
        blank, first = blank + 1, first or number
    if blank:
        print_note(f"{where}: skipped {blank} blank {'row' if blank == 1 else 'rows'}, the first at {first}")


def in_utf8(file: BinaryIO, where: str) -> BinaryIO:
    """Return a file of text as UTF-8: UTF-16 and UTF-32, as spreadsheets save text, are converted."""
    start = file.read(8)
    file.seek(0)
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        encoding = "utf-32"
    elif start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif len(start) > 1 and _UTF_16.fullmatch(start):
        encoding = "utf-16-be" if start[0] == 0 else "utf-16-le"
    else:
        return file
    try:
        return io.BytesIO(file.read().decode(encoding).encode())
    except UnicodeError as error:
        raise InputError(f"{where}: not {encoding.upper()}, as its first bytes say: {error}") from error


def _not_utf8(error: UnicodeDecodeError, where: str, *, lines: bool = False) -> InputError:
    """Return the error of a text that is not UTF-8, with the encoding that spreadsheets save if it may be that one.

    With `lines`, it names the line. A guess at other encodings is wrong too often for a text of one line.
    """
    content, start = error.object, error.start
    begin = content.rfind(b"\n", 0, start) + 1
    place = f"{where}:{content.count(bytes([10]), 0, start) + 1}" if lines else where
    try:
        content[begin : start + 1].decode("cp1252")
        perhaps = ", perhaps Windows-1252 or Latin-1"
    except UnicodeDecodeError:
        perhaps = ""
    at = f"{error.reason} at byte {start - begin} of the line"
    return InputError(f"{place}: not UTF-8{perhaps}: {at}; save the file as UTF-8 (in a spreadsheet: CSV UTF-8)")


def suffix(path: Path) -> str:
    """Return a file name's suffix in lower case, ignoring .gz."""
    return _without_gz(path).suffix.lower()


def stem(path: str | os.PathLike[str]) -> str:
    """Return a file's name without its suffixes."""
    return _without_gz(Path(path)).stem


def _without_gz(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path


def open_file(path: Path) -> BinaryIO:
    """Open a file, unpacking it if its name ends in .gz. Reading raises ValueError if it unpacks to far too much."""
    check_regular(path)
    if path.suffix != ".gz":
        return path.open("rb")
    return io.BufferedReader(_Unpacked(path))


class _Unpacked(io.RawIOBase):
    """A gzipped file. Raise ValueError if it unpacks to far more than text does."""

    def __init__(self, path: Path) -> None:
        self._file = gzip.GzipFile(path)
        self._most = max(MAX_UNPACKED, MAX_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        if self._file.tell() > self._most:
            raise ValueError(f"unpacks to more than {self._most >> 20:,} MB, {MAX_RATIO} times its size")
        return count

    def close(self) -> None:
        if hasattr(self, "_file"):  # else it could not be opened
            self._file.close()
        super().close()


def read_lines(lines: Iterable[bytes], where: str) -> Numbered:
    """Yield the objects of JSONL with their line numbers, from 1. Empty lines are skipped.

    Raise InputError, in one line, if a line is not a JSON object.
    """
    for number, line in enumerate(lines, start=1):
        if line.removeprefix(codecs.BOM_UTF8).strip():
            yield number, _object(parse_json(line, f"{where}:{number}"), f"{where}:{number}")


def parse_json(text: bytes, where: str) -> Any:
    """Parse a JSON value. NaN, which Python and pandas write for missing values, is null.

    Raise InputError, in one line, if the text is not JSON (Infinity is not).
    """
    values = _values(text, where)
    if len(values) == 1:
        return values[0]
    raise InputError(f"{where}: not JSON: got {len(values) or 'no'} values, wanted one")


def _values(content: bytes, where: str, *, lines: bool = False) -> list[Any]:
    """Return the JSON values that a text consists of, one after the other. With `lines`, errors name the line."""
    values: list[Any] = []
    try:
        text = content.decode("utf-8-sig")
        at = _BLANKS.match(text, 0).end()  # type: ignore[union-attr]  # it matches nothing, too
        while at < len(text):
            value, at = _DECODER.raw_decode(text, at)
            values.append(value)
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
    except UnicodeDecodeError as error:
        raise _not_utf8(error, where, lines=lines) from error
    except RecursionError as error:
        raise InputError(f"{where}: not JSON: nested too deeply") from error
    except json.JSONDecodeError as error:
        place = f"{where}:{error.lineno}" if lines else where
        line = f"line {error.lineno}, " if error.lineno > 1 and not lines else ""
        what = error.msg.removesuffix(" at")
        raise InputError(f"{place}: not JSON: {what} at {line}character {error.colno}") from error
    except ValueError as error:  # of what JSON has, but we refuse
        place = f"{where}:{text.count(chr(10), 0, _refused_at(text, at)) + 1}" if lines else where
        raise InputError(f"{place}: not JSON: {error}") from error
    return values


def _refused_at(text: str, at: int) -> int:
    """Return where the value that the decoder refuses begins, or its element if it is a list."""
    try:
        while text[at] in "[,":
            start = _BLANKS.match(text, at + 1).end()  # type: ignore[union-attr]
            at = _BLANKS.match(text, _DECODER.raw_decode(text, start)[1]).end()  # type: ignore[union-attr]
    except ValueError:
        return start
    return at


def _constant(constant: str) -> None:
    if constant != "NaN":
        raise ValueError(f"{constant} is not a JSON value")


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_float, object_pairs_hook=unique_object)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: got {type(value).__name__}, wanted an object")
    return value


def _from_jsonl(file: BinaryIO, where: str, sent: Sent | None = None) -> Numbered:
    """Read JSONL; a JSON document under its name, in one line or several, is read too."""
    first = [line.strip() for line in _first_lines(file)]
    is_document = first[:1] in ([b"{"], [b"["], [b"[{"]) or (len(first) == 1 and first[0].startswith(b"["))
    return _from_json(file, where) if is_document else read_lines(file, where)


def _from_json(file: BinaryIO, where: str, sent: Sent | None = None) -> Numbered:
    """Read a JSON document; JSONL, or objects one after the other, are read too."""
    first = _first_lines(file)
    if len(first) == 2 and _is_object(first[0]):
        yield from read_lines(file, where)
        return
    values = _values(file.read(), where, lines=True)
    rows = document_rows(values[0], where) if len(values) == 1 else values
    for number, row in enumerate(rows, start=1):
        yield number, _object(row, f"{where}:{number}")


def _first_lines(file: BinaryIO) -> list[bytes]:
    """Return the first two lines that are not blank, and seek the file's start."""
    first = [*islice((line for line in file if line.removeprefix(codecs.BOM_UTF8).strip()), 2)]
    file.seek(0)
    return first


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line, ""), dict)
    except InputError:
        return False


def document_rows(document: Any, where: str) -> Iterable[Any]:
    """Return the rows of a JSON document: a list, or an object that is a table, or else one row.

    Tables are {"rows": [{…}, …]} (whatever the name, beside scalars), columns {"question": [a, b]} and what pandas
    writes, and rows by id {"q1": {…}, "q2": {…}}. Raise InputError for columns of different lengths.
    """
    if not isinstance(document, dict):
        return document if isinstance(document, list) else [document]
    values = list(document.values())
    lists = [value for value in values if isinstance(value, list)]
    if len(lists) == 1 and _are_rows(lists[0]) and _names_rows(document):
        return lists[0]
    if {"columns", "data"} <= document.keys() <= {"columns", "index", "data"}:  # orient="split" of pandas
        return [dict(zip(document["columns"], cells, strict=True)) for cells in document["data"]]
    if lists and len(lists) == len(values) and not any(map(_is_conversation, lists)):
        if len(lengths := sorted({len(value) for value in lists})) > 1:
            raise InputError(f"{where}: got columns of {lengths[0]} and {lengths[-1]} values, wanted as many in each")
        return [dict(zip(document, cells, strict=True)) for cells in zip(*lists, strict=True)]
    mappings = [value for value in values if isinstance(value, dict) and value]
    if not mappings or len(mappings) < len(values):
        return [document]
    keys = [*mappings[0]]
    if all({*value} == {*keys} for value in mappings) and all(re.fullmatch(r"\d+", key) for key in keys):
        return [{name: column[key] for name, column in document.items()} for key in keys]  # pandas' default
    if len(values) > 1 and not document.keys() & {*STRUCTURED, "input"} and {*keys}.intersection(*mappings):
        return [{"id": identity, **row} for identity, row in document.items()]
    return [document]


def _names_rows(document: Mapping[str, Any]) -> bool:
    """Return whether the only list in an object is named as rows are, or the object has nothing else."""
    return len(document) == 1 or any(
        isinstance(value, list) and _ROWS.fullmatch(name.lower()) for name, value in document.items()
    )


def _are_rows(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values) and not _is_conversation(values)


def _is_conversation(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) and "role" in value for value in values)


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a CSV file is written."""

    delimiter: str
    skipped: int  # lines before the header
    padded: bool  # whether a blank follows each delimiter


def _from_csv(file: BinaryIO, where: str, sent: Sent | None) -> Numbered:
    """Read CSV. An empty cell is null. The cells of a column in STRUCTURED are JSON if all of them are."""
    csv.field_size_limit(LARGEST_CELL)
    layout = _layout(file)
    cells = _cells(file, layout, where)
    structured = _json_columns(cells if sent is None else sent.rows(cells), where)
    file.seek(0)
    noted = set[str]()
    for number, row in _cells(file, layout, where):
        for name in STRUCTURED:
            text = row.get(name)
            if text is None or text.lstrip()[:1] not in ("{", "["):
                continue
            if name in structured:
                row[name] = parse_json(text.encode(), f"{where}:{number}: {name}")
            elif name not in noted and _json_problem(text, where) is None:
                noted.add(name)
                print_note(f"{where}: {name}: read as text, since not all of its cells are JSON")
        yield number, row


def _layout(file: BinaryIO) -> _Layout:
    """Return how a CSV file is written, by its first line: `sep=;`, or the header.

    The delimiter is the one of DELIMITERS that gives the header the most columns; the comma if none gives more.
    """
    start = file.read(LARGEST_HEADER).removeprefix(codecs.BOM_UTF8)
    file.seek(0)
    first = re.split(rb"[\r\n]", start, maxsplit=1)[0].decode("utf-8", "replace")
    if said := re.fullmatch(r'"?sep=(.)"?[,;\s]*', first, re.IGNORECASE):
        return _Layout(said[1], 1, padded=False)
    headers = {delimiter: next(csv.reader([first], delimiter=delimiter), []) for delimiter in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda delimiter: len(headers[delimiter]))
    others = headers[delimiter][1:]
    return _Layout(delimiter, 0, padded=bool(others) and all(name.startswith(" ") for name in others))


def _cells(file: BinaryIO, layout: _Layout, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the cells of each row by column, null if empty, with the number of the row's last line.

    Raise InputError for cells beyond the header, or in a column without a name; an index that pandas wrote is left out.
    """
    lines = _Lines(file)
    reader = csv.reader(lines, strict=True, delimiter=layout.delimiter, skipinitialspace=layout.padded)
    names: list[str] = []
    try:
        for cells in islice(reader, layout.skipped, None):
            if not names:
                names = _header(cells, where)
                continue
            if not cells and len(names) > 1:  # an empty line
                continue
            rest = cells[len(names) :]
            if any(map(str.strip, rest)) or (len(cells) < len(names) and any(map(str.strip, cells))):
                raise InputError(f"{where}:{lines.read}: got {len(cells)} cells, wanted {len(names)}")
            row = dict(zip_longest(names, [cell or None for cell in cells[: len(names)]]))
            if row.pop("", None) is not None:
                _check_unnamed(names, cells, f"{where}:{lines.read}")
            yield lines.read, row
    except csv.Error as error:
        raise InputError(f"{where}:{lines.read}: not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise _not_utf8(error, f"{where}:{lines.read}") from error


def _header(cells: Sequence[str], where: str) -> list[str]:
    """Return the columns' names, without empty ones at the end; none for a blank row.

    Raise InputError if two are the same.
    """
    names = [cell.strip() for cell in cells]
    while names and not names[-1]:
        names.pop()
    if len({*names} - {""}) < sum(map(bool, names)):
        raise InputError(f"{where}: got two columns of the same name: {', '.join(names)}")
    return names


def _check_unnamed(names: Sequence[str], cells: Sequence[str], where: str) -> None:
    """Raise InputError for a cell in a column without a name, except whole numbers in the first: an index of pandas."""
    for index, (name, cell) in enumerate(zip(names, cells, strict=False)):
        if not name and cell.strip() and (index or not re.fullmatch(r"\d+", cell)):
            raise InputError(f"{where}: got a cell in column {index + 1}, which has no name in the header")


def _json_columns(rows: Numbered, where: str) -> set[str]:
    """Return the columns in STRUCTURED whose cells are all JSON objects or lists.

    Raise InputError if all cells of a column look like them and one is not.
    """
    candidates: dict[str, InputError | None] = {}
    for count, (number, row) in enumerate(rows):
        if not count:
            candidates = {name: None for name in STRUCTURED if name in row}
        for name in [*candidates]:
            text = row[name]
            if is_blank(text) or not (problem := _json_problem(text, f"{where}:{number}: {name}")):
                continue
            if _LIKE_JSON.match(text):
                candidates[name] = candidates[name] or problem
            else:
                del candidates[name]
        if not candidates:
            break
    for error in candidates.values():
        if error is not None:
            raise error
    return {*candidates}


def _json_problem(text: str, where: str) -> InputError | None:
    """Return why a text is not a JSON object or list; None if it is one."""
    try:
        value = parse_json(text.encode(), where) if text.lstrip()[:1] in ("{", "[") else None
    except InputError as error:
        return error
    return None if isinstance(value, dict | list) else InputError(f"{where}: not a JSON object or list")


class _Lines:
    """Iterates over a file's lines as text and counts them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.read = file, 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.read += 1
            text = line.decode("utf-8-sig" if self.read == 1 else "utf-8")
            for number, piece in enumerate(_LINES.findall(text)):  # several if bare carriage returns separate them
                self.read += number > 0
                yield piece


def _from_parquet(file: BinaryIO, where: str, sent: Sent | None) -> Numbered:
    number, unpacked = 0, 0
    try:
        parquet = pq.ParquetFile(file) if sent is None else sent.parquet(file)
        names = _columns(parquet.schema_arrow, where)
        for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=names):
            if sent is not None:
                unpacked += sum(map(_unpacked, batch.columns))
                sent.check_unpacked(unpacked)
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                number += 1
                yield number, stored_row(row, f"{where}:{number}")
    except (pa.ArrowException, OSError, KeyError) as error:  # KeyError: a map with a duplicate key, for example
        raise InputError(f"{where}: not Parquet: {' '.join(str(error).split())}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where}:{number + 1}: not UTF-8: {error.reason}") from error


def _unpacked(values: pa.Array) -> int:
    """Return the bytes of values once each that repeats a text has it as its own."""
    if pa.types.is_dictionary(values.type) and not pa.types.is_primitive(values.type.value_type):
        return pc.sum(pc.binary_length(values.dictionary).take(values.indices)).as_py() or 0
    if pa.types.is_struct(values.type):
        return sum(map(_unpacked, values.flatten()))
    if pa.types.is_fixed_size_list(values.type):
        return _unpacked(values.flatten())
    if pa.types.is_nested(values.type):  # a list or a map
        return _unpacked(values.values[values.offsets[0].as_py() : values.offsets[-1].as_py()])
    return int(values.nbytes)


def _columns(schema: pa.Schema, where: str) -> list[str]:
    """Return the columns except pandas' index. Raise InputError if two have the same name."""
    if len(set(schema.names)) < len(schema.names):
        raise InputError(f"{where}: got two columns of the same name: {', '.join(schema.names)}")
    pandas = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    index = {name for name in pandas.get("index_columns", ()) if isinstance(name, str) and name.startswith("__index")}
    return [name for name in schema.names if name not in index]


READERS: dict[str, Callable[[BinaryIO, str, Sent | None], Numbered]] = {
    ".jsonl": _from_jsonl,
    ".ndjson": _from_jsonl,
    ".json": _from_json,
    ".csv": _from_csv,
    ".parquet": _from_parquet,
}
