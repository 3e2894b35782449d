"""Programs as users write them, in their folder, whose store is that of the test."""

import runpy
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from endpoint import Endpoint


def environment_of(endpoint: Endpoint) -> dict[str, str]:
    """The environment in which OpenAI's client asks an endpoint."""
    return {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": "sk-of-a-test"}


def run_program(folder: Path, endpoint: Endpoint, program: str, *arguments: str) -> str:
    """Run a program as `python PROGRAM ARGUMENTS` does, in this process; return what it printed."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.chdir(folder)
        patch.setattr(sys, "argv", [program, *arguments])
        for name, value in environment_of(endpoint).items():
            patch.setenv(name, value)
        runpy.run_path(program, run_name="__main__")
    return printed.getvalue()


def has_written(folder: Path, text: bytes) -> bool:
    """Whether a file of the store in a folder has this text."""
    return any(text in path.read_bytes() for path in (folder / "store").rglob("*") if path.is_file())
