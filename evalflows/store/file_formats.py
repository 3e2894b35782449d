"""Read numbered rows from a file in any supported format; JSON and JSONL strictly, with the position in every error
message.
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
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evalflows.specs.errors import InputError
from evalflows.specs.files import check_regular, located, unique_object


def read_lines(lines: Iterable[bytes], where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of JSONL with their line numbers, from 1. Empty lines are skipped.

    Raises InputError, in one line, if a line is not a JSON object.
    """
    for number, line in enumerate(lines, start=1):
        if line.removeprefix(codecs.BOM_UTF8).strip():
            row = parse_json(line, f"{where}:{number}")
            if not isinstance(row, dict):
                raise InputError(f"{where}:{number}: got {type(row).__name__}, wanted an object")
            yield number, row


def parse_json(text: bytes, where: str) -> Any:
    """Parse a JSON value. Raises InputError, in one line, if the text is not JSON (NaN is not)."""
    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=_refuse, object_pairs_hook=unique_object)
    except UnicodeDecodeError as error:
        at = f"{error.reason} at byte {error.start} of the line"
        raise InputError(f"{where}: not UTF-8: {at}; save the file as UTF-8") from error
    except RecursionError as error:
        raise InputError(f"{where}: not JSON: nested too deeply") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON: {error.msg} at {_place(error)}") from error
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from error


def _place(error: json.JSONDecodeError) -> str:
    line = f"line {error.lineno}, " if error.lineno > 1 else ""
    return f"{line}character {error.colno}"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")


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
"""Columns of a CSV file whose cells may contain JSON objects or lists."""


def read_rows(path: str | os.PathLike[str]) -> Numbered:
    """Yield the rows of a .jsonl, .json, .csv or .parquet file, optionally gzipped (.gz), with their numbers.

    `${NAME}` in the path is an environment variable. The number is the line's or else the row's, from 1.
    Raises InputError, in one line, if the file cannot be read in the format that its name implies.
    """
    where = located(path)
    reader = READERS.get(suffix(where))
    if reader is None:
        raise InputError(f"{path}: got {suffix(where) or 'no suffix'}, wanted one of {', '.join(READERS)}")
    try:
        with opened(where) as file:
            yield from reader(file, str(path))
    except OSError as error:  # gzip's own has no strerror
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, ValueError, OverflowError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def suffix(path: Path) -> str:
    """Return a file name's suffix in lower case, ignoring .gz."""
    return _without_gz(path).suffix.lower()


def stem(path: str | os.PathLike[str]) -> str:
    """Return a file's name without its suffixes."""
    return _without_gz(Path(path)).stem


