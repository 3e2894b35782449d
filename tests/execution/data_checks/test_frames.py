"""Examples as frames for Great Expectations."""

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from evalflows.execution.data_checks import frames
from evalflows.execution.data_checks.frames import FILLED, blocks
from evalflows.store.records import ExampleRow, to_json

COLUMNS = ("example_id", "inputs", "inputs.text", FILLED)


class Long(Sequence[ExampleRow]):
    """Examples of a megabyte each, made when they are read."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if number >= self._count:
            raise IndexError(number)
        inputs = to_json({"text": f"{number} " + "x" * 1_000_000, "empty": " "})
        return ExampleRow(snapshot_id="s", example_id=f"e{number}", position=number, inputs=inputs)


def test_long_texts_are_not_in_memory_together() -> None:
    tracemalloc.start()
    try:
        (frame,) = blocks(Long(64), COLUMNS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16_000_000
    assert [*frame["example_id"]] == [f"e{number}" for number in range(64)]
    assert frame["inputs.text"][3].startswith("3 xxx") and len(frame["inputs.text"][3]) < 400
    assert [*frame[FILLED]] == [1] * 64


def test_blocks_hold_all_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "ROWS_AT_ONCE", 3)
    assert [len(frame) for frame in blocks(Long(7), COLUMNS)] == [3, 3, 1]
    assert [len(frame) for frame in blocks(Long(6), COLUMNS)] == [3, 3]
