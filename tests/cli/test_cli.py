"""The command line: in processes of its own where that makes a difference."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from command import SUPPORT, command, with_support
from endpoint import Endpoint, serving

from evalflows.cli.main import cli
from evalflows.store import Store
from evalflows.store.snapshots import freeze, to_examples

MADE = {"_.parquet", ".gitignore", "evalflows.json", "catalog.duckdb", "catalog-unpacked.duckdb"}
"""The files of an empty store."""

SPEC = {
    "name": "small",
    "dataset": {"path": "rows.jsonl"},
    "targets": [{"kind": "python", "function": "mine:upper"}],
    "evaluators": ["exact_match"],
}
ROWS = [{"id": i, "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(4)]


Done = subprocess.CompletedProcess[str]


def evalflows(*arguments: str, cwd: Path, environment: dict[str, str] | None = None) -> Done:
    own = with_support(environment)
    return subprocess.run(command(*arguments), cwd=cwd, env=own, capture_output=True, text=True, timeout=120)


def in_process(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as the current folder, in which modules are found, with no key in the environment."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(SUPPORT)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a spec, its rows, and a module of the user's."""
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (tmp_path / "mine.py").write_text("def upper(question):\n    return question.upper()\n")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_run_show_ls_and_sql(here: Path, prefect_environment: dict[str, str]) -> None:
    run = evalflows("run", "spec.yaml", cwd=here, environment=prefect_environment)
    assert run.returncode == 0, run.stderr
    stages = [line.removeprefix("evalflows: ").partition(":")[0] for line in run.stderr.splitlines()]
    shown = [stage for stage in dict.fromkeys(stages) if "," not in stage]  # on a busy machine
    assert shown == ["answering and judging"]
    assert "exact_match target 1.00 [0.51, 1.00]" in " ".join(run.stdout.split())
    assert run.stdout.replace("0 model calls made in this run\n", "") == in_process("show", "small").stdout
    assert "4/4" in in_process("ls").stdout
    query = "select metric, mean, scored from metric_summary where evaluator = 'exact_match'"
    assert in_process("sql", query, "--format", "csv").stdout.splitlines() == [
        "metric,mean,scored",
        "exact_match,1.0,4",
    ]
    assert json.loads(in_process("sql", query, "--format", "json").stdout) == {
        "metric": "exact_match",
        "mean": 1.0,
        "scored": 4,
    }
    changed = ("--set", "name=twice", "--set", "repetitions=2", "--set", "evaluators.0={use: contains}")
    twice = in_process("run", "spec.yaml", *changed)
    assert "contains" in twice.stdout and "exact_match" not in twice.stdout
    assert "twice completed: 8 of 8 answered" in twice.stdout
    again = in_process("resume", "small")
    assert (again.exit_code, again.stdout) == (0, run.stdout), again.stderr


@pytest.mark.usefixtures("without_prefect")
def test_an_application_that_is_down_is_named_once(here: Path) -> None:
    url = "http://127.0.0.1:9/ask"
    targets = [{"kind": "http", "name": "bot", "url": url, "attempts": 1}]
    (here / "spec.yaml").write_text(yaml.safe_dump(SPEC | {"targets": targets, "chunk_retries": 0}))
    done = in_process("run", "spec.yaml")
    assert (done.exit_code, done.output.count(url)) == (4, 1), done.output
    assert "answering and judging: 0/4 answers, 0/4 judgements" in done.stderr and "4/4" not in done.output
    assert done.stderr.splitlines()[-1].endswith("): none of 4 answered")
    assert in_process("show", "small").stdout.count(url) == 1


@pytest.mark.parametrize("exists", [True, False])
def test_reading_creates_no_store(exists: bool, store_root: Path) -> None:
    if exists:
        store_root.mkdir()
        (store_root / "other.txt").write_text("of another program")
    nothing = (
        f"evalflows: no store at {store_root}: `evalflows run SPEC` creates one, and EVALFLOWS_STORE names another\n"
    )
    listed, shown = in_process("ls"), in_process("show", "demo")
    assert (listed.exit_code, listed.stdout, listed.stderr) == (0, "", nothing)
    served = in_process("dashboard", "--port", "0")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (2, "", nothing)
    assert (served.exit_code, served.stdout, served.stderr) == (2, "", nothing)
    assert (list(store_root.iterdir()) if exists else store_root.exists()) == (
        [store_root / "other.txt"] if exists else False
    )


