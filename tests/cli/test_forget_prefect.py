"""After `evalflows forget`, nothing of the erased is left in the local Prefect server's folder, and the rest stays."""

import json
import os
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import command
from homes import prepared
from personal import OTHER, SECRET, files_with

SPEC = """
name: {name}
dataset:
  name: {name}
  rows: [{{id: {name}, inputs: {{question: "{words}"}}, metadata: {{note: "{words}"}}}}]
  expectations:
    - {{type: expect_column_values_to_be_in_set, severity: warning,
        kwargs: {{column: metadata.note, value_set: [x]}}}}
targets: [{{name: bot, kind: python, function: "bots:{name}"}}]
evaluators: [{{use: "bots:label"}}]
"""
BOTS = """
def erna(inputs):
    raise ValueError(f"cannot answer {inputs}")

def otto(inputs):
    return {"answer": inputs["question"]}

def label(outputs):
    return str(outputs["answer"])
"""

PROGRAM = """
import sys
import yaml
from evalflows import run
from evalflows.specs import ExperimentSpec, IncompleteError

try:
    for spec in yaml.safe_load_all(sys.stdin):
        run(ExperimentSpec.model_validate(spec))
except IncompleteError:
    sys.exit(4)
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """That of commands with a local server of their own, in the folder of their modules."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bots.py").write_text(BOTS)
    home = {"EVALFLOWS_HOME": str(prepared(tmp_path / "home")), "PREFECT_HOME": str(tmp_path / "prefect")}
    own = os.environ | home | {"PYTHONPATH": str(tmp_path)}
    own.pop("PREFECT_API_URL", None)
    own.pop("PYTEST_VERSION", None)  # by which the server would end with the first command
    own.pop("CI", None)
    yield own
    subprocess.run(command("down"), env=own, check=True, capture_output=True)


def asked(home: Path, path: str) -> Any:
    """What the server answers when it is asked for all of something."""
    server = json.loads((home / "server.json").read_text())
    secret = b64encode((home / "auth").read_text().strip().encode()).decode()
    headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/json"}
    url = f"http://127.0.0.1:{server['port']}/api/{path}/filter"
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=60) as answer:
        return json.load(answer)


@pytest.mark.slow
@pytest.mark.server
def test_a_run_that_failed_with_a_persons_words_leaves_none(environment: dict[str, str], tmp_path: Path) -> None:
    specs = [SPEC.format(name=name, words=words) for name, words in (("otto", OTHER), ("erna", SECRET))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, input="---".join(specs), capture_output=True, text=True
    )
    assert done.returncode == 4, done.stderr
    (home,), results = (tmp_path / "home").glob("prefect-*"), tmp_path / "home" / "results"
    assert SECRET in str(asked(home, "logs")) and SECRET in str(asked(home, "flow_runs"))
    assert SECRET not in str(asked(home, "artifacts")), "pages quote no value of the data"
    assert [*results.iterdir()] and results.stat().st_mode & 0o077 == 0 and OTHER in str(asked(home, "artifacts"))
    forget = command("forget", "--example", "erna", "--yes")
    forgot = subprocess.run(forget, env=environment, capture_output=True, text=True)
    assert forgot.returncode == 0 and "runs in Prefect's local server that lost" in forgot.stdout, forgot.stderr
    assert files_with(SECRET, tmp_path) == [] and not [*results.iterdir()]
    assert OTHER in str(asked(home, "artifacts")), "what the store knows to be about something else stays"
    assert {one["name"] for one in asked(home, "flow_runs")} == {"erna", "otto"}
    assert asked(home, "events")["events"] and asked(home, "logs") and asked(home, "task_runs")
