"""The worst of many long examples: only the texts that are shown are held in memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = str(Path(__file__).parent.parent / "support")

KEPT = """
import json, sys
from store_rows import make_row
from evalflows.specs.dataset import DatasetSpec
from evalflows.store.ingest import load_dataset
from evalflows.store.store import Store
from evalflows.store.snapshots import load_snapshot
from evalflows.store.spool import Spool

text, n, store = "x" * 1_000_000, int(sys.argv[1]), Store()
with open("rows.jsonl", "w") as file:
    for number in range(n):
        file.write(json.dumps({"inputs": {"question": f"{number} {text}"}}) + "\\n")
snapshot = load_dataset(store, DatasetSpec(path="rows.jsonl")).keep(store)
spec = {"name": "x", "dataset": {"rows": [{"inputs": "?"}]}, "targets": [{"kind": "python", "function": "a:b"}]}
for name in ("exp-1", "exp-2"):
    with Spool(store, name, "part") as spool:
        for number, example in enumerate(load_snapshot(store, snapshot)):
            of = {"run_id": f"{name}-{number}", "experiment_id": name, "example_id": example.example_id}
            outputs = json.dumps({"output": f"{name} {example.inputs}"})
            spool.add("outputs", make_row("outputs", **of, repetition=0, status="ok", outputs=outputs))
            of |= {"judgement_id": f"{name}-{number}", "subject_id": f"{name}-{number}", "run_id": f"{name}-{number}"}
            value = 1.0 if name == "exp-2" else number / n
            spool.add("judgements", make_row("judgements", **of, metric="right", status="scored", value=value))
    store.seal(name, ["outputs", "judgements"])
    row = make_row(
        "experiments", experiment_id=name, snapshot_id=snapshot, n_examples=n, repetitions=1, spec=json.dumps(spec)
    )
    store.publish("experiments", name, [row])
"""

READ = """
import resource
from evalflows.reports.worst import worst_items
from evalflows.store.store import Store

for baseline in (None, "exp-2"):
    first, second = worst_items(Store(), "exp-1", baseline, "right", 2)
    assert first.inputs.startswith('{"question":"0 xxx') and len(first.outputs) > 1_000_000
    assert (first.baseline_outputs or "exp-2").count("exp-2") == 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def run(folder: Path, program: str, *arguments: str) -> str:
    paths = os.pathsep.join((SUPPORT, os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={"EVALFLOWS_STORE": "store", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def peak_mb(folder: Path, n: int) -> int:
    folder.mkdir()
    run(folder, KEPT, str(n))
    return int(run(folder, READ))


@pytest.mark.soak
def test_memory_does_not_grow_with_the_number_of_long_texts(tmp_path: Path) -> None:
    few, many = peak_mb(tmp_path / "few", 60), peak_mb(tmp_path / "many", 300)
    print(f"{few} MB for 60 examples of 1 MB, {many} MB for 300")
    assert many - few < 100, (few, many)  # of 240 MB of inputs and 480 MB of outputs
