"""A gate whose rules, or whose data, are not those of its file at the commit."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from gated import drawn, gated

from evalflows.analysis.committed_rules import uncommitted_rules
from evalflows.cli.main import cli
from evalflows.specs.experiment import load_experiment

pytestmark = pytest.mark.usefixtures("without_prefect")

FLOOR = {"name": "floor", "thresholds": {"exact_match": 0.9}, "min_examples": 5}


def commit(folder: Path, *files: str) -> None:
    for arguments in (["init"], ["add", *files], ["commit", "-m", "first"]):
        own = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_gate_says_that_its_rules_differ_from_the_file_at_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the file, a copy of it or `--set` differs. What is tried is no rule."""
    fields: dict[str, Any] = gated(tmp_path, [FLOOR], app=drawn(12, 0.9))
    spec = tmp_path / "spec.yaml"

    def write(path: Path, **changes: Any) -> None:
        path.write_text(yaml.safe_dump(fields | changes))

    def said(path: Path, *changes: str) -> str | None:
        return uncommitted_rules(path, load_experiment(path, changes))

    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    write(spec)
    assert said(spec) is None, "not in git"
    commit(tmp_path, "spec.yaml")
    assert said(spec, "tags=[tried]", "max_concurrency=3") is None
    differ = said(spec, "final_looks=9", "gates.0.thresholds.exact_match=0.5")
    assert differ and differ.startswith("the rules differ from spec.yaml at commit ")
    assert differ.endswith(": gates.0.thresholds.exact_match is 0.5 here, 0.9 there; and 1 more")
    write(tmp_path / "copy.yaml", gates=[FLOOR | {"thresholds": {"exact_match": 0.5}}])
    assert (said(tmp_path / "copy.yaml") or "").startswith("the rules are not committed: copy.yaml at")

    write(spec, gates=[FLOOR | {"thresholds": {"exact_match": 0.5}}])
    for command in ("gate", "run"):
        done = CliRunner().invoke(cli, [command, str(spec)])
        assert done.exit_code == 0, done.output
        assert "the rules differ from spec.yaml at commit" in " ".join(done.stdout.split()), command


def test_a_gate_says_that_the_file_of_its_dataset_is_not_that_at_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    fields: dict[str, Any] = gated(tmp_path, [FLOOR], app=drawn(12, 0.9))
    lines = [json.dumps(row) + "\n" for row in fields["dataset"]["rows"]]
    Path("data").mkdir()
    for name in ("qa", "other"):
        Path(f"data/{name}.jsonl").write_text("".join(lines))
    Path("spec.yaml").write_text(yaml.safe_dump(fields | {"dataset": "data/qa.jsonl"}))
    commit(tmp_path, "spec.yaml", "data/qa.jsonl")

    def said(*changes: str) -> str:
        return uncommitted_rules(Path("spec.yaml"), load_experiment("spec.yaml", changes)) or ""

    assert not said()
    assert said("dataset=data/other.jsonl").endswith("dataset.path is 'data/other.jsonl' here, 'data/qa.jsonl' there")
    Path("data/qa.jsonl").write_text("".join(lines[:6]))
    assert said() == "data/qa.jsonl has changed since the commit"
    assert said("final_looks=9").endswith("; data/qa.jsonl has changed since the commit")
