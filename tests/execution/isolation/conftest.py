"""Fixtures: isolated evaluators, closed after the tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from isolated import Make

from evalflows.engine.isolated import IsolatedEvaluator
from evalflows.evaluators.binding import bind


@pytest.fixture
def isolated() -> Iterator[Make]:
    """`isolated(function, timeout_s)`; its processes are ended after the test."""
    made: list[IsolatedEvaluator] = []

    def make(function: Callable[..., Any], timeout_s: float = 30.0, **settings: Any) -> IsolatedEvaluator:
        made.append(IsolatedEvaluator(bind(function, name="mine", settings=settings), timeout_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[IsolatedEvaluator]:
    """One process for all tests that harm none: its evaluator is what the answer holds, with what that is given."""

    def does(outputs: Any, complete: Any, embed: Any) -> Any:
        function, given = outputs
        asks = {"complete": complete, "embed": embed}
        return function(given, **{name: asks[name] for name in function.__code__.co_varnames if name in asks})

    one = IsolatedEvaluator(bind(does, name="mine"), 30.0)
    yield one
    one.close()
