"""The views say of what is running according to its row whether a process works on it."""

from collections.abc import Callable
from typing import Any

import pytest

from evalflows.store.catalog import ask, connect, select_from
from evalflows.store.leases.lease import leased
from evalflows.store.parquet import Store

EXPERIMENTS = "select state from experiment_overview order by experiment_id"
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


def states(store: Store) -> list[list[str]]:
    """The states of the experiments and of the comparison, which all ways to ask agree on."""
    own = [[state for (state,) in rows] for rows in ask(store, (EXPERIMENTS, []), (COMPARISONS, []))]
    for query, seen in zip((EXPERIMENTS, COMPARISONS), own, strict=True):
        assert [state for (state,) in select_from(store, query).fetchall()] == seen
        with connect(store.layout.root) as catalog:
            assert [state for (state,) in catalog.sql(query).fetchall()] == seen
    return own


def test_what_no_process_works_on_is_interrupted(begun: Store) -> None:
    assert states(begun) == [["interrupted", "completed"], ["interrupted"]]


@pytest.mark.slow
def test_what_a_process_works_on_is_running(begun: Store) -> None:
    with leased(begun, "group-1", "the run", wait=False):
        assert states(begun) == [["running", "completed"], ["interrupted"]]
    with leased(begun, "cmp-1", "the comparison", wait=False):
        assert states(begun) == [["interrupted", "completed"], ["running"]]
    assert states(begun) == [["interrupted", "completed"], ["interrupted"]]
    rows = begun.query("select state from source.experiments order by experiment_id")
    assert [state for (state,) in rows] == ["running", "completed"], "the row itself stays"
