"""`traceable`: a function whose calls are steps of the run at hand."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from compat.langsmith.refusal import refusing
from llm.recorder import current
from llm.wrapped import step
from specs.errors import InputError
from specs.reference import is_async, name_of

Function = Callable[..., Any]

_MARK = "__langsmith_traceable__"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tracing:
    """How the calls of a function are noted."""

    name: str
    run_type: str
    metadata: Mapping[str, Any]
    tags: Sequence[str]
    process_inputs: Callable[[dict[str, Any]], Any] | None
    process_outputs: Callable[..., Any] | None

    def changed(self, extra: Mapping[str, Any] | None) -> "_Tracing":
        """With what one call says of itself. Raises InputError for what cannot be kept."""
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
        if not isinstance(returned, Iterator | AsyncIterator):  # what it yields is not ours to take
            outputs = self.process_outputs(returned) if self.process_outputs else returned
            note["outputs"] = outputs if isinstance(outputs, Mapping) else {"output": outputs}
        note |= {"metadata": dict(self.metadata), "tags": list(self.tags)}


@refusing(
    project_name="a step belongs to the run that it is made in",
    reduce_fn="what a generator yields is not recorded",
    enabled="a step is recorded where there is a run",
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
    """Record each call of a function, plain or async, as a step of the run at hand. Without a run it is just called.

    As `@traceable`, or with arguments; the first may be the run type. `client` changes nothing: there is one store.
    Raises InputError for the options that cannot be honoured.
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
    """The function that a traceable one is made of: as a target it is the run itself, not a step in it."""
    mark = getattr(function, _MARK, None)
    is_traced = mark is not None and mark is function  # another decorator may have copied the mark
    return untraced(function.__wrapped__) if is_traced else function


def _called(function: Function, tracing: _Tracing) -> Function:
    @wraps(function)
    def traced(*args: Any, langsmith_extra: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        own = tracing.changed(langsmith_extra)
        if current() is None:
            return function(*args, **kwargs)
        with own.begin(_named(function, args, kwargs)) as note:
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
        with own.begin(_named(function, args, kwargs)) as note:
            returned = await function(*args, **kwargs)
            own.end(note, returned)
        return returned

    return traced


def _named(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by their parameters' names; by none where the call will fail for them."""
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {"args": args, "kwargs": kwargs}
    return {name: value for name, value in given.items() if name not in ("self", "cls")}
