"""A query of one experiment reads the texts and scores of no other: their files may be many, and large."""

from pathlib import Path

import pytest
from full_store import Filler, Make, fill_sealed, freeze_questions

from evalflows.store.catalog import connect
from evalflows.store.parquet import Store


@pytest.fixture
def store_with_unreadable_texts(store: Store, make: Make) -> Store:
    """Two sealed experiments; nobody can read the outputs and scores of the second one."""
    snapshot, examples = freeze_questions(store, "questions", 3)
    for identity in ("exp-1", "exp-2"):
        fill_sealed(Filler(store, make), identity, "v1", snapshot, examples)
    for table in ("outputs", "scores"):
        path = Path(store.layout.sealed(table, "exp-2"))
        path.write_bytes(bytes(path.stat().st_size))
    return store


@pytest.mark.parametrize("view", ["item_scores", "run_values", "measures", "failures", "metric_summary", "results"])
def test_a_view_opens_the_files_of_the_experiment_alone(store_with_unreadable_texts: Store, view: str) -> None:
    with connect(store_with_unreadable_texts.layout.root) as connection:
        query = "select count(*) from (select * from {} where experiment_id = '{}')"
        assert connection.execute(query.format(view, "exp-1")).fetchone() != (0,)
        with pytest.raises(Exception, match="exp-2"):
            connection.execute(query.format("run_values", "exp-2")).fetchone()
