"""What is written is there, whole and once, whoever else is writing, and whatever breaks."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import pyarrow as pa
import pytest
from open_store import EARLY, LATE, OWNER, Make, open_parts, runs, seen

import evalflows.store.files
from evalflows.specs.errors import InputError, StorageError
from evalflows.store.object_store import ObjectFiles
from evalflows.store.store import REOPENED, Store

# Writing and reading


def test_arrow_keeps_no_memory_of_its_own() -> None:
    code = """
import io
from evalflows.store.arrow import pa, pq
pq.write_table(pa.table({"text": ["a"] * 1000}), file := io.BytesIO())
pq.read_table(file)
print(pa.default_memory_pool().backend_name, pa.mimalloc_memory_pool().max_memory())
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout == "system 0\n", done.stderr


def test_published_rows_are_sealed_and_replace_what_was_published_before(any_store: Store, output: Make) -> None:
    row = output("c", outputs='{"text":"é"}', started_at=EARLY, recorded_at=LATE)
    any_store.publish("outputs", OWNER, [output("a"), output("b")])
    any_store.publish("outputs", OWNER, [row])
    assert any_store.is_sealed("outputs", OWNER)
    assert seen(any_store) == ["c"] and any_store.read("outputs", OWNER) == [row]


def test_only_the_parts_asked_for_are_read(store: Store, output: Make) -> None:
    for part in ("r0-0-10", "r0-10-20", "r1-0-10"):
        store.append("outputs", OWNER, part, [output(part)])
    assert runs(store, ["r0-0-10", "r1-0-10"]) == ["r0-0-10", "r1-0-10"]
    assert runs(store, ["r0-0-1"]) == []


# One row a key


@pytest.mark.parametrize("sealed", [False, True])
def test_success_beats_failure_and_of_equals_the_later_recorded_row_wins(
    store: Store, output: Make, sealed: bool
) -> None:
    wanted = {
        "ok later": ("ok", LATE),
        "ok first": ("ok", EARLY),
        "both ok": ("ok", LATE),
        "both failed": ("failed", LATE),
    }
    for run, part, status, at in (
        *(("ok later", "p", "failed", EARLY), ("ok later", "p", "ok", LATE)),
        *(("ok first", "p", "failed", LATE), ("ok first", "p", "ok", EARLY)),
        *(("both ok", "p2", "ok", LATE), ("both ok", "p1", "ok", EARLY)),
        *(("both failed", "p2", "failed", LATE), ("both failed", "p1", "failed", EARLY)),
    ):
        row = output(run, status=status, error=f"{status} {at}", recorded_at=at)
        store.append("outputs", OWNER, part, [row])
    same = [output("same time", error=text, recorded_at=EARLY) for text in ("first", "second")]
    store.append("outputs", OWNER, "p", same)
    if sealed:
        store.seal(OWNER, ["outputs"])
    texts = {run: f"{status} {at}" for run, (status, at) in wanted.items()} | {"same time": "second"}
    assert {row.run_id: row.error for row in store.read("outputs", OWNER)} == texts
    del texts["same time"]
    assert dict(store.query("select run_id, error from source.outputs where run_id <> 'same time'")) == texts


def test_a_settled_score_beats_a_later_missing_one(store: Store, score: Make) -> None:
    cases = [(a, b) for a in ("scored", "not_applicable", "sampled_out") for b in ("failed", "not_attempted")]
    store.append("judgements", OWNER, "p", [score(f"{a} {b}", status=a, recorded_at=EARLY) for a, b in cases])
    store.append("judgements", OWNER, "p", [score(f"{a} {b}", status=b, recorded_at=LATE) for a, b in cases])
    assert {row.judgement_id: row.status for row in store.read("judgements", OWNER)} == {
        f"{a} {b}": a for a, b in cases
    }


# Sealing and reopening


