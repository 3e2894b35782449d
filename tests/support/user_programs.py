"""Programs as users write them, each run in a process of its own with a store in its folder."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from endpoint import Endpoint

from evalflows.store import connect

ROOT = Path(__file__).parent.parent.parent


def run_program(folder: Path, endpoint: Endpoint, environment: dict[str, str], *arguments: str, code: int = 0) -> str:
    """Run Python with these arguments in a folder; return what it printed. OpenAI's client asks the endpoint."""
    own = {
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_API_KEY": "sk-of-a-test",
        "EVALFLOWS_STORE": str(folder / "store"),
        "EVALFLOWS_SPOOL": str(folder / "spool"),
        "PYTHONPATH": str(ROOT),
    }
    env = os.environ | environment | own
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def rows_in(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query of the store in a folder."""
    with connect(folder / "store") as catalog:
        return catalog.execute(query).fetchall()


def has_written(folder: Path, text: bytes) -> bool:
    """Whether a file of the store in a folder has this text."""
    return any(text in path.read_bytes() for path in (folder / "store").rglob("*") if path.is_file())
