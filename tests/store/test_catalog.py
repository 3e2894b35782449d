"""The views: each builds on an empty store, states its grain, and shows new rows."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import duckdb
import pytest
from catalog_views import VIEWS, every_view, rows
from full_store import Filler, Make

from evalflows.store.catalog import ask, connect, grain
from evalflows.store.parquet import Store
from evalflows.store.schemas import TABLES, schema_of


@every_view
def test_a_view_is_empty_on_an_empty_store(catalog: duckdb.DuckDBPyConnection, path: Path) -> None:
    assert catalog.execute(f"select * from {path.stem}").fetchall() == []


def test_the_views_build_on_an_empty_object_store(memory_root: str) -> None:
    with connect(memory_root) as catalog:
        for path in VIEWS:
            assert catalog.execute(f"select count(*) from {path.stem}").fetchall() == [(0,)]


@every_view
def test_the_first_line_of_a_view_states_existing_columns(catalog: duckdb.DuckDBPyConnection, path: Path) -> None:
    assert set(grain(path)) <= set(catalog.sql(f"from {path.stem}").columns)


@pytest.mark.parametrize(
    "first", ["select 1", "-- One row per a", "-- one row per", "-- one row per a,b", "--one row per a"]
)
def test_a_view_without_its_grain_is_refused(tmp_path: Path, first: str) -> None:
    path = tmp_path / "view.sql"
    path.write_text(f"{first}\nselect 1 as a", encoding="utf-8")
    with pytest.raises(ValueError, match=r"view\.sql: got .* wanted '-- one row per column, column'"):
        grain(path)


def test_a_grain_may_be_explained(tmp_path: Path) -> None:
    path = tmp_path / "view.sql"
    path.write_text("-- one row per run_id, metric: which is: a judgement\nselect 1", encoding="utf-8")
    assert grain(path) == ("run_id", "metric")


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_view_with_its_columns_and_key(catalog: duckdb.DuckDBPyConnection, table: str) -> None:
    (path,) = [path for path in VIEWS if path.stem == table]
    relation = catalog.sql(f"from {table}")
    schema = schema_of(TABLES[table].record)
    derived = relation.columns[len(schema.names) :]
    assert relation.columns[: len(schema.names)] == schema.names
    assert not derived or table == "observations", "only observations have fields that lie in their attributes"
    assert grain(path) == TABLES[table].key
    as_json = [name for name, kind in zip(relation.columns, relation.types, strict=True) if str(kind) == "JSON"]
    assert as_json == [field.name for field in schema if field.metadata]


def test_an_experiment_without_answers_is_in_the_overview(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 3, 2)
    with connect(store.layout.root) as catalog:
        (overview,) = rows(catalog, "from experiment_overview")
    assert (overview["answered"], overview["failed"], overview["not_attempted"]) == (0, 0, 6)
    assert overview["mean_latency_s"] is None


def test_a_view_shows_rows_written_after_connecting(store: Store, make: Make) -> None:
    with connect(store.layout.root) as catalog:
        store.append("outputs", "exp-1", "p", [make("outputs", run_id="a", experiment_id="exp-1")])
        assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]
        store.seal("exp-1", ["outputs"])
        assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]


def test_times_are_in_utc(store: Store, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    at = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
    store.append("outputs", "exp-1", "p", [make("outputs", experiment_id="exp-1", started_at=at)])
    with connect(store.layout.root) as catalog:
        ((found, text),) = catalog.execute("select started_at, started_at::text from outputs").fetchall()
    assert found == at
    assert found.utcoffset() == timedelta(0)
    assert text == "2026-03-04 05:06:07.000089+00"


def test_threads_may_ask_for_the_same_views_at_once(store: Store) -> None:
    """They share a database, in which two of them must not create a view at the same time."""
    starting = Barrier(8)

    def count(_: int) -> list[list[tuple[Any, ...]]]:
        starting.wait()
        return ask(store, ("select count(*) from leaderboard", []), ("select count(*) from results", []))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(count, range(8))) == [[[(0,)], [(0,)]]] * 8
