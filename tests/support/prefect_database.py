"""A new Prefect server's database, kept for later servers: its migrations take the longest of a first start."""

import os
import shutil
import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

KEPT = Path(__file__).parents[2] / ".pytest_cache" / f"prefect-{version('prefect')}.db"


def give_database(folder: Path) -> Path:
    """Copy the kept database, if there is one yet, to the folder of a server that has none; return the folder."""
    database = folder / "prefect.db"
    if KEPT.exists() and not database.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(KEPT, database)
    return folder


def keep_database(folder: Path) -> None:
    """Keep a copy of a new server's database, unless there is one."""
    if KEPT.exists():
        return
    KEPT.parent.mkdir(exist_ok=True)
    new = KEPT.with_suffix(f".{os.getpid()}")
    with closing(sqlite3.connect(folder / "prefect.db")) as database, closing(sqlite3.connect(new)) as copy:
        database.backup(copy)
        copy.execute("pragma journal_mode = delete")
    new.replace(KEPT)


def give_database_to(home: Path) -> Path:
    """As `give_database`, for a local server of a folder that EVALFLOWS_HOME names."""
    give_database(home / f"prefect-{version('prefect')}")
    return home
