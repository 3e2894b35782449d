"""Pairwise evaluators by LangSmith's shapes: what compares two runs of an example."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from inspect import Parameter, Signature
from typing import Any

from compat.langsmith.functions import as_named
from compat.langsmith.schemas import ComparisonEvaluationResult, Example, Run
from compat.langsmith.views import example_seen, run_key, run_seen
from evaluators.call import Bound, bind
from evaluators.preference import preferences
from evaluators.subject import ExampleView, RunView
from specs.errors import InputError
from specs.evaluator import FallbackSpec
from specs.reference import name_of

Function = Callable[..., Any]
Points = tuple[float | None, float | None]

POINTS: Mapping[str | None, Points] = {
    **dict.fromkeys(("first", "left"), (1.0, 0.0)),
    **dict.fromkeys(("second", "right"), (0.0, 1.0)),
    "tie": (0.5, 0.5),
    None: (None, None),
}
"""The scores of two runs, where it is known who won, and nothing else."""


class DynamicComparisonRunEvaluator:
    """A function that compares runs, plain or async, and that can be called on runs without a comparison.

    Raises InputError for one that asks for what there is not.
    """

    def __init__(self, func: Function, afunc: Function | None = None) -> None:
        self.func = func
        self.afunc = afunc
        self._bound = _bound(afunc or func)
        self.__name__ = self._bound.name

    def __repr__(self) -> str:
        return f"<DynamicComparisonRunEvaluator {self.__name__}>"

    @property
    def is_async(self) -> bool:
        return self._bound.is_async

    def compare_runs(self, runs: Sequence[Run], example: Example | None = None) -> ComparisonEvaluationResult:
        """Raises TypeError or ValueError where the function returns no preference."""
        if self.is_async:
            return asyncio.run(self.acompare_runs(runs, example))
        return self._result(self._bound.call(_offered(runs, example)), runs)

    async def acompare_runs(self, runs: Sequence[Run], example: Example | None = None) -> ComparisonEvaluationResult:
        """`compare_runs`, from a program that has an event loop."""
        returned = self._bound.call(_offered(runs, example))
        return self._result(await returned if self.is_async else returned, runs)

    __call__ = compare_runs

    def _result(self, returned: object, runs: Sequence[Run]) -> ComparisonEvaluationResult:
        found = preferences(_by_stored_ids(returned), self.__name__, [run_key(run.id) for run in runs])
        if len(found) != 1:
            raise ValueError(f"returned {len(found)} preferences, wanted one")
        scores = found[0].scores or POINTS[found[0].winner]
        return ComparisonEvaluationResult(
            key=found[0].key or self.__name__,
            scores={run.id: score for run, score in zip(runs, scores, strict=True)},
            comment=found[0].comment,
        )


def comparison_evaluator(func: Function) -> DynamicComparisonRunEvaluator:
    """The function as an object with `compare_runs`. Without it, a function is a pairwise evaluator as well."""
    return DynamicComparisonRunEvaluator(func)


def as_comparator(evaluator: Any) -> Any:
    """A function that asks for what the binder offers of a pair, and is shown LangSmith's objects.

    Ours, by name or as a spec, are left as they are. Raises InputError for what cannot be called, or asks for what
    there is not.
    """
    if isinstance(evaluator, str | Mapping | FallbackSpec):
        return evaluator
    function = _function_of(evaluator)
    bound = _bound(function)

    def call(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        return _by_stored_ids(bound.call(_offered(_linked(runs, example), example_seen(example)) | models))

    async def acall(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        return _by_stored_ids(await bound.call(_offered(_linked(runs, example), example_seen(example)) | models))

    compare: Any = acall if bound.is_async else call
    update_wrapper(compare, function).__name__ = bound.name
    asked = ("runs", "example", *sorted(bound.asked & {"complete", "embed"}))
    compare.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in asked])
    return compare


def _function_of(evaluator: Any) -> Function:
    """Of what the decorator made, LangSmith's own too, its function: whose name and version are those of the metric."""
    compares = hasattr(evaluator, "compare_runs")
    inner = (getattr(evaluator, name, None) for name in ("afunc", "func", "compare_runs") if compares)
    function = next((one for one in inner if one is not None), evaluator)
    if not callable(function):
        kind = type(evaluator).__name__
        raise InputError(f"evaluate: evaluators: got {kind}, wanted a function or an object with compare_runs")
    return function  # type: ignore[no-any-return]


def _bound(function: Function) -> Bound:
    name = name_of(function)
    return bind(as_named(function, name, "pair"), name=name, level="pair")


def _linked(runs: Sequence[RunView], example: ExampleView) -> list[Run]:
    """The runs as LangSmith has them: they name their example."""
    return [replace(run_seen(run), reference_example_id=example.id) for run in runs]


def _offered(runs: Sequence[Run], example: Example | None) -> dict[str, Any]:
    """What LangSmith offers, and what ours is offered besides. What there is not is empty."""
    return {
        "inputs": example.inputs if example else {},
        "outputs": [run.outputs or {} for run in runs],
        "reference_outputs": (example and example.outputs) or {},
        "metadata": (example and example.metadata) or {},
        "attachments": (example and example.attachments) or {},
        "runs": list(runs),
        "example": example,
    }


def _by_stored_ids(returned: Any) -> Any:
    """What an evaluator returned, with runs by the ids that the store has: a program may make UUIDs of them."""
    if isinstance(returned, list):
        return [_by_stored_ids(one) for one in returned]
    if isinstance(getattr(returned, "scores", None), Mapping):
        returned = {name: getattr(returned, name, None) for name in ("key", "scores", "comment")}
    if not isinstance(returned, Mapping):
        return returned
    if "results" in returned:
        return {**returned, "results": _by_stored_ids(returned["results"])}
    by_run = {name: returned[name] for name in ("scores", "comment") if isinstance(returned.get(name), Mapping)}
    return {**returned} | {
        name: {run_key(run): value for run, value in values.items()} for name, values in by_run.items()
    }
