"""Views come from the program; the catalog in the store is a file for other programs, which nothing of ours trusts."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evalflows.specs.home import home_root
from evalflows.store import database
from evalflows.store.database import catalog_path, catalog_problem, keep_catalog, views_key
from evalflows.store.doctor import Finding, examine
from evalflows.store.sql import ask, connect, rows_from
from evalflows.store.store import Store
from evalflows.store.views import view_statements


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the views of a user are kept, not made yet. There are two: to bind all takes seconds."""
    few = [*view_statements(frozenset({"outputs", "measures"}))]
    monkeypatch.setattr(database, "view_statements", lambda: few)
    monkeypatch.setenv("EVALFLOWS_HOME", str(tmp_path / "home"))
    return home_root() / "catalogs"


def of_catalog(store: Store) -> list[Finding]:
    return [one for one in examine(store).findings if one.path == str(catalog_path(store.layout))]


def rows_in(path: Path, query: str) -> list[Any]:
    with duckdb.connect(str(path), read_only=True) as plain:
        return plain.execute(query).fetchall()


def test_any_duckdb_reads_the_store_by_it_also_where_the_store_has_moved(
    store: Store, store_root: Path, make: Callable[..., Any], tmp_path: Path
) -> None:
    path, moved = catalog_path(store.layout), tmp_path / "it's elsewhere"
    store.publish("outputs", "exp-1", [make("outputs", run_id="a", experiment_id="exp-1")])
    keep_catalog(store.layout)
    written = path.read_bytes(), path.stat().st_ino
    keep_catalog(store.layout)
    assert (path.read_bytes(), path.stat().st_ino) == written and of_catalog(store) == []
    with duckdb.connect(str(path), read_only=True) as plain:
        assert plain.execute("select run_id from staging.outputs").fetchall() == [("a",)]
        shutil.copytree(store_root, moved)
        store.publish("outputs", "exp-2", [make("outputs", run_id="b", experiment_id="exp-2")])
        assert plain.execute("select count(*) from staging.outputs").fetchall() == [(2,)]
    (finding,) = of_catalog(Store(moved))
    assert (finding.severity, finding.problem) == ("repaired", f"its views read the folder '{store_root}'")
    assert rows_in(moved / path.name, "select source.root(), run_id from staging.outputs") == [(str(moved), "a")]
    shutil.copyfile(path, moved / path.name)
    keep_catalog(Store(moved).layout)
    assert of_catalog(Store(moved)) == []


