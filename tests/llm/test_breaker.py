"""The circuit breaker: when it opens, what it lets through while open, when it closes or gives up."""

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest

from evalflows.llm.breaker import COUNTED, TRIALS, Breaker, give_back, reserve
from evalflows.specs.errors import CallError, ErrorKind

DOWN: ErrorKind = "server_error"
CONTENT: tuple[ErrorKind, ...] = ("refused", "context_too_long", "truncated", "raised", "bad_return", "no_output")


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def breaker(window: int = 10, pause_s: float = 5.0) -> tuple[Breaker, Clock]:
    clock = Clock()
    return Breaker(window, pause_s, clock), clock


def go(one: Breaker, kinds: Iterable[ErrorKind | None]) -> None:
    """Send items through one after another, with these results."""
    for number, kind in enumerate(kinds):
        one.leave(one.enter(), kind, None if kind is None else f"{kind} {number}")


def opened(window: int = 10, pause_s: float = 5.0) -> tuple[Breaker, Clock]:
    one, clock = breaker(window, pause_s)
    go(one, [DOWN] * (window // 2))
    assert one.is_open
    return one, clock


def lets_through(one: Breaker) -> bool:
    try:
        one.enter()
    except CallError:
        return False
    return True


def trial(one: Breaker, kind: ErrorKind | None) -> None:
    """Let the single trial item through, with this result."""
    is_trial = one.enter()
    assert is_trial
    one.leave(is_trial, kind, kind)


def test_of_an_application_it_gives_up_after_ten_failures_alike_and_no_success() -> None:
    alike = [f"KeyError: 'no {n}' in item-{n} (app.py:{n} in f)" for n in range(10)]
    for kinds, errors, gives_up in (
        (["raised"] * 10, alike, True),
        (["raised"] * 9, alike[:9], False),
        ([None, *["raised"] * 10], ["", *alike], False),
        (["raised"] * 11, [alike[0], "ValueError: other", *alike[:9]], False),
        ([*["raised"] * 9, "bad_return"], alike, False),
        ([DOWN] * 10, ["HTTP 500: down"] * 10, False),
    ):
        for first in (10, 0):
            one = Breaker(1000, 5.0, Clock(), first)
            for kind, error in zip(kinds, errors, strict=True):
                one.leave(one.enter(), kind, error)
            assert one.gave_up == (gives_up and first > 0) != lets_through(one)


def test_it_opens_when_more_than_half_of_at_least_half_a_window_failed() -> None:
    one, _ = breaker()
    go(one, [None] * 5 + [DOWN] * 5)
    assert not one.is_open, "exactly half"
    go(one, [DOWN])  # the oldest good one leaves the window
    assert one.is_open
    one, _ = breaker(window=10)
    go(one, [DOWN] * 4)
    assert not one.is_open
    go(one, [DOWN])
    assert one.is_open
    one, _ = breaker(window=11)
    go(one, [DOWN] * 5)
    assert not one.is_open
    go(one, [DOWN])
    assert one.is_open
    one, _ = breaker(window=20)
    go(one, [None] * 5 + [DOWN] * 5)
    assert not one.is_open
    go(one, [DOWN])
    assert one.is_open
    one, _ = breaker(window=10)
    go(one, [None] * 10 + [DOWN] * 5 + [None] * 10 + [DOWN] * 5)
    assert not one.is_open


@pytest.mark.parametrize("kind", sorted({*get_args(ErrorKind)} - COUNTED))
def test_errors_that_speak_of_the_item_do_not_count(kind: ErrorKind) -> None:
    one, _ = breaker()
    go(one, [kind] * 100)
    assert not one.is_open


def test_while_it_is_open_one_item_alone_is_let_through_after_the_pause() -> None:
    one, clock = opened()
    clock.now += 4.99
    for _ in range(3):
        with pytest.raises(CallError) as caught:
            one.enter()
        assert caught.value.kind == "stopped"
        assert str(caught.value) == "5 of the last 5 failed, most recently with: server_error 4"
    one, clock = opened()
    clock.now += 5.0
    assert one.enter() is True
    clock.now += 1000.0
    assert not lets_through(one), "while the trial is under way"
    unreached, _ = breaker()
    go(unreached, ["connection"] * 5)
    with pytest.raises(CallError, match=r"^5 of the last 5 failed, no connection$"):
        unreached.enter()


def test_a_trial_that_succeeds_closes_it_and_the_window_begins_anew() -> None:
    one, clock = opened()
    clock.now += 5.0
    trial(one, None)
    assert not one.is_open and one.enter() is False
    go(one, [DOWN] * 4)
    assert not one.is_open, "what failed before is forgotten"
    go(one, [DOWN])
    assert one.is_open
    clock.now += 5.0
    assert lets_through(one), "and the pause is the first one again"


@pytest.mark.parametrize("kind", CONTENT)
def test_a_trial_that_failed_by_its_item_was_answered(kind: ErrorKind) -> None:
    one, clock = opened()
    clock.now += 5.0
    trial(one, kind)
    assert not one.is_open


def test_each_trial_that_fails_doubles_the_pause_until_it_is_given_up() -> None:
    one, clock = opened(pause_s=5.0)
    for pause in [5.0 * 2**n for n in range(TRIALS - 1)]:
        assert not one.gave_up
        clock.now += pause - 0.01
        assert not lets_through(one)
        clock.now += 0.01
        trial(one, DOWN)
        assert one.is_open
    assert one.gave_up
    clock.now += 1e9
    assert not lets_through(one), "given up is for good"


def test_what_was_under_way_when_it_opened_changes_nothing() -> None:
    one, clock = breaker()
    under_way = [one.enter() for _ in range(20)]
    for is_trial in under_way[:5]:
        one.leave(is_trial, DOWN, "down")
    assert one.is_open
    for is_trial in under_way[5:12]:
        one.leave(is_trial, None, None)
    assert one.is_open, "good answers from before it opened do not close it"
    for is_trial in under_way[12:]:
        one.leave(is_trial, DOWN, "down")
    assert not one.gave_up
    clock.now += 5.0
    assert one.enter() is True, "and bad ones do not make the pause longer"


def test_of_many_threads_that_come_when_the_pause_is_over_one_is_let_through() -> None:
    one, clock = opened()
    clock.now += 5.0
    begin = threading.Barrier(8)

    def come(_: int) -> int:
        begin.wait(10)
        return sum(lets_through(one) for _ in range(200))

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(come, range(8))) == 1


def test_however_many_threads_find_it_down_at_once_it_opens_once() -> None:
    one, clock = breaker(pause_s=5.0)
    under_way = [[one.enter() for _ in range(500)] for _ in range(8)]
    begin = threading.Barrier(8)

    def leave(passes: list[bool]) -> None:
        begin.wait(10)
        for is_trial in passes:
            one.leave(is_trial, DOWN, "down")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(leave, under_way))
    clock.now += 4.99
    assert not lets_through(one)
    clock.now += 0.01
    assert one.enter() is True, "the pause is the first one"


def test_of_several_owners_one_reserves_the_trial_and_gives_it_back() -> None:
    one, clock = opened()
    first, second = object(), object()
    assert reserve([one], first) and reserve([one], second), "in the pause there is nothing to reserve"
    clock.now += 5.0
    assert reserve([one], first) and reserve([one], first)
    assert not reserve([one], second)
    give_back([one], second)
    assert not reserve([one], second), "it was not the second's"
    give_back([one], first)
    assert reserve([one], second)
    one, clock = opened()
    clock.now += 5.0
    one.enter()
    assert not reserve([one], "first")
    (one, clock), (other, other_clock) = opened(), opened()
    clock.now += 5.0
    other_clock.now += 5.0
    assert reserve([other], "first")
    assert not reserve([one, other], "second")
    assert reserve([one], "third")
    one, clock = opened()
    for _ in range(TRIALS - 1):
        clock.now += 1000.0
        trial(one, DOWN)
    clock.now += 1000.0
    assert one.gave_up and not one.admits_trial
    assert reserve([one], "first") and reserve([one], "second")
