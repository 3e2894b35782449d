"""The spool on a disk that fails, and lines that cannot be read: whole rows are kept, and the rest is set aside."""

import errno
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from spool_files import OWNER, content_of, leave_behind, runs, spooled

from evalflows.specs.errors import StorageError
from evalflows.store.parquet import Store
from evalflows.store.spool import RESERVED, Spool, _read, recover, spool_folder

Make = Callable[..., Any]


@pytest.fixture
def output(make: Make) -> Make:
    return lambda run_id, **fields: make("outputs", **{"run_id": run_id, "experiment_id": OWNER} | fields)


def aside() -> bytes:
    """The lines that were set aside."""
    return (spool_folder(Store()) / OWNER / "p.dead.damaged").read_bytes()


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_is_set_aside_and_named(
    store: Store, output: Make, cut: int, capsys: pytest.CaptureFixture[str]
) -> None:
    first = content_of(store, ("outputs", output("a")))
    torn = content_of(store, ("outputs", output("b")))[:-cut]
    leave_behind("p", first + torn)
    assert recover(store, OWNER) == 1
    assert runs(store) == ["a"]
    assert spooled() == []
    assert aside() == torn
    expected = "evalflows: set aside 1 line of the spool that cannot be read, in /"
    assert capsys.readouterr().err.startswith(expected)


def test_control_characters_in_the_spools_path_are_shown_as_escapes(
    store: Store,
    output: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("EVALFLOWS_SPOOL", str(tmp_path / "a\x1b[2Jb"))
    leave_behind("p", b"torn")
    recover(store, OWNER)
    assert "/a\\x1b[2Jb/" in capsys.readouterr().err


def test_every_flipped_bit_is_noticed_and_the_rows_beside_it_are_recovered(store: Store, output: Make) -> None:
    row = content_of(store, ("outputs", output("b", outputs='{"output":"12"}', tokens_in=7)))
    for bit in range(8 * (len(row) - 1)):
        flipped = bytearray(row)
        flipped[bit // 8] ^= 1 << bit % 8
        rows, unreadable = _read(BytesIO(bytes(flipped)))
        assert (rows, b"".join(unreadable)) == ({}, bytes(flipped)), bit
    beside = [content_of(store, ("outputs", output(run))) for run in ("a", "c")]
    leave_behind("p", beside[0] + bytes(flipped) + beside[1])
    assert recover(store, OWNER) == 2
    assert runs(store) == ["a", "c"]


def test_lines_of_unknown_tables_and_columns_are_set_aside(store: Store, output: Make) -> None:
    known = content_of(store, ("outputs", output("a")))
    texts = [b'{"table":"tomorrow","row":{}}\n', b'{"table":"outputs","row":{"run":"b"}}\n', b'"a"\n', b"[]\n", b"{}\n"]
    unknown = b"".join(b"%08x " % crc32(text) + text for text in texts)
    leave_behind("p", unknown + known)
    assert recover(store, OWNER) == 1
    assert aside() == unknown


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


def test_a_full_disk_refuses_the_block_before_its_first_row(store: Store, disk: FailingFile) -> None:
    disk.room = RESERVED // 2
    full = pytest.raises(StorageError, match=r"/spool/exp-1/p\..*jsonl: No space left on device")
    with full, Spool(store, OWNER, "p"):
        pytest.fail("the block was entered")


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
