"""Marts are in `main`, the tables' views in `staging`; queries find both by their names."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import duckdb
import pytest
from full_store import Filler

from evalflows.store.catalog import ask, ask_arrow, connect, is_mart, select, select_from, view_files, views_of
from evalflows.store.parquet import Store
from evalflows.store.schemas import TABLES

MARTS = sorted(path.stem for path in view_files() if is_mart(path))


@pytest.mark.parametrize("restricted", [False, True])
def test_only_marts_show_up_in_main(store: Store, restricted: bool) -> None:
    query = "select table_schema, list(table_name order by table_name) from information_schema.tables group by all"
    with connect(restricted=restricted) as catalog:
        assert dict(catalog.execute(query).fetchall()) == {
            "main": MARTS,
            "staging": sorted(TABLES),
            "source": sorted(TABLES),
        }


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("name", ["scores", "staging.scores", "results", "main.results"])
def test_tables_and_marts_are_found_by_their_names(store: Store, restricted: bool, name: str) -> None:
    with connect(restricted=restricted) as catalog:
        assert select(catalog, f"from {name}").fetchall() == []
    assert select_from(store, f"from {name}").fetchall() == []
    assert ask(store, (f"from {name}", [])) == [[]]
    assert ask_arrow(store, f"from {name}", []).num_rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("restricted", [False, True])
def test_a_cursor_finds_marts_by_name_and_tables_in_their_schema(store: Store, restricted: bool) -> None:
    with connect(restricted=restricted) as catalog:
        for name in (*MARTS, *(f"staging.{table}" for table in TABLES)):
            assert catalog.cursor().execute(f"from {name}").fetchall() == []
        with pytest.raises(duckdb.CatalogException, match=r"staging\.scores"):
            catalog.cursor().execute("from scores")


def test_what_a_query_reads_is_found_through_schemas_capitals_and_macros() -> None:
    assert views_of("from staging.scores") == views_of("FROM scores") == {"scores"}
    assert views_of("select 1 from main.measures") == {"measures", "outputs"}
    changes = views_of("select * from changes_between('a', 'b')")
    assert changes >= {"changes_between", "experiments", "examples", "run_values", "measures", "scores", "outputs"}
    assert "changes" not in changes
    assert views_of("from changes") >= {"experiment_pairs", "verdicts", "decisions"}


def test_a_running_experiment_is_in_the_tables_of_both(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 3, 1)
    for name in ("experiments", "staging.experiments", "experiment_overview"):
        assert ask(store, (f"select experiment_id, state from {name}", [])) == [[("exp-1", "interrupted")]]
