"""`select` runs one read-only query, and refuses everything else."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from pathlib import Path

import duckdb
import pytest

from evalflows.specs.errors import InputError
from evalflows.store.catalog import connect, select

READS = (
    "select 1 as one",
    "from scores",
    "table scores",
    "values (1)",
    "select count(*) from scores;",
    "with s as (from scores) select count(*) from s",
    "describe scores",
    "summarize scores",
    "show tables",
    "explain select * from scores",
    "explain analyze select * from scores",
    "-- a comment\nselect 1 /* another */",
)


@pytest.mark.parametrize("query", READS)
def test_a_single_read_query_is_run(catalog: duckdb.DuckDBPyConnection, query: str) -> None:
    assert select(catalog, query).columns


REFUSED = (
    "",
    "   ;",
    "-- only a comment",
    "selec 1",
    "select * from nonsense",
    "select nonsense from scores",
    "select 1; select 2",
    "select 1; drop view scores",
    "insert into scores select * from scores",
    "with s as (select 1) insert into scores select * from s",
    "update scores set value = 1",
    "delete from scores",
    "truncate scores",
    "drop view scores",
    "create table t (i int)",
    "create view v as select 1",
    "create macro m() as 1",
    "alter view scores rename to s",
    "copy scores to 'SOMEWHERE'",
    "copy (select 1) to 'SOMEWHERE' (format parquet)",
    "export database 'SOMEWHERE'",
    "attach 'SOMEWHERE' as other",
    "pragma database_list",
    "set threads = 1",
    "reset threads",
    "use memory",
    "call pragma_version()",
    "load json",
    "install httpfs",
    "begin",
    "checkpoint",
    "vacuum",
    "prepare p as select 1",
)


@pytest.mark.parametrize("query", REFUSED)
def test_anything_but_a_single_read_query_is_an_input_error(
    empty_root: Path, catalog: duckdb.DuckDBPyConnection, tmp_path: Path, query: str
) -> None:
    before = set(empty_root.rglob("*"))
    assert_refused(catalog, query, tmp_path / "somewhere")
    assert set(empty_root.rglob("*")) == before
    assert catalog.execute("select count(*) from scores").fetchall() == [(0,)]


@pytest.mark.parametrize(
    "query",
    [
        "explain analyze copy (select 1) to 'SOMEWHERE' (format parquet)",
        "EXPLAIN  ANALYZE\ncreate table t as select 1",
        "explain (analyze, format json) create table t as select 1",
        "explain analyze drop view scores",
        "explain (analyze) drop view scores",
        "explain /* a comment */ analyze drop view scores",
        "/* a comment */ explain analyze drop view scores",
        "explain analyze (format json) create table t as select 1",
        "explain analyze",
    ],
)
def test_explain_analyze_cannot_change_anything(empty_root: Path, tmp_path: Path, query: str) -> None:
    with connect(empty_root) as catalog:
        assert_refused(catalog, query, tmp_path / "somewhere")
        assert catalog.execute("select count(*) from scores").fetchall() == [(0,)]


def assert_refused(catalog: duckdb.DuckDBPyConnection, query: str, somewhere: Path) -> None:
    with pytest.raises(InputError) as caught:
        select(catalog, query.replace("SOMEWHERE", str(somewhere)))
    assert str(caught.value).startswith("sql: ")
    assert "\n" not in str(caught.value)
    assert not somewhere.exists()


def test_the_error_names_the_statements_and_the_wanted_kind(catalog: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(InputError) as caught:
        select(catalog, "select 1; drop view scores")
    assert str(caught.value) == "sql: got SELECT, DROP, wanted one query (select, from, with, describe, explain)"


@pytest.mark.parametrize("query", ["select 'x'::int", "select error('no')", "select json('{')"])
def test_a_query_that_fails_during_execution_is_an_input_error(catalog: duckdb.DuckDBPyConnection, query: str) -> None:
    with pytest.raises(InputError) as caught:
        select(catalog, query)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("root", ["nonsense://bucket/evals", "FILE", "FILE/below"])
def test_an_invalid_store_root_is_an_input_error(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").touch()
    root = root.replace("FILE", str(tmp_path / "file"))
    with pytest.raises(InputError) as caught:
        connect(root)
    assert str(caught.value).startswith(f"store '{root}': ")
    assert "\n" not in str(caught.value)