def test_sealing_leaves_one_file_with_each_key_once_and_a_reopened_owner_takes_more_rows(
    any_store: Store, output: Make
) -> None:
    any_store.append("outputs", OWNER, "p", [output("a"), output("b", status="failed", recorded_at=LATE)])
    any_store.append("outputs", OWNER, "q", [output("b", recorded_at=EARLY), output("c")])
    any_store.seal(OWNER, ["outputs"])
    assert any_store.is_sealed("outputs", OWNER)
    assert open_parts(any_store) == []
    assert runs(any_store) == seen(any_store) == ["a", "b", "c"]
    any_store.reopen(OWNER, ["outputs"])
    assert not any_store.is_sealed("outputs", OWNER)
    any_store.append("outputs", OWNER, "r", [output("d")])
    assert runs(any_store) == seen(any_store) == ["a", "b", "c", "d"]
    any_store.seal(OWNER, ["outputs"])
    assert runs(any_store) == seen(any_store) == ["a", "b", "c", "d"]
    assert seen(any_store, "status") == ["ok"] * 4


# Refused


def test_rows_of_another_record_or_owner_and_rows_without_a_value_are_refused(
    store: Store, output: Make, score: Make, make: Make
) -> None:
    refused: list[tuple[str, list[Any], str]] = [
        ("outputs", [score("s")], "outputs: got JudgementRow, wanted OutputRow")
    ]
    for column in ("run_id", "status", "repetition", "recorded_at"):
        refused.append(("outputs", [output("a"), replace(output("b"), **{column: None})], column))
    refused.append(("outputs", [output("a"), output("b", experiment_id="exp-2")], "'exp-2'"))
    refused.append(("judgements", [make("judgements", experiment_id=None)], "None"))
    for table, rows, said in refused:
        with pytest.raises((TypeError, ValueError), match=said):
            store.publish(table, OWNER, rows)
        with pytest.raises((TypeError, ValueError), match=said):
            store.append(table, OWNER, "p", rows)
    assert seen(store) == []
    store.append("outputs", OWNER, "p", [output("a"), output("b", error="an emoji cut in two: \ud83d")])
    assert runs(store) == ["a", "b"], "a text that UTF-8 cannot hold does not cost the other rows"


def test_an_owner_that_is_a_path_or_a_pattern_is_refused(store: Store, output: Make) -> None:
    refused: list[Callable[[str], object]] = [
        lambda owner: store.append("outputs", owner, "p", [output("a", experiment_id=owner)]),
        lambda owner: store.publish("outputs", owner, [output("a", experiment_id=owner)]),
        lambda owner: store.read("outputs", owner),
        lambda owner: store.seal(owner, ["outputs"]),
        lambda owner: store.reopen(owner, ["outputs"]),
    ]
    for owner in ("", "_", "_x", ".", "..", "../x", "a/b", "/a", "a\\b", "*", "a?", "a[1]", ".hidden"):
        for use in refused:
            with pytest.raises(InputError, match="wanted an id that is valid in a file name"):
                use(owner)


def test_an_owner_may_be_called_almost_anything(store: Store, output: Make) -> None:
    owners = ["exp 1", "größe", "a+b", "a'b", "a,b", "a:b", "123", "007", "1e5", "NULL", "true", "2026-01-01"]
    for owner in owners:
        store.append("outputs", owner, "p", [output(f"run of {owner}", experiment_id=owner)])
    assert seen(store, "experiment_id") == sorted(owners)
    for owner in owners:
        store.seal(owner, ["outputs"])
        assert [row.experiment_id for row in store.read("outputs", owner)] == [owner]
    assert seen(store, "experiment_id") == sorted(owners)


HASH = "0123456789abcdef" * 2


@pytest.mark.parametrize("sealed", [False, True])
def test_of_keys_that_are_hashes_each_is_kept_once_too(store: Store, output: Make, sealed: bool) -> None:
    """Such keys are compared by half of their digits first."""
    near = [HASH, HASH[:-1] + "0", HASH[:16] + "f" * 16, "f" * 16 + HASH[16:]]
    store.append("outputs", OWNER, "a", [output(run, status="failed") for run in near[:3]])
    store.append("outputs", OWNER, "b", [output(near[3], status="failed")])
    assert [row.run_id for row in store.read("outputs", OWNER)] == near
    store.append("outputs", OWNER, "b", [output(near[1], status="ok")])
    if sealed:
        store.seal(OWNER, ["outputs"])
    found = {row.run_id: row.status for row in store.read("outputs", OWNER)}
    assert found == dict.fromkeys(near, "failed") | {near[1]: "ok"}


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


