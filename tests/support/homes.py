"""Homes, which EVALFLOWS_HOME names, with what takes the longest of a first start: made once, and kept."""

import fcntl
import shutil
from functools import cache
from importlib.metadata import version
from pathlib import Path

import duckdb
import pytest
from prefect_database import give_database

from evalflows.store import database

KEPT = Path(__file__).parents[2] / ".pytest_cache" / "home"


def prepared(home: Path) -> Path:
    """Give a home the database of a local Prefect server, and DuckDB's views over a store; return the home."""
    give_database(home / f"prefect-{version('prefect')}")
    shutil.copytree(_catalogs(), home / "catalogs", dirs_exist_ok=True)
    return home


@cache
def _catalogs() -> Path:
    """Return the folder of the kept views, which are of this version. Of several workers one makes them."""
    KEPT.mkdir(mode=0o700, parents=True, exist_ok=True)
    with KEPT.with_suffix(".lock").open("a") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        patch.setenv("EVALFLOWS_HOME", str(KEPT))
        for with_packed in (False, True):
            with duckdb.connect() as connection:
                database._create_views(connection, "", with_packed)
    return KEPT / "catalogs"
