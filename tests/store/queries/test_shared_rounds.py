"""The rounds whose latencies are compared: together, and not those that open connections."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evalflows.store.queries.values import shared_rounds
from evalflows.store.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("kind", "warm_up"), [("python", [0]), ("http", [0, 1, 2, 3]), ("chat", [0, 1, 2, 3])])
def test_answers_asked_before_the_first_answer_of_their_target_open_connections(
    store: Store, make: Callable[..., Any], kind: str, warm_up: list[int]
) -> None:
    of_both = {"run_group": "g", "snapshot_id": "s", "repetitions": 1}
    owners = [
        make("experiments", experiment_id=name, **of_both, target_kind=kind, n_examples=6)
        for name in ("ours", "theirs")
    ]
    examples = [make("examples", snapshot_id="s", example_id=f"e{i}", position=i) for i in range(6)]
    store.append("examples", "s", "p", examples)
    # Rounds 0 to 4 begin at once, with two requests in flight at each target; each takes 1 s. Round 4 waits for both.
    asked = {"ours": [0, 0, 1, 1, 2, 4], "theirs": [1, 1, 0, 0, 2, 4]}
    for row in owners:
        outputs = [
            make(
                "outputs",
                run_id=f"{row.experiment_id}-{i}",
                experiment_id=row.experiment_id,
                example_id=f"e{i}",
                repetition=0,
                calls_cached=0,
                round_at=START + timedelta(seconds=i / 100 if i < 5 else 4),
                latency_s=1.0,
                recorded_at=START + timedelta(seconds=second + 1 + i / 100),
            )
            for i, second in enumerate(asked[row.experiment_id])
        ]
        store.append("outputs", row.experiment_id, "p", outputs)
    found = shared_rounds(store, *owners)
    assert found.together.all() and [i for i in range(6) if found.warm_up[i]] == warm_up
