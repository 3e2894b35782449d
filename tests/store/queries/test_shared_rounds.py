"""The rounds whose latencies are compared: together, over open connections, without the first."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from evalflows.store.queries.values import shared_rounds
from evalflows.store.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_answers_that_open_connections_and_those_of_the_first_round_are_not_compared(
    store: Store, make: Callable[..., Any]
) -> None:
    of_both = {"run_group": "g", "snapshot_id": "s", "repetitions": 1, "target_kind": "http", "n_examples": 6}
    owners = [make("experiments", experiment_id=name, **of_both) for name in ("ours", "theirs")]
    examples = [make("examples", snapshot_id="s", example_id=f"e{i}", position=i) for i in range(6)]
    store.append("examples", "s", "p", examples)
    for opens, row in zip((4, 2), owners, strict=True):
        outputs = [
            make(
                "outputs",
                run_id=f"{row.experiment_id}-{i}",
                experiment_id=row.experiment_id,
                example_id=f"e{i}",
                repetition=0,
                calls_cached=0,
                round_at=None if i == opens else START + timedelta(seconds=i),
            )
            for i in range(6)
        ]
        store.append("outputs", row.experiment_id, "p", outputs)
    found = shared_rounds(store, *owners)
    assert found.together.tolist() == [i not in (2, 4) for i in range(6)]
    assert found.warm_up.tolist() == [i == 0 for i in range(6)]
