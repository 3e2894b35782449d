"""The disk fails at each write of a small run in turn: one line says so, and the same start then completes it.

A write is a row of the spool, or a file of the store or its manifest.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from endpoint import Endpoint, serving

from evalflows import run
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import InputError, StorageError
from evalflows.store import connect, files, spool

pytestmark = pytest.mark.usefixtures("prefect_api")

ITEMS, IN_FLIGHT, TOTAL = 4, 2, 8


class Disk:
    """A disk on which every write from number `first_failed` on fails, counted from 0."""

    def __init__(self, first_failed: int, error: int) -> None:
        self.first_failed, self.error, self.writes = first_failed, error, 0

    def write(self) -> None:
        self.writes += 1
        if self.writes > self.first_failed:
            raise OSError(self.error, os.strerror(self.error))


class _Spool:
    """A spool file on the disk. The room that is tried at the start does not count as a row."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: Any) -> int:
        if bytes(data[:1]) != b"\0":
            self._disk.write()
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def failing(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    locked, durably = spool.create_locked, files.stage_durably

    def counted_durably(target: Any, write: Callable[[Any], Any], mode: int) -> Any:
        def counted(file: Any) -> Any:
            disk.write()
            return write(file)

        return durably(target, counted, mode)

    with monkeypatch.context() as patch:
        patch.setattr(spool, "create_locked", lambda path: _Spool(locked(path), disk))
        patch.setattr(files, "stage_durably", counted_durably)
        yield


def spec_of(endpoint: Endpoint, key: str) -> ExperimentSpec:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "max_in_flight": IN_FLIGHT}
    return ExperimentSpec.model_validate(
        {
            "name": f"run {key}",
            "run_key": key,
            "dataset": {"rows": [{"inputs": {"q": f"{key} {i}"}, "outputs": {"a": f"{i}"}} for i in range(ITEMS)]},
            "targets": [{"kind": "chat", "connection": "mock", "user": "{q}"}],
            "evaluators": [{"use": "judges:says_correct", "connection": "mock"}, "contains"],
            "connections": {"mock": connection},
            "chunk_size": 2,
        }
    )


def check_whole(key: str) -> None:
    with connect() as catalog:
        query = "select state, n_examples, (select count(*) from item_scores s where s.experiment_id = e.experiment_id)"
        found = catalog.execute(f"{query} from experiments e where name = ?", [f"run {key}"]).fetchall()
        assert found == [("completed", ITEMS, 2 * ITEMS)]
        assert catalog.execute("select count(*) - count(distinct score_id) from scores").fetchone() == (0,)
        assert catalog.execute("select count(*) from calls where status = 'ok'").fetchone() == (TOTAL,)


def fail_and_go_on(key: str, disk: Disk, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run with the disk, and again without. Return whether the disk failed."""
    before, repeated = endpoint.calls, endpoint.repeated()
    with failing(disk, monkeypatch):
        try:
            run(spec_of(endpoint, key))
        except (StorageError, InputError) as error:
            assert os.strerror(disk.error) in str(error) and "\n" not in str(error)
    run(spec_of(endpoint, key))
    again = endpoint.repeated() - repeated
    assert again <= IN_FLIGHT
    assert endpoint.calls - before - again == TOTAL
    return disk.writes > disk.first_failed


@pytest.mark.slow
@pytest.mark.parametrize(("number", "error"), [(2, errno.ENOSPC), (12, errno.EIO), (19, errno.EROFS)])
def test_a_disk_that_fails_from_a_write_on(number: int, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Endpoint()) as endpoint:
        assert fail_and_go_on("some", Disk(number, error), endpoint, monkeypatch)
    check_whole("some")


@pytest.mark.soak
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_fails_from_any_write_on(error: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with serving(Endpoint()) as endpoint:
        number = 0
        while True:
            monkeypatch.setenv("EVALFLOWS_STORE", str(tmp_path / f"store{number}"))
            if not fail_and_go_on(f"k{number}", Disk(number, error), endpoint, monkeypatch):
                break
            check_whole(f"k{number}")
            number += 1
    print(f"{number} writes")
    assert number > 20
