"""What a restricted DuckDB reads of the store's files are their bytes, whichever threads read them."""

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evalflows.store.read_only_files import ReadOnlyFiles, SharedFile

CONTENT = random.Random(52).randbytes(300_000)
THREADS, READS = 8, 2_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def file(path: Path) -> Iterator[SharedFile]:
    file = ReadOnlyFiles(str(path.parent)).open(f"store://{path}")
    yield file
    file.close()


def test_each_thread_reads_the_bytes_at_its_own_position(file: SharedFile) -> None:
    begin = threading.Barrier(THREADS)

    def wrong_reads(seed: int) -> int:
        draw, wrong = random.Random(seed), 0
        begin.wait()
        for _ in range(READS):
            start, size = draw.randrange(len(CONTENT) + 100), draw.randrange(5_000)
            file.seek(start)
            time.sleep(0)  # DuckDB lets other threads run here
            wrong += file.read(size) != CONTENT[start : start + size]
            wrong += file.tell() != max(start, min(start + size, len(CONTENT)))
        return wrong

    with ThreadPoolExecutor(THREADS) as threads:
        assert sum(threads.map(wrong_reads, range(THREADS))) == 0


def test_a_read_goes_on_until_all_bytes_are_there(file: SharedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, start: at_once(descriptor, min(size, 999), start))
    assert file.read(100_000) == CONTENT[:100_000]
    assert file.seek(-10, os.SEEK_END) == len(CONTENT) - 10
    assert file.read() == CONTENT[-10:]
    assert file.read(1 << 60) == b""  # a number in a damaged footer takes no memory
    assert file.seek(-5, os.SEEK_CUR) == len(CONTENT) - 5


def test_a_file_is_closed_once(path: Path) -> None:
    """A second close would close whatever has the same descriptor by then."""
    file = ReadOnlyFiles(str(path.parent)).open(str(path))
    file.close()
    others = [os.open(path, os.O_RDONLY) for _ in range(9)]
    file.close()
    del file
    for other in others:
        assert os.read(other, 1) == CONTENT[:1]
        os.close(other)
