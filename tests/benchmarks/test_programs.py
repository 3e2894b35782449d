"""Benchmarks can be started as `make bench` does: by their names, from the repository's root."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.simulation.catalogue import all_cells

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_programs_find_their_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    names = [f"benchmarks.{path.stem}" for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__"]
    assert len(names) > 5
    program = [sys.executable, "-c", f"import {', '.join(names)}"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_latencies_over_connections_can_be_measured() -> None:
    """Of the others, the doors are asked by tests/real_size; the rest take longer than a test may."""
    command = [sys.executable, "-m", "benchmarks.connections", "1", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.count("a verdict in") == 10, done.stderr


@pytest.mark.slow
def test_every_cell_of_the_simulation_can_be_made() -> None:
    for cell in all_cells():
        values = cell.estimates(0, 1)
        assert len(values) >= len(cell.figures) or cell.combined is not None, cell.name
