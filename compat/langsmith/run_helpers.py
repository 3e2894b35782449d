"""`traceable`: record a function's calls as steps of the current run."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from evalflows.compat.langsmith.refusal import refusing
from evalflows.llm.recorder import current
from evalflows.llm.wrapped import step
from evalflows.specs.errors import InputError
from evalflows.specs.reference import is_async, name_of

Function = Callable[..., Any]

_MARK = "__langsmith_traceable__"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tracing:
    """How a function's calls are recorded."""

    name: str
    run_type: str
    metadata: Mapping[str, Any]
    tags: Sequence[str]
    process_inputs: Callable[[dict[str, Any]], Any] | None
    process_outputs: Callable[..., Any] | None

    def changed(self, extra: Mapping[str, Any] | None) -> "_Tracing":
        """Return a copy with one call's `langsmith_extra`. Raises InputError for unknown keys."""
        extra = extra or {}
        if unknown := extra.keys() - {"name", "metadata", "tags", "client"}:
            raise InputError(f"langsmith_extra: got {min(unknown)!r}, wanted only name, metadata and tags")
        return replace(
            self,
            name=extra.get("name") or self.name,
            metadata={**self.metadata, **(extra.get("metadata") or {})},
            tags=[*self.tags, *(extra.get("tags") or [])],
        )

    def begin(self, inputs: dict[str, Any]) -> AbstractContextManager[dict[str, Any]]:
        return step(self.run_type, self.name, self.process_inputs(inputs) if self.process_inputs else inputs)

    def end(self, note: dict[str, Any], returned: Any) -> None:
        if not isinstance(returned, Iterator | AsyncIterator):  # reading an iterator would consume it
            outputs = self.process_outputs(returned) if self.process_outputs else returned
            note["outputs"] = outputs if isinstance(outputs, Mapping) else {"output": outputs}
        note |= {"metadata": dict(self.metadata), "tags": list(self.tags)}


@refusing(
    project_name="a step belongs to the run in which it is called",
    reduce_fn="the items that a generator yields are not recorded",
    enabled="a step is recorded whenever there is a run",
)
def traceable(
    function: Function | str | None = None,
    /,
    *,
    run_type: str = "chain",
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tags: Sequence[str] | None = None,
    client: Any = None,
    reduce_fn: Callable[..., Any] | None = None,
    project_name: str | None = None,
    process_inputs: Callable[[dict[str, Any]], Any] | None = None,
    process_outputs: Callable[..., Any] | None = None,
    enabled: bool | None = None,
) -> Any:
    """Record each call of a sync or async function as a step of the current run; outside a run, just call it.

    Use it as `@traceable`, or with arguments, of which the first may be the run type. `client` has no effect, since
    there is only one store. Raises InputError for unsupported options.
    """

    def decorated(function: Function) -> Function:
        tracing = _Tracing(
            name=name or name_of(function),
            run_type=kind,
            metadata=metadata or {},
            tags=tags or (),
            process_inputs=process_inputs,
            process_outputs=process_outputs,
        )
        traced = _awaited(function, tracing) if is_async(function) else _called(function, tracing)
        setattr(traced, _MARK, traced)
        return traced

    kind = function if isinstance(function, str) else run_type
    return decorated(function) if callable(function) else decorated


def untraced(function: Any) -> Any:
    """Return the function inside a traceable one: a target is the run itself, not a step in it."""
    mark = getattr(function, _MARK, None)
    is_traced = mark is not None and mark is function  # another decorator may have copied the mark
    return untraced(function.__wrapped__) if is_traced else function


def _called(function: Function, tracing: _Tracing) -> Function:
    @wraps(function)
    def traced(*args: Any, langsmith_extra: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        own = tracing.changed(langsmith_extra)
        if current() is None:
            return function(*args, **kwargs)
        with own.begin(_arguments(function, args, kwargs)) as note:
            returned = function(*args, **kwargs)
            own.end(note, returned)
        return returned

    return traced


def _awaited(function: Function, tracing: _Tracing) -> Function:
    @wraps(function)
    async def traced(*args: Any, langsmith_extra: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        own = tracing.changed(langsmith_extra)
        if current() is None:
            return await function(*args, **kwargs)
        with own.begin(_arguments(function, args, kwargs)) as note:
            returned = await function(*args, **kwargs)
            own.end(note, returned)
        return returned

    return traced


def _arguments(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name; as `args` and `kwargs` if they do not fit the signature."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {"args": args, "kwargs": kwargs}
    return {name: value for name, value in bound.items() if name not in ("self", "cls")}
