"""What can be bound: functions, partials, callable objects, methods and decorated functions, sync or async."""

import asyncio
from collections.abc import Mapping
from functools import partial, wraps
from typing import Any

from bound_calls import (
    ITEM,
    evaluate,
)

from evalflows.evaluators.call import Bound, bind


class Judge:
    """A callable object with state."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def __call__(self, outputs: dict[str, Any]) -> bool:
        return bool(outputs["answer"] == self.wanted)

    def method(self, outputs: dict[str, Any]) -> str:
        return f"{self.wanted} or {outputs['answer']}"


class AsyncJudge:
    async def __call__(self, outputs: dict[str, Any]) -> Any:
        return outputs["answer"]


async def judge_later(outputs: dict[str, Any], suffix: str = "") -> Any:
    await asyncio.sleep(0)
    return f"{outputs['answer']}{suffix}"


def answer_of(bound: Bound, available: Mapping[str, Any] = ITEM) -> Any:
    async def wait() -> Any:
        return await bound.call(available)

    assert bound.is_async
    return asyncio.run(wait())


def test_an_async_function_returns_an_awaitable() -> None:
    assert answer_of(bind(judge_later)) == "got 0"


def test_a_plain_function_is_not_async() -> None:
    assert bind(lambda outputs: 1).is_async is False


def test_a_partial_keeps_its_arguments() -> None:
    def judge(prefix: str, outputs: Any, *, suffix: str) -> str:
        return f"{prefix}{outputs['answer']}{suffix}"

    bound = bind(partial(judge, "<", suffix=">"))
    assert (bound.name, bound.is_async, bound.call(ITEM)) == ("judge", False, "<got 0>")


def test_a_preset_argument_of_a_partial_is_not_overridden() -> None:
    def judge(outputs: Any, reference_outputs: Any) -> Any:
        return outputs, reference_outputs

    assert evaluate(partial(judge, reference_outputs="fixed")) == ({"answer": "got 0"}, "fixed")


def test_a_partial_of_an_async_function_is_async() -> None:
    assert answer_of(bind(partial(judge_later, suffix="!"))) == "got 0!"


def test_a_callable_object_is_called_and_named_by_its_class() -> None:
    bound = bind(Judge("got 0"))
    assert (bound.name, bound.is_async, bound.call(ITEM)) == ("Judge", False, True)
    assert bind(Judge("else")).call(ITEM) is False


def test_a_callable_object_with_an_async_call_is_async() -> None:
    assert answer_of(bind(AsyncJudge())) == "got 0"


def test_a_partial_of_an_async_callable_object_is_async() -> None:
    assert answer_of(bind(partial(AsyncJudge()))) == "got 0"


def test_a_bound_method_keeps_its_object() -> None:
    assert evaluate(Judge("this").method) == "this or got 0"


def test_a_decorated_function_has_the_signature_of_the_inner_function() -> None:
    @wraps(judge_later)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        return await judge_later(*args, **kwargs)

    assert answer_of(bind(traced)) == "got 0"


def test_an_async_decorator_around_a_plain_function_is_async() -> None:
    def judge(outputs: Any) -> Any:
        return outputs["answer"]

    @wraps(judge)
    async def in_a_thread(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(judge, *args, **kwargs)

    assert answer_of(bind(in_a_thread)) == "got 0"


def test_a_lambda_and_a_named_evaluator_have_names() -> None:
    assert bind(lambda outputs: 1).name == "function"
    assert bind(judge_later).name == "judge_later"
    assert bind(judge_later, name="politeness").name == "politeness"