def test_a_seal_that_breaks_off_has_changed_nothing_or_is_finished_by_the_next(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part, run in (("p", "a"), ("q", "b")):
        any_store.append("outputs", OWNER, part, [output(run)])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(evalflows.store.files, "_write_parquet", broken)
        any_store.seal(OWNER, ["outputs"])
    assert not any_store.is_sealed("outputs", OWNER)
    assert runs(any_store) == seen(any_store) == ["a", "b"]
    broken_seal(any_store, monkeypatch)
    any_store.seal(OWNER, ["outputs"])
    assert open_parts(any_store) == []
    assert runs(any_store) == seen(any_store) == ["a", "b"]


def test_one_part_becomes_the_sealed_file_as_it_is_unless_it_has_a_key_twice(
    store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("outputs", OWNER, "p", [output("a"), output("b")])
    (part,) = open_parts(store)
    written = Path(part).read_bytes()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(evalflows.store.files, "_rename", broken)
        store.seal(OWNER, ["outputs"])
    assert open_parts(store) == [part]
    store.seal(OWNER, ["outputs"])
    assert Path(store.layout.sealed("outputs", OWNER)).read_bytes() == written
    assert open_parts(store) == []
    store.reopen(OWNER, ["outputs"])  # which refuses a file without a manifest
    store.seal(OWNER, ["outputs"])
    store.append("outputs", "exp-2", "p", [output("a", experiment_id="exp-2"), output("a", experiment_id="exp-2")])
    store.seal("exp-2", ["outputs"])
    assert len(store.read("outputs", "exp-2")) == 1


def test_a_reopening_broken_off_between_copy_and_removal_counts_each_row_once(any_store: Store, output: Make) -> None:
    any_store.publish("outputs", OWNER, [output("a"), output("b")])
    any_store.append("outputs", OWNER, REOPENED, [output("a"), output("b")])
    assert runs(any_store) == seen(any_store) == ["a", "b"]
    any_store.reopen(OWNER, ["outputs"])
    assert runs(any_store) == seen(any_store) == ["a", "b"]
    assert len(open_parts(any_store)) == 1


def test_a_broken_write_leaves_the_old_file_and_nothing_else(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_a_file(schema: pa.Schema, tables: Iterable[pa.Table], sink: Any, **_: Any) -> None:
        sink.write(b"PAR1 and then")
        raise OSError("disk full")

    any_store.publish("outputs", OWNER, [output("old")])
    before = {path: any_store._fs.cat_file(path) for path in any_store._fs.find(any_store.layout.root)}
    with monkeypatch.context() as patch:
        patch.setattr(evalflows.store.files, "_write_parquet", half_a_file)
        for owner in (OWNER, "exp-2"):
            with pytest.raises(StorageError):
                any_store.publish("outputs", owner, [output("new", experiment_id=owner)])
            with pytest.raises(StorageError):
                any_store.append("outputs", owner, "p", [output("new", experiment_id=owner)])
    assert {path: any_store._fs.cat_file(path) for path in any_store._fs.find(any_store.layout.root)} == before
    assert seen(any_store) == ["old"]


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
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        store.seal(OWNER, ["outputs"])
        time.sleep(0.1)
        store.reopen(OWNER, ["outputs"])
        time.sleep(0.1)
    stop.set()
    for reader in readers:
        reader.join()
    assert set(found) == {(25, 25)}  # query() asks again where a file was sealed meanwhile; a bare view may not see it


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("is_followed", [True, False])
def test_the_stores_own_queries_are_asked_again_where_a_file_went_away(
    memory_root: str, output: Make, monkeypatch: pytest.MonkeyPatch, is_reopened: bool, is_followed: bool
) -> None:
    """Right after the mirror was brought up to date; also if another process has its mirror follow at once."""
    store, follow = Store(memory_root), ObjectFiles.follow
    store.append("outputs", OWNER, "p", [output("a"), output("b")])
    if is_reopened:
        store.seal(OWNER, ["outputs"])

    def follow_then_change(self: ObjectFiles) -> dict[str, object]:
        states = follow(self)
        monkeypatch.setattr(ObjectFiles, "follow", follow)
        if is_reopened:
            store.reopen(OWNER, ["outputs"])
        else:
            broken_seal(store, monkeypatch)
        if is_followed:
            follow(self)
        return states

    monkeypatch.setattr(ObjectFiles, "follow", follow_then_change)
    assert seen(store) == ["a", "b"]


WRITER = """
import sys
from evalflows.store.store import Store
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
