"""The spool: what a dead process had finished is kept once, and what cannot be read is set aside."""

import errno
import fcntl
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import pytest

from evalflows.specs.errors import StorageError
from evalflows.store.spool import RESERVED, Spool, _read, recover, spool_folder
from evalflows.store.store import Store

OWNER = "exp-1"


def spooled() -> list[Path]:
    """The files that are there now."""
    return sorted((spool_folder(Store()) / OWNER).glob("*.jsonl"))


def lines() -> int:
    return sum(path.read_bytes().count(b"\n") for path in spooled())


def runs(store: Store) -> list[str]:
    return sorted(row.run_id for row in store.read("outputs", OWNER))


def leave_behind(part: str, content: bytes) -> Path:
    """What a dead process has left."""
    path = spool_folder(Store()) / OWNER / f"{part}.dead.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def content_of(store: Store, *rows: tuple[str, object]) -> bytes:
    """What the spool holds of rows on disk before their block is left. Their part is not written."""
    with pytest.MonkeyPatch.context() as patch, Spool(store, "elsewhere", "p") as spool:
        patch.setattr(Store, "append", lambda *_: None)
        for table, row in rows:
            spool.add(table, row)
        (path,) = (spool_folder(Store()) / "elsewhere").glob("*.jsonl")
        return path.read_bytes()


Make = Callable[..., Any]


@pytest.fixture
def output(make: Make) -> Make:
    return lambda run_id, **fields: make("outputs", **{"run_id": run_id, "experiment_id": OWNER} | fields)


# While it lives


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_flushed_row_is_on_disk_at_once_and_leaving_the_block_in_any_way_writes_the_part(
    store: Store, output: Make, make: Make, error: type[BaseException] | None
) -> None:
    with pytest.raises(error) if error else nullcontext(), Spool(store, OWNER, "p") as spool:
        for count, run in enumerate(("a", "b"), start=1):
            spool.add("outputs", output(run))
            assert lines() == count
            assert f'"{run}"' in spooled()[0].read_text(encoding="utf-8").splitlines()[-1]
        spool.add("outputs", output("cheap"), flush=False)
        spool.note_sent(make("calls", call_id="c", experiment_id=OWNER, status="failed"))
        assert runs(store) == []  # no part yet
        if error:
            raise error
    assert runs(store) == ["a", "b", "cheap"]
    assert [row.call_id for row in store.read("calls", OWNER, ["p"])] == ["c"], "nobody waits for it any more"
    assert not (spool_folder(Store()) / OWNER).exists()


