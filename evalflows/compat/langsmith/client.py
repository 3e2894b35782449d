"""LangSmith's clients on top of the store that EVALFLOWS_STORE names.

The AsyncClient awaits the same methods in threads of their own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial, wraps
from typing import Any, Self, overload

from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.langsmith.comparative import ComparativeExperimentResults
from evalflows.compat.langsmith.datasets import DatasetMethods, ExampleMethods
from evalflows.compat.langsmith.evaluation import ExperimentResults, Pair, aevaluate, evaluate
from evalflows.compat.langsmith.runs import RunMethods
from evalflows.compat.langsmith.schemas import Identity
from evalflows.compat.refusal import refusing, refusing_unknown

_NO_REDACTION = "everything is stored unchanged; leave sensitive data out of inputs and outputs"


@ABSENT.of_objects()
@refusing_unknown
class Client(DatasetMethods, ExampleMethods, RunMethods):
    """Datasets, experiments and feedback. Stateless: every method reads the store's current content.

    A server's address and key are accepted and ignored, since there is no server.
    """

    @refusing(
        anonymizer=_NO_REDACTION, hide_inputs=_NO_REDACTION, hide_outputs=_NO_REDACTION, hide_metadata=_NO_REDACTION
    )
    def __init__(
        self,
        api_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_ms: int | tuple[int, ...] | None = None,
        anonymizer: Any = None,
        hide_inputs: Any = None,
        hide_outputs: Any = None,
        hide_metadata: Any = None,
        workspace_id: Identity | None = None,
    ) -> None:
        pass

    @overload
    def evaluate(
        self, target: Pair, /, *, evaluators: Sequence[Any], **options: Any
    ) -> ComparativeExperimentResults: ...

    @overload
    def evaluate(
        self,
        target: Any,
        /,
        data: Any = None,
        evaluators: Sequence[Any] | None = None,
        summary_evaluators: Sequence[Any] | None = None,
        **options: Any,
    ) -> ExperimentResults: ...

    def evaluate(
        self,
        target: Any,
        /,
        data: Any = None,
        evaluators: Sequence[Any] | None = None,
        summary_evaluators: Sequence[Any] | None = None,
        **options: Any,
    ) -> ExperimentResults | ComparativeExperimentResults:
        """Call `evaluate` with the same options."""
        return evaluate(target, data, evaluators, summary_evaluators, client=self, **options)

    @overload
    async def aevaluate(
        self, target: Pair, /, *, evaluators: Sequence[Any], **options: Any
    ) -> ComparativeExperimentResults: ...

    @overload
    async def aevaluate(
        self,
        target: Any,
        /,
        data: Any = None,
        evaluators: Sequence[Any] | None = None,
        summary_evaluators: Sequence[Any] | None = None,
        **options: Any,
    ) -> ExperimentResults: ...

    async def aevaluate(
        self,
        target: Any,
        /,
        data: Any = None,
        evaluators: Sequence[Any] | None = None,
        summary_evaluators: Sequence[Any] | None = None,
        **options: Any,
    ) -> ExperimentResults | ComparativeExperimentResults:
        """Call `aevaluate` with the same options."""
        return await aevaluate(target, data, evaluators, summary_evaluators, client=self, **options)

    def flush(self, timeout: float | None = None) -> None:
        """Do nothing: everything recorded is already on disk."""


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


@ABSENT.of_objects()
class AsyncClient:
    """`Client` for async programs, which it does not block. Methods that list are async iterators.

    The arguments and errors are those of `Client`.
    """

    def __init__(self, api_url: str | None = None, api_key: str | None = None, **options: Any) -> None:
        for name in ("timeout_ms", "retry_config", "web_url", "cache", "workspace_id"):
            options.pop(name, None)  # of a server, like the URL and the key
        self._client = Client(api_url, api_key=api_key, **options)

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
