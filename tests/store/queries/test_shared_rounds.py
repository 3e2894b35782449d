"""The rounds whose latencies are compared: together, and not those that open connections."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evalflows.store.queries.values import shared_rounds
from evalflows.store.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("kind", "warm_up"), [("python", 1), ("http", 3), ("chat", 3)])
def test_rounds_that_begin_before_the_first_has_ended_open_connections(
    store: Store, make: Callable[..., Any], kind: str, warm_up: int
) -> None:
    of_both = {"run_group": "g", "snapshot_id": "s", "repetitions": 1}
    owners = [
        make("experiments", experiment_id=name, **of_both, target_kind=kind, n_examples=6)
        for name in ("ours", "theirs")
    ]
    examples = [make("examples", snapshot_id="s", example_id=f"e{i}", position=i) for i in range(6)]
    store.append("examples", "s", "p", examples)
    for ended, row in zip((0.5, 1.0), owners, strict=True):
        outputs = [
            make(
                "outputs",
                run_id=f"{row.experiment_id}-{i}",
                experiment_id=row.experiment_id,
                example_id=f"e{i}",
                repetition=0,
                calls_cached=0,
                # three workers: the first rounds begin at once, the others when one has ended, here after 1 s
                round_at=START + timedelta(seconds=i / 100 if i < 3 else i),
                recorded_at=START + timedelta(seconds=(i / 100 if i < 3 else i) + ended),
            )
            for i in range(6)
        ]
        store.append("outputs", row.experiment_id, "p", outputs)
    found = shared_rounds(store, *owners)
    assert found.together.all() and found.warm_up.tolist() == [i < warm_up for i in range(6)]
