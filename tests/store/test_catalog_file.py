"""The catalog is one DuckDB file beside the store, which follows the views and the store's folder."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evalflows.specs.home import home_root
from evalflows.store.database import catalog_path, keep_catalog, views_key, write_views
from evalflows.store.sql import connect
from evalflows.store.store import Store


@pytest.fixture
def catalogs_are_not_moved() -> None:
    """Here they are."""


def test_any_duckdb_reads_the_store_by_it_also_where_the_store_has_moved(
    store: Store, store_root: Path, make: Callable[..., Any], tmp_path: Path
) -> None:
    store.publish("outputs", "exp-1", [make("outputs", run_id="a", experiment_id="exp-1")])
    moved = tmp_path / "it's elsewhere"
    with connect() as catalog:
        assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]
    with duckdb.connect(str(catalog_path(store.layout)), read_only=True) as plain:
        assert plain.execute("select run_id from staging.outputs").fetchall() == [("a",)]
        shutil.copytree(store_root, moved)
        store.publish("outputs", "exp-2", [make("outputs", run_id="b", experiment_id="exp-2")])
        assert plain.execute("select count(*) from staging.outputs").fetchall() == [(2,)]
        with connect(moved) as catalog:  # while another process holds the first file
            assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]
    with duckdb.connect(str(moved / "catalog.duckdb"), read_only=True) as plain:
        assert plain.execute("select source.root(), count(*) from staging.outputs").fetchall() == [(str(moved), 1)]


def test_the_one_for_other_programs_is_written_once_and_follows_a_moved_store(
    store: Store, store_root: Path, tmp_path: Path
) -> None:
    path, moved = catalog_path(store.layout), tmp_path / "moved"
    store.query("select count(*) from outputs")
    path.unlink(missing_ok=True)  # the store's own queries have another one
    keep_catalog(store.layout)
    written = path.stat()
    keep_catalog(store.layout)
    assert path.stat() == written
    shutil.copytree(store_root, moved)
    Store(moved).query("select count(*) from outputs")
    with duckdb.connect(str(moved / path.name), read_only=True) as plain:
        assert plain.execute("select source.root(), count(*) from staging.outputs").fetchall() == [(str(moved), 0)]


def test_another_file_of_its_name_is_replaced_and_one_in_use_is_left(store: Store) -> None:
    path = catalog_path(store.layout)
    write_views(path.with_name("other.duckdb"), root=store.layout.root)
    (bound,) = (home_root() / "catalogs").glob(f"{views_key()[:24]}-*.duckdb")  # the user's, of which it is a copy
    path.unlink()
    with duckdb.connect(str(path)) as other:
        other.execute("create table mine as select 1 as x; create schema source")
        other.execute("create macro source.views_key() as 'other'; create macro source.root() as 'elsewhere'")
        assert connect().execute("select count(*) from outputs").fetchall() == [(0,)]
        assert other.execute("from mine").fetchall() == [(1,)]
    assert connect().execute("select count(*) from outputs").fetchall() == [(0,)]
    for file in (path, bound):
        file.write_bytes(b"no database")
    assert connect().execute("select count(*) from outputs").fetchall() == [(0,)]
    with duckdb.connect(str(path), read_only=True) as plain:
        assert plain.execute("select count(*) from staging.outputs").fetchall() == [(0,)]
    with duckdb.connect(str(bound), read_only=True) as plain:
        assert plain.execute("select source.views_key()").fetchall() == [(views_key(),)]


def test_where_it_cannot_be_written_the_views_are_bound_in_memory(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = catalog_path(store.layout)
    path.unlink()

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refused)
    with connect() as catalog:
        assert catalog.execute("select count(*) from metric_summary").fetchall() == [(0,)]
    assert not path.exists() and not [*Path(store.layout.root).glob(".*.tmp")]
