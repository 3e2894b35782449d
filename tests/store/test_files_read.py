"""A query of one experiment reads the texts and scores of no other, and one of all joins them by their keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from full_store import Filler, Make, fill_sealed, freeze_questions

from evalflows.store.queries.values import _ONLY_RUN, _by_metric
from evalflows.store.sql import connect
from evalflows.store.store import Store


@pytest.fixture
def store_with_unreadable_texts(store: Store, make: Make) -> Store:
    """Two sealed experiments; nobody can read the outputs and scores of the second one."""
    snapshot, examples = freeze_questions(store, "questions", 3)
    for identity in ("exp-1", "exp-2"):
        fill_sealed(Filler(store, make), identity, "v1", snapshot, examples)
    for table in ("outputs", "judgements"):
        path = Path(store.layout.sealed(table, "exp-2"))
        path.write_bytes(bytes(path.stat().st_size))
    return store


def test_views_open_the_files_of_the_experiment_alone(store_with_unreadable_texts: Store) -> None:
    with connect(store_with_unreadable_texts.layout.root) as connection:
        query = "select count(*) from (select * from {} where experiment_id = '{}')"
        for view in ("item_scores", "run_values", "measures", "failures", "metric_summary", "results"):
            assert connection.execute(query.format(view, "exp-1")).fetchone() != (0,), view
        with pytest.raises(Exception, match="exp-2"):
            connection.execute(query.format("run_values", "exp-2")).fetchone()


def test_no_step_of_a_query_makes_each_answer_meet_many_examples(store: Store, make: Make) -> None:
    """Three experiments on 200 examples: a join by experiment alone would make 120,000 rows."""
    snapshot, examples = freeze_questions(store, "questions", 200)
    for number in range(3):
        fill_sealed(Filler(store, make), f"exp-{number}", "v1", snapshot, examples)
    with connect(store.layout.root) as connection:
        for view in ("item_scores", "run_values", "measures", "failures", "metric_summary"):
            (plan,) = connection.execute(f"explain (analyze, format json) select count(*) from {view}").fetchall()
            made = [*_rows_made(json.loads(plan[1])["operator"])]
            assert 600 <= max(made) <= 10_000, view
        # DuckDB aggregates before a join whose rows it takes for few; each value would be a group of its own.
        plan = connection.execute(f"explain {_by_metric(_ONLY_RUN)}", [snapshot, "exp-1", 1, None]).fetchall()
    assert "Join" in plan[0][1] and "EXPORT_STATE" not in plan[0][1]


def _rows_made(steps: list[dict[str, Any]]) -> Iterator[int]:
    for step in steps:
        yield step["intermediate_rows"]
        yield from _rows_made(step.get("children", []))
