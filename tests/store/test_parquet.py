"""The store's files: what is written is there, whole and once, whoever else is writing, and whatever breaks."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import store.parquet
from specs.errors import InputError
from store.parquet import Store

Make = Callable[..., Any]
EARLY = datetime(2026, 1, 1, tzinfo=UTC)
LATE = EARLY + timedelta(hours=1)
OWNER = "exp-1"


@pytest.fixture
def output(make: Make) -> Make:
    """`output(run_id, **fields)`: an answer of the experiment."""
    return lambda run_id, **fields: make("outputs", **{"run_id": run_id, "experiment_id": OWNER} | fields)


@pytest.fixture
def score(make: Make) -> Make:
    return lambda score_id, **fields: make("scores", **{"score_id": score_id, "experiment_id": OWNER} | fields)


def runs(store: Store, parts: list[str] | None = None) -> list[str]:
    return sorted(row.run_id for row in store.read("outputs", OWNER, parts))


def seen(store: Store, column: str = "run_id") -> list[Any]:
    """What the view gives."""
    return [row[0] for row in store.query(f"select {column} from source.outputs order by 1")]


def open_parts(store: Store) -> list[str]:
    return sorted(store._fs.glob(f"{store.layout.open_folder('outputs', OWNER)}/*.parquet"))


# Writing and reading


def test_appended_rows_are_read_back_as_they_were(any_store: Store, output: Make) -> None:
    row = output("a", outputs='{"text":"é"}', latency_s=0.5, tokens_in=3, started_at=EARLY, recorded_at=LATE)
    any_store.append("outputs", OWNER, "p", [row])
    assert any_store.read("outputs", OWNER) == [row]


def test_a_sealed_row_is_read_back_as_it_was(any_store: Store, output: Make) -> None:
    row = output("a", outputs='{"text":"é"}', started_at=EARLY, recorded_at=LATE)
    any_store.append("outputs", OWNER, "p", [row])
    any_store.seal(OWNER, ["outputs"])
    assert any_store.read("outputs", OWNER) == [row]


def test_an_owner_without_files_has_no_rows(store: Store) -> None:
    assert store.read("outputs", OWNER) == []
    assert not store.is_sealed("outputs", OWNER)


def test_no_rows_make_no_part(store: Store) -> None:
    store.append("outputs", OWNER, "p", [])
    assert open_parts(store) == []


def test_published_rows_are_sealed_and_replace_what_was_published_before(any_store: Store, output: Make) -> None:
    any_store.publish("outputs", OWNER, [output("a"), output("b")])
    any_store.publish("outputs", OWNER, [output("c")])
    assert any_store.is_sealed("outputs", OWNER)
    assert runs(any_store) == seen(any_store) == ["c"]


def test_an_arrow_table_is_taken_for_rows(store: Store, output: Make) -> None:
    store.publish("outputs", OWNER, [output("a")])
    store.append("outputs", OWNER, "p", store.read_arrow("outputs", OWNER))
    store._fs.rm(store.layout.sealed("outputs", OWNER))
    assert runs(store) == ["a"]


def test_only_the_parts_asked_for_are_read(any_store: Store, output: Make) -> None:
    for part in ("r0-0-10", "r0-10-20", "r1-0-10"):
        any_store.append("outputs", OWNER, part, [output(part)])
    assert runs(any_store, ["r0-0-10", "r1-0-10"]) == ["r0-0-10", "r1-0-10"]
    assert runs(any_store, ["r0-0-1"]) == []


def test_a_part_written_twice_keeps_both_files(store: Store, output: Make) -> None:
    store.append("outputs", OWNER, "p", [output("a")])
    store.append("outputs", OWNER, "p", [output("b")])
    assert runs(store, ["p"]) == ["a", "b"]


def test_a_second_store_on_the_same_root_sees_the_rows(store: Store, output: Make) -> None:
    store.append("outputs", OWNER, "p", [output("a")])
    assert runs(Store(store.layout.root)) == ["a"]


# One row a key


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("success_is_later", [False, True])
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


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("status", ["ok", "failed"])
def test_of_equals_the_later_recorded_row_wins(store: Store, output: Make, sealed: bool, status: str) -> None:
    store.append("outputs", OWNER, "p2", [output("a", status=status, error="late", recorded_at=LATE)])
    store.append("outputs", OWNER, "p1", [output("a", status=status, error="early", recorded_at=EARLY)])
    if sealed:
        store.seal(OWNER, ["outputs"])
    assert [row.error for row in store.read("outputs", OWNER)] == ["late"]
    assert seen(store, "error") == ["late"]


@pytest.mark.parametrize("settled", ["scored", "not_applicable", "sampled_out"])
@pytest.mark.parametrize("unsettled", ["failed", "not_attempted"])
def test_a_settled_score_beats_a_later_missing_one(store: Store, score: Make, settled: str, unsettled: str) -> None:
    store.append("scores", OWNER, "p", [score("s", status=settled, recorded_at=EARLY)])
    store.append("scores", OWNER, "p", [score("s", status=unsettled, recorded_at=LATE)])
    assert [row.status for row in store.read("scores", OWNER)] == [settled]


def test_a_later_row_replaces_an_experiments_earlier_one(store: Store, make: Make) -> None:
    for state, at in (("completed", LATE), ("running", EARLY)):
        store.append("experiments", OWNER, "p", [make("experiments", experiment_id=OWNER, state=state, recorded_at=at)])
    assert [row.state for row in store.read("experiments", OWNER)] == ["completed"]


def test_rows_of_the_same_key_column_but_another_key_are_both_kept(store: Store, make: Make) -> None:
    rows = [make("examples", snapshot_id=snapshot, example_id="same") for snapshot in ("snap-1", "snap-2")]
    for row in rows:
        store.append("examples", row.snapshot_id, "p", [row])
    assert store.query("select count(*) from source.examples") == [(2,)]


# Sealing and reopening


def test_sealing_leaves_one_file_with_each_key_once(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a"), output("b", status="failed")])
    any_store.append("outputs", OWNER, "q", [output("b"), output("c")])
    any_store.seal(OWNER, ["outputs"])
    assert any_store.is_sealed("outputs", OWNER)
    assert open_parts(any_store) == []
    assert runs(any_store) == seen(any_store) == ["a", "b", "c"]


def test_sealing_twice_changes_nothing(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    any_store.seal(OWNER, ["outputs", "scores"])
    any_store.seal(OWNER, ["outputs", "scores"])
    assert runs(any_store) == seen(any_store) == ["a"]
    assert not any_store.is_sealed("scores", OWNER)  # there was nothing to seal


def test_sealing_one_owner_leaves_the_others_open(store: Store, output: Make) -> None:
    store.append("outputs", OWNER, "p", [output("a")])
    store.append("outputs", "exp-2", "p", [output("b", experiment_id="exp-2")])
    store.seal(OWNER, ["outputs"])
    assert not store.is_sealed("outputs", "exp-2")
    assert seen(store) == ["a", "b"]


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


def test_rows_from_before_a_reopening_count_to_every_part(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    any_store.seal(OWNER, ["outputs"])
    any_store.reopen(OWNER, ["outputs"])
    any_store.append("outputs", OWNER, "q", [output("b")])
    assert runs(any_store, ["p"]) == ["a"]
    assert runs(any_store, ["q"]) == ["a", "b"]


def test_reopening_twice_or_what_was_never_sealed_changes_nothing(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    any_store.reopen(OWNER, ["outputs"])
    assert runs(any_store) == ["a"]
    any_store.seal(OWNER, ["outputs"])
    any_store.reopen(OWNER, ["outputs"])
    any_store.reopen(OWNER, ["outputs"])
    assert runs(any_store) == seen(any_store) == ["a"]


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
        patch.setattr(store.parquet, "_write_parquet", broken)
        with pytest.raises(KeyboardInterrupt):
            any_store.seal(OWNER, ["outputs"])
    assert not any_store.is_sealed("outputs", OWNER)
    assert runs(any_store) == seen(any_store) == ["a"]


def test_a_reopening_broken_off_between_copy_and_removal_counts_each_row_once(any_store: Store, output: Make) -> None:
    any_store.publish("outputs", OWNER, [output("a"), output("b")])
    any_store.append("outputs", OWNER, store.parquet.REOPENED, [output("a"), output("b")])
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


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_broken_write_leaves_the_old_file_and_nothing_else(
    any_store: Store, output: Make, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    any_store.publish("outputs", OWNER, [output("old")])
    before = {path: any_store._fs.cat_file(path) for path in any_store._fs.find(any_store.layout.root)}
    with monkeypatch.context() as patch:
        patch.setattr(store.parquet, "_write_parquet", half_a_file(error))
        with pytest.raises(type(error)):
            any_store.publish("outputs", OWNER, [output("new")])
        with pytest.raises(type(error)):
            any_store.publish("outputs", "exp-2", [output("new", experiment_id="exp-2")])
        with pytest.raises(type(error)):
            any_store.append("outputs", "exp-3", "p", [output("new", experiment_id="exp-3")])
    assert {path: any_store._fs.cat_file(path) for path in any_store._fs.find(any_store.layout.root)} == before
    assert seen(any_store) == ["old"]


def half_a_file(error: BaseException) -> Callable[[pa.Table, Any], None]:
    def write(data: pa.Table, sink: Any) -> None:
        sink.write(b"PAR1 and then")
        raise error

    return write


def test_what_is_being_written_is_no_parquet_file_yet(
    store_root: Path, store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: list[list[tuple[str]]] = []

    def look_midway(data: pa.Table, sink: Any) -> None:
        sink.write(b"PAR1 and then")
        during.append(Store(store_root).query("select run_id from source.outputs"))
        raise OSError("disk full")

    store.append("outputs", OWNER, "p", [output("a")])
    monkeypatch.setattr("store.parquet._write_parquet", look_midway)
    with pytest.raises(OSError, match="disk full"):
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


def at_listing(monkeypatch: pytest.MonkeyPatch, moment: int, change: Callable[[], None]) -> None:
    """Have `change` happen right after the given one (the first is 1) of the listings that come from now on."""
    listings: list[str] = []
    glob = MemoryFileSystem.glob

    def listing(self: MemoryFileSystem, path: str, **options: Any) -> Any:
        found = glob(self, path, **options)
        listings.append(path)
        if len(listings) == moment:
            change()
        return found

    monkeypatch.setattr(MemoryFileSystem, "glob", listing)


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


MOMENTS = pytest.mark.parametrize("moment", [1, 2, 3])
"""A view lists files more than once: the sealed ones, the open ones, and which owners have sealed ones."""


@MOMENTS
def test_the_stores_own_queries_are_asked_again_where_a_file_went_away(
    changing: tuple[Store, Callable[[], None]], monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    store, change = changing
    plain_connect = Store.connect

    def connect_then_change(self: Store) -> duckdb.DuckDBPyConnection:
        connection = plain_connect(self)
        monkeypatch.setattr(Store, "connect", plain_connect)
        at_listing(monkeypatch, moment, change)
        return connection

    monkeypatch.setattr(Store, "connect", connect_then_change)
    assert seen(store) == ["a", "b"]


WRITER = """
import sys
from store.parquet import Store
from store.records import OutputRow

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


