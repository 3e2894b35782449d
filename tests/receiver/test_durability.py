"""What was answered 200 is stored once, whatever happens to the receiver, the disk or the store."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import Client, body_of, names
from otlp_requests import span, traces
from receiving import Batches, Load, kill_repeatedly, receiving, start

from evalflows import receiver
from evalflows.receiver import Entry, Folding, Intake, Journal, Limits
from evalflows.specs.errors import StorageError
from evalflows.store.doctor import examine
from evalflows.store.observations import day_of, open_owners, write_observations
from evalflows.store.records import now
from evalflows.store.spool import RECEIVED, spool_folder
from evalflows.store.store import Store
from evalflows.telemetry.otlp import rows_of_traces

ENTRY = Entry("traces", "protobuf", body_of("a"))


@pytest.fixture
def folder(store: Store) -> Path:
    return spool_folder(store) / RECEIVED


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fold(store: Store, journal: Journal) -> None:
    Folding(store, journal)._fold()


def test_what_a_dead_receiver_left_is_stored_by_the_next(
    store: Store, folder: Path, served: Callable[..., Any]
) -> None:
    dead = Journal(folder)
    dead.write([ENTRY, Entry("traces", "protobuf", body_of("a", "b"))])
    dead.close()
    with served():
        pass
    assert names(store) == ["a", "b"]
    assert not folder.exists()


def test_a_living_receivers_journal_is_its_own(store: Store, folder: Path, served: Callable[..., Any]) -> None:
    living = Journal(folder)
    living.write([ENTRY])
    with served():
        pass
    assert names(store) == []
    fold(store, living)
    assert names(store) == ["a"]


def test_rows_that_were_written_but_not_removed_from_the_journal_are_not_doubled(store: Store, folder: Path) -> None:
    journal = Journal(folder)
    journal.write([ENTRY])
    taken = journal.take()
    assert taken is not None
    for batch in receiver._batches(taken):
        batch.write(store)  # and here it was killed
    journal.give_back(taken)
    fold(store, journal)
    assert len(store.open_parts("observations", "2026-01-01")) == 2
    assert names(store) == ["a"]


def test_what_rows_repeat_of_their_requests_counts_for_what_is_written_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "BYTES_AT_ONCE", 100_000)
    spans = (span("a", span_id=f"{number:016x}") for number in range(1, 100))
    body = traces(*spans, resource={"host": "x" * 1000}).SerializeToString()
    journal = Journal(folder)
    journal.write([Entry("traces", "protobuf", body)] * 3)
    assert len(body) < 10_000 and (taken := journal.take()) is not None
    assert [batch.telemetry.n_rows for batch in receiver._batches(taken)] == [99, 99, 99]


@pytest.mark.parametrize("kept", [1, 7, 8, 20, 39])
def test_a_torn_end_was_answered_to_nobody(kept: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(folder)
    journal.write([ENTRY, ENTRY])
    taken = journal.take()
    assert taken is not None
    os.truncate(taken.path, taken.size // 2 + kept)
    taken.release()
    journal.recover()
    recovered = journal.take()
    assert recovered is not None
    assert list(recovered.entries()) == [ENTRY]
    assert not list(folder.glob("*.damaged")) and not capsys.readouterr().err


def test_an_altered_entry_is_set_aside_and_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(folder)
    journal.write([ENTRY, ENTRY])
    taken = journal.take()
    assert taken is not None
    content = bytearray(taken.path.read_bytes())
    content[taken.size // 2 + 20] ^= 1
    taken.path.write_bytes(content)
    assert list(taken.entries()) == [ENTRY]
    (aside,) = folder.glob("*.damaged")
    assert aside.read_bytes() == content[taken.size // 2 :]
    assert f"in {aside}" in capsys.readouterr().err


def test_an_entry_that_has_become_unreadable_does_not_hold_up_the_others(store: Store, folder: Path) -> None:
    journal = Journal(folder)
    unreadable = Entry("traces", "protobuf", b"\xff\xff")
    journal.write([unreadable, ENTRY])
    fold(store, journal)
    assert names(store) == ["a"]
    (aside,) = folder.glob("*.damaged")
    assert aside.read_bytes() == unreadable.to_bytes()
    assert aside.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("alone", [1, receiver.ALONE])
def test_what_kills_each_process_is_set_aside_if_it_is_large_and_the_others_are_stored(
    alone: int, store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Killed(BaseException):
        pass

    def rows(entry: Entry) -> Any:
        if b"bomb" in entry.body:
            raise Killed
        return telemetry_of(entry)

    monkeypatch.setattr(receiver, "ALONE", alone)
    bodies = [body_of(name, trace_id=f"{n + 1:032x}") for n, name in enumerate(("a", "b", "bomb", "c"))]
    journal, times = Journal(folder), 0
    journal.write([Entry("traces", "protobuf", body) for body in bodies])
    taken = journal.take()
    telemetry_of = receiver.telemetry_of
    monkeypatch.setattr(receiver, "telemetry_of", rows)
    monkeypatch.setattr(Journal, "give_back", lambda *_: None)  # nor does a killed process
    while taken is not None and times < 9:
        monkeypatch.setattr(journal, "take", iter([taken, None]).__next__)
        try:
            fold(store, journal)
        except Killed:
            times += 1
        else:
            taken = None
    if alone > 1:  # kill -9, which hits any
        assert times == 9 and not list(folder.glob("*.damaged"))
        return
    assert times == 1 + receiver.ENDED
    assert names(store) == ["a", "b", "c"]
    (aside,) = folder.iterdir()
    assert (aside.suffix, aside.read_bytes()) == (".damaged", Entry("traces", "protobuf", bodies[2]).to_bytes())
    assert aside.stat().st_mode & 0o777 == 0o600
    assert "bytes of the receiver's journal with which 3 processes were killed, in " in capsys.readouterr().err


def test_past_days_are_sealed_and_today_stays_open(store: Store, served: Callable[..., Any]) -> None:
    write_observations(
        store, rows_of_traces(traces(span("old"), span("new", span_id="ab" * 8, start=time.time_ns()))).observations
    )
    with served():
        wait_until(lambda: open_owners(store, "observations") == [day_of(now())])
    assert names(store) == ["new", "old"]


def test_the_doctor_names_what_waits_and_what_cannot_be_read(store: Store, folder: Path) -> None:
    journal = Journal(folder)
    journal.write([ENTRY])
    taken = journal.take()
    assert taken is not None
    taken.set_aside(b"unreadable")
    problems = {Path(finding.path).suffix: finding.problem for finding in examine(store).findings}
    assert problems == {
        ".journal": "spans that a running or killed receiver has accepted",
        ".damaged": "requests of the receiver's journal that could not be stored",
    }


# a disk that fails


def test_what_cannot_be_synced_is_refused_and_may_be_sent_again(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        answer = client.post(body_of("a"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert client.refusal(body_of("a")) == (503, "the receiver cannot write to its disk")
        health = client.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "the last write failed")
    assert client.post(body_of("b")).status_code == 200
    assert client.http.get("/health").status_code == 200
    client.receiver.stop()
    assert names(store) == ["b"]


def test_a_store_that_cannot_be_written_is_tried_again(
    served: Callable[..., Any], store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = []

    def fail(*_: object, **__: object) -> None:
        tried.append(1)
        raise StorageError("/a/path: No space left on device")

    with served() as client:
        with monkeypatch.context() as patch:
            patch.setattr(receiver, "write_observations", fail)
            assert client.post(body_of("a")).status_code == 200
            wait_until(lambda: len(tried) > 3)
            assert client.http.get("/health").json()["status"] == "/a/path: No space left on device"
        wait_until(lambda: names(store) == ["a"])
    assert capsys.readouterr().err.count("No space left") == 1, "said once"


def test_what_could_not_be_stored_at_the_end_is_kept_for_the_next_start(
    served: Callable[..., Any], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("/a/path: No space left on device")

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="is kept for the next start"):
        patch.setattr(receiver, "write_observations", fail)
        with served() as client:
            client.post(body_of("a"))
    assert names(store) == []
    with served():
        pass
    assert names(store) == ["a"]


# full


def test_a_full_journal_refuses_more_until_it_was_folded(
    served: Callable[..., Any], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("/a/path: Permission denied")

    with served(limits=Limits(pending=1)) as client:
        with monkeypatch.context() as patch:
            patch.setattr(receiver, "write_observations", fail)
            assert client.post(body_of("a")).status_code == 200
            answer = client.post(body_of("a", "b"))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert client.http.get("/health").status_code == 503
        wait_until(lambda: client.http.get("/health").status_code == 200)
        assert names(store) == ["a"]
        assert client.post(body_of("a", "b")).status_code == 200
        client.receiver.stop()
    assert names(store) == ["a", "b"]


def test_requests_beyond_the_memory_for_them_are_refused(served: Callable[..., Any], store: Store) -> None:
    with served(limits=Limits(held=10)) as client:
        status, reason = client.refusal(body_of("a"))
        assert (status, reason) == (503, "too many requests at once")
        assert client.http.get("/health").status_code == 200, "that request has ended"


def test_entries_that_wait_together_are_synced_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    journal = Journal(folder)
    write = journal.write

    def slow(entries: Any) -> None:
        time.sleep(0.05)
        written.append(len(entries))
        write(entries)

    monkeypatch.setattr(journal, "write", slow)

    async def send() -> None:
        intake = Intake(journal)
        intake.start()
        await asyncio.gather(*(intake.keep(ENTRY) for _ in range(20)))
        intake.stop()

    asyncio.run(send())
    assert sum(written) == 20
    assert len(written) <= 3
    taken = journal.take()
    assert taken is not None
    assert list(taken.entries()) == [ENTRY] * 20


# processes


@pytest.mark.parametrize(
    "after_s",
    [pytest.param([0.3, 0.7], marks=pytest.mark.slow), pytest.param([0.3, 1.2, 0.7, 2.0, 0.1], marks=pytest.mark.soak)],
)
def test_killed_under_load_it_loses_and_doubles_nothing(tmp_path: Path, after_s: list[float]) -> None:
    kept = kill_repeatedly(tmp_path / "killed", len(after_s), Load(Batches(64)), after_s)
    assert kept.answered > 100
    assert (kept.lost, kept.doubled) == (0, 0)
    assert kept.answered <= kept.stored <= kept.sent


@pytest.mark.slow
def test_two_receivers_share_a_store(tmp_path: Path) -> None:
    store, load = tmp_path / "shared", Load(Batches(64), clients=1)
    with receiving(store) as first, receiving(store) as second, load.on(first.url, 5_000), load.on(second.url, 5_000):
        pass
    with receiving(store):
        pass
    stored = [name for (name,) in Store(store).query("select span_id from source.observations")]
    assert sorted(stored) == sorted(load.answered)
    assert load.statuses == {200}


@pytest.mark.slow
def test_a_stopped_receiver_finishes_what_it_accepted(tmp_path: Path) -> None:
    store, load = tmp_path / "stopped", Load(Batches(64))
    running = start(store)
    with load.on(running.url):
        time.sleep(0.7)
        running.process.send_signal(signal.SIGTERM)
        output, _ = running.process.communicate(timeout=60)
    assert (running.process.returncode, output.splitlines()[-1]) == (
        0,
        "stopped; everything accepted is in the store",
    )
    stored = {name for (name,) in Store(store).query("select span_id from source.observations")}
    assert load.answered and {*load.answered} <= stored <= {*load.sent}
    assert not Path(f"{store}-spool", RECEIVED).exists()
