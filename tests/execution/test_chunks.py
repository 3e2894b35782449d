"""Chunks cover every run once, and are few."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.engine.chunks import MAX_CHUNKS, MIN_CHUNK_SIZE, chunk_size, chunks_of
from evalflows.store.records import ExperimentRow, now


def experiment(**fields: Any) -> ExperimentRow:
    row = ExperimentRow(
        experiment_id="exp-1",
        run_group="group-1",
        name="x",
        snapshot_id="snap-1",
        n_examples=1,
        repetitions=1,
        chunk_size=1,
        target="t",
        target_kind="python",
        target_version="v",
        evaluators="[]",
        spec="{}",
        evalflows_version="0",
        state="running",
        started_at=now(),
    )
    return replace(row, **fields)


@given(n=st.integers(1, 5000), repetitions=st.integers(1, 4), size=st.integers(1, 600))
def test_every_run_is_in_just_one_chunk(n: int, repetitions: int, size: int) -> None:
    chunks = list(chunks_of([experiment(n_examples=n, repetitions=repetitions, chunk_size=size)]))
    runs = [(chunk.repetition, i) for chunk in chunks for i in range(chunk.start, chunk.stop)]
    assert sorted(runs) == [(r, i) for r in range(repetitions) for i in range(n)]
    assert len({chunk.part for chunk in chunks}) == len(chunks)


@given(n=st.integers(1, 10_000_000), repetitions=st.integers(1, 4))
def test_chunks_are_few_and_not_tiny(n: int, repetitions: int) -> None:
    size = chunk_size(n, repetitions)
    assert size >= MIN_CHUNK_SIZE
    assert repetitions * -(-n // size) <= MAX_CHUNKS + repetitions


@pytest.mark.parametrize(
    ("n", "repetitions", "size"),
    [(100, 1, 5_000), (50_000, 1, 6_250), (50_000, 2, 12_500), (400_000, 1, 25_000), (2_000_000, 1, 50_000)],
)
def test_quick_chunks_are_few_and_fit_in_memory(n: int, repetitions: int, size: int) -> None:
    assert chunk_size(n, repetitions, is_quick=True) == size


def test_a_finished_experiment_has_no_chunks() -> None:
    assert list(chunks_of([experiment(state="completed"), experiment(state="running")])) == list(
        chunks_of([experiment()])
    )
