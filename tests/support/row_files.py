"""Files of rows, and what reading them gives."""

import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalflows.specs.errors import InputError
from evalflows.store.ingest.file_formats import read_rows

BOM = b"\xef\xbb\xbf"
ROWS = [{"a": 1, "b": "x"}, {"a": None, "b": "é\n2"}]


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(path)]


def numbers(path: Path) -> list[int]:
    return [number for number, _ in read_rows(path)]


def problem(path: str | Path) -> str:
    """Return the one-line error of reading a file, with its path replaced by FILE."""
    with pytest.raises(InputError) as caught:
        list(read_rows(path))
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text.replace(str(path), "FILE")


def as_parquet(*content: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([*content]), sink)
    return sink.getvalue()
