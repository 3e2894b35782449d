"""Older DuckDBs and SQLAlchemy, each without our packages, read exported files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evalflows.store.exports import WHOLE, export_tables, export_views
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.store.views import grain, view_files

PLAIN = """
def plain(value):
    return f"{value:.9g}" if isinstance(value, float) else str(value)

def listed(rows):
    return [[plain(value) for value in row] for row in rows]
"""
"""Of rows, what versions agree on: sums in another order differ in the last digits. Used on both sides."""

OF_DUCKDB = f"""
import json, sys
import duckdb
{PLAIN}
path, queries = sys.argv[1], json.loads(sys.argv[2])
with duckdb.connect(path, read_only=True) as connection:
    connection.execute("set timezone = 'UTC'")
    connection.execute("set enable_progress_bar = false")  # on stdout, of a query that takes seconds
    print(json.dumps([listed(connection.execute(query).fetchall()) for query in queries]))
"""

OF_SQLALCHEMY = f"""
import json, sys
from sqlalchemy import MetaData, Table, create_engine, func, inspect, select
{PLAIN}
engine = create_engine(f"duckdb:///{{sys.argv[1]}}?access_mode=read_only")
names = inspect(engine).get_table_names() + inspect(engine).get_view_names()
results = Table("results", MetaData(), autoload_with=engine)
chosen = select(results.c.metric, func.sum(results.c.scored)).group_by(results.c.metric).order_by(results.c.metric)
columns = [column.name for column in results.columns]
with engine.connect() as connection:
    print(json.dumps([sorted(set(names)), columns, listed(connection.execute(chosen))]))
"""

OUTSIDE = {**os.environ}
"""The variables as they are outside the tests, which have no certificates to fetch packages by."""

QUERIES = [f"from {path.stem} order by {', '.join(grain(path))}" for path in view_files()]


@pytest.fixture(scope="module")
def files(filled: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An exported file of each kind."""
    folder = tmp_path_factory.mktemp("clients")
    export_views(filled, folder / "views.duckdb", is_all=True)
    export_tables(filled, folder / "tables.duckdb", is_all=True)
    return {"views": folder / "views.duckdb", "tables": folder / "tables.duckdb"}


def installed(folder: Path, *packages: str) -> Path:
    """Return a folder with these packages and what they need. Skips where they cannot be installed."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", folder, *packages]
    done = subprocess.run(command, env=OUTSIDE, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{', '.join(packages)} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return folder


def printed(packages: Path, program: str, *arguments: str) -> Any:
    """Return what a program prints that has these packages and none of ours."""
    command, own = [sys.executable, "-S", "-P", "-c", program, *arguments], os.environ | {"PYTHONPATH": str(packages)}
    done = subprocess.run(command, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def listed(rows: Any) -> list[list[str]]:
    names: dict[str, Any] = {}
    exec(PLAIN, names)
    found: list[list[str]] = names["listed"](rows)
    return found


@pytest.mark.parametrize(
    "version", [pytest.param("1.1.3", marks=pytest.mark.slow), pytest.param("1.5.5", marks=pytest.mark.soak)]
)
def test_an_older_duckdb_gives_the_rows_of_the_store(
    filled: Store, files: dict[str, Path], tmp_path: Path, version: str
) -> None:
    packages = installed(tmp_path / "packages", f"duckdb=={version}", "pytz", "--no-deps")
    copied = [query for query in QUERIES if not query.startswith(f"from {WHOLE} ")]
    with connect(filled.layout.root) as catalog:
        catalog.execute("reset variable held_leases")  # views show the state that an experiment's row has
        wanted = {"views": [listed(catalog.execute(query).fetchall()) for query in QUERIES]}
    with duckdb.connect(files["tables"], read_only=True) as tables:
        tables.execute("set timezone = 'UTC'")
        wanted["tables"] = [listed(tables.execute(query).fetchall()) for query in copied]
    for kind, of_store in wanted.items():
        queries = copied if kind == "tables" else QUERIES
        found = printed(packages, OF_DUCKDB, str(files[kind]), json.dumps(queries))
        for query, rows, here in zip(queries, found, of_store, strict=True):
            assert rows == here, f"{kind}: {query}"


@pytest.mark.soak
def test_sqlalchemy_reflects_and_queries(filled: Store, files: dict[str, Path], tmp_path: Path) -> None:
    packages = installed(tmp_path / "packages", "duckdb-sqlalchemy", "duckdb<2")
    with connect(filled.layout.root) as catalog:
        wanted = catalog.execute("select metric, sum(scored) from results group by metric order by metric").fetchall()
        columns = [name for name, *_ in catalog.execute("describe results").fetchall()]
    for kind in ("views", "tables"):
        names, reflected, rows = printed(packages, OF_SQLALCHEMY, str(files[kind]))
        assert {path.stem for path in view_files()} - ({WHOLE} if kind == "tables" else set()) <= {*names}
        assert reflected == columns
        assert rows == listed(wanted)
