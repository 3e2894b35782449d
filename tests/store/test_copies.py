"""Copies of small tables in memory follow their files. That they have the same rows: test_catalog_full_store.py."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalflows.store import copies
from evalflows.store.schemas import TABLES
from evalflows.store.sql import ask
from evalflows.store.store import Store

Make = Callable[..., Any]
NAMES = "select experiment_id, name from experiments order by all"


@pytest.mark.parametrize(("limit", "most"), [("MOST_FILES", 9), ("MOST_FILES", 2), ("MOST_TEXT_BYTES", 60)])
def test_copies_follow_their_files_and_end_if_these_are_many_or_have_long_texts(
    limit: str, most: int, store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish(identity: str, name: str) -> None:
        store.publish("experiments", identity, [make("experiments", experiment_id=identity, name=name)])

    def named() -> list[tuple[str, str]]:
        return ask(store, (NAMES, []))[0]

    monkeypatch.setattr(copies, limit, most)
    for identity in ("exp-1", "exp-2"):
        publish(identity, "first")
        assert named()[-1] == (identity, "first")
    publish("exp-1", "second")
    store.append("experiments", "exp-3", "p", [make("experiments", experiment_id="exp-3", name="open")])
    assert named() == [("exp-1", "second"), ("exp-2", "first"), ("exp-3", "open")]
    store.seal("exp-3", [*TABLES])
    Path(store.layout.sealed("experiments", "exp-1")).unlink()
    assert named() == [("exp-2", "first"), ("exp-3", "open")]
    damaged = Path(store.layout.sealed("experiments", "exp-2"))
    damaged.write_bytes(b"PAR1 nonsense PAR1")
    assert named() == [("exp-3", "open")]
    publish("exp-2", "again")
    assert named() == [("exp-2", "again"), ("exp-3", "open")]


def test_what_only_reads_may_ask_again_for_the_rows_that_it_has_seen(store: Store, make: Make) -> None:
    def publish(name: str) -> None:
        store.publish("experiments", "exp-1", [make("experiments", experiment_id="exp-1", name=name)])

    publish("first")
    with store.remembering():
        seen = ask(store, (NAMES, []))[0]
        seen.clear()  # a caller's own list
        publish("second")
        with store.remembering():
            assert ask(store, (NAMES, []))[0] == [("exp-1", "first")]
        assert ask(store, (NAMES + " desc", []))[0] == [("exp-1", "second")]
    assert ask(store, (NAMES, []))[0] == [("exp-1", "second")]
