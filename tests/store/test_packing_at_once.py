"""Packing while other processes write, reopen and read the same owners: nothing is lost, doubled or mixed up."""

import subprocess
import sys
from pathlib import Path

import pytest

from evalflows.store.doctor import examine
from evalflows.store.store import Store

PROGRAM = """
import random, sys, time
from evalflows.store import packing
from evalflows.store.store import Store
from evalflows.store.records import OutputRow

store, until = Store(), time.monotonic() + float(sys.argv[2])

def output(owner, number):
    return OutputRow(run_id=f"{owner}/{number}", experiment_id=owner, example_id="x", repetition=0, status="ok")

def pack():
    packing.SETTLED_S = 0.0
    while time.monotonic() < until:
        packing.pack(store)

def write():
    owners = []
    while time.monotonic() < until or len(owners) < 2:  # a store that never rests lets a writer wait
        owners.append(f"exp-{len(owners)}")
        store.publish("outputs", owners[-1], [output(owners[-1], 0)])
        owner = random.choice(owners)
        before = len(store.read("outputs", owner))
        store.reopen(owner, ["outputs"])
        store.append("outputs", owner, "p", [output(owner, before)])
        store.seal(owner, ["outputs"])
        assert len(store.read("outputs", owner)) == before + 1
    print(len(owners))

def read():
    seen = 0
    while time.monotonic() < until:
        ((rows, keys),) = store.query("select count(*), count(distinct run_id) from source.outputs")
        assert rows == keys and rows >= seen, (rows, keys, seen)
        seen = rows

{"pack": pack, "write": write, "read": read}[sys.argv[1]]()
"""


@pytest.mark.parametrize("seconds", [pytest.param(3, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.soak)])
def test_processes_that_pack_write_and_read_at_once(store_root: Path, store: Store, seconds: int) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, role, str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for role in ("write", "pack", "read")
    ]
    (owners, *_), errors = zip(*(process.communicate(timeout=120) for process in started), strict=True)
    assert [process.returncode for process in started] == [0, 0, 0], b"".join(errors).decode()
    ((rows, n_owners),) = store.query("select count(*), count(distinct experiment_id) from source.outputs")
    assert n_owners == int(owners) > 1 and rows == 2 * n_owners
    assert examine(store).is_sound