def test_no_query_of_ours_reads_it_whatever_it_says(
    store: Store, make: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.publish("outputs", "exp-1", [make("outputs", run_id="a", experiment_id="exp-1")])
    keep_catalog(store.layout)
    path, pipe = catalog_path(store.layout), tmp_path / "pipe"
    os.mkfifo(pipe)  # who opens it waits for ever
    with duckdb.connect(str(path)) as forged:
        forged.execute("create or replace view staging.outputs as select 'forged' as run_id")
        forged.execute("create or replace view source.outputs as select 'forged' as run_id, 'exp-1' as experiment_id")
        forged.execute(f"create or replace macro source.root() as (select content from read_text('{pipe}'))")
    query = "select run_id from outputs"
    with connect() as plain, connect(restricted=True) as restricted:
        answers = [plain.execute(query).fetchall(), restricted.execute(query).fetchall(), rows_from(store, query)]
    answers += [store.query("select run_id from source.outputs where experiment_id = ?", ["exp-1"])]
    assert [*answers, *ask(store, (query, []))] == [[("a",)]] * 5
    (finding,) = of_catalog(store)
    assert finding.severity == "damaged" and finding.problem.startswith(
        "differs from what this program writes in macro source.root, view source.outputs, view staging.outputs, so "
    )
    keep_catalog(store.layout)
    assert "view staging.outputs; written again" in capsys.readouterr().err and of_catalog(store) == []
    with duckdb.connect(str(path)) as forged:
        forged.execute("create table main.mine as select 1 as x; drop macro source.views_key")
        forged.execute("create macro source.views_key() as 'of a version that never was'")
    (finding,) = of_catalog(store)
    assert (finding.severity, finding.advice) == ("repaired", "written again for this version and folder")
    assert rows_in(path, "select source.views_key(), run_id from staging.outputs") == [(views_key(), "a")]


def test_a_file_that_is_none_is_replaced_and_one_in_use_is_left(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    path = catalog_path(store.layout)
    path.write_bytes(b"no database")
    (finding,) = of_catalog(store)
    assert finding.severity == "damaged" and finding.problem.startswith("cannot be read: ")
    keep_catalog(store.layout)
    assert catalog_problem(store.layout) is None
    for make in ("type mine as varchar", "sequence mine", "schema mine", "table main.mine (x int)"):
        with duckdb.connect(str(path)) as other:
            other.execute(f"create {make}")
        assert "mine" in getattr(catalog_problem(store.layout), "text", ""), make
        keep_catalog(store.layout)
        assert catalog_problem(store.layout) is None
    path.unlink()
    os.mkfifo(path)  # who opens it waits for ever
    assert [one.problem.partition(",")[0] for one in of_catalog(store)] == ["is not a regular file"]
    keep_catalog(store.layout)
    assert "is not a regular file; written again" in capsys.readouterr().err and of_catalog(store) == []
    path.unlink()
    path.mkdir()
    keep_catalog(store.layout)
    assert "is not a regular file; it cannot be written again" in capsys.readouterr().err
    path.rmdir()
    with duckdb.connect(str(path)) as other:
        other.execute("create table mine as select 1 as x")
        keep_catalog(store.layout)
        assert other.execute("from mine").fetchall() == [(1,)]


def test_the_users_file_is_made_once_and_again_if_it_is_damaged(store: Store, home: Path) -> None:
    connect().close()
    (kept,) = home.glob("*.duckdb")
    made = kept.stat().st_ino
    connect().close()
    assert kept.stat().st_ino == made
    kept.write_bytes(b"no database")
    assert connect().execute("select count(*) from outputs").fetchall() == [(0,)]
    assert rows_in(kept, "select source.root()") == [("",)] and [*home.iterdir()] == [kept]


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("state", ["others_may_write", "no_folder", "no_home", "read_only"])
def test_where_it_cannot_be_kept_the_views_are_bound_in_memory(
    store: Store, home: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if state == "no_home":
        monkeypatch.delenv("EVALFLOWS_HOME")
        monkeypatch.setattr(Path, "home", no_home)
    elif state == "no_folder":
        home.parent.write_bytes(b"")
    else:
        home.mkdir(parents=True)
        connect().close()
        (kept,) = home.iterdir()
        kept.write_bytes(b"")
        home.chmod(0o777 if state == "others_may_write" else 0o500)
    with connect() as catalog:
        assert catalog.execute("select count(*) from measures").fetchall() == [(0,)]
    assert state.startswith("no_") or os.geteuid() == 0 or [*home.iterdir()] == [kept]


def test_queries_of_ours_open_files_below_the_root_only(
    store: Store, store_root: Path, make: Callable[..., Any], tmp_path: Path
) -> None:
    (other := tmp_path / "other.csv").write_text("a\n1\n")
    store.publish("outputs", "exp-1", [make("outputs", run_id="a", experiment_id="exp-1")])
    link = tmp_path / "link"
    link.symlink_to(store_root)
    for opened in (store, Store(link)):
        assert opened.query("select run_id from source.outputs") == [("a",)]
        with opened.cursor() as connection:
            for sql in (f"from '{other}'", f"copy (select 1) to '{tmp_path}/x.csv'", f"attach '{tmp_path}/x.duckdb'"):
                with pytest.raises(duckdb.PermissionException):
                    connection.execute(sql)
            with pytest.raises(duckdb.InvalidInputException):
                connection.execute("set enable_external_access = true")
    sealed = Path(store.layout.sealed("outputs", "exp-1"))
    shutil.move(sealed, tmp_path / "outside.parquet")
    sealed.symlink_to(tmp_path / "outside.parquet")
    with store.cursor() as connection, pytest.raises(duckdb.PermissionException):
        connection.execute("select run_id from source.outputs")
