"""Files that could be read for ever, or unpack to far more than they hold, are refused in one line."""

import gzip
import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalflows.specs.errors import InputError
from evalflows.specs.experiment import load_experiment
from evalflows.store.file_formats import read_rows


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read_rows(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_fifo_and_a_device_are_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "rows.jsonl"
    os.mkfifo(fifo)
    assert refusal(fifo) == f"{fifo}: cannot be read: not a regular file"
    device = tmp_path / "zero.jsonl"
    device.symlink_to("/dev/zero")
    assert refusal(device) == f"{device}: cannot be read: not a regular file"
    with pytest.raises(InputError, match="cannot be read: not a regular file"):
        load_experiment(str(fifo))


def test_a_file_that_unpacks_to_far_more_than_text_does_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"inputs": "' + b"a" * (65 << 20) + b'"}\n')
    for name in ("rows.jsonl.gz", "rows.json.gz", "rows.csv.gz"):
        (path := tmp_path / name).write_bytes(packed)
        assert refusal(path).endswith("unpacks to more than 64 MB, 200 times its size")


def test_packed_files_of_text_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"inputs": "q"}\n' * 10_000))
    assert len(list(read_rows(path))) == 10_000
    table = tmp_path / "rows.parquet.gz"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"inputs": ["q"]}), sink)
    table.write_bytes(gzip.compress(sink.getvalue().to_pybytes()))
    assert list(read_rows(table)) == [(1, {"inputs": "q"})]


def test_a_time_beyond_the_calendar_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    year_20000 = int(timedelta(days=365.25 * 18_030) / timedelta(microseconds=1))
    pq.write_table(pa.table({"inputs": ["q"], "when": pa.array([year_20000], pa.timestamp("us"))}), path)
    assert refusal(path).startswith(f"{path}: cannot be read: ")


def test_a_key_that_repeats_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"inputs": {"q": 1, "q": 2}}\n')
    assert refusal(path) == f"{path}:1: not JSON: got the key 'q' twice"
