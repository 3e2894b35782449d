"""What a command that was stopped has left, by what the store has since then."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from evalflows.store.queries.continuing import batch_since, begun_since, undecided_since
from evalflows.store.store import Store

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Make = Callable[..., Any]


def test_gates_that_have_not_decided_and_batches_that_have_not_ended_are_left(store: Store, make: Make) -> None:
    of = {"state": "completed", "recorded_at": BEGAN + timedelta(seconds=2), "run_group": "g"}
    for identity, gates, tags in (("exp-1", "[]", []), ("exp-2", '[{"name":"g"}]', ["trial"])):
        row = make("experiments", experiment_id=identity, spec=f'{{"gates":{gates}}}', tags=tags, **of)
        store.publish("experiments", identity, [row])
    assert undecided_since(store, BEGAN) is None
    row = make("experiments", experiment_id="exp-3", spec='{"gates":[{"name":"g"}]}', **of)
    store.publish("experiments", "exp-3", [row])
    assert undecided_since(store, BEGAN) == "exp-3"
    assert undecided_since(store, BEGAN + timedelta(seconds=3)) is None
    assert begun_since(store, BEGAN) is None
    store.publish("decisions", "dec-1", [make("decisions", decision_id="dec-1", candidate_experiment_id="exp-2")])
    assert undecided_since(store, BEGAN) is None, "a gate has decided on its run group"

    def keep(state: str, second: int) -> None:
        moment = {"started_at": BEGAN, "recorded_at": BEGAN + timedelta(seconds=second)}
        row = make("watermarks", evaluation_id="e", batch_id="b", name="prod", state=state, **moment)
        store.append("watermarks", "e", "b", [row])

    keep("running", 1)
    assert batch_since(store, BEGAN) == "prod"
    keep("completed", 2)
    assert batch_since(store, BEGAN) is None
