"""The views on a full store: each keeps its grain, and counts and joins correctly."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Iterator

import duckdb
import pytest
from catalog_views import rows
from full_store import (
    START,
    Filler,
    Make,
    fill_comparison,
    fill_decisions,
    fill_labels,
    fill_sealed,
    fill_unfinished,
    freeze_questions,
)

from evalflows.store.records import to_json
from evalflows.store.schemas import TABLES
from evalflows.store.sql import ask, connect, select
from evalflows.store.store import Store
from evalflows.store.views import grain, is_mart, view_files

SET = {"observations": {"source": "otlp", "attributes": '{"session.id": "a session"}'}}
"""What views need of the rows of a table."""


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, make: Make, store_at: Make) -> Iterator[duckdb.DuckDBPyConnection]:
    """The views of a store with rows in every table; tests only read it.

    It has three snapshots under two names, two sealed experiments of two repetitions, an unfinished experiment with
    duplicate rows in its open parts, a comparison, decisions and labels, and duplicate rows in the other tables.
    """
    with store_at(tmp_path_factory.mktemp("full")) as store:
        fill(store, make)
        with connect() as connection:
            yield connection


def fill(store: Store, make: Make) -> None:
    first, examples = freeze_questions(store, "questions", 3)
    second, _ = freeze_questions(store, "questions", 4)
    freeze_questions(store, "others", 3)
    for identity, version in (("exp-1", "v1"), ("exp-2", "v2")):
        fill_sealed(Filler(store, make), identity, version, first, examples)
    fill_unfinished(Filler(store, make), "exp-3", second)
    Filler(store, make).experiment("exp-4", first, 3, 2)
    for table, spec in TABLES.items():
        if store.query(f"select count(*) from source.{table}") == [(0,)]:
            for i in range(2):
                doubled = make(table, **{**SET.get(table, {}), **dict.fromkeys((*spec.key, spec.owner), f"id-{i}")})
                store.append(table, f"id-{i}", "p", [doubled])
                store.append(table, f"id-{i}", "p", [doubled])
    day = "eval-1-2026-01-01"
    of_trace = {
        "subject_kind": "trace",
        "subject_id": "id-0",
        "experiment_id": day,
        "judgement_id": "of a trace",
        "judge_model": "m",
    }
    store.append("judgements", day, "p", [make("judgements", **of_trace, status="scored", subject_at=START)])
    of_mode = of_trace | {"judgement_id": "of a mode", "metric": "mode.late", "value": 1.0}
    store.append("judgements", day, "p", [make("judgements", **of_mode, status="scored", subject_at=START)])
    said = {"subject_kind": "trace", "subject_id": "id-0", "batch_id": "feedback-1", "label_id": "of a trace"}
    store.append("labels", "feedback-1", "p", [make("labels", **said)])
    drift = {"name": "drift", "subject_kind": "judge", "column_name": "m", "passed": True, "check_id": "drift"}
    observed = to_json({"run_id": "group-1", "version": "v1", "changed": "none"})
    store.append("checks", "drift-1", "p", [make("checks", **drift, batch_id="drift-1", observed=observed)])
    fill_comparison(store, make)
    fill_decisions(store, make)
    fill_labels(store, make)
    by_program = said | {"batch_id": "by-program", "label_id": "of a program", "source": "machine"}
    store.append("labels", "by-program", "p", [make("labels", **by_program)])


@pytest.mark.slow
def test_queries_of_ours_read_the_same_rows_from_copies_in_memory(full: duckdb.DuckDBPyConnection) -> None:
    ((root,),) = full.execute("select source.root()").fetchall()
    for path in view_files():
        query = f"select * from {'main' if is_mart(path) else 'staging'}.{path.stem} as t order by t::varchar"
        assert ask(Store(root), (query, []))[0] == full.execute(query).fetchall(), path.stem


@pytest.mark.slow
def test_views_keep_their_grain_on_a_full_store(full: duckdb.DuckDBPyConnection) -> None:
    for path in view_files():
        columns, no_key = ", ".join(grain(path)), " or ".join(f"{column} is null" for column in grain(path))
        query = f"select count(*), count(distinct ({columns})), count(*) filter ({no_key}) from {path.stem}"
        ((n_rows, n_keys, n_without_key),) = full.execute(query).fetchall()
        assert n_rows > 0, path.stem
        assert (n_keys, n_without_key) == (n_rows, 0), path.stem


def test_run_values_contain_scores_and_measures_of_runs(full: duckdb.DuckDBPyConnection) -> None:
    found = rows(full, "select metric, evaluator, data_type, value from run_values where experiment_id = 'exp-1'")
    of_runs = "from scores where subject_kind = 'run' and turn is null and experiment_id = 'exp-1'"
    ((n_scores, n_measures),) = full.execute(
        f"select (select count(*) {of_runs}), (select count(*) from measures where experiment_id = 'exp-1')"
    ).fetchall()
    measured = [one for one in found if one["evaluator"] == "measured"]
    assert (len(found), len(measured)) == (n_scores + n_measures, n_measures)
    assert {one["metric"] for one in measured} == {"latency", "cost", "tokens", "answer_length"}
    assert {one["data_type"] for one in measured} == {"NUMERIC"}


def test_the_overview_counts_answered_failed_and_not_attempted_runs(full: duckdb.DuckDBPyConnection) -> None:
    columns = "state, planned, answered, failed, not_attempted, mean_latency_s"
    found = {
        row.pop("experiment_id"): [*row.values()]
        for row in rows(full, f"select experiment_id, {columns} from experiment_overview")
    }
    assert found["exp-1"] == ["completed", 6, 4, 2, 0, 0.5]  # of the answers that there are
    assert found["exp-3"][:5] == ["interrupted", 4, 1, 0, 3], "each run counts once"
    assert found["exp-4"] == ["interrupted", 6, 0, 0, 6, None]


def test_item_scores_include_the_question_and_the_answer(full: duckdb.DuckDBPyConnection) -> None:
    query = """select example_id, inputs->>'question' as question, outputs->>'answer' as answer, value, status, split
               from item_scores where experiment_id = 'exp-1' and metric = 'exact' and repetition = 0
               order by position"""
    found = select(full, query).fetchall()
    assert found == [
        ("q0", "0", None, None, "failed", "test"),
        ("q1", "1", "1", 1.0, "scored", "test"),
        ("q2", "2", "1", 1.0, "scored", "test"),
    ]


def test_label_shares_count_only_labelled_runs_and_datasets_have_the_newest_snapshot(
    full: duckdb.DuckDBPyConnection,
) -> None:
    query = "select label, n, share from label_shares where experiment_id = 'exp-1' order by label"
    assert select(full, query).fetchall() == [("bad", 2, 0.5), ("good", 2, 0.5)]
    found = select(full, "select name, n_examples, versions from datasets order by name").fetchall()
    assert found == [("others", 3, 1), ("questions", 4, 2)]
