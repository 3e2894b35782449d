"""Tables in PostgreSQL, by a server that the tests start."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import exported
import pytest
from click.testing import CliRunner
from exported import comparable
from full_store import Filler
from postgres_server import ESCAPED_PASSWORD, PASSWORD

from evalflows.cli.main import cli
from evalflows.specs.errors import InputError
from evalflows.store.exports import relations
from evalflows.store.postgres import _rows, export_postgres
from evalflows.store.sql import connect
from evalflows.store.store import Store

Run = Callable[..., list[tuple[Any, ...]]]
SCHEMA = 'it\'s "quoted"; drop'
IN_SQL = '"it\'s ""quoted""; drop"'


@pytest.fixture
def run(postgres_url: str) -> Iterator[Run]:
    """`run(sql)`: the rows of a statement in the exported schema, which does not exist yet."""

    def run(sql: str) -> list[tuple[Any, ...]]:
        async def fetch() -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(postgres_url)
            try:
                await connection.execute(f"set search_path = {IN_SQL}")
                return [tuple(row) for row in await connection.fetch(sql)]
            finally:
                await connection.close()

        return asyncio.run(fetch())

    yield run
    run(f"drop schema if exists {IN_SQL} cascade")


def export(store: Store, url: str, *only: str, is_all: bool = False) -> dict[str, tuple[int | None, bool]]:
    return {one.name: (one.rows, one.is_written) for one in export_postgres(store, url, SCHEMA, only, is_all=is_all)}


@pytest.mark.slow
def test_every_view_is_a_table_with_its_rows(filled: Store, postgres_url: str, run: Run) -> None:
    chosen = {name: rows for name, (rows, is_written) in export(filled, postgres_url).items() if is_written}
    assert {"results", "gate_rules", "item_scores"} <= chosen.keys() and "erasures" not in chosen, "internal"
    tables = run("select table_name from information_schema.tables where table_schema = current_schema()")
    assert {name for (name,) in tables} == chosen.keys() | {"evalflows_export"}
    written = export(filled, postgres_url, is_all=True)
    assert {name: is_written for name, (_, is_written) in written.items()} == {
        name: name not in chosen for name in written
    }
    assert chosen == {name: rows for name, (rows, _) in written.items() if name in chosen}
    for name, (count, _) in written.items():
        assert run(f"select count(*) from {name}") == [(count,)], name
    with connect(filled.layout.root) as catalog:
        for name in ("results", "gate_rules", "metric_summary", "trace_windows"):
            found = comparable(run(f"select * from {name}"))
            expected = [
                repr(row).replace(r"\x00", "␀") for row in comparable(catalog.execute(f"from {name}").fetchall())
            ]
            assert sorted(map(repr, found)) == sorted(expected), name
    references = run(
        """select c.relname, a.attname, p.relname from pg_constraint f join pg_class c on c.oid = f.conrelid
           join pg_class p on p.oid = f.confrelid
           join pg_attribute a on a.attrelid = f.conrelid and a.attnum = f.conkey[1] where f.contype = 'f'"""
    )
    assert {
        ("results", "experiment_id", "experiment_overview"),
        ("changes", "baseline_experiment_id", "experiment_overview"),
        ("gate_rules", "decision_id", "gate_decisions"),
        ("pair_outcomes", "comparison_id", "comparison_overview"),
        ("item_scores", "run_id", "outputs"),
    } <= {*references}


@pytest.mark.slow
def test_tables_of_views_that_are_gone_are_removed_and_no_others(
    store: Store, postgres_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["labels", "alerts", "limits"]
    export(store, postgres_url, *names)
    run("create table mine (x int)")
    run("create view on_limits as select * from limits")
    monkeypatch.setattr("evalflows.store.postgres.relations", lambda *_, **__: relations(store, names[:1]))
    export(store, postgres_url, "labels")
    tables = "select table_name from information_schema.tables where table_schema = current_schema()"
    assert {"alerts", "limits"} <= {name for (name,) in run(tables)}, "an export of some views removes nothing"
    assert export(store, postgres_url) == {"labels": (0, False)}
    left = {name for (name,) in run(tables)}
    assert left == {"labels", "limits", "mine", "on_limits", "evalflows_export"}, "limits is needed by a view"


def test_tables_have_types_keys_and_comments(filled: Store, postgres_url: str, run: Run) -> None:
    export(filled, postgres_url, "experiments", "metric_summary")
    columns = "select column_name::text, udt_name::text from information_schema.columns where table_name = '{}'"
    wanted = {"name": "text", "tags": "_text", "metadata": "jsonb", "started_at": "timestamptz", "cost_usd": "float8"}
    assert {*run(columns.format("experiments"))} >= {*wanted.items(), ("repetitions", "int8")}
    assert dict(run(columns.format("metric_summary")))["calls"] == "int8"  # hugeint in DuckDB
    keys = "select conrelid::regclass::text, pg_get_constraintdef(oid) from pg_constraint where contype = 'p'"
    assert ("metric_summary", "PRIMARY KEY (experiment_id, metric, evaluator_version)") in run(keys)
    ((comment,),) = run("select obj_description('metric_summary'::regclass)")
    assert comment.startswith("one row per experiment_id, metric, evaluator_version: the mean")
    assert run("select col_description('experiments'::regclass, 1)") == [("the experiment",)]


def test_hostile_texts_are_kept(filled: Store, postgres_url: str, run: Run) -> None:
    export(filled, postgres_url, "item_scores", "experiments", "label_shares")
    where = "where experiment_id = 'exp-hostile'"
    (found,) = run(f"select name, tags, state, description from experiments {where}")
    assert found == (exported.NAME, ["a␀b", exported.BIDI, "it's"], "interrupted", exported.ESCAPES)
    query = f"select metric, comment, label, outputs from item_scores {where} order by example_id"
    metrics, comments, labels, outputs = zip(*run(query), strict=True)
    assert {*metrics} == {exported.METRIC}
    assert comments == ("a␀b", exported.LONG, "-1+1")
    assert labels == (exported.LONG, exported.BIDI, "@SUM(1)")
    # each becomes a JSON string, since its number, depth or NaN is too much for PostgreSQL
    texts = [json.loads(text) for text in outputs]
    assert json.loads(texts[0])["nul"] == "a␀b" and json.loads(texts[0])["escaped"] == r"a\u0000b"
    assert texts[1:] == [*exported.JSON[1:]]
    assert run("select count(*) from label_shares") == [(3,)]  # without a key: a label is too long for an index


@pytest.mark.slow
def test_a_table_keeps_the_rows_that_are_the_same(store: Store, make: Any, postgres_url: str, run: Run) -> None:
    filler = Filler(store, make)
    filler.experiment("exp-1", "snap-1", 1, 1)
    filler.experiment("exp-2", "snap-1", 1, 1)
    assert export(store, postgres_url, "experiments", "labels") == {"experiments": (2, True), "labels": (0, True)}
    run("create view mine as select name from experiments")
    placed = "select experiment_id, xmin::text from experiments order by 1"
    before = run(placed)
    assert export(store, postgres_url, "experiments", "labels") == {"experiments": (2, False), "labels": (0, False)}
    assert run(placed) == before
    filler.experiment("exp-2", "snap-1", 1, 1, state="completed", name="it's new")
    filler.experiment("exp-3", "snap-1", 1, 1)
    assert export(store, postgres_url, "experiments", "labels") == {"experiments": (3, True), "labels": (0, False)}
    after = run(placed)
    assert (after[0] == before[0], after[1] == before[1], len(after)) == (True, False, 3)
    assert run("select name from mine order by 1") == [("it's new",), ("name of exp-1",), ("name of exp-3",)]


@pytest.mark.slow
def test_readers_see_the_rows_from_before_until_the_export_has_ended(
    store: Store, make: Any, postgres_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    filler, names = Filler(store, make), ["experiments", "labels"]
    filler.experiment("exp-1", "snap-1", 1, 1)
    export(store, postgres_url, *names)
    filler.experiment("exp-2", "snap-1", 1, 1)
    store.append("labels", "labels-1", "p", [make("labels", batch_id="labels-1")])
    seen = []

    def fail(staged: Path, relation: Any) -> Any:
        if relation.name == "labels":
            with ThreadPoolExecutor() as threads:  # this one has an event loop
                seen.extend(threads.submit(run, "select count(*) from experiments").result())
            raise InputError("stopped")
        return _rows(staged, relation)

    monkeypatch.setattr("evalflows.store.postgres._rows", fail)
    with pytest.raises(InputError, match="stopped"):
        export(store, postgres_url, *names)
    assert seen == run("select count(*) from experiments") == [(1,)]


@pytest.mark.slow
def test_a_schema_of_something_else_is_left_alone(store: Store, tmp_path: Path, postgres_url: str, run: Run) -> None:
    run(f"create schema {IN_SQL}")
    run("create table labels (mine text)")
    with pytest.raises(InputError, match="got 'labels', which no export wrote, wanted a new or empty schema"):
        export(store, postgres_url, "labels")
    run("drop table labels")
    export(store, postgres_url, "labels")
    with pytest.raises(InputError, match="got an export of the store"):
        export(Store(tmp_path / "another"), postgres_url, "labels")


def test_the_password_is_never_printed(store: Store, postgres_url: str) -> None:
    for old, new, reason in (
        (ESCAPED_PASSWORD, "secret", "password authentication failed"),
        (ESCAPED_PASSWORD, "sec/ret", "the URL cannot be read"),
        ("/postgres?", "/nothing?", 'database "nothing" does not exist'),
        ("host=/", "host=/nowhere/", "No such file or directory"),
        ("postgresql://", "mysql://", "got another URL, wanted postgresql://"),
    ):
        arguments = ["export", "postgres", postgres_url.replace(old, new), "--only", "labels", "--verbose"]
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 2, done.output
        assert reason in done.stderr.splitlines()[-1]
        for secret in (PASSWORD, ESCAPED_PASSWORD, "secret", "sec", "word @"):
            assert secret not in done.output.replace("section", "")
