"""An erasure that is killed is finished by the next command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import personal
import pytest
from personal import SECRET, USER, figures, files_with

from evalflows.store.erasing import plans
from evalflows.store.retention import finish
from evalflows.store.store import Store

COMMAND = (sys.executable, "-m", "evalflows.cli.main", "forget", "--where", "customer_id=0", "--user", USER, "--yes")


@pytest.mark.slow
def test_a_killed_erasure_is_finished(store: Store, store_root: Path) -> None:
    personal.fill(store)
    personal.fill_production(store)
    before = figures(store)
    process = subprocess.Popen(COMMAND, env=os.environ.copy(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(store_root.glob("erasing/*.json")) and process.poll() is None:
        time.sleep(0.002)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finish(Store(store_root))
    assert files_with(SECRET, store_root) == [] and plans(store) == []
    after = figures(store)
    assert len(after.pop("erasures")) == 1
    assert after == {table: rows for table, rows in before.items() if table != "erasures"}
