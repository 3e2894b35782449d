"""Adapt Langfuse's functions, with its names of arguments and its objects, to those that evalflows calls."""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any

from evalflows.compat.langfuse.evaluations import ExperimentItemResult, complete, present
from evalflows.compat.langfuse.items import Item, item_of, wrapped
from evalflows.evaluators.foreign import evaluator_name
from evalflows.evaluators.subject import ExampleView, ItemResult, with_attributes
from evalflows.execution.trace_runs import EvaluatorInputs
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.metric_names import kept_apart
from evalflows.specs.reference import version_of
from evalflows.targets import as_fields

Function = Callable[..., Any]

ARGUMENTS = ("input", "output", "expected_output", "metadata")
"""What Langfuse passes to every evaluator, and to a composite besides the evaluations."""


def as_task(task: Any, dataset: str | None) -> Function:
    """Adapt a task to a target. A mapping of the single key `output` is kept as it is, which a target's would not be.

    Raise InputError if it cannot be called with `item`.
    """
    _check(task, "task", ("item",))

    def call(example: ExampleView) -> Any:
        returned = task(item=item_of(example, dataset))
        return _awaited(returned) if inspect.isawaitable(returned) else wrapped(returned, "output")

    return _in_place_of(task, call, "example")


async def _awaited(returned: Any) -> dict[str, Any]:
    return wrapped(await returned, "output")


def as_evaluators(evaluators: Sequence[Any], composite: Any, *, names_stand: bool) -> list[Any]:
    """Return evaluators, with the composite last, under names of their own: several may have the same function name.

    With `names_stand`, one may be called like a measure of runs, such as `length`.
    """
    given = [*evaluators, *([as_composite(composite)] if composite is not None else [])]
    names = [None if isinstance(one, str | Mapping | EvaluatorSpec) else evaluator_name(one) for one in given]
    seen: Counter[str] = Counter()
    found = []
    for evaluator, name in zip(given, names, strict=True):
        if name is not None:
            seen[name] += 1
        if name is None or seen[name] == 1:
            found.append(evaluator)
        else:
            stored = name if names_stand else kept_apart(name)
            found.append({"use": evaluator, "name": f"{stored}_{seen[name]}"})
    return found


def as_composite(composite: Any) -> Function:
    """Adapt a composite: it gets the evaluations that have a value, and none is made of missing ones.

    Raise InputError if it cannot be called with the arguments that Langfuse gives it.
    """
    _check(composite, "composite_evaluator", (*ARGUMENTS, "evaluations"))

    def call(**arguments: Any) -> Any:
        return composite(**arguments | {"evaluations": complete(arguments["evaluations"])})

    return _in_place_of(composite, call, *ARGUMENTS, "evaluations")


def as_run_evaluator(evaluator: Any, dataset: str | None) -> Function:
    """Adapt a run evaluator: it gets the items that the task answered, with Langfuse's objects."""
    if isinstance(evaluator, str | Mapping | EvaluatorSpec):
        return evaluator  # type: ignore[return-value]  # ours, by its name
    _check(evaluator, "run_evaluators", ("item_results",))

    def call(item_results: list[ItemResult]) -> Any:
        return evaluator(item_results=[_result(one, dataset) for one in item_results if one.run.outputs is not None])

    return _in_place_of(evaluator, call, "item_results")


def as_mapper(mapper: Any, *, raw: bool) -> Any:
    """Adapt a mapper: it gets Langfuse's items, with their input and output as text if `raw`."""
    if not callable(mapper):
        return mapper  # paths, or a name

    def call(*items: Any, **named: Any) -> Any:
        mapped = mapper(*(Item(one, raw=raw) for one in items), **{k: Item(one, raw=raw) for k, one in named.items()})
        return _exact_later(mapped) if inspect.isawaitable(mapped) else _exact(mapped)

    vars(update_wrapper(call, mapper))["version_parts"] = (raw, version_of(mapper))
    return call


async def _exact_later(mapped: Any) -> Any:
    return _exact(await mapped)


def _exact(mapped: Any) -> Any:
    """Return what a mapper returned so that evaluators get exactly that, also mappings of the single key `output`."""
    is_mapping = isinstance(mapped, Mapping)
    found = {name: mapped.get(name) if is_mapping else getattr(mapped, name, None) for name in ARGUMENTS}
    if all(value is None for value in found.values()):
        return mapped  # not what a mapper has to return, as the flow will say
    for name, only in (("input", "input"), ("output", "output"), ("expected_output", "output")):
        if isinstance(simple := as_fields(found[name]), dict):
            found[name] = wrapped(simple, only)
    return EvaluatorInputs(**found)


def _result(one: ItemResult, dataset: str | None) -> ExperimentItemResult:
    return ExperimentItemResult(
        item=item_of(one.item, dataset),
        output=with_attributes(one.output),
        evaluations=present(one.evaluations),
        trace_id=one.run.id,
    )


def _check(function: Any, where: str, names: Sequence[str]) -> None:
    """Raise InputError if a function cannot be called with these arguments."""
    wanted = f"wanted a function of {', '.join(names)}"
    if not callable(function):
        raise InputError(f"{where}: got {type(function).__name__}, {wanted}")
    try:
        inspect.signature(function).bind(**dict.fromkeys(names))
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {evaluator_name(function)!r}: {error}, {wanted}") from None


def _in_place_of(function: Any, call: Function, *names: str) -> Function:
    """Give a wrapper the name and the code of the user's function, and keyword parameters of these names."""
    update_wrapper(call, function).__name__ = evaluator_name(function)
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call
