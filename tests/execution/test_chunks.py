"""Chunks cover every run once, and are few."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from store_rows import make_row

from evalflows.engine.chunks import MAX_CHUNKS, MIN_CHUNK_SIZE, chunk_size, chunks_of
from evalflows.store.records import ExperimentRow


def experiment(**fields: Any) -> ExperimentRow:
    row: ExperimentRow = make_row("experiments", **{"n_examples": 1, "repetitions": 1, "chunk_size": 1} | fields)
    return row


@given(n=st.integers(1, 5000), repetitions=st.integers(1, 4), size=st.integers(1, 600))
def test_every_run_is_in_just_one_chunk(n: int, repetitions: int, size: int) -> None:
    chunks = list(chunks_of([experiment(n_examples=n, repetitions=repetitions, chunk_size=size)]))
    runs = [(chunk.repetition, i) for chunk in chunks for i in range(chunk.start, chunk.stop)]
    assert sorted(runs) == [(r, i) for r in range(repetitions) for i in range(n)]
    assert len({chunk.part_name for chunk in chunks}) == len(chunks)


@given(n=st.integers(1, 10_000_000), repetitions=st.integers(1, 4))
def test_chunks_are_few_and_not_tiny(n: int, repetitions: int) -> None:
    size = chunk_size(n, repetitions)
    assert size >= MIN_CHUNK_SIZE
    assert repetitions * -(-n // size) <= MAX_CHUNKS + repetitions


def test_quick_chunks_are_few_and_fit_in_memory_and_a_finished_experiment_has_none() -> None:
    sizes = [(100, 1, 5_000), (50_000, 1, 6_250), (50_000, 2, 12_500), (400_000, 1, 25_000), (2_000_000, 1, 50_000)]
    for n, repetitions, size in sizes:
        assert chunk_size(n, repetitions, is_quick=True) == size
    running = experiment(state="running")
    assert list(chunks_of([experiment(state="completed"), running])) == list(chunks_of([running])) != []
