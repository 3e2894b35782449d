"""Four runs at once, again and again, and a reader: no wrong read, and none that fails."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from trials import READING_S

from evalflows.store.store import Store

pytestmark = [pytest.mark.usefixtures("prefect_api"), pytest.mark.soak]

ITEMS = 60
EVALUATORS = ["exact_match", "contains"]

STATES = """
select e.experiment_id, e.state, e.n_examples,
       (select count(*) from source.outputs o where o.experiment_id = e.experiment_id),
       (select count(*) - count(distinct run_id) from source.outputs o where o.experiment_id = e.experiment_id),
       (select count(*) from staging.scores s where s.experiment_id = e.experiment_id),
       (select count(*) - count(distinct score_id) from staging.scores s where s.experiment_id = e.experiment_id)
from source.experiments e
"""


def write_spec(folder: Path, name: str) -> None:
    rows = [
        {"inputs": {"q": f"{name} {i}"}, "outputs": {"a": "yes"}, "metadata": {"said": "yes"}} for i in range(ITEMS)
    ]
    spec = {
        "name": name,
        "dataset": {"rows": rows},
        "targets": [{"kind": "recorded", "column": "said"}],
        "evaluators": EVALUATORS,
        "chunk_size": 5,
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))


def start(folder: Path, name: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("evalflows")), "run", f"{name}.yaml"]
    return subprocess.Popen(
        command, cwd=folder, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


class Reader:
    """Reads the states of all experiments, and checks them against those of its last reading."""

    def __init__(self) -> None:
        self._store, self._seen = Store(), dict[str, tuple[int, int]]()
        self.readings = self.completed = 0

    def read(self) -> None:
        self.completed = 0
        rows = self._store.query(STATES)
        for identity, state, n_examples, outputs, doubled, scores, scores_doubled in rows:
            assert (doubled, scores_doubled) == (0, 0), identity
            before = self._seen.get(identity, (0, 0))
            assert (outputs >= before[0], scores >= before[1]) == (True, True), f"{identity}: rows vanished"
            self._seen[identity] = outputs, scores
            assert outputs <= n_examples and scores <= n_examples * len(EVALUATORS)
            if state == "completed":
                assert (outputs, scores) == (n_examples, n_examples * len(EVALUATORS)), identity
                self.completed += 1
        assert len(rows) == len(self._seen), "experiments vanished"
        self.readings += 1


def test_four_runs_and_a_reader(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    names = ["one", "two", "three", "four"]
    for name in names:
        write_spec(tmp_path, name)
    reader, until, ended = Reader(), time.monotonic() + READING_S, 0
    running = {name: start(tmp_path, name, prefect_environment) for name in names}
    while running:
        reader.read()
        for name, process in [*running.items()]:
            if process.poll() is None:
                continue
            output, _ = process.communicate()
            assert process.returncode == 0, output
            ended += 1
            del running[name]
            if time.monotonic() < until:
                running[name] = start(tmp_path, name, prefect_environment)
    reader.read()
    print(f"{ended} runs, {reader.readings} readings")
    assert reader.completed == ended >= 4 and reader.readings > 10
