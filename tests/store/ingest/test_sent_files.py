"""Files that were sent are read within limits, since a small one may stand for much, and until their client goes."""

import io
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalflows.specs.errors import InputError
from evalflows.store import file_formats
from evalflows.store.file_formats import rows_in, rows_of
from evalflows.store.stop import Stop, StoppedError

TEXT, N = "x" * 2000, 400


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in {"ROWS": 500, "COLUMNS": 50, "CELLS": 2000, "UNPACKED": 100_000}.items():
        monkeypatch.setattr(file_formats, f"SENT_{name}", most)


def parquet(**columns: pa.Array) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue()


def csv(n_columns: int, row: str, n_rows: int) -> bytes:
    return f"inputs,{','.join(f'c{number}' for number in range(n_columns))}\n{row * n_rows}".encode()


MUCH: Mapping[str, bytes] = {
    "runs of one value.parquet": parquet(inputs=pa.array([1] * 1_000_000)),
    "values of one cell.parquet": parquet(inputs=pa.array([[1] * 1_000_000])),
    "columns.parquet": parquet(**{f"c{number}": pa.array([1]) for number in range(51)}),
    "a text of every row.parquet": parquet(inputs=pa.array([TEXT] * N)),
    "a category of every row.parquet": parquet(inputs=pa.array([TEXT] * N).dictionary_encode()),
    "a text within a cell.parquet": parquet(inputs=pa.array([{"a": [{"b": TEXT}] * N}])),
    "a long text.parquet": parquet(inputs=pa.array([TEXT * N])),
    "columns.csv": csv(51, f"q{',' * 51}\n", 1),
    "blank cells.csv": csv(49, ",\n", 41),  # read before the first row, to see whether cells are JSON
    "rows.csv": b"inputs\n" + b"q\n" * 501,
    "rows.jsonl": b'{"inputs": "q"}\n' * 501,
    "rows.json": b'[{"inputs": 1}' + b',{"inputs": 1}' * 500 + b"]",
    "values of one cell.json": b'[{"inputs": [' + b"[]," * 2001 + b"0]}]",
}


@pytest.mark.parametrize("name", MUCH)
def test_a_file_that_stands_for_too_much_is_refused_in_one_line(name: str) -> None:
    assert len(MUCH[name]) < 30_000
    with pytest.raises(InputError, match=rf"^{name}: got (too much|more than)") as caught:
        [*rows_in(MUCH[name], name, Stop())]
    assert "\n" not in str(caught.value)


def test_columns_that_repeat_texts_are_read_as_they_are() -> None:
    texts = pa.array(["a", "b", "a", None])
    content = parquet(
        inputs=texts,
        category=texts.dictionary_encode(),
        listed=pa.array([["a", "a"], [], None, ["b"]]),
        nested=pa.array([{"a": [{"b": "x"}], "n": 1.5}] * 4),
        mapped=pa.array([[("a", "x")], [], None, [("b", "x")]], pa.map_(pa.string(), pa.string())),
        pairs=pa.array([["x", "y"]] * 4, pa.list_(pa.string(), 2)),
    )
    wanted = [*rows_of(io.BytesIO(content), ".parquet", "rows.parquet")]
    assert [*rows_in(content, "rows.parquet", Stop())] == wanted and len(wanted) == 4


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_nothing_more_is_read_once_the_client_has_gone(name: str) -> None:
    rows = {"rows.csv": b"inputs\nq\nq\n", "rows.jsonl": b'{"inputs": 1}\n' * 2}
    stop = Stop()
    reading = rows_in(rows.get(name) or parquet(inputs=pa.array([1, 2])), name, stop)
    next(reading)
    stop.set()
    with pytest.raises(StoppedError):
        next(reading)