def _without_gz(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path


def opened(path: Path) -> BinaryIO:
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
        self._file.close()
        super().close()


def _from_json(file: BinaryIO, where: str) -> Numbered:
    """Read a list of objects; JSONL under the name .json is read too."""
    content = file.read().removeprefix(codecs.BOM_UTF8)
    if content.lstrip()[:1] != b"[":
        yield from read_lines(io.BytesIO(content), where)
        return
    for number, row in enumerate(parse_json(content, where), start=1):
        if not isinstance(row, dict):
            raise InputError(f"{where}:{number}: got {type(row).__name__}, wanted an object")
        yield number, row


def _from_csv(file: BinaryIO, where: str) -> Numbered:
    """Read CSV. An empty cell is null. A cell of a column in STRUCTURED that starts like JSON is parsed as JSON."""
    csv.field_size_limit(LARGEST_CELL)
    delimiter = _delimiter(file)
    lines = _Lines(file)
    reader = csv.DictReader(lines, strict=True, delimiter=delimiter)
    try:
        if reader.fieldnames and len(set(reader.fieldnames)) < len(reader.fieldnames):
            raise InputError(f"{where}: got two columns of the same name: {', '.join(reader.fieldnames)}")
        for row in reader:
            if None in row or None in row.values():
                wanted = len(reader.fieldnames or ())
                raise InputError(f"{where}:{lines.read}: got {_cells(row)} cells, wanted {wanted}")
            yield lines.read, {name: _cell(name, text, where, lines.read) for name, text in row.items()}
    except csv.Error as error:
        raise InputError(f"{where}:{lines.read}: not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}:{lines.read}: not UTF-8: {error.reason} at byte {error.start} of the line; "
            "save the file as UTF-8 (in a spreadsheet: CSV UTF-8)"
        ) from error


def _delimiter(file: BinaryIO) -> str:
    """Return the one of DELIMITERS that gives the header the most columns; the comma if none gives more."""
    start = file.read(LARGEST_HEADER).removeprefix(codecs.BOM_UTF8)
    header = re.split(rb"[\r\n]", start, maxsplit=1)[0].decode("utf-8", "replace")
    file.seek(0)
    return max(DELIMITERS, key=lambda delimiter: len(next(csv.reader([header], delimiter=delimiter), [])))


_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class _Lines:
    """Iterates over a file's lines as text and counts them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.read = file, 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.read += 1
            text = line.decode("utf-8-sig" if self.read == 1 else "utf-8")
            for number, part in enumerate(_LINES.findall(text)):  # several if bare carriage returns separate them
                self.read += number > 0
                yield part


def _cells(row: dict[Any, Any]) -> int:
    return sum(text is not None for name, text in row.items() if name is not None) + len(row.get(None, ()))


def _cell(name: str, text: str, where: str, number: int) -> Any:
    if text == "":
        return None
    if name in STRUCTURED and text.lstrip()[:1] in ("{", "["):
        return parse_json(text.encode(), f"{where}:{number}: {name}")
    return text


def _from_parquet(file: BinaryIO, where: str) -> Numbered:
    number = 0
    try:
        parquet = pq.ParquetFile(file)
        names = _columns(parquet.schema_arrow, where)
        for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=names):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                number += 1
                if not _PLAIN.issuperset(map(type, row.values())):
                    row = {name: plain(value, f"{where}:{number}: {name}") for name, value in row.items()}
                yield number, row
    except (pa.ArrowException, OSError, KeyError) as error:  # KeyError: a map with a duplicate key, for example
        raise InputError(f"{where}: not Parquet: {' '.join(str(error).split())}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where}:{number + 1}: not UTF-8: {error.reason}") from error


def _columns(schema: pa.Schema, where: str) -> list[str]:
    """Return the columns except pandas' index. Raises InputError if two have the same name."""
    if len(set(schema.names)) < len(schema.names):
        raise InputError(f"{where}: got two columns of the same name: {', '.join(schema.names)}")
    pandas = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    index = {name for name in pandas.get("index_columns", ()) if isinstance(name, str) and name.startswith("__index")}
    return [name for name in schema.names if name not in index]


ROWS_AT_ONCE = 2_000
"""Rows of a Parquet file that are Python objects at a time."""

_PLAIN = frozenset({str, int, bool, type(None)})
"""Types that `plain` leaves as they are."""


def plain(value: Any, where: str) -> Any:
    """Convert a value of Arrow, pandas or numpy to JSON types. NaN, which pandas uses for missing values, is null.

    Raises InputError if JSON has no such type.
    """
    match value:
        case None | str() | bool() | int():
            return value
        case float():
            return None if value != value else value
        case datetime() | date() | time():
            return None if value != value else value.isoformat()  # NaT is missing too
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case UUID():
            return str(value)
        case timedelta():
            return value.total_seconds()
        case dict():
            return {str(name): plain(item, where) for name, item in value.items()}
        case list() | tuple():
            return [plain(item, where) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "mM":  # tolist() turns nanoseconds into integers
            value = value.astype(f"{value.dtype.kind}8[us]")
        return plain(value.tolist(), where)
    import pandas as pd  # late: few values get here

    if value is pd.NA:
        return None
    raise InputError(f"{where}: got {type(value).__name__}, wanted text, a number, a list or a mapping")


READERS: dict[str, Callable[[BinaryIO, str], Numbered]] = {
    ".jsonl": read_lines,
    ".ndjson": read_lines,
    ".json": _from_json,
    ".csv": _from_csv,
    ".parquet": _from_parquet,
}
