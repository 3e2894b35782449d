"""Datasets and answers larger than what may be in memory: the peak does not grow with the number of rows."""

import subprocess
import sys
from pathlib import Path

import pytest

STAGE = """
import json, resource, sys
from evalflows.store.ingest import load_dataset
from evalflows.store.store import Store
from evalflows.store.records import OutputRow
from evalflows.store.snapshots import load_snapshot
from evalflows.store.spool import Spool
from evalflows.specs.dataset import DatasetSpec

text, n = "x" * 1_000_000, int(sys.argv[1])
with open("rows.jsonl", "w") as file:
    for number in range(n):
        file.write(json.dumps({"inputs": f"{number} {text}"}) + "\\n")
store = Store()
loaded = load_dataset(store, DatasetSpec(path="rows.jsonl"))
snapshot = loaded.keep(store)
with Spool(store, "exp-1", "part") as spool:
    for example in load_snapshot(store, snapshot):
        outputs = json.dumps({"output": example.inputs})
        run = dict(run_id=example.example_id, example_id=example.example_id, experiment_id="exp-1", repetition=0)
        spool.add("outputs", OutputRow(**run, outputs=outputs, status="ok"))
store.seal("exp-1", ["outputs"])
read = sum(len(row.outputs) > len(text) for row in store.rows("outputs", "exp-1"))
print(read, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def peak_mb(folder: Path, n: int) -> int:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", STAGE, str(n)],
        cwd=folder,
        env={"EVALFLOWS_STORE": "store"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    read, peak = map(int, done.stdout.split())
    assert read == n
    return peak


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_long_texts(tmp_path: Path) -> None:
    few, many = peak_mb(tmp_path / "few", 30), peak_mb(tmp_path / "many", 90)
    assert many - few < 30, (few, many)  # of 60 MB of inputs and as much of outputs
