"""A new Prefect server's database, made once and kept: its migrations take the longest of a first start."""

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

KEPT = Path(__file__).parents[2] / ".pytest_cache" / f"prefect-{version('prefect')}.db"


def give_database(folder: Path) -> Path:
    """Copy the kept database to the folder of a server that has none; return the folder."""
    database = folder / "prefect.db"
    if not database.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _keep_database()
        shutil.copyfile(KEPT, database)
    return folder


def _keep_database() -> None:
    """Make the kept database, unless it is there. Of several workers one makes it, and the others wait."""
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if KEPT.exists():
            return
        with tempfile.TemporaryDirectory(dir=KEPT.parent) as home:
            upgrade = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
            own = {"PREFECT_HOME": home, "DO_NOT_TRACK": "1"}
            subprocess.run(upgrade, env=os.environ | own, check=True, capture_output=True)
            database = Path(home, "prefect.db")
            with closing(sqlite3.connect(database)) as connection:
                connection.execute("pragma journal_mode = delete")  # everything is in this file
            database.rename(KEPT)
