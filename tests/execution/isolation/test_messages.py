"""Messages between two processes."""

import os
import threading
import time
from multiprocessing import Pipe

import pytest

from evalflows.engine import child


def test_a_process_with_more_files_open_than_select_can_count_has_messages_too() -> None:
    numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        here, there = Pipe()
        with here, there:
            assert here.fileno() > 1024
            child.send(there, {"a": 1})
            assert child.receive(here, time.monotonic() + 5) == {"a": 1}
    finally:
        for number in numbers:
            os.close(number)


def test_none_comes_when_time_is_up_and_when_the_other_side_has_ended() -> None:
    here, there = Pipe()
    with here:
        with there:
            began = time.monotonic()
            assert child.receive(here, began + 0.05) is None, "time is up"
            assert 0.05 <= time.monotonic() - began < 1.0
            os.write(there.fileno(), b"\x00\x00\x00\x09half")
        assert child.receive(here, time.monotonic() + 5) is None, "half a message"


def test_of_what_cannot_be_moved_nothing_is_sent() -> None:
    here, there = Pipe()
    with here, there:
        with pytest.raises(TypeError):
            child.send(there, threading.Lock())
        child.send(there, "next")
        assert child.receive(here) == "next"
