"""Leases of processes whose clocks are an hour apart: never two at once, and one that is left behind is taken over."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROCESSES, TURNS = 4, 5
HOURS = (-1, 0, 1, 1)
PROGRAM = """
import os, sys, time
from datetime import timedelta
from pathlib import Path
from evalflows.store import leases, records
from evalflows.store.leases import hold_lease
from evalflows.store.store import Store

clock, by = records._clock, timedelta(hours=int(sys.argv[1]))
records._clock = lambda zone=None: clock(zone) + by
leases.RENEW_S, leases.EXPIRY_S, leases.SETTLE_S, leases.ObjectLease.poll_s = 0.3, 3.0, 0.3, 0.1
leases._machine = lambda: f"machine-{os.getpid()}"  # so that nobody knows whether the holder has ended
held = Path("held")
for turn in range(int(sys.argv[2])):
    with hold_lease(Store(), "group-1", "work", wait=True):
        held.mkdir()  # fails if another process has it
        print("held", flush=True)
        if len(sys.argv) > 3:
            held.rmdir()
            time.sleep(60)
        time.sleep(0.2)
        held.rmdir()
"""


@pytest.fixture(params=["folder", "s3"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    if request.param == "s3":
        request.getfixturevalue("s3_root")
    yield {**os.environ}


def started(environment: dict[str, str], folder: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, cwd=folder, text=True, stdout=-1, stderr=-1)


@pytest.mark.soak
def test_of_processes_an_hour_apart_one_at_a_time_has_a_lease(environment: dict[str, str], tmp_path: Path) -> None:
    running = [started(environment, tmp_path, hours, TURNS) for hours in HOURS]
    ended = [(process.communicate(timeout=200), process.returncode) for process in running]
    assert [(said, code) for (said, _), code in ended] == [("held\n" * TURNS, 0)] * PROCESSES, ended
    for own, other in ((1, -1), (-1, 1)):
        killed = started(environment, tmp_path, own, 1, "stays")
        assert killed.stdout and killed.stdout.readline() == "held\n"
        next_one = started(environment, tmp_path, other, 1)
        time.sleep(4)
        assert next_one.poll() is None and not (tmp_path / "held").exists(), "the first one renews it"
        killed.kill()
        killed.communicate()
        said, errors = next_one.communicate(timeout=60)
        assert (said, next_one.returncode) == ("held\n", 0), errors
