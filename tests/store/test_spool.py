"""The spool: what a dead process had finished is kept, and nothing is counted twice."""

import fcntl
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pytest
from spool_files import OWNER, content_of, leave_behind, lines, runs, spooled

from evalflows.specs.errors import StorageError
from evalflows.store.parquet import Store
from evalflows.store.records import OutputRow
from evalflows.store.spool import Spool, recover, spool_folder

Make = Callable[..., Any]


@pytest.fixture
def output(make: Make) -> Make:
    return lambda run_id, **fields: make("outputs", **{"run_id": run_id, "experiment_id": OWNER} | fields)


# While it lives


def test_a_flushed_row_is_on_disk_when_add_returns(store: Store, output: Make) -> None:
    with Spool(store, OWNER, "p") as spool:
        for count, run in enumerate(("a", "b"), start=1):
            spool.add("outputs", output(run))
            assert lines() == count
            assert f'"{run}"' in spooled()[0].read_text(encoding="utf-8").splitlines()[-1]
        assert runs(store) == []  # no part yet


def test_a_row_that_is_not_flushed_costs_no_write(store: Store, output: Make) -> None:
    with Spool(store, OWNER, "p") as spool:
        spool.add("outputs", output("a"), flush=False)
        assert lines() == 0
    assert runs(store) == ["a"]


def test_leaving_the_block_writes_a_part_a_table_and_removes_the_file(store: Store, output: Make, make: Make) -> None:
    with Spool(store, OWNER, "p") as spool:
        spool.add("outputs", output("a"))
        spool.add("outputs", output("b"), flush=False)
        spool.add("calls", make("calls", call_id="c", experiment_id=OWNER))
    assert runs(store) == ["a", "b"]
    assert [row.call_id for row in store.read("calls", OWNER, ["p"])] == ["c"]
    assert spooled() == []
    assert not (spool_folder(Store()) / OWNER).exists()


def test_a_text_that_is_no_utf8_is_mended_in_the_file_and_in_the_part(store: Store, output: Make) -> None:
    with Spool(store, OWNER, "p") as spool:
        spool.add("outputs", output("a", error="half a pair: \ud83d"))
        (path,) = spooled()
        assert "half a pair: \ufffd" in path.read_text(encoding="utf-8")
    assert [row.error for row in store.read("outputs", OWNER)] == ["half a pair: \ufffd"]


def test_a_block_without_rows_writes_nothing(store: Store) -> None:
    with Spool(store, OWNER, "p"):
        pass
    assert not Path(store.layout.open_folder("outputs", OWNER)).exists()
    assert not (spool_folder(Store()) / OWNER).exists()


@pytest.mark.parametrize("error", [RuntimeError("broke off"), KeyboardInterrupt()])
def test_a_block_left_by_an_exception_still_writes_its_part(store: Store, output: Make, error: BaseException) -> None:
    with pytest.raises(type(error)), Spool(store, OWNER, "p") as spool:
        spool.add("outputs", output("flushed"))
        spool.add("outputs", output("cheap"), flush=False)
        raise error
    assert runs(store) == ["cheap", "flushed"]
    assert spooled() == []


def test_rows_are_kept_on_disk_where_the_part_cannot_be_written(
    store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("evalflows.store.parquet_files._write_parquet", full)
        refused = pytest.raises(StorageError, match=r"outputs/open/.*parquet: OSError: disk full")
        with refused, Spool(store, OWNER, "p") as spool:
            spool.add("outputs", output("a"))
    assert lines() == 1
    assert recover(store, OWNER) == 1
    assert runs(store) == ["a"]


def test_threads_that_add_at_once_lose_nothing(store: Store, output: Make) -> None:
    rows = {me: [output(f"{me}-{i}", outputs='{"text":"' + "x" * 5000 + '"}') for i in range(50)] for me in range(4)}
    with Spool(store, OWNER, "p") as spool:

        def add(me: int) -> None:
            for row in rows[me]:
                spool.add("outputs", row)

        threads = [threading.Thread(target=add, args=(me,)) for me in rows]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        leave_behind("q", spooled()[0].read_bytes())
    assert len(runs(store)) == 200
    assert recover(store, OWNER) == 200
    assert len(runs(store)) == 200


def test_parts_of_one_owner_may_begin_and_end_at_once(
    store: Store, output: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "append", lambda *_: None)  # it would take the most of the time
    faults: list[BaseException] = []

    def begin_and_end(me: int) -> None:
        try:
            for i in range(150):
                with Spool(store, OWNER, f"p{me}") as spool:
                    spool.add("outputs", output(f"{me}-{i}"))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=begin_and_end, args=(me,)) for me in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


# After its process died


KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from evalflows.store.parquet import Store
from evalflows.store.records import CallRow, OutputRow
from evalflows.store.spool import Spool

how = sys.argv[1]
at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
with Spool(Store(), "exp-1", "r0-0-10") as spool:
    row = OutputRow(run_id="a", experiment_id="exp-1", example_id="x", repetition=0, status="ok",
                    outputs='{"text":"\\u00e9\\u2028"}', started_at=at, recorded_at=at)
    spool.add("outputs", row)
    spool.add("calls", CallRow(call_id="c", call_key="k", experiment_id="exp-1", connection="n", base_url="u",
                               model="m", request="{}", status="ok", reusable=True, started_at=at, recorded_at=at))
    spool.add("outputs", OutputRow(run_id="cheap", experiment_id="exp-1", example_id="y", repetition=0, status="ok"),
              flush=False)
    if how == "exit":
        os._exit(9)
    os.kill(os.getpid(), signal.SIGKILL)