# Refused


def test_rows_of_another_record_are_refused(any_store: Store, score: Make) -> None:
    with pytest.raises(TypeError, match="outputs: got ScoreRow, wanted OutputRow"):
        any_store.append("outputs", OWNER, "p", [score("s")])
    assert seen(any_store) == []


@pytest.mark.parametrize("column", ["run_id", "example_id", "status", "repetition", "attempts", "recorded_at"])
def test_none_is_refused_where_there_must_be_a_value(store: Store, output: Make, column: str) -> None:
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


@pytest.mark.parametrize("owner", ["", "_", "_x", ".", "..", "../x", "a/b", "/a", "a\\b", "*", "a?", "a[1]", ".hidden"])
def test_an_owner_that_is_a_path_or_a_pattern_is_refused(store: Store, output: Make, owner: str) -> None:
    for refused in (
        lambda: store.append("outputs", owner, "p", [output("a", experiment_id=owner)]),
        lambda: store.publish("outputs", owner, [output("a", experiment_id=owner)]),
        lambda: store.read("outputs", owner),
        lambda: store.seal(owner, ["outputs"]),
        lambda: store.reopen(owner, ["outputs"]),
    ):
        with pytest.raises(InputError, match="not an id that a file can be named by"):
            refused()


def test_an_owner_may_be_called_almost_anything(store: Store, output: Make) -> None:
    owners = ["exp 1", "größe", "a+b", "a'b", "a,b", "a:b", "123", "007", "1e5", "NULL", "true", "2026-01-01"]
    for owner in owners:
        store.append("outputs", owner, "p", [output(f"run of {owner}", experiment_id=owner)])
    assert seen(store, "experiment_id") == sorted(owners)
    for owner in owners:
        store.seal(owner, ["outputs"])
        assert [row.experiment_id for row in store.read("outputs", owner)] == [owner]
    assert seen(store, "experiment_id") == sorted(owners)


def test_rows_of_another_owner_are_refused(any_store: Store, output: Make, make: Make) -> None:
    with pytest.raises(ValueError, match="'exp-2'"):
        any_store.append("outputs", OWNER, "p", [output("a"), output("b", experiment_id="exp-2")])
    with pytest.raises(ValueError, match="'exp-2'"):
        any_store.publish("outputs", OWNER, [output("a"), output("b", experiment_id="exp-2")])
    with pytest.raises(ValueError, match="None"):
        any_store.append("scores", OWNER, "p", [make("scores", experiment_id=None)])
    assert seen(any_store) == []


def test_an_unknown_table_is_refused(store: Store) -> None:
    with pytest.raises(KeyError, match="'nonsense'"):
        store.is_sealed("nonsense", OWNER)
