"""The state of some owners' files changes with their rows, and with nothing else."""

from typing import Any

from evalflows.store.queries.progress import owner_states
from evalflows.store.store import Store


def test_the_state_follows_the_rows_of_these_owners(store: Store, make: Any) -> None:
    before = owner_states(store, ["exp-1"])
    store.append("outputs", "exp-1", "p", [make("outputs", run_id="r1", experiment_id="exp-1")])
    added = owner_states(store, ["exp-1"])
    store.append("outputs", "exp-2", "p", [make("outputs", run_id="r2", experiment_id="exp-2")])
    assert owner_states(store, ["exp-1"]) == added != before
    store.seal("exp-1", ["outputs"])
    assert owner_states(store, ["exp-1"]) != added
