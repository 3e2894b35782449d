"""Reading rows from a file, whatever its format, each with its number for messages."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from specs.errors import InputError
from specs.paths import located
from store.jsonl import parse_json, read_lines

Numbered = Iterator[tuple[int, dict[str, Any]]]

STRUCTURED = ("inputs", "reference_outputs", "outputs", "expected_output", "metadata", "attachments")
"""Columns of a CSV file whose cells may hold JSON objects or lists."""


def read_rows(path: str | os.PathLike[str]) -> Numbered:
    """The rows of a .jsonl, .json, .csv or .parquet file, packed with gzip (.gz) or not, with their numbers.

    `${NAME}` in the path is an environment variable. The number is that of the line, or else of the row, from 1.
    Raises InputError, in one line, for a file that cannot be read as what its name says.
    """
    where = located(path)
    reader = READERS.get(suffix(where))
    if reader is None:
        raise InputError(f"{path}: got {suffix(where) or 'no suffix'}, wanted one of {', '.join(READERS)}")
    try:
        with _opened(where) as file:
            yield from reader(file, str(path))
    except OSError as error:  # gzip's own has no strerror
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except EOFError as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def suffix(path: Path) -> str:
    """What a file's name says of its format, without .gz."""
    return _bare(path).suffix.lower()


def stem(path: str | os.PathLike[str]) -> str:
    """A file's name without what it says of its format."""
    return _bare(Path(path)).stem


def _bare(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" else path


def _opened(path: Path) -> BinaryIO:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _from_json(file: BinaryIO, where: str) -> Numbered:
    """A list of objects; a file of one object a line, under a name that says otherwise, is read too."""
    content = file.read()
    if content.lstrip()[:1] != b"[":
        yield from read_lines(io.BytesIO(content), where)
        return
    for number, row in enumerate(parse_json(content, where), start=1):
        if not isinstance(row, dict):
            raise InputError(f"{where}:{number}: got {type(row).__name__}, wanted an object")
        yield number, row


def _from_csv(file: BinaryIO, where: str) -> Numbered:
    """An empty cell is no value. A cell of a column in STRUCTURED that begins like JSON is read as JSON."""
    reader = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), strict=True)
    try:
        if reader.fieldnames and len(set(reader.fieldnames)) < len(reader.fieldnames):
            raise InputError(f"{where}: two columns have the same name, got {', '.join(reader.fieldnames)}")
        for row in reader:
            if None in row or None in row.values():
                raise InputError(
                    f"{where}:{reader.line_num}: got {_cells(row)} cells, wanted {len(reader.fieldnames or ())}"
                )
            yield reader.line_num, {name: _cell(name, text, where, reader.line_num) for name, text in row.items()}
    except csv.Error as error:
        raise InputError(f"{where}:{reader.line_num}: not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8: {error.reason} at byte {error.start}") from error


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
        for batch in pq.ParquetFile(file).iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield number, {name: _plain(value, f"{where}:{number}: {name}") for name, value in row.items()}
    except pa.ArrowException as error:
        raise InputError(f"{where}: not Parquet: {' '.join(str(error).split())}") from error


def _plain(value: Any, where: str) -> Any:
    """A value of Arrow's as JSON has it. NaN, as pandas writes for what is missing, is no value."""
    match value:
        case float():
            return None if value != value else value
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return float(value)
        case dict():
            return {name: _plain(one, where) for name, one in value.items()}
        case list():
            return [_plain(one, where) for one in value]
        case bytes():
            raise InputError(f"{where}: got bytes, wanted text, a number, a list or a mapping")
    return value


READERS: dict[str, Callable[[BinaryIO, str], Numbered]] = {
    ".jsonl": read_lines,
    ".ndjson": read_lines,
    ".json": _from_json,
    ".csv": _from_csv,
    ".parquet": _from_parquet,
}