def test_rows_are_kept_on_disk_where_the_part_cannot_be_written(
    store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("evalflows.store.files._write_parquet", full)
        refused = pytest.raises(StorageError, match=r"outputs/open/.*parquet: OSError: disk full")
        with refused, Spool(store, OWNER, "p") as spool:
            spool.add("outputs", output("a"))
    assert lines() == 1
    assert recover(store, OWNER) == 1
    assert runs(store) == ["a"]


def test_a_call_that_was_sent_is_kept_once_whether_or_not_it_was_answered(
    store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed with one call answered, one answer in another table, and two calls in flight."""
    calls = {name: make("calls", call_id=name, experiment_id=OWNER, status="failed") for name in "abcde"}
    monkeypatch.setattr("evalflows.store.spool.IN_MEMORY", 10)
    with Spool(store, OWNER, "p") as spool:
        for name in "abc":
            spool.note_sent(calls[name])
        spool.add_call(make("calls", call_id="a", experiment_id=OWNER, status="ok", response='{"text": "long"}'))
        assert [row.call_id for row in store.read("calls", OWNER)] == ["a"], "its part is written, and the spool empty"
        spool.drop_sent(calls["b"])
        spool.note_sent(calls["d"])
        spool.note_sent(calls["d"])
        spool.note_sent(calls["e"])
        spool.add_call(make("calls", call_id="e", experiment_id=OWNER, status="ok", response='""'))
        left = spooled()[0].read_bytes()
        spool._sent.clear()  # as if this process was killed
    leave_behind("p", left)
    assert recover(store, OWNER) == 3, "one row of each"
    found = {(row.call_id, row.status) for row in store.read("calls", OWNER)}
    assert found == {("a", "ok"), ("c", "failed"), ("d", "failed"), ("e", "ok")}


def at_once(work: Callable[[int], None], count: int) -> None:
    """Call `work` in so many threads. Raise what one of them raised."""
    with ThreadPoolExecutor(count) as threads:
        for _ in threads.map(work, range(count)):
            pass


def test_threads_that_add_at_once_lose_nothing(store: Store, output: Make) -> None:
    with Spool(store, OWNER, "p") as spool:

        def add(me: int) -> None:
            for i in range(50):
                spool.add("outputs", output(f"{me}-{i}", outputs='{"text":"' + "x" * 5000 + '"}'))

        at_once(add, 4)
        leave_behind("q", spooled()[0].read_bytes())
    assert len(runs(store)) == 200
    assert recover(store, OWNER) == 200
    assert len(runs(store)) == 200


def test_parts_of_one_owner_may_begin_and_end_at_once(
    store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "append", lambda *_: None)  # it would take the most of the time

    def begin_and_end(me: int) -> None:
        for i in range(150):
            with Spool(store, OWNER, f"p{me}") as spool:
                spool.add("outputs", output(f"{me}-{i}"))

    at_once(begin_and_end, 3)


# After its process died


KILLED = """
import os, signal
from datetime import UTC, datetime
from evalflows.store.store import Store
from evalflows.store.records import CallRow, OutputRow
from evalflows.store.spool import Spool

at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
with Spool(Store(), "exp-1", "r0-0-10") as spool:
    row = OutputRow(run_id="a", experiment_id="exp-1", example_id="x", repetition=0, status="ok",
                    outputs='{"text":"\\u00e9\\u2028"}', started_at=at, recorded_at=at)
    spool.add("outputs", row)
    spool.add("calls", CallRow(call_id="c", call_key="k", experiment_id="exp-1", connection="n", base_url="u",
                               model="m", request="{}", status="ok", reusable=True, started_at=at, recorded_at=at))
    spool.add("outputs", OutputRow(run_id="cheap", experiment_id="exp-1", example_id="y", repetition=0, status="ok"),
              flush=False)
    os.kill(os.getpid(), signal.SIGKILL)
"""
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_what_a_killed_process_had_finished_is_taken_up(store: Store) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert len(spooled()) == 1
    assert recover(store, OWNER) == 2
    assert spooled() == []
    (row,) = store.read("outputs", OWNER, ["r0-0-10"])
    assert (row.run_id, row.outputs, row.started_at, row.recorded_at) == ("a", '{"text":"\u00e9\u2028"}', AT, AT)
    assert [(row.call_id, row.response, row.started_at) for row in store.read("calls", OWNER)] == [("c", None, AT)]


def test_recovered_rows_equal_those_that_were_added(store: Store, output: Make, make: Make) -> None:
    full = output("a", error='quote " and\nline \ud83d', latency_s=0.1 + 0.2, tokens_in=2**53 + 1, recorded_at=AT)
    experiment = make("experiments", experiment_id=OWNER, tags=["x", "y"], git_dirty=True, recorded_at=AT)
    leave_behind("p", content_of(store, ("outputs", full), ("experiments", experiment)))
    assert recover(store, OWNER) == 2
    assert store.read("outputs", OWNER) == [replace(full, error='quote " and\nline \ufffd')]
    assert store.read("experiments", OWNER) == [experiment]


def test_recovering_twice_doubles_nothing_and_a_named_part_is_taken_up_alone(store: Store, output: Make) -> None:
    """A process of a cluster takes up a chunk that was another's; what other chunks have is not its business."""
    content = content_of(store, ("outputs", output("a")), ("outputs", output("b")))
    leave_behind("p", content)
    assert recover(store, "exp-2") == 0
    for _ in range(2):  # as if killed after the part was written and before the file was removed
        leave_behind("p", content)
        assert recover(store, OWNER) == 2
    assert recover(store, OWNER) == 0
    assert runs(store) == ["a", "b"]
    assert store.query("select count(*) from source.outputs") == [(2,)]
    for part in ("r0-0-10", "r0-0-100"):
        leave_behind(part, content_of(store, ("outputs", output(part))))
    assert recover(store, OWNER, part="r0-0-10") == 1
    assert runs(store) == ["a", "b", "r0-0-10"] and len(spooled()) == 1


# Beside one that lives


LIVING = """
import sys
from evalflows.store.store import Store
from evalflows.store.records import OutputRow
from evalflows.store.spool import Spool

with Spool(Store(), "exp-1", "p") as spool:
    spool.add("outputs", OutputRow(run_id="a", experiment_id="exp-1", example_id="x", repetition=0, status="ok"))
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_file_whose_process_lives_is_passed_over_until_that_dies(store: Store) -> None:
    living = subprocess.Popen([sys.executable, "-c", LIVING], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert living.stdout is not None
        assert living.stdout.readline() == b"ready\n"
        assert recover(store, OWNER) == 0
        assert lines() == 1
    finally:
        living.kill()
        living.communicate()
    assert recover(store, OWNER) == 1
    assert runs(store) == ["a"]


def test_a_file_taken_up_before_its_process_had_locked_it_loses_nothing(
    store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, taken = fcntl.flock, list[bool]()

    def recovered_first(file: IO[bytes], operation: int) -> None:
        if not taken:
            taken.append(True)
            recover(store, OWNER)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", recovered_first)
    with Spool(store, OWNER, "p") as spool:
        spool.add("outputs", output("a"))
        assert lines() == 1
    assert runs(store) == ["a"]


def test_the_folder_is_the_environments_or_the_stores_or_below_the_current_one(
    tmp_path: Path, store_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spool_folder(Store()) == tmp_path / "spool"
    monkeypatch.delenv("EVALFLOWS_SPOOL")
    monkeypatch.chdir(tmp_path)
    assert spool_folder(Store()) == store_root / "spool"
    assert spool_folder(Store("memory://evals")) == tmp_path / "data" / "spool"


def test_recover_waits_for_a_process_that_is_just_ending(store: Store, output: Make) -> None:
    """Who has the owner's lease waits for the part of the process that had it before."""
    spool = Spool(store, OWNER, "p")
    spool.__enter__()
    spool.add("outputs", output("a"))
    ending = threading.Timer(0.3, lambda: spool.__exit__(None, None, None))
    ending.start()
    assert recover(store, OWNER) == 0
    assert runs(store) == [], "it skips a spool that is in use"
    assert recover(store, OWNER, 30.0) == 0, "its process has written the part itself"
    assert runs(store) == ["a"]
    ending.join()


def test_a_torn_last_line_and_unknown_tables_and_columns_are_set_aside_and_named(
    store: Store, output: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    known, other = (content_of(store, ("outputs", output(run))) for run in "ab")
    texts = [b'{"table":"tomorrow","row":{}}\n', b'{"table":"outputs","row":{"run":"b"}}\n', b'"a"\n', b"[]\n", b"{}\n"]
    unknown = b"".join(b"%08x " % crc32(text) + text for text in texts)
    aside = spool_folder(Store()) / OWNER / "p.dead.damaged"
    for before, after, count in ((b"", other[:-1], "1 line"), (b"", other[:-200], "1 line"), (unknown, b"", "5 lines")):
        leave_behind("p", before + known + after)
        assert recover(store, OWNER) == 1
        assert (runs(store), spooled(), aside.read_bytes()) == (["a"], [], before + after)
        expected = f"evalflows: set aside {count} of the spool that cannot be read, in {aside}\n"
        assert capsys.readouterr().err == expected


def test_every_flipped_bit_is_noticed_and_the_rows_beside_it_are_recovered(store: Store, output: Make) -> None:
    row = content_of(store, ("outputs", output("b", outputs='{"output":"12"}', tokens_in=7)))
    for bit in range(0, 8 * (len(row) - 1), 5):
        flipped = bytearray(row)
        flipped[bit // 8] ^= 1 << bit % 8
        rows, unreadable = _read(BytesIO(bytes(flipped)))
        assert (rows, b"".join(unreadable)) == ({}, bytes(flipped)), bit
    beside = [content_of(store, ("outputs", output(run))) for run in ("a", "c")]
    leave_behind("p", beside[0] + bytes(flipped) + beside[1])
    assert recover(store, OWNER) == 2
    assert runs(store) == ["a", "c"]


# On a disk that fails


class FailingFile(BytesIO):
    """A file on a disk with room for some bytes; a write may be short."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, data: Any) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = super().write(bytes(data)[: self.room])
        self.room -= written
        return written

    def truncate(self, size: int | None = None) -> int:
        self.seek(super().truncate(size))
        return self.tell()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingFile:
    """A disk that has room for the first row and half of the second."""
    file = FailingFile(RESERVED)
    monkeypatch.setattr("evalflows.store.spool.create_locked", lambda _: file)
    monkeypatch.setattr(file, "close", lambda: None)
    return file


def test_a_failed_write_leaves_whole_lines_and_refuses_every_later_row_but_paid_calls(
    store: Store, output: Make, make: Make, disk: FailingFile
) -> None:
    with pytest.raises(StorageError, match="No space left on device"), Spool(store, OWNER, "p") as spool:
        disk.room = 1000
        spool.add("outputs", output("a"))
        first, disk.room = disk.getvalue(), 20
        for table, row in (
            ("calls", make("calls", call_id="c", experiment_id=OWNER)),
            ("outputs", output("swallowed", status="failed", error="No space left on device")),
            ("calls", make("calls", call_id="d", experiment_id=OWNER)),
        ):
            with suppress(StorageError):  # as user code may do
                spool.add(table, row)
        assert disk.getvalue() == first
    assert runs(store) == ["a"]
    assert sorted(row.call_id for row in store.read("calls", OWNER)) == ["c", "d"]
