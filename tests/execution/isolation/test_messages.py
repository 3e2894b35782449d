"""Messages between two processes."""

import io
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from evalflows.engine import child


def test_a_process_with_more_files_open_than_select_can_count_has_messages_too(tmp_path: Path) -> None:
    numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as here, os.fdopen(writing, "wb") as there:
            assert reading > 1024
            child.send(there, {"a": 1})
            assert child.receive(here, time.monotonic() + 5) == {"a": 1}
    finally:
        for number in numbers:
            os.close(number)


def pipe() -> tuple[io.FileIO, Any]:
    reading, writing = os.pipe()
    return io.FileIO(reading), os.fdopen(writing, "wb")


def test_messages_come_whole_in_order_or_not_at_all() -> None:
    here, there = pipe()
    with here, there:
        for number in range(3):
            child.send(there, [number] * number)
        assert [child.receive(here) for _ in range(3)] == [[], [1], [2, 2]]
        began = time.monotonic()
        assert child.receive(here, began + 0.05) is None, "time is up"
        assert 0.05 <= time.monotonic() - began < 1.0


def test_half_a_message_is_none() -> None:
    here, there = pipe()
    with here:
        with there:
            there.write(b"\x00" * 7 + b"\x09" + b"half")
        assert child.receive(here, time.monotonic() + 5) is None


def test_of_what_cannot_be_moved_nothing_is_sent() -> None:
    here, there = pipe()
    with here, there:
        with pytest.raises(TypeError):
            child.send(there, threading.Lock())
        child.send(there, "next")
        assert child.receive(here) == "next"
