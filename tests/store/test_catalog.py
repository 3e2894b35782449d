"""The views: each builds on an empty store, states its grain, and shows new rows, by its name and schema."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import duckdb
import pytest
from catalog_views import VIEWS
from full_store import Make

from evalflows.store.leases import hold_lease
from evalflows.store.schemas import TABLES, schema_of
from evalflows.store.sql import ask, ask_arrow, connect, select, select_from
from evalflows.store.store import Store
from evalflows.store.views import grain, is_mart, view_files, views_of


@pytest.mark.slow
def test_a_view_is_empty_on_an_empty_store_and_has_the_columns_of_its_grain(catalog: duckdb.DuckDBPyConnection) -> None:
    for path in VIEWS:
        relation = catalog.sql(f"from {path.stem}")
        assert relation.fetchall() == [], path.stem
        assert set(grain(path)) <= set(relation.columns), path.stem


def test_a_view_without_its_grain_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "view.sql"
    for first in ("select 1", "-- one row per a,b"):
        path.write_text(f"{first}\nselect 1 as a", encoding="utf-8")
        with pytest.raises(ValueError, match=r"view\.sql: got .* wanted '-- one row per column, column'"):
            grain(path)


def test_every_table_has_a_view_with_its_columns_and_key(catalog: duckdb.DuckDBPyConnection) -> None:
    for table in TABLES:
        (path,) = [path for path in VIEWS if path.stem == table]
        relation, schema = catalog.sql(f"from {table}"), schema_of(TABLES[table].record)
        derived = relation.columns[len(schema.names) :]
        assert relation.columns[: len(schema.names)] == schema.names
        assert not derived or table in ("observations", "labels"), "of attributes, and of metadata"
        assert grain(path) == TABLES[table].key
        as_json = [name for name, kind in zip(relation.columns, relation.types, strict=True) if str(kind) == "JSON"]
        assert as_json == [field.name for field in schema if field.metadata]


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


NAMES = ("scores", "staging.scores", "results", "main.results")


def test_only_marts_show_up_in_main_and_views_are_found_by_their_names(store: Store) -> None:
    query = "select table_schema, list(table_name order by table_name) from information_schema.tables group by all"
    wanted = {
        "main": sorted(path.stem for path in view_files() if is_mart(path)),
        "staging": sorted([*TABLES, "scores", "comparisons", "machine_labels"]),
        "source": sorted(TABLES),
    }
    for restricted in (False, True):
        with connect(restricted=restricted) as catalog:
            assert dict(catalog.execute(query).fetchall()) == wanted
            for name in NAMES:
                assert select(catalog, f"from {name}").fetchall() == []
            for name in ("staging.scores", "results"):
                assert catalog.cursor().execute(f"from {name}").fetchall() == []
    for name in NAMES:
        assert select_from(store, f"from {name}").fetchall() == []
        assert ask(store, (f"from {name}", [])) == [[]]
    assert ask_arrow(store, "from staging.scores", []).num_rows == 0


def test_what_a_query_reads_is_found_through_schemas_capitals_and_macros() -> None:
    assert views_of("from staging.scores") == views_of("FROM scores") == {"scores", "judgements"}
    assert views_of("select 1 from main.measures") == {"measures", "outputs"}
    changes = views_of("select * from changes_between('a', 'b')")
    assert changes >= {"changes_between", "experiments", "examples", "run_values", "measures", "judgements", "outputs"}
    assert "changes" not in changes
    assert views_of("from changes") >= {"experiment_pairs", "verdicts", "decisions"}


EXPERIMENTS = "select state from staging.experiments order by experiment_id"
COMPARISONS = "select state from comparison_sets order by comparison_id"


@pytest.fixture
def begun(any_store: Store, make: Callable[..., Any]) -> Store:
    """Two experiments of one run group, of which one is completed, and a comparison."""
    for identity, state in (("exp-1", "running"), ("exp-2", "completed")):
        fields = {"experiment_id": identity, "run_group": "group-1", "state": state}
        any_store.publish("experiments", identity, [make("experiments", **fields)])
    row = make("comparison_sets", comparison_id="cmp-1", state="running", spec="{}", evaluators="[]")
    any_store.publish("comparison_sets", "cmp-1", [row])
    return any_store


def test_what_a_process_works_on_is_running_and_all_else_interrupted(begun: Store) -> None:
    def states() -> list[list[str]]:
        return [[state for (state,) in rows] for rows in ask(begun, (EXPERIMENTS, []), (COMPARISONS, []))]

    assert states() == [["interrupted", "completed"], ["interrupted"]]
    with hold_lease(begun, "group-1", "the run", wait=False):
        assert states() == [["running", "completed"], ["interrupted"]]
        assert select_from(begun, EXPERIMENTS).fetchall() == [("running",), ("completed",)]
        with connect(begun.layout.root) as catalog:
            assert catalog.execute(EXPERIMENTS).fetchall() == [("running",), ("completed",)]
    with hold_lease(begun, "cmp-1", "the comparison", wait=False):
        assert states() == [["interrupted", "completed"], ["running"]]
    rows = begun.query("select state from source.experiments order by experiment_id")
    assert [state for (state,) in rows] == ["running", "completed"], "the row itself stays"
