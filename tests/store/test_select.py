"""`select` runs one read-only query, and refuses everything else."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from pathlib import Path

import duckdb
import pytest

from evalflows.specs.errors import InputError
from evalflows.store.sql import connect, select

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
    "explain analyze copy (select 1) to 'SOMEWHERE' (format parquet)",
    "EXPLAIN  ANALYZE\ncreate table t as select 1",
    "explain (analyze, format json) create table t as select 1",
    "explain analyze drop view scores",
    "explain (analyze) drop view scores",
    "explain /* a comment */ analyze drop view scores",
    "/* a comment */ explain analyze drop view scores",
    "explain analyze",
    "select 'x'::int",
    "select error('no')",
    "pivot scores on metric using count(*); drop view scores",
    "pivot scores /* on */ on metric, label -- using\n using sum((select size from read_text('SOMEWHERE')))",
    "with s as (from read_text('SOMEWHERE')) pivot s on content",
    "from (pivot scores on metric using count(*))",
)


def test_anything_but_a_single_read_query_is_refused_in_one_line(
    catalog: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    for query in REFUSED:
        with pytest.raises(InputError) as caught:
            select(catalog, query.replace("SOMEWHERE", str(tmp_path / "somewhere")))
        assert str(caught.value).startswith("sql: ") and "\n" not in str(caught.value), query
        assert not (tmp_path / "somewhere").exists(), query
        assert catalog.execute("select count(*) from scores").fetchall() == [(0,)], query


def test_a_pivot_finds_its_columns_in_the_rows(catalog: duckdb.DuckDBPyConnection) -> None:
    rows = "(from (values ('x', 'a', 1), ('x', 'b', 2), ('y', 'b', 3)) v(id, metric, n)) /* on b */"
    for columns in ("metric", "METRIC -- in\n", "metric in ('a', 'b')"):
        found = select(catalog, f"with r as {rows} pivot r on {columns} using sum(n) group by id order by id")
        assert (found.columns, found.fetchall()) == (["id", "a", "b"], [("x", 1, 2), ("y", None, 3)])


def test_an_invalid_store_root_is_an_input_error(tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    for root in ("nonsense://bucket/evals", f"{file}", f"{file}/below"):
        with pytest.raises(InputError) as caught:
            connect(root)
        assert str(caught.value).startswith(f"store '{root}': ")
        assert "\n" not in str(caught.value)
