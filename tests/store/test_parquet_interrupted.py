"""The store's files when writes are interrupted, or when others read and write concurrently."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import pyarrow as pa
import pytest
from open_store import OWNER, Make, open_parts, runs, seen

import evalflows.store.parquet_files
from evalflows.specs.errors import StorageError
from evalflows.store.object_store import ObjectFiles
from evalflows.store.parquet import REOPENED, Store

# Broken off


def broken(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def broken_seal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between publishing the sealed file and removing the parts."""
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_remove_open", broken)
        with pytest.raises(KeyboardInterrupt):
            store.seal(OWNER, ["outputs"])
    assert store.is_sealed("outputs", OWNER)
    assert open_parts(store)


def test_parts_that_a_broken_seal_has_left_are_not_counted_twice(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_store.append("outputs", OWNER, "p", [output("a"), output("b")])
    broken_seal(any_store, monkeypatch)
    assert runs(any_store) == seen(any_store) == ["a", "b"]


def test_sealing_again_clears_what_a_broken_seal_has_left(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    broken_seal(any_store, monkeypatch)
    any_store.seal(OWNER, ["outputs"])
    assert open_parts(any_store) == []
    assert runs(any_store) == seen(any_store) == ["a"]


def test_reopening_after_a_broken_seal_counts_each_row_once(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_store.append("outputs", OWNER, "p", [output("a"), output("b")])
    broken_seal(any_store, monkeypatch)
    any_store.reopen(OWNER, ["outputs"])
    assert len(open_parts(any_store)) == 1
    assert runs(any_store) == seen(any_store) == ["a", "b"]


def test_a_seal_broken_off_before_it_published_has_changed_nothing(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    with monkeypatch.context() as patch:
        patch.setattr(evalflows.store.parquet_files, "_write_parquet", broken)
        with pytest.raises(KeyboardInterrupt):
            any_store.seal(OWNER, ["outputs"])
    assert not any_store.is_sealed("outputs", OWNER)
    assert runs(any_store) == seen(any_store) == ["a"]


def test_a_reopening_broken_off_between_copy_and_removal_counts_each_row_once(any_store: Store, output: Make) -> None:
    any_store.publish("outputs", OWNER, [output("a"), output("b")])
    any_store.append("outputs", OWNER, REOPENED, [output("a"), output("b")])
    assert runs(any_store) == seen(any_store) == ["a", "b"]
    any_store.reopen(OWNER, ["outputs"])
    assert runs(any_store) == seen(any_store) == ["a", "b"]
    assert len(open_parts(any_store)) == 1


def test_a_reopening_broken_off_between_two_tables_is_gone_on_with(any_store: Store, output: Make, score: Make) -> None:
    any_store.publish("outputs", OWNER, [output("a")])
    any_store.publish("scores", OWNER, [score("s")])
    any_store.reopen(OWNER, ["scores"])  # and here it broke off
    any_store.reopen(OWNER, ["scores", "outputs"])
    assert not any_store.is_sealed("scores", OWNER)
    assert not any_store.is_sealed("outputs", OWNER)
    assert (len(any_store.read("scores", OWNER)), runs(any_store)) == (1, ["a"])


@pytest.mark.parametrize(
    ("error", "raised"), [(OSError("disk full"), StorageError), (KeyboardInterrupt(), KeyboardInterrupt)], ids=str
)
def test_a_broken_write_leaves_the_old_file_and_nothing_else(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch, error: BaseException, raised: type[BaseException]
) -> None:
    any_store.publish("outputs", OWNER, [output("old")])
    before = {path: any_store._fs.cat_file(path) for path in any_store._fs.find(any_store.layout.root)}
    with monkeypatch.context() as patch:
        patch.setattr(evalflows.store.parquet_files, "_write_parquet", half_a_file(error))
        with pytest.raises(raised):
            any_store.publish("outputs", OWNER, [output("new")])
        with pytest.raises(raised):
            any_store.publish("outputs", "exp-2", [output("new", experiment_id="exp-2")])
        with pytest.raises(raised):
            any_store.append("outputs", "exp-3", "p", [output("new", experiment_id="exp-3")])
    assert {path: any_store._fs.cat_file(path) for path in any_store._fs.find(any_store.layout.root)} == before
    assert seen(any_store) == ["old"]


def half_a_file(error: BaseException) -> Callable[..., None]:
    def write(schema: pa.Schema, tables: Iterable[pa.Table], sink: Any, **_: Any) -> None:
        sink.write(b"PAR1 and then")
        raise error

    return write


def test_what_is_being_written_is_no_parquet_file_yet(
    store_root: Path, store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: list[list[tuple[str]]] = []

    def look_midway(schema: pa.Schema, tables: Iterable[pa.Table], sink: Any, **_: Any) -> None:
        sink.write(b"PAR1 and then")
        during.append(Store(store_root).query("select run_id from source.outputs"))
        raise OSError("disk full")

    store.append("outputs", OWNER, "p", [output("a")])
    monkeypatch.setattr("evalflows.store.parquet_files._write_parquet", look_midway)
    with pytest.raises(StorageError, match="disk full"):
        store.append("outputs", OWNER, "p", [output("b")])
    assert during == [[("a",)]]


def test_a_part_is_on_the_disk_before_it_gets_its_name_and_its_name_before_append_returns(
    store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    replace_file = Path.replace

    def renamed(self: Path, target: Path) -> Path:
        done.append("renamed")
        return replace_file(self, target)

    monkeypatch.setattr(Path, "replace", renamed)
    monkeypatch.setattr(os, "fsync", lambda fd: done.append("folder" if S_ISDIR(os.fstat(fd).st_mode) else "file"))
    store.append("outputs", OWNER, "p", [output("a")])
    assert done == ["file", "renamed", "folder"]


# Others at the same time


@pytest.mark.slow
def test_readers_see_each_row_once_while_another_seals_and_reopens(store: Store, output: Make) -> None:
    store.publish("outputs", "exp-0", [output(f"sealed-{i}", experiment_id="exp-0") for i in range(5)])
    for part in ("p", "q"):
        store.append("outputs", OWNER, part, [output(f"{part}-{i}") for i in range(10)])
    stop, found = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            found.append(store.query("select count(*), count(distinct run_id) from source.outputs")[0])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        store.seal(OWNER, ["outputs"])
        time.sleep(0.1)
        store.reopen(OWNER, ["outputs"])
        time.sleep(0.1)
    stop.set()
    for reader in readers:
        reader.join()
    assert set(found) == {(25, 25)}  # query() asks again where a file was sealed meanwhile; a bare view may not see it


def changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], None]]:
    return {
        "seal": lambda: store.seal(OWNER, ["outputs"]),
        "broken seal": lambda: broken_seal(store, monkeypatch),
        "reopen": lambda: store.reopen(OWNER, ["outputs"]),
    }


@pytest.fixture(params=["seal", "broken seal", "reopen"])
def changing(
    request: pytest.FixtureRequest, memory_root: str, output: Make, monkeypatch: pytest.MonkeyPatch
) -> tuple[Store, Callable[[], None]]:
    """A store with the rows a and b, and what happens to it."""
    store = Store(memory_root)
    store.append("outputs", OWNER, "p", [output("a"), output("b")])
    if request.param == "reopen":
        store.seal(OWNER, ["outputs"])
    return store, changes(store, monkeypatch)[request.param]


@pytest.mark.parametrize("is_followed", [True, False])
def test_the_stores_own_queries_are_asked_again_where_a_file_went_away(
    changing: tuple[Store, Callable[[], None]], monkeypatch: pytest.MonkeyPatch, is_followed: bool
) -> None:
    """Right after the mirror was brought up to date; also if another process has its mirror follow at once."""
    store, change = changing
    follow = ObjectFiles.follow

    def follow_then_change(self: ObjectFiles) -> dict[str, object]:
        states = follow(self)
        monkeypatch.setattr(ObjectFiles, "follow", follow)
        change()
        if is_followed:
            follow(self)
        return states

    monkeypatch.setattr(ObjectFiles, "follow", follow_then_change)
    assert seen(store) == ["a", "b"]


WRITER = """
import sys
from evalflows.store.parquet import Store
from evalflows.store.records import OutputRow

me = sys.argv[1]
store = Store()
print("ready", flush=True)
sys.stdin.readline()
for part in range(5):
    rows = [
        OutputRow(run_id=f"{me}-{part}-{i}", experiment_id="exp-1", example_id="x", repetition=0, status="ok")
        for i in range(20)
    ]
    store.append("outputs", "exp-1", f"part{part}", rows)
"""


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(store_root: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, f"w{i}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for i in range(3)
    ]
    for writer in writers:  # each of them also made the store
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=30)
        assert writer.returncode == 0
    store = Store(store_root)
    wanted = sorted(f"w{me}-{part}-{i}" for me in range(3) for part in range(5) for i in range(20))
    assert runs(store) == wanted
    assert sorted(seen(store)) == wanted
    store.seal(OWNER, ["outputs"])
    assert runs(store) == wanted
