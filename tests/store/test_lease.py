"""Leases of stores in folders and in memory: one has it, the others see who; one that is left behind is taken over."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.errors import InputError, StorageError
from evalflows.store import leases
from evalflows.store.leases import hold_lease, refuse_if_in_use
from evalflows.store.object_store import ObjectFiles
from evalflows.store.records import now
from evalflows.store.store import Store

NAME, WORK = "group-1", "experiment 'faq'"
HOLDS = """
import sys, time
from evalflows.store.leases import hold_lease
from evalflows.store.store import Store
with hold_lease(Store(), "group-1", "work", wait=True):
    print("held", flush=True)
    if "fork" in sys.argv:
        import os
        if not os.fork():
            time.sleep(60)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of object stores are renewed every 40 ms, and expire after half a second."""
    monkeypatch.setattr(leases, "RENEW_S", 0.04)
    monkeypatch.setattr(leases, "EXPIRY_S", 0.5)
    monkeypatch.setattr(leases, "SETTLE_S", 0.01)
    monkeypatch.setattr(leases.ObjectLease, "poll_s", 0.02)


@pytest.fixture
def holding(store: Store, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, getattr(request, "param", "")], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout and process.stdout.readline() == b"held\n"
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def left_behind(store: Store, **changes: Any) -> None:
    """Write the lease of a process that died a second ago."""
    fs = store.filesystem
    at = (now() - timedelta(seconds=1)).isoformat()
    body = {"host": "elsewhere", "pid": 7, "since": at, "token": "dead", "renewed_at": at} | changes
    fs.pipe_file(store.layout.lease(NAME), json.dumps(body).encode())


def token(store: Store) -> str:
    fs = store.filesystem
    return str(json.loads(fs.cat_file(store.layout.lease(NAME)))["token"])


def test_a_held_lease_is_refused_in_one_line_and_free_afterwards(any_store: Store) -> None:
    for error in (None, KeyboardInterrupt, None):
        refuse_if_in_use(any_store, NAME, WORK)
        with suppress(KeyboardInterrupt), hold_lease(any_store, NAME, WORK, wait=False) as lease:
            lease.check()
            line = rf"experiment 'faq': in use by process {os.getpid()} on \S+, since 20.* UTC; wait until it has ended"
            with pytest.raises(InputError, match=line), hold_lease(any_store, NAME, WORK, wait=False):
                pytest.fail("two had it")
            with pytest.raises(InputError, match=line):
                refuse_if_in_use(any_store, NAME, WORK)
            with hold_lease(any_store, "group-2", WORK, wait=False):
                pass
            if error:
                raise error
    assert not list(Path(any_store.layout.root).glob("leases/*"))
    with pytest.raises(InputError, match="wanted an id"), hold_lease(any_store, "../x", WORK, wait=False):
        pytest.fail("a name stays in its folder")


def test_of_many_threads_one_has_it_at_a_time(any_store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    inside: list[int] = []

    def work(me: int) -> int:
        with hold_lease(any_store, NAME, WORK, wait=True):
            inside.append(me)
            most = len(inside)
            time.sleep(0.15)
            inside.remove(me)
        return most

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(work, range(4))] == [1, 1, 1, 1]
    assert "evalflows: experiment 'faq': waiting for" in capsys.readouterr().err


@pytest.mark.parametrize("holding", ["", "fork"], indirect=True)
def test_another_process_is_named_and_killed_leaves_nothing(store: Store, holding: subprocess.Popen[bytes]) -> None:
    """Even if a process that it forked lives on."""
    line = rf"process {holding.pid} on .* wait until it has ended or stop it \(`kill {holding.pid}`\), then try again"
    with pytest.raises(InputError, match=line), hold_lease(store, NAME, WORK, wait=False):
        pytest.fail("two had it")
    holding.kill()
    holding.wait()
    with hold_lease(store, NAME, WORK, wait=False):
        pass


def test_a_lock_on_a_file_that_its_holder_has_just_removed_is_no_lease(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(store.layout.lease(NAME))
    first, second, lock = *(leases.FileLease(store.filesystem, path) for _ in range(2)), leases.try_lock
    assert first.take() is None

    def released_first(*given: Any, **options: Any) -> bool:
        first.release()
        return lock(*given, **options)

    monkeypatch.setattr(leases, "try_lock", released_first)
    assert second.take() is None and path.exists(), "it has locked the file of the others"
    second.release()


# Object stores


@pytest.fixture
def objects(memory_root: str) -> Store:
    return Store(memory_root)


@pytest.mark.parametrize("changes", [{}, {"renewed_at": "2100-01-01T00:00:00+00:00"}, {"pid": None, "token": None}])
def test_an_expired_lease_is_taken_over(objects: Store, changes: dict[str, Any]) -> None:
    left_behind(objects, **changes)
    refuse_if_in_use(objects, NAME, WORK)
    with hold_lease(objects, NAME, WORK, wait=False):
        assert token(objects) not in ("dead", "None")
    refuse_if_in_use(objects, NAME, WORK)


def test_the_lease_of_a_process_of_this_machine_that_has_ended_is_free(
    objects: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, also as long as nobody has asked how it ended."""
    monkeypatch.setattr(leases, "EXPIRY_S", 60.0)
    with hold_lease(objects, NAME, WORK, wait=False):
        here = json.loads(objects.filesystem.cat_file(objects.layout.lease(NAME)))["machine"]
    process = subprocess.Popen(["sleep", "60"])
    running = {"pid": process.pid, "renewed_at": now().isoformat()}
    for machine in (here, "elsewhere"):
        left_behind(objects, **running, machine=machine)
        with pytest.raises(InputError, match="in use by process"):
            refuse_if_in_use(objects, NAME, WORK)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(InputError, match="in use by process"):
        refuse_if_in_use(objects, NAME, WORK)
    for _ in range(2):
        left_behind(objects, **running, machine=here)
        refuse_if_in_use(objects, NAME, WORK)
        with hold_lease(objects, NAME, WORK, wait=False):
            pass
        process.wait()


