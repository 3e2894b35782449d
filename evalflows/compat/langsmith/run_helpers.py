"""`traceable` and `trace`: record a function's calls, or a block of code, as steps of the current run."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

from evalflows.compat.langsmith.run_trees import RunTree, get_current_run_tree, stepping
from evalflows.compat.refusal import refusing
from evalflows.llm.ledger import current
from evalflows.specs.errors import InputError, short
from evalflows.specs.frozen import dataclass
from evalflows.specs.reference import is_async, name_of

__all__ = ["RunTree", "get_current_run_tree", "trace", "traceable", "tracing_context"]


Function = Callable[..., Any]

_MARK = "__langsmith_traceable__"
_OWN_RUN = "a step belongs to the run in which it is called"
_ALWAYS = "a step is recorded whenever there is a run"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tracing:
    """How a function's calls are recorded."""

    name: str
    run_type: str
    metadata: Mapping[str, Any]
    tags: Sequence[str]
    process_inputs: Callable[[dict[str, Any]], Any] | None
    process_outputs: Callable[..., Any] | None
    parent: RunTree | None = None

    def changed(self, extra: Mapping[str, Any] | None) -> "_Tracing":
        """Return a copy with one call's `langsmith_extra`. Raise InputError for unknown keys."""
        extra = extra or {}
        if unknown := extra.keys() - {"name", "metadata", "tags", "client", "parent"}:
            raise InputError(f"langsmith_extra: got {min(unknown)!r}, wanted only name, metadata, tags and parent")
        return replace(
            self,
            name=extra.get("name") or self.name,
            metadata={**self.metadata, **(extra.get("metadata") or {})},
            tags=[*self.tags, *(extra.get("tags") or [])],
            parent=extra.get("parent"),
        )

    def begin(self, inputs: dict[str, Any]) -> AbstractContextManager[RunTree]:
        processed = self.process_inputs(inputs) if self.process_inputs else inputs
        shown = processed if isinstance(processed, Mapping) else {"input": processed}
        settings: dict[str, Any] = {"metadata": self.metadata, "tags": self.tags, "parent_run": self.parent}
        return stepping(RunTree(self.name, self.run_type, inputs=shown, **settings))

    def end(self, tree: RunTree, returned: Any) -> None:
        if not isinstance(returned, Iterator | AsyncIterator):  # reading an iterator would consume it
            outputs = self.process_outputs(returned) if self.process_outputs else returned
            tree.add_outputs(outputs if isinstance(outputs, Mapping) else {"output": outputs})


class trace:  # noqa: N801
    """Record a block, of `with` or `async with`, as a step of the current run, and give it as a RunTree.

    Exceptions in `exceptions_to_handle` are not recorded as the step's error. Raises InputError for options that place
    a run elsewhere.
    """

    @refusing(
        project_name=_OWN_RUN,
        address=_OWN_RUN,
        run_id="a step's id is made here",
        reference_example_id="the run has its example; a step has none",
        attachments="put what matters of a file in the inputs or outputs",
    )
    def __init__(
        self,
        name: str,
        run_type: str = "chain",
        *,
        inputs: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        project_name: str | None = None,
        address: Any = None,
        parent: Any = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        client: Any = None,
        run_id: Any = None,
        reference_example_id: Any = None,
        exceptions_to_handle: tuple[type[BaseException], ...] | None = None,
        attachments: Any = None,
    ) -> None:
        if parent is not None and not isinstance(parent, RunTree):
            raise InputError(f"trace: parent: got {short(parent)}, wanted a RunTree: {_OWN_RUN}")
        settings: dict[str, Any] = {"extra": extra, "parent_run": parent, "tags": tags, "metadata": metadata}
        self._tree = RunTree(name, run_type, inputs=inputs, **settings)
        self._handled = exceptions_to_handle or ()
        self._stack = ExitStack()

    def __enter__(self) -> RunTree:
        return self._stack.enter_context(stepping(self._tree))

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, self._handled):
            self._stack.close()
        else:
            self._stack.__exit__(kind, error, traceback)

    async def __aenter__(self) -> RunTree:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.__exit__(kind, error, traceback)


@contextmanager
def tracing_context(*, enabled: bool | None = None, client: Any = None, **options: Any) -> Iterator[None]:
    """Do nothing: steps are recorded whenever there is a run. Raise InputError for any option but `enabled=True`."""
    if enabled is False:
        raise InputError(f"tracing_context: enabled: got False, wanted True: {_ALWAYS}")
    for name, value in options.items():
        if value is not None:
            raise InputError(f"tracing_context: {name}: got {short(value)}, wanted None: name it in traceable or trace")
    yield


@refusing(project_name=_OWN_RUN, reduce_fn="the items that a generator yields are not recorded", enabled=_ALWAYS)
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
    there is only one store. Raise InputError for unsupported options.
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
        with own.begin(_arguments(function, args, kwargs)) as tree:
            returned = function(*args, **kwargs)
            own.end(tree, returned)
        return returned

    return traced


def _awaited(function: Function, tracing: _Tracing) -> Function:
    @wraps(function)
    async def traced(*args: Any, langsmith_extra: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        own = tracing.changed(langsmith_extra)
        if current() is None:
            return await function(*args, **kwargs)
        with own.begin(_arguments(function, args, kwargs)) as tree:
            returned = await function(*args, **kwargs)
            own.end(tree, returned)
        return returned

    return traced


def _arguments(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name; as `args` and `kwargs` if they do not fit the signature."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {"args": args, "kwargs": kwargs}
    return {name: value for name, value in bound.items() if name not in ("self", "cls")}
