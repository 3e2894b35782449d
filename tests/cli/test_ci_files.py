"""The files that `gate` writes for CI systems: they say what it says, and are there however it decides."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result
from endpoint import Endpoint, serving
from failing_service import Service, chat, connection, spec
from gated import drawn, fallen, gated

from evalflows.cli.gates import _write_files
from evalflows.cli.main import cli
from evalflows.specs.errors import InputError
from evalflows.specs.gate import GateSpec
from evalflows.store import connect

GUARD = {"name": "release", "non_inferiority": {"exact_match": 0.05}, "thresholds": {"exact_match": 0.1}}
OLD = drawn(200, 0.8)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {"--junit": tmp_path / "junit.xml", "--json": tmp_path / "gate.json", "--summary": tmp_path / "summary.md"}


def gate(folder: Path, files: dict[str, Path], *arguments: str, **right: Any) -> Result:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(gated(folder, [GUARD], **right)))
    options = [str(part) for pair in files.items() for part in pair]
    return CliRunner().invoke(cli, ["gate", str(path), *options, *arguments])


def counts(path: Path) -> tuple[int, int, int]:
    root = ElementTree.parse(path).getroot()
    return tuple(len(root.findall(f".//{tag}")) for tag in ("testcase", "failure", "error"))  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_the_files_say_what_the_exit_code_says(tmp_path: Path, files: dict[str, Path]) -> None:
    files["--summary"].write_text("# of an earlier step\n")
    done = gate(tmp_path, files, "--format", "json", old=OLD, new=fallen(OLD, 0.2))
    assert done.exit_code == 1, done.stderr
    assert counts(files["--junit"]) == (2, 1, 0)
    assert json.loads(files["--json"].read_text()) == json.loads(done.stdout)
    summary = files["--summary"].read_text()
    assert summary.startswith("# of an earlier step\n## FAIL\n") and "| new | exact_match |" in summary
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*.tmp"))


def test_a_gate_that_did_not_pass_keeps_its_exit_code_if_a_file_cannot_be_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Full:
        def write(self, store: Any, report: Any) -> None:
            raise InputError("--junit: no space left")

    files: Any = Full()
    report: Any = None
    _write_files(report, files, report, is_red=True)
    assert capsys.readouterr().err == "evalflows: --junit: no space left\n"
    with pytest.raises(InputError, match="no space left"):
        _write_files(report, files, report, is_red=False)


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_an_incomplete_run_has_its_files_too(tmp_path: Path, files: dict[str, Path]) -> None:
    with serving(Endpoint(latency_s=0.001, answer=Service())) as endpoint:
        gates = [GateSpec(name="release", thresholds={"contains": 0.1})]
        asked = spec({"judge": connection(endpoint)}, **chat(), max_calls=10, gates=gates)
        (tmp_path / "spec.json").write_text(asked.model_dump_json())
        options = [str(part) for pair in files.items() for part in pair]
        done = CliRunner().invoke(cli, ["gate", str(tmp_path / "spec.json"), *options])
    assert done.exit_code == 4, done.output
    (error,) = ElementTree.parse(files["--junit"]).getroot().findall(".//error[@type='incomplete']")
    assert "the budget is spent (10 of 10 calls)" in error.attrib["message"]
    assert files["--summary"].read_text().startswith("**Incomplete:** ")
    assert json.loads(files["--json"].read_text())["experiments"][0]["state"] == "incomplete"


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "such" / "file"
    for option, place, message in (
        ("--junit", nowhere, "wanted a file in a folder that exists"),
        ("--json", nowhere, "wanted a file in a folder that exists"),
        ("--summary", tmp_path, "which is a folder, wanted a file"),
    ):
        done = gate(tmp_path, {option: place}, old=OLD[:20], new=OLD[:20])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith(f"evalflows: {option}: got ") and message in done.stderr
    with connect() as catalog:
        assert catalog.execute("select count(*) from experiments").fetchall() == [(0,)]


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_without_a_file_the_summary_goes_where_github_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    done = gate(tmp_path, {}, "--summary", old=OLD, new=OLD)
    assert done.exit_code == 2 and "GITHUB_STEP_SUMMARY is not set" in done.stderr
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    junit = tmp_path / "junit.xml"
    assert gate(tmp_path, {"--junit": junit}, "--summary", old=OLD, new=OLD).exit_code == 0
    assert (tmp_path / "step.md").read_text().startswith("## PASS\n") and counts(junit) == (2, 0, 0)
