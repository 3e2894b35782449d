"""Answers are counted in sealed files by name, in open ones once each, and without damaged ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evalflows.store.queries.progress import answer_counts
from evalflows.store.records import derived_id
from evalflows.store.store import Store


def test_sealed_open_absent_and_damaged_experiments(store: Store, make: Callable[..., Any]) -> None:
    def outputs(identity: str, *statuses: str) -> list[Any]:
        return [
            make("outputs", run_id=derived_id(identity, place), experiment_id=identity, status=status)
            for place, status in enumerate(statuses)
        ]

    store.publish("outputs", "exp-1", outputs("exp-1", "ok", "ok", "failed", "not_attempted"))
    store.append("outputs", "exp-2", "p", outputs("exp-2", "failed", "failed"))
    store.append("outputs", "exp-2", "q", outputs("exp-2", "ok"))  # a retry of the first
    expected = {"exp-1": (2, 1), "exp-2": (1, 1), "exp-3": (0, 0)}
    assert answer_counts(store, ["exp-1", "exp-2", "exp-3"]) == expected
    assert answer_counts(store, []) == {}
    Path(store.layout.sealed("outputs", "exp-4")).parent.mkdir()
    Path(store.layout.sealed("outputs", "exp-4")).write_bytes(b"PAR1 PAR1")
    assert answer_counts(store, ["exp-1", "exp-2"]) == {"exp-1": (2, 1), "exp-2": (1, 1)}
