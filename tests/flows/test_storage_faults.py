"""A full disk and a removed store are no fault of an item: the run stops, and loses nothing that was paid."""

import errno
import shutil
from pathlib import Path
from typing import IO, Any

import pytest
from endpoint import Endpoint, Reply, Request, echo, serving

from evalflows import run
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import StorageError
from evalflows.store import Store, connect, spool

pytestmark = pytest.mark.usefixtures("prefect_api")

ITEMS = 40


def spec_of(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    fields: dict[str, Any] = {
        "name": "chat",
        "run_key": "one",
        "dataset": {"rows": [{"inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(ITEMS)]},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": [{"use": "judges:says_correct", "connection": "mock"}, "contains"],
        "connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "max_in_flight": 4}},
        "chunk_size": 10,
    }
    return ExperimentSpec.model_validate(fields | changes)


class FullAfter:
    """A file whose disk is full after some rows; room for the attempt at the start does not count."""

    def __init__(self, file: IO[bytes], rows: int) -> None:
        self._file, self._rows = file, rows

    def write(self, data: Any) -> int:
        self._rows -= bytes(data[:1]) != b"\0"
        if self._rows < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def statuses() -> list[tuple[str, str, int]]:
    with connect() as catalog:
        query = "select {0!r}, status, count(*) from {0} group by all"
        return [row for table in ("outputs", "scores") for row in catalog.execute(query.format(table)).fetchall()]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1, 3, 14])
def test_a_full_disk_ends_the_run_and_a_resumed_one_pays_nothing_twice(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Endpoint()) as endpoint:
        with monkeypatch.context() as patch:
            locked = spool.create_locked
            patch.setattr(spool, "create_locked", lambda path: FullAfter(locked(path), rows))
            with pytest.raises(StorageError, match=r"/spool/exp-.*jsonl: No space left on device"):
                run(spec_of(endpoint))
        assert {status for _, status, _ in statuses()} <= {"ok", "scored"}, "the disk is no fault of an item"
        paid = endpoint.calls
        run(spec_of(endpoint))
    assert statuses() == [("outputs", "ok", ITEMS), ("scores", "scored", 2 * ITEMS)]
    assert paid < endpoint.calls == 2 * ITEMS
    assert endpoint.repeated() == 0


def test_a_spool_that_cannot_be_written_is_found_before_the_first_call(store_root: Path) -> None:
    (store_root.parent / "spool").write_text("a file in the way")
    with serving(Endpoint()) as endpoint, pytest.raises(StorageError, match=r"/spool.*: (Not a directory|File exists)"):
        run(spec_of(endpoint))
    assert endpoint.calls == 0


def test_a_store_that_is_removed_meanwhile_ends_the_run(store_root: Path) -> None:
    def answer(request: Request) -> Reply:
        if endpoint.calls == ITEMS // 2:
            shutil.rmtree(store_root)
        return echo(request)

    endpoint = Endpoint(answer=answer)
    with serving(endpoint), pytest.raises(StorageError, match=str(store_root)):
        run(spec_of(endpoint))
    assert Store().query("select count(*) from source.experiments where state = 'completed'") == [(0,)]
