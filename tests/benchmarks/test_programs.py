"""Benchmarks can be started as `make bench` does: by their names, from the repository's root."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_programs_find_their_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    names = [f"benchmarks.{path.stem}" for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__"]
    assert len(names) > 5
    program = [sys.executable, "-c", f"import {', '.join(names)}"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
