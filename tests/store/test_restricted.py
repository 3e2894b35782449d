"""A restricted connection reads the store, in a folder and in an object store, and nothing else."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import time
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from catalog_views import VIEWS
from full_store import Make

from evalflows.specs.errors import InputError
from evalflows.store.catalog import connect, select
from evalflows.store.parquet import Store
from evalflows.store.restricted import memory_limit_bytes
from evalflows.store.roots import readable

READS = (
    "from read_text('FILE')",
    "from read_blob('FILE')",
    "from read_csv('FILE')",
    "from read_json('FILE')",
    "from sniff_csv('FILE')",
    "from read_parquet('FILE')",
    "from parquet_metadata('FILE')",
    "from 'FILE'",
    "from glob('FOLDER/*')",
    "from glob('FOLDER/../*')",
    "from read_text('ROOT/../secret.csv')",
    "from read_text('ROOT/outputs/../../secret.csv')",
    "from read_text('LINK')",
    "from read_text('file:FILE')",
    "from read_text('file://FILE')",
    "from query('select * from read_text(''FILE'')')",
    "from 'http://127.0.0.1:9/a.csv'",
    "from 's3://bucket/a.parquet'",
    "from duckdb_secrets()",
)
WRITES = (
    "copy (select 1) to 'FOLDER/new.csv'",
    "attach 'FOLDER/new.db'",
    "install httpfs",
    "load httpfs",
    "force install json",
    "set enable_external_access = true",
    "set allowed_directories = ['/']",
    "reset allowed_directories",
    "set memory_limit = '1TB'",
    "set autoload_known_extensions = true",
    "set temp_directory = 'FOLDER'",
    "create persistent secret s (type s3)",
    "export database 'FOLDER/new'",
    "import database 'FOLDER'",
)


@pytest.fixture
def secret(tmp_path: Path, store: Store) -> Path:
    """A file beside the store, to which a link in the store points."""
    path = tmp_path / "secret.csv"
    path.write_text("a,b\nkey,1\n")
    (Path(store.layout.root) / "link.csv").symlink_to(path)
    return path


def of(query: str, secret: Path, root: str) -> str:
    link = f"{root}/link.csv"
    return (
        query.replace("FILE", str(secret))
        .replace("FOLDER", str(secret.parent))
        .replace("ROOT", root)
        .replace("LINK", link)
    )


@pytest.mark.parametrize("query", READS)
def test_nothing_outside_the_store_is_read(store: Store, secret: Path, query: str) -> None:
    with connect(restricted=True) as catalog:
        with pytest.raises(InputError, match=r"^sql: ") as caught:
            select(catalog, of(query, secret, store.layout.root))
        assert "\n" not in str(caught.value) and "key" not in str(caught.value)


@pytest.mark.parametrize("statement", WRITES)
def test_a_restricted_connection_cannot_write_or_free_itself(store: Store, secret: Path, statement: str) -> None:
    before = set(secret.parent.iterdir())
    with connect(restricted=True) as catalog:
        with pytest.raises(duckdb.Error):
            catalog.execute(of(statement, secret, store.layout.root))
        with pytest.raises(duckdb.Error):
            catalog.cursor().execute(f"from read_text('{secret}')")
    assert set(secret.parent.iterdir()) == before


@pytest.mark.slow
def test_every_view_can_be_read(store: Store, make: Make) -> None:
    store.append("outputs", "exp-1", "p", [make("outputs", run_id="a", experiment_id="exp-1")])
    with connect(restricted=True) as catalog:
        for path in VIEWS:
            select(catalog, f"from {path.stem}").fetchall()
        assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]
        store.seal("exp-1", ["outputs"])
        assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]


@pytest.mark.parametrize("name", ["it's", "a größe", "{b,c} 50% #1", "year=2026", "below/../beside"])
def test_the_stores_folder_may_be_called_anything(tmp_path: Path, make: Make, name: str) -> None:
    (tmp_path / "below").mkdir()
    store = Store(tmp_path / name)
    store.append("outputs", "exp-1", "p", [make("outputs", run_id="a", experiment_id="exp-1")])
    with connect(tmp_path / name, restricted=True) as catalog:
        assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]
        with pytest.raises(duckdb.PermissionException):
            catalog.execute("from read_text('/etc/hostname')")


def test_the_stores_folder_may_be_a_link_or_relative(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    for root in (tmp_path / "link" / "store", "link/store", "../" + tmp_path.name + "/real/store"):
        Store(root).publish("outputs", "exp-1", [make("outputs", run_id="a", experiment_id="exp-1")])
        with connect(root, restricted=True) as catalog:
            assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]


def test_an_object_store_can_be_read_and_nothing_beside_it(memory_root: str, make: Make, secret: Path) -> None:
    store = Store(memory_root)
    store.append("outputs", "exp-1", "p", [make("outputs", run_id="a", experiment_id="exp-1")])
    store.publish("outputs", "exp-2", [make("outputs", run_id="b", experiment_id="exp-2")])
    mirror = Path(readable(store.layout, store.filesystem).root)
    (mirror.parent / "secret.csv").write_text("key")
    outside = [f"{mirror.parent}/secret.csv", f"{mirror}/../secret.csv", f"{memory_root}/../secret.csv"]
    with connect(memory_root, restricted=True) as catalog:
        assert catalog.execute("select run_id from outputs order by 1").fetchall() == [("a",), ("b",)]
        for path in (*outside, str(secret), f"file://{secret}", f"{mirror.parent}/*"):
            with pytest.raises(InputError, match=r"^sql: "):
                select(catalog, f"from read_text('{path}')")


def test_frames_can_be_joined() -> None:
    frame = pd.DataFrame({"x": [1]})
    with connect() as catalog:
        assert catalog.sql("select x from frame").fetchall() == [(1,)]
    with connect(restricted=True) as catalog:
        catalog.register("mine", frame)
        assert select(catalog, "select x from mine").fetchall() == [(1,)]


def test_files_of_ones_own_can_be_joined_without_the_restriction(secret: Path) -> None:
    with connect() as catalog:
        assert catalog.sql(f"select a from read_csv('{secret}')").fetchall() == [("key",)]


def test_a_query_is_stopped_when_its_time_is_over(store: Store) -> None:
    with connect(restricted=True) as catalog:
        begun = time.monotonic()
        with pytest.raises(InputError, match=r"sql: stopped after 0\.3 s, wanted a faster query"):
            select(catalog, "select count(*) from range(1000000000000)", timeout_s=0.3)
        assert time.monotonic() - begun < 10
        assert select(catalog, "select 1 as one", timeout_s=30).fetchall() == [(1,)]


def test_at_most_half_of_the_memory_is_used() -> None:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    with connect(restricted=True) as catalog:
        ((used,),) = catalog.execute("select current_setting('memory_limit')").fetchall()
    with duckdb.connect() as unrestricted:
        unrestricted.execute("set memory_limit = '50%'")
        assert unrestricted.execute("select current_setting('memory_limit')").fetchall() == [(used,)]
    assert 0 < memory_limit_bytes() <= 0.51 * pages * size


def test_a_query_that_needs_more_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalflows.store.restricted.MEMORY_SHARE", 0.01)
    wanted = r"^sql: Out of Memory Error: [^\n]*used\), wanted a query that needs less$"
    with connect(restricted=True) as catalog, pytest.raises(InputError, match=wanted):
        select(catalog, "select list(range) as numbers from range(1000000000)", timeout_s=60)
