"""Copies of small tables follow their files."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalflows.store.file_states import owner_states, states_of
from evalflows.store.layout import Layout
from evalflows.store.small_tables import KEPT, small_tables
from evalflows.store.store import Store
from evalflows.store.views import reads_states

Make = Callable[..., Any]
NAMES = "select experiment_id, name from staging.experiments order by 1"


def experiment(make: Make, identity: str, **fields: Any) -> Any:
    return make("experiments", experiment_id=identity, **{"name": identity, "state": "completed"} | fields)


def names(store: Store) -> list[tuple[str, str]]:
    with small_tables(store) as ask:
        return ask(NAMES, [])


def test_experiments_that_come_change_and_go_are_seen(store: Store, make: Make) -> None:
    store.publish("experiments", "exp-1", [experiment(make, "exp-1")])
    assert names(store) == [("exp-1", "exp-1")]
    store.append("experiments", "exp-2", "p", [experiment(make, "exp-2", name="started")])
    assert names(store) == [("exp-1", "exp-1"), ("exp-2", "started")]
    store.append("experiments", "exp-2", "q", [experiment(make, "exp-2", name="ended")])
    assert names(store)[1] == ("exp-2", "ended")
    store.append("experiments", "exp-3", "p", [experiment(make, "exp-3", state="running")])
    with small_tables(store) as ask:
        states = ask("select state from staging.experiments order by experiment_id", [])
        assert states == [("completed",), ("completed",), ("interrupted",)], "no process works on it"
        with pytest.raises(ValueError, match="got a query of judgements, wanted only experiments"):
            ask("select * from staging.scores", [])
    store.seal("exp-2", ["experiments"])
    assert names(store)[1] == ("exp-2", "ended")
    store.publish("experiments", "exp-1", [experiment(make, "exp-1", name="renamed")])
    assert names(store)[0] == ("exp-1", "renamed")
    Path(store.layout.sealed("experiments", "exp-1")).unlink()
    assert names(store) == [("exp-2", "ended"), ("exp-3", "exp-3")]


def test_views_whose_rows_are_kept_follow_the_files(store: Store, make: Make) -> None:
    assert not any(reads_states(f"from {view}") for view in KEPT), "leases change without files"
    for identity in ("exp-1", "exp-2"):
        store.publish("experiments", identity, [experiment(make, identity)])
    sides = {"candidate_experiment_id": "exp-2", "baseline_experiment_id": "exp-1"}
    for number in range(2):
        made = make("decisions", decision_id=f"dec-{number}", **sides)
        store.publish("decisions", made.decision_id, [made])
        verdict = make("verdicts", verdict_id=f"v-{number}", run_group=made.decision_id, decision_id=made.decision_id)
        store.publish("verdicts", made.decision_id, [replace(verdict, comparison_id=None, **sides)])
        for _ in range(2):
            with small_tables(store) as ask:
                found = ask("select count(*) from gate_decisions", []), ask("select count(*) from all_verdicts", [])
            assert found == ([(number + 1,)], [(number + 1,)])


def test_the_owner_of_a_damaged_file_is_left_out_until_it_is_replaced(store: Store, make: Make) -> None:
    for identity in ("exp-1", "exp-2"):
        store.publish("experiments", identity, [experiment(make, identity)])
    path = Path(store.layout.sealed("experiments", "exp-1"))
    path.write_bytes(b"PAR1 nonsense PAR1")
    assert names(store) == [("exp-2", "exp-2")]
    assert [damage.file.owner for damage in store.left_out()] == ["exp-1"]
    store.publish("experiments", "exp-1", [experiment(make, "exp-1", name="again")])
    assert names(store) == [("exp-1", "again"), ("exp-2", "exp-2")]


def test_files_beside_the_tables_are_no_rows(store: Store) -> None:
    root = Path(store.layout.root)
    (root / "notes.txt").write_text("mine")
    (root / "experiments" / "README").write_text("mine")
    closed = root / "closed"
    closed.mkdir(mode=0o000)
    assert names(store) == []
    assert not [path for path in states_of(store.layout, store.filesystem) if "closed" in path or "README" in path]
    closed.chmod(0o700)
    assert owner_states(Layout.at(root / "absent"), store.filesystem, "experiments") == {}
    assert states_of(Layout.at(root / "absent"), store.filesystem) == {}