"""
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.mark.parametrize(("how", "code"), [("exit", 9), ("kill", -signal.SIGKILL)])
def test_what_a_killed_process_had_finished_is_taken_up(store: Store, how: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, how], check=False, timeout=30)
    assert done.returncode == code
    assert len(spooled()) == 1
    assert recover(store, OWNER) == 2
    assert spooled() == []
    assert store.read("outputs", OWNER, ["r0-0-10"]) == [
        OutputRow(
            run_id="a",
            experiment_id=OWNER,
            example_id="x",
            repetition=0,
            status="ok",
            outputs='{"text":"\u00e9\u2028"}',
            started_at=AT,
            recorded_at=AT,
        )
    ]
    assert [(row.call_id, row.response, row.started_at) for row in store.read("calls", OWNER)] == [("c", None, AT)]


def test_recovered_rows_equal_those_that_were_added(store: Store, output: Make, make: Make) -> None:
    full = output(
        "a", error='quote " and\nline', latency_s=0.1 + 0.2, tokens_in=2**53 + 1, started_at=AT, recorded_at=AT
    )
    bare = output("b", started_at=None, recorded_at=AT)
    experiment = make("experiments", experiment_id=OWNER, tags=["x", "y"], git_dirty=True, recorded_at=AT)
    leave_behind("p", content_of(store, ("outputs", full), ("outputs", bare), ("experiments", experiment)))
    assert recover(store, OWNER) == 3
    assert sorted(store.read("outputs", OWNER), key=lambda row: row.run_id) == [full, bare]
    assert store.read("experiments", OWNER) == [experiment]


def test_an_empty_file_is_cleared_away(store: Store) -> None:
    leave_behind("p", b"")
    assert recover(store, OWNER) == 0
    assert spooled() == []


def test_nothing_left_behind_is_nothing_to_recover(store: Store) -> None:
    assert recover(store, OWNER) == 0


def test_only_the_owners_files_are_taken_up(store: Store, output: Make) -> None:
    leave_behind("p", content_of(store, ("outputs", output("a"))))
    assert recover(store, "exp-2") == 0
    assert len(spooled()) == 1


def test_files_of_several_parts_come_back_under_their_parts(store: Store, output: Make) -> None:
    for part in ("r0-0-10", "r0-10-20"):
        leave_behind(part, content_of(store, ("outputs", output(part))))
    assert recover(store, OWNER) == 2
    assert [row.run_id for row in store.read("outputs", OWNER, ["r0-10-20"])] == ["r0-10-20"]


def test_only_the_files_of_one_part_are_taken_up_if_it_is_named(store: Store, output: Make) -> None:
    """A process of a cluster takes up a chunk that was another's; what other chunks have is not its business."""
    for part in ("r0-0-10", "r0-0-100"):
        leave_behind(part, content_of(store, ("outputs", output(part))))
    assert recover(store, OWNER, part="r0-0-10") == 1
    assert [row.run_id for row in store.read("outputs", OWNER)] == ["r0-0-10"]
    assert len(spooled()) == 1


def test_recovering_twice_doubles_nothing(store: Store, output: Make) -> None:
    content = content_of(store, ("outputs", output("a")), ("outputs", output("b")))
    for _ in range(2):  # as if killed after the part was written and before the file was removed
        leave_behind("p", content)
        assert recover(store, OWNER) == 2
    assert recover(store, OWNER) == 0
    assert runs(store) == ["a", "b"]
    assert store.query("select count(*) from source.outputs") == [(2,)]


def test_a_recovered_failure_does_not_hide_a_success(store: Store, output: Make) -> None:
    store.append("outputs", OWNER, "p", [output("a", status="ok")])
    leave_behind("p", content_of(store, ("outputs", output("a", status="failed"))))
    recover(store, OWNER)
    assert [row.status for row in store.read("outputs", OWNER)] == ["ok"]


# Beside one that lives


def test_a_file_whose_block_is_not_left_is_passed_over(store: Store, output: Make) -> None:
    with Spool(store, OWNER, "p") as spool:
        spool.add("outputs", output("a"))
        assert recover(store, OWNER) == 0
        assert lines() == 1
    assert runs(store) == ["a"]


LIVING = """
import sys
from evalflows.store.parquet import Store
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spool_folder(Store()) == tmp_path / "spool"
    monkeypatch.delenv("EVALFLOWS_SPOOL")
    monkeypatch.chdir(tmp_path)
    assert spool_folder(Store()) == tmp_path / "store" / "spool"
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


def test_rows_given_as_columns_are_in_the_part_with_the_others(store: Store, output: Make) -> None:
    with Spool(store, OWNER, "p") as spool:
        spool.add("outputs", output("a"))
        columns = {"run_id": ["b", "c"], "experiment_id": [OWNER] * 2, "example_id": ["x", "y"], "repetition": [0, 1]}
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        spool.add_columns("outputs", {**columns, "status": ["ok"] * 2, "attempts": [1, 1], "recorded_at": [moment] * 2})
        assert lines() == 1
    found = store.read("outputs", OWNER)
    assert [(row.run_id, row.repetition, row.error) for row in found if row.run_id != "a"] == [
        ("b", 0, None),
        ("c", 1, None),
    ]
    assert len(found) == 3
