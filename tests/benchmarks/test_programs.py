"""Benchmarks run as `make bench` and the documents start them: by their names and arguments, from the root."""

import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest
from real_stores import real_store

from benchmarks.real_size import SMALL
from benchmarks.simulation.catalogue import all_cells
from evalflows.store import packing

ROOT = Path(__file__).parents[2]
HELPERS = {"__init__", "arguments", "own_server", "real_size", "slow_server"}
PROGRAMS = sorted({path.stem for path in (ROOT / "benchmarks").glob("*.py")} - HELPERS)
NOT_STARTED = {"simulate": "each of its cells is made below"}
A_MINUTE = "even its smallest run takes half a minute or more, and what it calls has tests"
STARTED_BEFORE_A_RELEASE = {
    **dict.fromkeys(
        ("calls", "compare_page", "connections", "conversations", "fool", "marts", "pages", "price"), A_MINUTE
    ),
    "doors": "tests/real_size opens every door",
    "peers": "its processes take long, and only ours runs here: benchmarks/peers.txt is not installed",
    "startup": "its processes take long, and call commands that have tests",
    "votes": "its processes take long, and half of them is another library",
}


def started_programs() -> list[object]:
    """Return all programs; those that take longest are marked."""
    return [
        pytest.param(name, marks=pytest.mark.soak if name in STARTED_BEFORE_A_RELEASE else pytest.mark.slow)
        for name in PROGRAMS
        if name not in NOT_STARTED
    ]


@pytest.fixture
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs run in the root of the repository. What they change for their process is restored."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(packing, "SETTLED_S", packing.SETTLED_S)
    cores = os.sched_getaffinity(0)
    with patch.dict(os.environ):
        yield
    os.sched_setaffinity(0, cores)
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", started_programs())
def test_programs_run_at_their_smallest_size(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prefect_api: dict[str, str],
    at_the_root: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process and with the tests' server, since loading and starting those takes longer than the programs."""
    os.environ |= prefect_api
    arguments = ["--smallest"]
    if name == "doors":
        shutil.copytree(real_store(SMALL), tmp_path / f"store-of-{SMALL}")
        arguments.append(str(tmp_path))
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    import_module(f"benchmarks.{name}").main()
    printed = capsys.readouterr().out
    assert printed.strip()
    if name == "connections":
        assert printed.count("a verdict in") == 10


@pytest.mark.slow
def test_programs_find_their_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    program = [sys.executable, "-c", f"import {', '.join(f'benchmarks.{name}' for name in PROGRAMS)}"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_named_commands_are_programs_that_take_these_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [
        (path.name, *command)
        for path in files
        for command in re.findall(r"python -m benchmarks\.(\w+)([^`\n]*)", path.read_text(encoding="utf-8"))
    ]
    assert {name for _, name, _ in found} == {*PROGRAMS}
    for page, name, arguments in found:
        monkeypatch.setattr(sys, "argv", [name, *shlex.split(arguments)])
        try:
            import_module(f"benchmarks.{name}").parse_arguments()
        except SystemExit:
            pytest.fail(f"{page}: python -m benchmarks.{name}{arguments}")


@pytest.mark.soak
def test_every_cell_of_the_simulation_can_be_made() -> None:
    for cell in all_cells():
        values = cell.estimates(0, 1)
        assert len(values) >= len(cell.figures) or cell.combined is not None, cell.name
