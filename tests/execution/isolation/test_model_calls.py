"""Model calls of isolated evaluators: they are made in the parent process, and their time does not count."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from isolated import Make, failed, judged
from odd_evaluators import error_of, refused, where
from user_places import without_places

from evalflows.engine.isolated import IsolatedEvaluator
from evalflows.llm.endpoint_errors import fault_of
from evalflows.specs.errors import CallError


def test_what_it_asks_is_asked_here_with_all_arguments_and_a_call_that_failed_keeps_its_kind(
    shared: IsolatedEvaluator,
) -> None:
    """So that a provider that was too busy is asked again, and one that refused is not."""
    here, error = os.getpid(), CallError("rate_limited", "too busy", attempts=4, retry_after_s=7.0)

    def complete(*args: Any, **kwargs: Any) -> str:
        assert os.getpid() == here
        return f"{args} {kwargs}"

    def busy(*args: Any, **kwargs: Any) -> str:
        raise error

    asks = (lambda outputs, complete: str(complete("fine?", temperature=0)), None)
    with pytest.raises(CallError) as caught:
        judged(shared, asks, complete=busy)
    assert caught.value is error
    assert judged(shared, asks, complete=complete).label == "('fine?',) {'temperature': 0}", "and it judges on"


@pytest.mark.slow
def test_to_wait_for_a_model_does_not_count_and_the_time_before_and_after_does(isolated: Make) -> None:
    def complete(text: str) -> str:
        time.sleep(0.5)
        return text

    def twice(outputs: Any, complete: Any) -> str:
        complete("a")
        time.sleep(outputs)
        complete("b")
        time.sleep(outputs)
        return "done"

    one = isolated(twice, timeout_s=0.4)
    assert judged(one, 0.05, complete=complete).label == "done"
    assert failed(one, 0.3, complete=complete)[0] == "too_slow"


def test_an_error_of_its_own_is_its_own_also_after_a_call_that_failed(shared: IsolatedEvaluator) -> None:
    def careless(outputs: Any, complete: Any) -> str:
        try:
            return str(complete("fine?"))
        except Exception as error:
            raise ValueError("no answer") from error

    def odd(outputs: Any, complete: Any) -> Any:
        return complete(threading.Lock())

    def complete(*args: Any) -> str:
        raise CallError("rate_limited", "too many")

    before = judged(shared, (where, None)).comment
    kind, error = failed(shared, (careless, None), complete=complete)
    assert (kind, without_places(error)) == ("raised", "ValueError: no answer; caused by rate_limited: too many")
    kind, error = failed(shared, (odd, None), complete=lambda lock: True)
    assert kind == "raised" and "lock" in error, "it cannot be asked"
    assert judged(shared, (where, None)).comment == before


def test_errors_of_a_client_of_its_own_are_of_the_kind_that_they_are_in_this_process(shared: IsolatedEvaluator) -> None:
    kinds = {429: "rate_limited", 401: "authentication", 500: "server_error", 400: "bad_request", 0: "timeout"}
    for status, kind in kinds.items():
        assert failed(shared, (refused, status)) == (kind, str(fault_of(error_of(status))))


def test_threads_of_its_own_may_ask_at_once_and_each_has_its_answer(shared: IsolatedEvaluator) -> None:
    def asks_often(outputs: Any, complete: Any) -> bool:
        with ThreadPoolExecutor(8) as threads:
            numbers = [str(number) * 3000 for number in range(40)]
            return list(threads.map(complete, numbers)) == [f"{number}!" for number in numbers]

    often = (asks_often, None)
    assert [judged(shared, often, complete=lambda text: f"{text}!").value for _ in range(2)] == [1.0, 1.0]
