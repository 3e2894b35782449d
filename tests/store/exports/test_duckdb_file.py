"""A DuckDB file with the store's views, or with tables that stand alone."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import exported
import pytest
from exported import comparable
from full_store import Filler

from evalflows.specs.errors import InputError
from evalflows.store import exports
from evalflows.store.exports import INTERNAL, export_tables, export_views
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.store.views import grain, view_files

VIEWS = {path.stem: path for path in view_files() if path.stem not in INTERNAL}
SOME = ["results", "label_shares", "experiments", "item_scores"]


@pytest.fixture(autouse=True)
def new_views_are_copies() -> None:
    """Views are made one after the other: an export writes them in that order, which copies do not keep."""


@pytest.fixture(scope="module")
def views(filled: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("views") / "it's; \"--.duckdb"
    assert {one.name for one in export_views(filled, path)} == {*VIEWS}
    with duckdb.connect(str(path), read_only=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def of_store(filled: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    """The store's own views, which show the state that an experiment's row has, as those of a file do."""
    with connect(filled.layout.root) as connection:
        connection.execute("reset variable held_leases")
        yield connection


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def tables_of(connection: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in rows(connection, "select table_name from duckdb_tables() where schema_name = 'main'")}


@pytest.mark.slow
def test_exported_views_have_the_rows_of_the_store(
    views: duckdb.DuckDBPyConnection, of_store: duckdb.DuckDBPyConnection
) -> None:
    seen = rows(views, "select table_name from information_schema.tables where table_schema = 'main'")
    assert {name for (name,) in seen} == {*VIEWS}
    for name in SOME:  # test_other_clients.py reads all
        query = f"from {name} order by {', '.join(grain(VIEWS[name]))}"
        assert comparable(rows(views, query)) == comparable(rows(of_store, query)), name
    ((comment,),) = rows(views, "select comment from duckdb_views() where view_name = 'results'")
    assert comment.startswith("one row per experiment_id, metric, evaluator_version: the mean with its interval")
    silent = "from duckdb_columns() where schema_name = 'main' and not internal and comment is null"
    assert rows(views, silent) == []


@pytest.mark.slow
def test_unchanged_views_are_not_written_again(store: Store, make: Any, tmp_path: Path) -> None:
    path = tmp_path / "bi.duckdb"
    assert all(one.is_written for one in export_views(store, path))
    before = path.stat()
    Filler(store, make).experiment("exp-1", "snap-1", 1, 1)
    assert not any(one.is_written for one in export_views(store, path))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with duckdb.connect(str(path), read_only=True) as connection:
        assert rows(connection, "select experiment_id from experiment_overview") == [("exp-1",)]


@pytest.mark.slow
def test_tables_stand_alone_and_hold_hostile_texts(tmp_path: Path, make: Any) -> None:
    store, path = exported.fill(tmp_path / "other"), tmp_path / "bi.duckdb"
    counts = {one.name: one.rows for one in export_tables(store, path, SOME)}
    with connect(store.layout.root) as catalog:
        wanted = {name: rows(catalog, f"select count(*) from {name}")[0][0] for name in SOME}
    (tmp_path / "other").rename(tmp_path / "elsewhere")
    assert counts == wanted
    with duckdb.connect(str(path), read_only=True) as connection:
        assert tables_of(connection) == {*SOME}
        query = "select comment, label from item_scores where experiment_id = 'exp-hostile' order by example_id"
        labels = [exported.LONG, exported.BIDI, "@SUM(1)"]
        assert rows(connection, query) == [*zip([exported.NUL, exported.LONG, "-1+1"], labels, strict=True)]
        (found,) = rows(
            connection, "select name, tags, state, description from experiments where experiment_id = 'exp-hostile'"
        )
        assert found == (exported.NAME, [exported.NUL, exported.BIDI, "it's"], "interrupted", exported.ESCAPES)


@pytest.mark.slow
def test_only_what_has_changed_is_read_from_the_store(
    store: Store, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, filler = tmp_path / "bi.duckdb", Filler(store, make)
    filler.experiment("exp-1", "snap-1", 1, 1)
    export_tables(store, path, ["experiments", "labels"])
    staged: list[str] = []
    stage = exports.stage

    def noting(store: Store, relation: Any, target: Path) -> int:
        staged.append(relation.name)
        return stage(store, relation, target)

    monkeypatch.setattr(exports, "stage", noting)
    assert not any(one.is_written for one in export_tables(store, path, ["experiments", "labels"]))
    assert staged == []
    filler.experiment("exp-2", "snap-1", 1, 1)
    again = {one.name: (one.rows, one.is_written) for one in export_tables(store, path, ["experiments", "labels"])}
    assert again == {"experiments": (2, True), "labels": (0, False)}
    assert staged == ["experiments"]
    assert [one.name for one in export_tables(store, path, ["labels"])] == ["labels"]
    with duckdb.connect(str(path), read_only=True) as connection:
        assert tables_of(connection) == {"labels"}
        columns = rows(connection, "select data_type, comment from duckdb_columns() where column_name = 'metadata'")
        assert columns == [("JSON", "its metadata, as JSON")]


def test_a_file_of_something_else_is_left_alone(store: Store, tmp_path: Path) -> None:
    text, database, folder = tmp_path / "notes.txt", tmp_path / "mine.duckdb", tmp_path / "folder"
    text.write_text("mine")
    duckdb.connect(str(database)).close()
    before = database.read_bytes()
    folder.mkdir()
    for path in (text, database, folder):
        with pytest.raises(InputError, match="wanted a"):
            export_views(store, path)
        with pytest.raises(InputError, match="wanted a"):
            export_tables(store, path, ["labels"])
    assert (text.read_text(), database.read_bytes()) == ("mine", before)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "mine.duckdb", "folder"}


@pytest.mark.slow
def test_an_export_of_another_store_or_that_is_being_written_is_left_alone(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "bi.duckdb"
    export_tables(store, path, ["labels"])
    with pytest.raises(InputError, match=f"got an export of the store {store.layout.root}, wanted one of"):
        export_views(Store(tmp_path / "another"), path)
    Path(f"{path}.wal").touch()
    with pytest.raises(InputError, match="another program is writing it"):
        export_tables(store, path, ["labels"])


def test_views_of_an_object_store_are_refused(memory_root: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="wanted --copy"):
        export_views(Store(memory_root), tmp_path / "bi.duckdb")
    assert export_tables(Store(memory_root), tmp_path / "bi.duckdb", ["labels"])[0].rows == 0
