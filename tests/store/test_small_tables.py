"""Copies of small tables follow their files."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalflows.store import small_tables as copies
from evalflows.store.file_states import owner_states, states_of
from evalflows.store.layout import Layout
from evalflows.store.parquet import Store
from evalflows.store.small_tables import SMALL, small_tables

Make = Callable[..., Any]
NAMES = "select experiment_id, name from staging.experiments order by 1"


def experiment(make: Make, identity: str, **fields: Any) -> Any:
    return make("experiments", experiment_id=identity, **{"name": identity, "state": "completed"} | fields)


def names(store: Store) -> list[tuple[str, str]]:
    with small_tables(store) as ask:
        return ask(NAMES, [])


def test_an_empty_store_has_no_rows(store: Store) -> None:
    assert names(store) == []


def test_experiments_that_come_change_and_go_are_seen(store: Store, make: Make) -> None:
    store.publish("experiments", "exp-1", [experiment(make, "exp-1")])
    assert names(store) == [("exp-1", "exp-1")]
    store.append("experiments", "exp-2", "p", [experiment(make, "exp-2", name="started")])
    assert names(store) == [("exp-1", "exp-1"), ("exp-2", "started")]
    store.append("experiments", "exp-2", "q", [experiment(make, "exp-2", name="ended")])
    assert names(store)[1] == ("exp-2", "ended")
    store.seal("exp-2", ["experiments"])
    assert names(store)[1] == ("exp-2", "ended")
    store.publish("experiments", "exp-1", [experiment(make, "exp-1", name="renamed")])
    assert names(store)[0] == ("exp-1", "renamed")
    Path(store.layout.sealed("experiments", "exp-1")).unlink()
    assert names(store) == [("exp-2", "ended")]


def test_unchanged_files_are_read_once(store: Store, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for identity in ("exp-1", "exp-2"):
        store.publish("experiments", identity, [experiment(make, identity)])
    names(store)
    read: list[list[str]] = []
    replace = copies._replace

    def noted(store: Store, database: Any, table: str, owners: Any, *, is_all: bool) -> None:
        read.append([table, *owners])
        replace(store, database, table, owners, is_all=is_all)

    monkeypatch.setattr(copies, "_replace", noted)
    names(store)
    assert read == []
    store.publish("experiments", "exp-2", [experiment(make, "exp-2", name="renamed")])
    names(store)
    assert read == [["experiments", "exp-2"]]


def test_an_experiment_without_a_process_is_interrupted(store: Store, make: Make) -> None:
    store.append("experiments", "exp-1", "p", [experiment(make, "exp-1", state="running")])
    with small_tables(store) as ask:
        assert ask("select state from staging.experiments", []) == [("interrupted",)]


def test_the_owner_of_a_damaged_file_is_left_out_until_it_is_replaced(store: Store, make: Make) -> None:
    for identity in ("exp-1", "exp-2"):
        store.publish("experiments", identity, [experiment(make, identity)])
    path = Path(store.layout.sealed("experiments", "exp-1"))
    path.write_bytes(b"PAR1 nonsense PAR1")
    assert names(store) == [("exp-2", "exp-2")]
    assert [damage.file.owner for damage in store.left_out()] == ["exp-1"]
    store.publish("experiments", "exp-1", [experiment(make, "exp-1", name="again")])
    assert names(store) == [("exp-1", "again"), ("exp-2", "exp-2")]


def test_large_tables_are_refused(store: Store) -> None:
    with small_tables(store) as ask, pytest.raises(ValueError, match="got a query of scores, wanted only experiments"):
        ask("select * from staging.scores", [])


def test_states_of_some_tables_are_among_those_of_all(store: Store, make: Make) -> None:
    store.publish("experiments", "exp-1", [experiment(make, "exp-1")])
    store.append("labels", "labels-1", "p", [make("labels", batch_id="labels-1")])
    every, some = (states_of(store.layout, store.filesystem, tables) for tables in (None, SMALL))
    assert some == {path: state for path, state in every.items() if path.split("/")[-4] in SMALL}
    expected = {str(path) for path in Path(store.layout.root).glob("*/*/*/*.parquet")}
    assert set(every) == expected


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


def test_an_object_store_has_the_same_owners(make: Make) -> None:
    store = Store("memory://small-tables")
    store.publish("experiments", "exp-1", [experiment(make, "exp-1")])
    store.append("experiments", "exp-2", "p", [experiment(make, "exp-2")])
    assert names(store) == [("exp-1", "exp-1"), ("exp-2", "exp-2")]
    assert owner_states(store.layout, store.filesystem, "experiments").keys() == {"exp-1", "exp-2"}
    store.publish("experiments", "exp-1", [experiment(make, "exp-1", name="renamed")])
    assert names(store)[0] == ("exp-1", "renamed")
