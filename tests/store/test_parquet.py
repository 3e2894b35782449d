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


def test_a_sealed_row_is_read_back_as_it_was(store: Store, output: Make) -> None:
    row = output("a", outputs='{"text":"é"}', started_at=EARLY, recorded_at=LATE)
    store.append("outputs", OWNER, "p", [row])
    store.seal(OWNER, ["outputs"])
    assert store.read("outputs", OWNER) == [row]


def test_published_rows_are_sealed_and_replace_what_was_published_before(any_store: Store, output: Make) -> None:
    any_store.publish("outputs", OWNER, [output("a"), output("b")])
    any_store.publish("outputs", OWNER, [output("c")])
    assert any_store.is_sealed("outputs", OWNER)
    assert runs(any_store) == seen(any_store) == ["c"]


def test_only_the_parts_asked_for_are_read(store: Store, output: Make) -> None:
    for part in ("r0-0-10", "r0-10-20", "r1-0-10"):
        store.append("outputs", OWNER, part, [output(part)])
    assert runs(store, ["r0-0-10", "r1-0-10"]) == ["r0-0-10", "r1-0-10"]
    assert runs(store, ["r0-0-1"]) == []


# One row a key


@pytest.mark.parametrize(("sealed", "success_is_later"), [(False, False), (True, False), (False, True)])
def test_success_beats_failure_whichever_came_later(
    store: Store, output: Make, sealed: bool, success_is_later: bool
) -> None:
    first, second = (EARLY, LATE) if success_is_later else (LATE, EARLY)
    store.append("outputs", OWNER, "p", [output("a", status="failed", recorded_at=first)])
    store.append("outputs", OWNER, "p", [output("a", status="ok", recorded_at=second)])
    if sealed:
        store.seal(OWNER, ["outputs"])
    assert [row.status for row in store.read("outputs", OWNER)] == ["ok"]
    assert seen(store, "status") == ["ok"]


@pytest.mark.parametrize(("sealed", "status"), [(False, "ok"), (True, "ok"), (False, "failed")])
def test_of_equals_the_later_recorded_row_wins(store: Store, output: Make, sealed: bool, status: str) -> None:
    store.append("outputs", OWNER, "p2", [output("a", status=status, error="late", recorded_at=LATE)])
    store.append("outputs", OWNER, "p1", [output("a", status=status, error="early", recorded_at=EARLY)])
    if sealed:
        store.seal(OWNER, ["outputs"])
    assert [row.error for row in store.read("outputs", OWNER)] == ["late"]
    assert seen(store, "error") == ["late"]


def test_a_settled_score_beats_a_later_missing_one(store: Store, score: Make) -> None:
    cases = [(a, b) for a in ("scored", "not_applicable", "sampled_out") for b in ("failed", "not_attempted")]
    store.append("judgements", OWNER, "p", [score(f"{a} {b}", status=a, recorded_at=EARLY) for a, b in cases])
    store.append("judgements", OWNER, "p", [score(f"{a} {b}", status=b, recorded_at=LATE) for a, b in cases])
    assert {row.judgement_id: row.status for row in store.read("judgements", OWNER)} == {
        f"{a} {b}": a for a, b in cases
    }


# Sealing and reopening


def test_sealing_leaves_one_file_with_each_key_once(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a"), output("b", status="failed")])
    any_store.append("outputs", OWNER, "q", [output("b"), output("c")])
    any_store.seal(OWNER, ["outputs"])
    assert any_store.is_sealed("outputs", OWNER)
    assert open_parts(any_store) == []
    assert runs(any_store) == seen(any_store) == ["a", "b", "c"]


def test_a_reopened_owner_takes_more_rows_and_is_sealed_again(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a"), output("b", status="failed", recorded_at=LATE)])
    any_store.seal(OWNER, ["outputs"])
    any_store.reopen(OWNER, ["outputs"])
    assert not any_store.is_sealed("outputs", OWNER)
    any_store.append("outputs", OWNER, "q", [output("b", recorded_at=EARLY), output("c")])
    assert runs(any_store) == seen(any_store) == ["a", "b", "c"]
    any_store.seal(OWNER, ["outputs"])
    assert runs(any_store) == seen(any_store) == ["a", "b", "c"]
    assert seen(any_store, "status") == ["ok", "ok", "ok"]


# Refused


def test_rows_of_another_record_are_refused(store: Store, score: Make) -> None:
    with pytest.raises(TypeError, match="outputs: got JudgementRow, wanted OutputRow"):
        store.append("outputs", OWNER, "p", [score("s")])
    assert seen(store) == []


def test_none_is_refused_where_there_must_be_a_value(store: Store, output: Make) -> None:
    for column in ("run_id", "status", "repetition", "recorded_at"):
        rows = [output("a"), replace(output("b"), **{column: None})]
        with pytest.raises((TypeError, ValueError), match=column):
            store.publish("outputs", OWNER, rows)
        with pytest.raises((TypeError, ValueError), match=column):
            store.append("outputs", OWNER, "p", rows)
    assert seen(store) == []


def test_a_text_that_utf8_cannot_hold_does_not_cost_the_other_rows(store: Store, output: Make) -> None:
    torn = output("b", status="failed", error="an emoji cut in two: \ud83d")
    store.append("outputs", OWNER, "p", [output("a"), torn])
    assert [row.run_id for row in sorted(store.read("outputs", OWNER), key=lambda row: row.run_id)] == ["a", "b"]


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


def test_rows_of_another_owner_are_refused(store: Store, output: Make, make: Make) -> None:
    with pytest.raises(ValueError, match="'exp-2'"):
        store.append("outputs", OWNER, "p", [output("a"), output("b", experiment_id="exp-2")])
    with pytest.raises(ValueError, match="'exp-2'"):
        store.publish("outputs", OWNER, [output("a"), output("b", experiment_id="exp-2")])
    with pytest.raises(ValueError, match="None"):
        store.append("judgements", OWNER, "p", [make("judgements", experiment_id=None)])
    assert seen(store) == []


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


def test_sealing_again_clears_what_a_broken_seal_has_left(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    broken_seal(any_store, monkeypatch)
    any_store.seal(OWNER, ["outputs"])
    assert open_parts(any_store) == []
    assert runs(any_store) == seen(any_store) == ["a"]


def test_a_seal_broken_off_before_it_published_has_changed_nothing(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    with monkeypatch.context() as patch:
        patch.setattr(evalflows.store.files, "_write_parquet", broken)
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


def test_a_broken_write_leaves_the_old_file_and_nothing_else(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, raised = OSError("disk full"), StorageError
    any_store.publish("outputs", OWNER, [output("old")])
    before = {path: any_store._fs.cat_file(path) for path in any_store._fs.find(any_store.layout.root)}
    with monkeypatch.context() as patch:
        patch.setattr(evalflows.store.files, "_write_parquet", half_a_file(error))
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


def changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], None]]:
    return {"broken seal": lambda: broken_seal(store, monkeypatch), "reopen": lambda: store.reopen(OWNER, ["outputs"])}


@pytest.fixture(params=["broken seal", "reopen"])
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
