"""Chunks whose model is down: one makes the trial that the breaker admits, and the others wait for its result."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from evalflows.engine.chunks import ExampleChunk
from evalflows.engine.tally import Tally
from evalflows.llm.breaker import Breaker
from evalflows.tasks.retries import admit_trial


def chunk(number: int) -> ExampleChunk:
    return ExampleChunk(experiment_id="exp-retries", repetition=0, start=number, stop=number + 1)


@pytest.fixture
def breaker() -> Breaker:
    """Open, with its pause over."""
    one = Breaker(window=2, pause_s=0.001)
    one.leave(one.enter(), "server_error", "down")
    time.sleep(0.002)
    assert one.admits_trial
    return one


def test_the_others_wait_for_the_trial_and_go_on_after_it(breaker: Breaker) -> None:
    came, went = list[int](), threading.Event()

    def work(number: int) -> None:
        with admit_trial(Tally(), [chunk(number)], "answers", [breaker]):
            is_trial = breaker.enter()
            came.append(number)
            if is_trial:
                went.wait(10)
            breaker.leave(is_trial, None, None)

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(work, number) for number in range(4)]
        time.sleep(0.3)
        assert len(came) == 1, "the others wait"
        went.set()
        assert [one.result(10) for one in working] == [None] * 4
    assert sorted(came) == [0, 1, 2, 3], "none was stopped"


def test_a_trial_that_does_not_take_place_is_left_to_the_next(breaker: Breaker) -> None:
    for number in range(2):
        with admit_trial(Tally(), [chunk(number)], "answers", [breaker]):
            pass
    with pytest.raises(ZeroDivisionError), admit_trial(Tally(), [chunk(2)], "answers", [breaker]):
        raise ZeroDivisionError
    with admit_trial(Tally(), [chunk(3)], "answers", [breaker]):
        assert breaker.enter()
