"""Stores of real size, made once and kept between runs of the tests, as long as the code that writes is the same."""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from glob import glob
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner
from plain_flows import plain_flows

import benchmarks.real_size
import evalflows
from benchmarks.real_size import LARGE, MIDDLE
from evalflows.cli.main import cli
from evalflows.store import files

SIDES = ("api", "cli", "compat", "dashboard", "pytest_plugin", "reports")
"""The rooms that only read what is in a store, or ask others to write it."""

MOST_KEPT = 3


def real_store(examples: int) -> Path:
    """Return the folder of a store of so many examples, as benchmarks/real_size.py makes it. Nobody may change it."""
    kept = Path(tempfile.gettempdir(), f"evalflows-tests-{os.getuid()}")
    folder = kept / _key() / str(examples)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not folder.exists():
            for old in sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime)[:-MOST_KEPT]:
                shutil.rmtree(old, ignore_errors=True)
            _make(folder.with_suffix(".made"), examples)
            folder.with_suffix(".made").rename(folder)
    return folder


def _make(folder: Path, examples: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # of a killed run
    folder.mkdir()
    part = max(examples, MIDDLE) / LARGE  # files of the middle store have as many row groups as those of the large one
    with in_folder(folder), pytest.MonkeyPatch.context() as patch:
        for name in ("ROWS_PER_GROUP", "BYTES_PER_GROUP"):
            patch.setattr(files, name, int(getattr(files, name) * part))
        benchmarks.real_size.make(folder, examples, run)


@contextmanager
def in_folder(folder: str | Path) -> Iterator[None]:
    """Within the block, commands run in this process, in the folder of a store, without Prefect."""
    folder = Path(folder).absolute()
    with pytest.MonkeyPatch.context() as patch, plain_flows():
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setenv("EVALFLOWS_STORE", str(folder / "store"))
        patch.setenv("EVALFLOWS_SPOOL", str(folder / "spool"))
        patch.setattr(os, "fsync", lambda _: None)
        sys.modules.pop("preferences", None)  # the folder's own evaluator
        yield


def run(*arguments: str) -> str:
    """Run `evalflows` in this process. Return its output; raise AssertionError if it fails."""
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, f"{' '.join(arguments)}: exit code {done.exit_code}: {done.output[-500:]}"
    return done.stdout


@cache
def _key() -> str:
    """Return what changes with the code that writes."""
    root = Path(evalflows.__file__).parent
    names = sorted(name for ending in ("py", "sql", "md") for name in glob(f"{root}/**/*.{ending}", recursive=True))  # noqa: PTH207  # it follows links
    code = hashlib.sha256("".join(map(version, ("duckdb", "pyarrow"))).encode())
    for path in map(Path, [*names, benchmarks.real_size.__file__]):
        if path.relative_to(root.parent).parts[1] not in SIDES:
            code.update(path.read_bytes())
    return code.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time make a store."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