def test_a_holder_whose_clock_is_behind_keeps_its_lease(objects: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(objects)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(0.02):
            left_behind(objects, renewed_at=(now() - timedelta(days=1)).isoformat())

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(InputError, match=r"process 7 on elsewhere.*`kill 7` on elsewhere"):
            hold_lease(objects, NAME, WORK, wait=False).__enter__()
    finally:
        stop.set()
        thread.join()


def test_who_loses_the_lease_stops(objects: Store) -> None:
    lost = threading.Event()
    with (
        pytest.raises(StorageError, match=r"leases/group-1.json: the lease was lost"),
        hold_lease(objects, NAME, WORK, wait=False, on_loss=lost.set) as lease,
    ):
        left_behind(objects, renewed_at=now().isoformat())
        assert lost.wait(5)
        lease.check()
    assert token(objects) == "dead", "the other one keeps it"


@pytest.mark.parametrize("conditions", [True, False])
def test_of_several_that_create_it_at_once_one_has_it(
    objects: Store, monkeypatch: pytest.MonkeyPatch, conditions: bool
) -> None:
    """Also if the server ignores conditions: the one that wrote last."""
    monkeypatch.setattr(ObjectFiles, "honours_conditions", lambda self: conditions)
    monkeypatch.setattr(leases, "SETTLE_S", 0.1)
    barrier = threading.Barrier(3)

    def take(_: int) -> bool:
        barrier.wait()
        try:
            with hold_lease(objects, NAME, WORK, wait=False):
                time.sleep(0.3)
        except InputError:
            return False
        return True

    with ThreadPoolExecutor(3) as threads:
        assert sorted(threads.map(take, range(3))) == [False, False, True]


def test_a_lease_that_is_renewed_does_not_expire(objects: Store) -> None:
    with hold_lease(objects, NAME, WORK, wait=False):
        time.sleep(0.6)
        with pytest.raises(InputError, match="in use"), hold_lease(objects, NAME, WORK, wait=False):
            pytest.fail("two had it")
