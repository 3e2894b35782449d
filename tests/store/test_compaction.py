"""Open days are merged while they are written and read: no row is lost or doubled, and few files are left."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb
import pytest

from evalflows.specs.errors import StorageError
from evalflows.store import file_states, observations
from evalflows.store.observations import FAN, Compaction, last_recorded, seal_past_days, write_observations
from evalflows.store.store import Store
from evalflows.store.trace_records import ObservationRow

DAY = "2026-01-01"
ROWS = "select span_id, name from source.observations order by all"
Observation = Callable[..., ObservationRow]


@pytest.fixture
def observation(make: Callable[..., Any]) -> Observation:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return lambda span_id, **fields: make(
        "observations", **{"trace_id": "t", "span_id": span_id, "day": DAY, "source": "otlp", "started_at": at} | fields
    )


@pytest.fixture
def parts(any_store: Store, observation: Observation) -> list[tuple[str, str]]:
    """A day with FAN parts, of which each has one span that the next one sends again. Return its rows."""
    for number in range(FAN):
        rows = [observation(f"s{number}", name="first"), observation(f"s{number + 1}", name=f"name {number}")]
        write_observations(any_store, rows)
    return [(f"s{number}", "first") for number in range(FAN)] + [(f"s{FAN}", f"name {FAN - 1}")]


def files(store: Store) -> int:
    return len(store.open_parts("observations", DAY))


def test_parts_of_one_size_become_one_and_replaced_ones_are_removed_after_a_while(
    any_store: Store, parts: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = any_store.query("select span_id, recorded_at from source.observations order by all")
    merging = Compaction(any_store)
    merging.step()
    assert files(any_store) == FAN + 1, "queries that have listed the parts may still read them"
    assert any_store.query(ROWS) == parts
    merging.step()
    assert files(any_store) == FAN + 1, "what was replaced is not merged again"
    later = time.monotonic() + observations.GRACE_S
    monkeypatch.setattr(time, "monotonic", lambda: later + 1)
    merging.step()
    assert files(any_store) == 1
    merging.finish()
    assert files(any_store) == 1
    assert any_store.query(ROWS) == parts
    assert any_store.query("select span_id, recorded_at from source.observations order by all") == recorded


def test_many_parts_are_rewritten_a_few_times_only(
    store: Store, observation: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    merge_parts = Store.merge_parts

    def noted(self: Store, table: str, owner: str, part: str, paths: list[str]) -> None:
        written.append(len(paths))
        merge_parts(self, table, owner, part, paths)

    monkeypatch.setattr(Store, "merge_parts", noted)
    monkeypatch.setattr(observations, "SMALLEST", 14_000)  # little more than an empty part
    monkeypatch.setattr(observations, "GRACE_S", 0.0)
    merging = Compaction(store)
    for number in range(4 * FAN):
        write_observations(store, [observation(f"s{number}")])
        merging.step()
    merging.step()
    assert files(store) < FAN
    assert sum(written) < 8 * FAN
    assert len(store.query(ROWS)) == 4 * FAN


def test_a_query_is_repeated_if_a_day_was_sealed_meanwhile(store: Store, observation: Observation) -> None:
    write_observations(store, [observation("s0")])
    read: list[int] = []

    def reading() -> int:
        read.append(len(store.query(ROWS)))
        seal_past_days(store, "2026-01-02")
        return read[-1]

    assert (store.steady(reading), read) == (1, [1, 1])


def test_a_query_is_repeated_if_a_file_came_and_went_meanwhile(store: Store, make: Callable[..., Any]) -> None:
    """As the parts of an owner that is reopened and sealed while DuckDB has listed its files and not yet read them."""
    reads: list[int] = []

    def reading() -> str:
        reads.append(len(reads))
        if len(reads) < 3:
            store.publish("outputs", f"exp-{len(reads)}", [make("outputs", experiment_id=f"exp-{len(reads)}")])
            raise StorageError("a query failed") from duckdb.IOException("Cannot open file")
        return "read"

    assert (store.steady(reading), len(reads)) == ("read", 3)

    def failing() -> None:
        reads.append(len(reads))
        raise duckdb.IOException("Input/output error")

    with pytest.raises(duckdb.IOException, match="Input/output error"):
        store.steady(failing)
    assert len(reads) == 5  # where nothing changes, an error is told after a second try


def test_a_query_is_given_up_in_one_line_if_files_never_rest(
    store: Store, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(file_states.time, "sleep", pauses.append)
    monkeypatch.setattr(file_states, "TRIES_S", 0.1)
    began, reads = time.monotonic(), 0

    def reading() -> None:
        nonlocal reads
        reads += 1
        store.publish("outputs", f"exp-{reads}", [make("outputs", experiment_id=f"exp-{reads}")])

    with pytest.raises(StorageError) as caught:
        store.steady(reading)
    wanted = (
        f"{store.layout.sealed('outputs', f'exp-{reads}')}: changed during each of {reads} tries to read the store, "
        "wanted no change for as long as a query takes; try again later"
    )
    assert str(caught.value) == wanted
    assert reads >= file_states.TRIES
    assert time.monotonic() - began >= 0.1
    assert pauses[:4] == [0.005, 0.01, 0.02, 0.04]
    assert max(pauses) <= 1.0


@pytest.mark.slow
def test_the_newest_row_is_found_in_open_and_sealed_days(any_store: Store, observation: Observation) -> None:
    newest = "select max(recorded_at) from source.observations"
    for number, day in enumerate(["2026-01-01", "2026-01-02", "2025-12-31"]):
        write_observations(any_store, [observation(f"s{number}", day=day)])
        assert [(last_recorded(any_store, "observations"),)] == any_store.query(newest)
    seal_past_days(any_store, "2026-01-02")
    assert [(last_recorded(any_store, "observations"),)] == any_store.query(newest)
    write_observations(any_store, [observation("late", day="2025-12-31")])
    assert [(last_recorded(any_store, "observations"),)] == any_store.query(newest)
