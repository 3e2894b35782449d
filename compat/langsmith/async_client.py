"""LangSmith's AsyncClient: the client's methods, awaited, in threads of their own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Self

from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.langsmith.client import Client


def _awaited(method: Callable[..., Any]) -> Any:
    @wraps(method)
    async def call(self: "AsyncClient", *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(partial(method, self._client, *args, **kwargs))

    return call


def _iterated(method: Callable[..., Any]) -> Any:
    """Wrap a method that yields: its items are read in a thread when the first is asked for."""

    @wraps(method)
    async def call(self: "AsyncClient", *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for item in await asyncio.to_thread(lambda: list(method(self._client, *args, **kwargs))):
            yield item

    return call


class AsyncClient:
    """`Client` for async programs, which it does not block. Methods that list are async iterators.

    The arguments and errors are those of `Client`.
    """

    def __init__(self, api_url: str | None = None, api_key: str | None = None, **options: Any) -> None:
        for name in ("timeout_ms", "retry_config", "web_url", "cache", "workspace_id"):
            options.pop(name, None)  # of a server, like the URL and the key
        self._client = Client(api_url, api_key=api_key, **options)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise ABSENT.method(type(self).__name__, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    create_dataset = _awaited(Client.create_dataset)
    read_dataset = _awaited(Client.read_dataset)
    list_datasets = _iterated(Client.list_datasets)
    delete_dataset = _awaited(Client.delete_dataset)
    create_example = _awaited(Client.create_example)
    create_examples = _awaited(Client.create_examples)
    read_example = _awaited(Client.read_example)
    list_examples = _iterated(Client.list_examples)
    read_run = _awaited(Client.read_run)
    list_runs = _iterated(Client.list_runs)
    create_feedback = _awaited(Client.create_feedback)
    list_feedback = _iterated(Client.list_feedback)
    read_project = _awaited(Client.read_project)
