"""Each benchmark can be started as `make bench` does: by its name, from the repository's root."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_finds_its_modules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    arguments = [sys.executable, "-c", f"import benchmarks.{name}"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
