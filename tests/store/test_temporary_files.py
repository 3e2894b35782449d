"""What queries with little memory put on the disk does not stay there, even if their process was killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evalflows.store.store import Store

MANY = 2_000_000
SPILL = f"create temp table t as select hash(x)::varchar as a, hash(x + 1)::varchar as b from range({MANY}) r(x)"
KILLED = f"""
import os, signal
from evalflows.store.store import Store
with Store().connect() as connection:
    connection.execute("set memory_limit = '64MB'")
    connection.execute({SPILL!r})
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def files(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file()}


def test_what_a_killed_process_left_is_removed(store: Store, place: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    left = files(place)
    assert left, "it had run out of memory"
    with store.connect() as connection:
        connection.execute("set memory_limit = '64MB'")
        connection.execute(SPILL)
        assert files(place) and not files(place) & left
    assert files(place) == set()


def test_the_folder_is_private_and_another_ones_is_not_used(store: Store, place: Path) -> None:
    own, others = place / f"evalflows-duckdb-{os.getuid()}", place / "others"
    others.mkdir()
    own.symlink_to(others)
    for count in (1, 0):
        with Store(f"{store.layout.root}").connect() as connection:
            (used,) = connection.execute("select current_setting('temp_directory')").fetchall()[0]
            connection.execute("set memory_limit = '64MB'")
            connection.execute(SPILL)
            assert Path(used).stat().st_mode & 0o777 == 0o700 and files(Path(used)) and not files(others)
            assert (Path(used) != own) == count
        if count:
            own.unlink()
