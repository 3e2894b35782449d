"""Langfuse's OpenAI clients: their calls are recorded in the current run, with tokens and cost.

`from evalflows.compat.langfuse.openai import openai`, or `OpenAI` and `AsyncOpenAI` themselves.
"""

from collections.abc import Callable
from functools import reduce, wraps
from types import SimpleNamespace
from typing import Any

import openai as _package

from evalflows.compat.langfuse.absent import ABSENT
from evalflows.llm.wrapped import METHODS, wrap

OF_TRACING = ("name", "langfuse_prompt", "langfuse_public_key", "trace_id", "parent_observation_id")
"""Arguments of calls that Langfuse takes and OpenAI does not. They have no effect: a call belongs to
the current run."""


def _traced(client: Any) -> None:
    wrap(client)
    for path in METHODS:
        *owners, method = path.split(".")
        resource = reduce(getattr, owners, client)
        setattr(resource, method, _without_tracing(getattr(resource, method)))


def _without_tracing(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **{name: value for name, value in kwargs.items() if name not in OF_TRACING})

    return call


def _with_tracing(kind: type) -> Any:
    """Return a client's class whose objects are wrapped."""

    class Client(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            _traced(self)

    Client.__name__ = Client.__qualname__ = kind.__name__
    return Client


OpenAI = _with_tracing(_package.OpenAI)
AsyncOpenAI = _with_tracing(_package.AsyncOpenAI)
AzureOpenAI = _with_tracing(_package.AzureOpenAI)
AsyncAzureOpenAI = _with_tracing(_package.AsyncAzureOpenAI)

openai = SimpleNamespace(
    **{
        **vars(_package),
        "OpenAI": OpenAI,
        "AsyncOpenAI": AsyncOpenAI,
        "AzureOpenAI": AzureOpenAI,
        "AsyncAzureOpenAI": AsyncAzureOpenAI,
    }
)
"""The package, with these clients."""

__all__ = ["AsyncAzureOpenAI", "AsyncOpenAI", "AzureOpenAI", "OpenAI", "openai"]

__getattr__ = ABSENT.of_module(__name__)
