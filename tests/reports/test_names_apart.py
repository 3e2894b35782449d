"""Experiments with one name are told apart: by when, and if need be by their ids."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evalflows.reports.results import names_apart, when
from evalflows.store.store import Store

NOW = datetime(2026, 11, 23, 15, 0, tzinfo=UTC)

Keep = Callable[..., None]


@pytest.fixture
def keep(store: Store, make: Callable[..., Any]) -> Keep:
    """Keep an experiment that was started so long ago, and its approval."""

    def write(identity: str, ago: timedelta, approved: timedelta | None = None) -> None:
        store.publish("experiments", identity, [make("experiments", experiment_id=identity, started_at=NOW - ago)])
        if approved is not None:
            row = make("baselines", baseline_id=f"b-{identity}", name="support", experiment_id=identity)
            fields = {"recorded_at": NOW - approved}
            store.publish("baselines", row.baseline_id, [type(row)(**{**_fields(row), **fields})])

    return write


def _fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def test_one_name_is_told_apart_by_when(store: Store, keep: Keep) -> None:
    keep("exp-1", timedelta(minutes=58))
    keep("exp-2", timedelta(days=9), approved=timedelta(days=3))
    assert names_apart(store, {"exp-1": "a", "exp-2": "b"}) == {"exp-1": "a", "exp-2": "b"}
    assert names_apart(store, {"exp-1": "support", "exp-2": "support"}) == {
        "exp-1": "support (2026-11-23 14:02 UTC)",
        "exp-2": "support (approved 2026-11-20 15:00 UTC)",
    }


def test_at_the_same_time_the_ids_tell_them_apart(store: Store, keep: Keep) -> None:
    keep("exp-000001", timedelta(days=1))
    keep("exp-000002", timedelta(days=1))
    keep("exp-000003", timedelta(days=40))
    assert names_apart(store, dict.fromkeys(("exp-000001", "exp-000002", "exp-000003"), "x")) == {
        "exp-000001": "x (…000001)",
        "exp-000002": "x (…000002)",
        "exp-000003": "x (2026-10-14 15:00 UTC)",
    }


def test_when_is_read_from_now() -> None:
    for ago, text in (
        (timedelta(hours=1), "today 14:00 UTC"),
        (timedelta(hours=20), "yesterday 19:00 UTC"),
        (timedelta(days=2), "2 days ago"),
        (timedelta(days=30), "30 days ago"),
        (timedelta(days=31), "2026-10-23"),
        (timedelta(days=-2), "2026-11-25"),
    ):
        assert when(NOW - ago, NOW) == text
        assert when((NOW - ago).replace(tzinfo=None), NOW) == text, "the store's times are UTC"
