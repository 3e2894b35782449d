"""A restricted connection reads the store, in a folder and in an object store, and nothing else."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import os
import random
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from full_store import Make

from evalflows.specs.errors import InputError
from evalflows.store.database import memory_limit_bytes
from evalflows.store.file_systems import readable
from evalflows.store.sql import connect, select
from evalflows.store.store import Store

MARK = "sesame-4711"
READS = (
    "from read_text('FILE')",
    "from read_blob('FILE')",
    "from read_csv('FILE')",
    "from read_json('FILE')",
    "from sniff_csv('FILE')",
    "from read_parquet('FILE')",
    "from parquet_metadata('FILE')",
    "from 'FILE'",
    "from 'store://FILE'",
    "from 'store://LINK'",
    "from glob('FOLDER/*')",
    "from glob('FOLDER/../*')",
    "from read_text('ROOT/../secret.csv')",
    "from read_text('ROOT/outputs/../../secret.csv')",
    "from read_text('store://ROOT/../secret.csv')",
    "from read_text('store://LINK')",
    "from read_text('LINK')",
    "from read_text('file:FILE')",
    "from read_text('file://FILE')",
    "from query('select * from read_text(''FILE'')')",
    "from query_table('FILE')",
    "from 'http://127.0.0.1:9/a.csv'",
    "from 's3://bucket/a.parquet'",
    "select getenv('HOME')",
)
SELECTS_REFUSED = (
    "from duckdb_secrets()",
    "from json_execute_serialized_sql('{}')",
    "from read_text('store://ROOT/*')",
)
WRITES = (
    "copy (select 1) to 'FOLDER/new.csv'",
    "copy (select 1) to 'ROOT/new.parquet'",
    "copy (select 1) to 'store://ROOT/new.parquet'",
    "with x as (copy (select 1) to 'ROOT/new.parquet') from x",
    "with x as (copy (select 1) to 'store://ROOT/new.parquet') from x",
    "explain analyze /* /* */ */ copy (select 1) to 'store://ROOT/new.parquet'",
    "explain analyze with x as (copy (select 1) to 'store://ROOT/new.parquet') from x",
    "attach 'FOLDER/new.db'",
    "attach 'store://ROOT/new.db'",
    "install httpfs",
    "load httpfs",
    "force install json",
    "set enable_external_access = true",
    "set disabled_filesystems = ''",
    "reset disabled_filesystems",
    "set memory_limit = '1TB'",
    "set autoload_known_extensions = true",
    "set temp_directory = 'FOLDER'",
    "pragma enable_profiling = 'json'",
    "call enable_logging(storage = 'file', storage_path = 'FOLDER/log')",
    "create persistent secret s (type s3)",
    "export database 'FOLDER/new'",
    "export database 'store://ROOT/new'",
    "import database 'FOLDER'",
)


@pytest.fixture
def secret(tmp_path: Path, store: Store) -> Path:
    """A file beside the store, to which a link in the store points."""
    path = tmp_path / "secret.csv"
    path.write_text(f"a,b\n{MARK},1\n")
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


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_outside_the_store_is_read_and_nothing_is_written(store: Store, secret: Path) -> None:
    """`select` refuses by the parse tree; what it would let through meets a connection without a way to write."""
    with connect(restricted=True) as catalog:
        before, variable = files_below(secret.parent), pa.table({"x": [MARK]})
        with pytest.raises(duckdb.CatalogException, match="variable does not exist"):
            catalog.execute("from variable")  # of whoever holds the connection
        assert variable.num_rows == 1
        for statement in (*READS, *SELECTS_REFUSED, *WRITES):
            with pytest.raises(InputError, match=r"^sql: ") as caught:
                select(catalog, of(statement, secret, store.layout.root))
            assert "\n" not in str(caught.value) and MARK not in str(caught.value)
        for statement in WRITES:
            with pytest.raises(duckdb.Error):
                catalog.cursor().execute(of(statement, secret, store.layout.root))
        for statement in READS:
            read: object = None
            with suppress(duckdb.Error):
                read = catalog.cursor().execute(of(statement, secret, store.layout.root)).fetchall()
            assert not read, statement
    assert files_below(secret.parent) == before


def test_no_statement_of_duckdbs_grammar_writes_or_reads_elsewhere(store: Store, secret: Path) -> None:
    """A fuzz: statements that write or read files, in every place that takes a query, a name or an expression."""
    draw = random.Random(20261126)
    root, folder = store.layout.root, secret.parent
    paths = [f"{prefix}{place}" for prefix in ("", "store://", "file://", "file:") for place in _places(root, folder)]
    outcomes: Counter[str] = Counter()
    with connect(restricted=True) as catalog:
        before = files_below(folder)
        for _ in range(1000):
            sql = _wrapped(draw, draw.choice(_STATEMENTS).replace("PATH", draw.choice(paths)))
            for name, run in (("select", partial(select, catalog)), ("execute", catalog.cursor().execute)):
                try:
                    rows = run(sql).fetchall()
                except (InputError, duckdb.Error):
                    outcomes[f"{name} refused"] += 1
                else:
                    outcomes[f"{name} ran"] += 1
                    assert MARK not in str(rows)
    assert files_below(folder) == before
    assert min(outcomes.values()) > 30, outcomes  # each way is tried


_STATEMENTS = (
    "copy (select 1) to 'PATH'",
    "copy (select 1 as a) to 'PATH' (format parquet, per_thread_output true)",
    "copy (select 1 as a) to 'PATH' (format csv, partition_by (a), overwrite true)",
    "select * from read_text('PATH')",
    "select content from read_blob('PATH')",
    "from 'PATH'",
    "from read_csv('PATH')",
    "from glob('PATH*')",
    "from query('copy (select 1) to ''PATH''')",
    "attach 'PATH' as other",
    "export database 'PATH'",
    "insert into outputs select * from outputs returning 1",
    "delete from source.outputs returning 1",
    "create table t as select 1",
    "create or replace view outputs as select 1",
    "install 'PATH'",
    "load 'PATH'",
    "pragma profile_output = 'PATH'",
    "set temp_directory = 'PATH'",
    "set variable x = (select content from read_text('PATH'))",
    "select 1",
    "values (1)",
    "from outputs",
)


def _places(root: str, folder: Path) -> tuple[str, ...]:
    return f"{root}/new.parquet", f"{root}/link.csv", f"{folder}/secret.csv", f"{folder}/new", f"{root}/../secret.csv"


def _wrapped(draw: random.Random, sql: str) -> str:
    wraps = (
        "{}",
        "with x as ({}) from x",
        "with x as materialized ({}) select * from x, x as y",
        "with recursive x as ({} union all select * from x where false) from x",
        "select (with x as ({}) select count(*) from x)",
        "select 1 where exists (with x as ({}) from x)",
        "select * from ({}) as t",
        "from (with x as ({}) from x) as t join (select 1 as one) on true",
        "(select 1) union all (with x as ({}) select 2 from x)",
        "explain analyze {}",
        "explain /* /* */ */ analyze -- \n {}",
        "explain (analyze, format json) {}",
        "describe {}",
        "summarize {}",
        "select 1; {}",
        "{}; select 1",
        "prepare p as {}",
        "call query($${}$$)",
        "from query($${}$$)",
        "execute immediate $${}$$",
        "create temp view v as {}",
        "create macro m() as table ({})",
        "/* ' */ {} -- '",
        "select [x for x in ({})]",
        "pivot ({}) on 1",
        "from (values (1)) v, lateral ({}) l",
    )
    for _ in range(draw.randint(1, 3)):
        sql = draw.choice(wraps).replace("{}", sql)
    return sql


@pytest.mark.usefixtures("store")
def test_queries_of_every_kind_run() -> None:
    with connect(restricted=True) as catalog:
        for query in (
            "from outputs",
            "with recursive x(n) as (select 1 union all select n + 1 from x where n < 3) select sum(n) from x",
            "select 1 union all (with a as materialized (select 2) from a)",
            "describe outputs",
            "summarize experiments",
            "show tables",
            "explain /* ä /* ö */ analyze */ select 'ß' from outputs",
            "EXPLAIN (FORMAT json) select 1",
            "explain (analyze, format json) (select 1)",
            "select unnest([1, 2]), (select count(*) from range(3))",
            "from changes_between('a', 'b')",
            "from information_schema.tables",
            "select " + "(" * 200 + "1" + ")" * 200,
        ):
            select(catalog, query).fetchall()


def test_the_stores_folder_may_be_called_anything_and_be_a_link_or_relative(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("below", "real"):
        (tmp_path / folder).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    relative = ["link/store", f"../{tmp_path.name}/real/store"]
    names = ["it's", "a größe", "{b,c} 50% #1", "year=2026", "below/../beside", "link/store"]
    for root in (*(tmp_path / name for name in names), *relative):
        store = Store(root)
        store.reopen("exp-1", ["outputs"])
        store.append("outputs", "exp-1", "p", [make("outputs", run_id="a", experiment_id="exp-1")])
        with connect(root, restricted=True) as catalog:
            assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]
            with pytest.raises(duckdb.PermissionException):
                catalog.execute("from read_text('/etc/hostname')")
        store.seal("exp-1", ["outputs"])
        assert [row.run_id for row in store.read("outputs", "exp-1")] == ["a"]


def test_an_object_store_can_be_read_and_nothing_beside_it(memory_root: str, make: Make, secret: Path) -> None:
    store = Store(memory_root)
    store.append("outputs", "exp-1", "p", [make("outputs", run_id="a", experiment_id="exp-1")])
    store.publish("outputs", "exp-2", [make("outputs", run_id="b", experiment_id="exp-2")])
    mirror = Path(readable(store.layout, store.filesystem).root)
    (mirror.parent / "secret.csv").write_text(MARK)
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


def test_a_query_that_needs_more_time_or_memory_is_stopped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(restricted=True) as catalog:
        begun = time.monotonic()
        with pytest.raises(InputError, match=r"sql: stopped after 0\.3 s, wanted a faster query"):
            select(catalog, "select count(*) from range(1000000000000)", timeout_s=0.3)
        assert time.monotonic() - begun < 10
        assert select(catalog, "select 1 as one", timeout_s=30).fetchall() == [(1,)]
    monkeypatch.setattr("evalflows.store.database.MEMORY_SHARE", 0.01)
    wanted = r"^sql: Out of Memory Error: [^\n]*used\), wanted a query that needs less$"
    with connect(restricted=True) as catalog, pytest.raises(InputError, match=wanted):
        select(catalog, "select list(range) as numbers from range(1000000000)", timeout_s=60)


def test_at_most_half_of_the_memory_is_used() -> None:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    with connect(restricted=True) as catalog:
        ((used,),) = catalog.execute("select current_setting('memory_limit')").fetchall()
    with duckdb.connect() as unrestricted:
        unrestricted.execute("set memory_limit = '50%'")
        assert unrestricted.execute("select current_setting('memory_limit')").fetchall() == [(used,)]
    assert 0 < memory_limit_bytes() <= 0.51 * pages * size