def test_a_bad_spec_or_dataset_is_one_line_and_exit_2(here: Path, store_root: Path) -> None:
    for change, message in (
        ({"targets": [{"kind": "chatt"}]}, "targets.0: kind: got 'chatt'"),
        ({"repetitions": 0}, "repetitions: Input should be greater than or equal to 1, got 0"),
        ({"evaluator": ["exact_match"]}, "evaluator: no such field"),
        ({"dataset": {"path": "nowhere.jsonl"}}, "nowhere.jsonl: cannot be read: No such file"),
        ({"evaluators": ["judges:wants_the_moon"]}, "asks for 'moon'"),
        ({"targets": [{"kind": "python", "function": "nowhere:f"}]}, "cannot import 'nowhere'"),
        ({"targets": [{"kind": "chat", "connection": "openai", "model": "m"}]}, "OPENAI_API_KEY is not set"),
    ):
        (here / "spec.yaml").write_text(yaml.safe_dump(SPEC | change))
        refused(in_process("run", "spec.yaml"), message, store_root)
    with serving(Endpoint()) as endpoint:
        connections = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        targets = [{"kind": "chat", "connection": "mock", "user": "{question}"}]
        (here / "spec.yaml").write_text(yaml.safe_dump(SPEC | {"targets": targets, "connections": connections}))
        for text, message in (
            ('{"inputs": {"question": "a"}}\n{"inputs": \n', "rows.jsonl:2: not JSON"),
            ('{"id": 1, "inputs": "a"}\n\n{"id": 1, "inputs": "b"}\n', "rows.jsonl:3: duplicate id '1'"),
            ('{"inputs": "a"}\n{"question": "b"}\n', "rows.jsonl:2: no inputs: got question, wanted 'inputs'"),
            ("\n", "rows.jsonl: got no rows"),
        ):
            (here / "rows.jsonl").write_text(text)
            refused(in_process("run", "spec.yaml"), message, store_root)
    assert endpoint.calls == 0


def refused(done: Result, message: str, store_root: Path) -> None:
    assert done.exit_code == 2, done.stderr
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert {path.name for path in store_root.rglob("*") if path.is_file()} <= MADE


@pytest.mark.usefixtures("store")
def test_a_fault_of_ours_is_exit_70_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a bug\nof ours")

    monkeypatch.setattr("evalflows.cli.run.existing_store", broken)
    done = CliRunner().invoke(cli, ["show", "x"])
    message = "internal error in evalflows: ZeroDivisionError: a bug of ours (--verbose shows the traceback)"
    assert (done.exit_code, done.stderr) == (70, f"evalflows: {message}\n")
    assert "Traceback" in CliRunner().invoke(cli, ["show", "x", "--verbose"]).stderr


@pytest.mark.usefixtures("here", "prefect_api")
def test_a_damaged_file_is_exit_4_and_named() -> None:
    freeze(Store(), to_examples(enumerate(ROWS), "rows"), name=None, source="rows")
    (path,) = Path(os.environ["EVALFLOWS_STORE"]).glob("examples/sealed/*/rows.parquet")
    path.write_bytes(b"not Parquet")
    done = in_process("run", "spec.yaml")
    assert done.exit_code == 4
    (line,) = done.stderr.splitlines()
    assert str(path) in line and "`evalflows doctor`" in line


def test_what_only_reads_creates_no_store(store_root: Path) -> None:
    for line in (
        *("alerts show x", "alerts ack x", "windows x", "check", "compact", "diff a b", "doctor", "sql from_results"),
        *("forget --example x --yes", "export duckdb x"),
    ):
        done = in_process(*line.split())
        assert (done.exit_code, done.stdout) == (2, ""), line
        assert done.stderr.startswith(f"evalflows: no store at {store_root}: "), line
    assert not store_root.exists()
