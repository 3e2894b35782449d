"""evalflows init: what it writes, what it keeps, and that the commands it prints run as they are."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result

import evalflows.cli.init
from evalflows.cli.init import SKILL
from evalflows.cli.main import cli

WRITTEN = [
    "evals/__init__.py",
    "evals/experiment.yaml",
    "evals/questions.jsonl",
    "evals/target.py",
    "evals/evaluators.py",
    "evals/test_evals.py",
    "prefect.yaml",
    ".github/workflows/evals.yml",
    ".gitignore",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def init(*options: str) -> Result:
    return CliRunner().invoke(cli, ["init", *options])


def lines(result: Result, action: str) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line.removeprefix(action).strip() for line in result.stdout.splitlines() if line.startswith(action)]


def commands(result: Result) -> list[str]:
    """The commands that it prints to run next."""
    return [line.strip() for line in result.stdout.splitlines() if line.startswith("  ")]


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder; None for a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_an_empty_folder_and_a_second_time(here: Path) -> None:
    done = init()
    assert lines(done, "wrote") == WRITTEN
    assert lines(done, "kept") == []
    before = contents(here)
    assert {name for name, content in before.items() if content is not None} == set(WRITTEN)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert [command.split()[:4] for command in commands(done)] == [
        ["evalflows", "gate", "evals/experiment.yaml", "#"],
        ["python", "-m", "pytest", "evals/test_evals.py"],
    ]
    again = init()
    assert (lines(again, "wrote"), lines(again, "added"), lines(again, "kept")) == ([], [], WRITTEN)
    assert contents(here) == before


def test_files_that_exist_are_kept_and_named(here: Path) -> None:
    (here / "evals").mkdir()
    (here / "prefect.yaml").write_text("deployments: []\n")
    (here / ".github" / "workflows").mkdir(parents=True)
    (here / ".github" / "workflows" / "evals.yml").symlink_to("nowhere")
    done = init()
    assert lines(done, "kept") == ["prefect.yaml", ".github/workflows/evals.yml"]
    assert (here / "prefect.yaml").read_text() == "deployments: []\n"
    block = done.stdout.partition("from your prefect.yaml, add:\n")[2].partition("\n\nNext")[0]
    (here / "prefect.yaml").write_text(block)
    assert [one["work_pool"]["name"] for one in yaml.safe_load(block)["deployments"]] == ["repository", "repository"]
    assert "add:" not in init().stdout, "it has them now"
    assert not (here / ".github" / "workflows" / "nowhere").exists()
    assert "evals/experiment.yaml" in lines(done, "wrote")
    assert not (here / "evals" / "__init__.py").exists(), "a user's folder does not become a package"


def test_agents_get_a_skill_whose_commands_exist_and_a_section_once(here: Path) -> None:
    (here / "AGENTS.md").write_bytes(b"# Ours\r\ncaf\xe9")
    done = init("--agents")
    assert lines(done, "added") == ["a section to AGENTS.md"] and lines(done, "wrote")[-2] == SKILL
    text = (here / "AGENTS.md").read_bytes()
    assert text.startswith(b"# Ours\r\ncaf\xe9\n\n<!-- evalflows: begin -->\n") and text.count(b"<!-- evalflows") == 2
    skill = (here / SKILL).read_text()
    assert skill.startswith("---\nname: evalflows\ndescription: ")
    assert {*re.findall(r"`evalflows (\S+?)[` ]", skill + text.decode("latin-1"))} <= cli.commands.keys()
    assert lines(init("--agents"), "wrote") == [] and (here / "AGENTS.md").read_bytes() == text


def test_the_workflow_installs_what_is_installed_here(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = {"url": "https://host/evalflows.git", "vcs_info": {"vcs": "git", "commit_id": "abc123"}}
    origin = {"url": "file:///a/folder", "dir_info": {}}
    monkeypatch.setattr(
        evalflows.cli.init,
        "distribution",
        lambda _: SimpleNamespace(version="0.1.0", read_text=lambda _: json.dumps(origin)),
    )
    assert "\nSet EVALFLOWS in .github/workflows/evals.yml to what pip can install there.\n" in init().stdout
    path = here / ".github" / "workflows" / "evals.yml"
    workflow = yaml.safe_load(path.read_text())
    install = next(one["run"] for one in workflow["jobs"]["gate"]["steps"] if one.get("name") == "Install")
    pip = "pip() { echo pip $@; }\n"
    refused = in_bash(pip + install, here, workflow["env"], "-e")
    assert refused.returncode == 1 and refused.stdout.startswith("::error::EVALFLOWS is empty in .github/workflows/")
    done = in_bash(pip + install, here, {"EVALFLOWS": "./evalflows.whl"}, "-e")
    assert (done.returncode, done.stdout) == (0, "pip install ./evalflows.whl\n")
    path.unlink()
    origin = commit
    assert "Set EVALFLOWS" not in init().stdout
    wanted = "evalflows @ git+https://host/evalflows.git@abc123"
    assert yaml.safe_load(path.read_text())["env"] == {"EVALFLOWS": wanted}
    path.unlink()
    origin = {}
    assert "Set EVALFLOWS" not in init().stdout
    assert yaml.safe_load(path.read_text())["env"] == {"EVALFLOWS": "evalflows==0.1.0"}, "of a package index"


def test_the_store_is_added_to_gitignore_once(here: Path) -> None:
    for before, after in (
        (b"", b"data/store/\n"),
        (b"caf\xe9", b"caf\xe9\ndata/store/\n"),
        *(
            (line + b"\n*.pyc\n", line + b"\n*.pyc\n")
            for line in (b"data/store/", b"/data/store", b"data", b"/data/ \r")
        ),
    ):
        (here / ".gitignore").write_bytes(before)
        assert lines(init(), "added") == (["data/store/ to .gitignore"] if before != after else [])
        assert (here / ".gitignore").read_bytes() == after
        assert ".gitignore" in lines(init(), "kept")
        assert (here / ".gitignore").read_bytes() == after


@pytest.mark.parametrize(
    ("name", "makes", "message"),
    [
        ("evals", Path.touch, "evals/experiment.yaml: cannot be written: Not a directory; nothing was written"),
        (".gitignore", Path.mkdir, ".gitignore: cannot be written: Is a directory; nothing was written"),
        ("evals.py", Path.touch, "evals.py: would be hidden by the package evals/, wanted another file name"),
    ],
)
def test_all_or_nothing_is_written(here: Path, name: str, makes: Any, message: str) -> None:
    if name == ".gitignore":
        (here / "evals").mkdir()
    makes(here / name)
    before = contents(here)
    done = init()
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"evalflows: {message}\n")
    assert contents(here) == before, "a user's folder is not removed with what could not be written"


@pytest.mark.slow
def test_the_printed_commands_run_as_they_are(
    here: Path, prefect_api: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, tests = commands(init())
    for name in ("EVALFLOWS_STORE", "EVALFLOWS_SPOOL"):
        monkeypatch.delenv(name)
    monkeypatch.syspath_prepend(here)
    decided = CliRunner().invoke(cli, shlex.split(gate, comments=True)[1:])
    assert decided.exit_code == 0, decided.stderr
    assert "PASS  gate release: evals-candidate against evals-current\n" in decided.stdout
    assert re.search(
        r"contains reaches 0\.8: 1\.0+ \[0\.\d+, 1\.0+\] \(exact\), 5 examples", " ".join(decided.stdout.split())
    )
    tested = in_bash(tests, here, prefect_api)
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout
    assert (here / "data" / "store").is_dir()


@pytest.mark.slow
def test_the_workflow_fails_with_the_gate_and_has_the_report(here: Path, prefect_environment: dict[str, str]) -> None:
    init()
    target = here / "evals" / "target.py"
    target.write_text(target.read_text().replace("_answer(question.lower())", "'I do not know.'"))
    job = yaml.safe_load((here / ".github" / "workflows" / "evals.yml").read_text())["jobs"]["gate"]
    decide, report = (
        next(one for one in job["steps"] if one.get("name") == name) for name in ("Decide", "Write the report")
    )
    keep = job["steps"][-1]
    assert (report["if"], keep["if"]) == ("always()", "always()")
    environment = {**prefect_environment, "GITHUB_STEP_SUMMARY": str(here / "summary.md")}
    decided = in_bash(decide["run"], here, environment, "-e")
    assert decided.returncode == 1, decided.stdout
    written = in_bash(report["run"], here, environment, "-e")
    assert written.returncode == 0, written.stderr
    page, junit = (here / name for name in keep["with"]["path"].split("\n")[:2])
    assert "Gate release: evals-candidate against evals-current" in page.read_text()
    assert [*ElementTree.parse(junit).getroot().iter("failure")]
    assert "FAIL" in (here / "summary.md").read_text()


def in_bash(script: str, folder: Path, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder with the commands of this environment, and the store in its usual place."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {**os.environ, **environment, "PATH": path, "EVALFLOWS_STORE": "", "EVALFLOWS_SPOOL": ""}
    return subprocess.run(
        ["bash", *options, "-c", script], cwd=folder, env=own, capture_output=True, text=True, timeout=300
    )
