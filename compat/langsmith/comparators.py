"""LangSmith's pairwise evaluators, which compare two runs of an example."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from inspect import Parameter, Signature
from typing import Any

from evalflows.compat.langsmith.functions import as_named
from evalflows.compat.langsmith.schemas import ComparisonEvaluationResult, Example, Run
from evalflows.compat.langsmith.views import example_of_view, run_key, run_of_view
from evalflows.evaluators.call import Bound, bind
from evalflows.evaluators.foreign import evaluator_name
from evalflows.evaluators.preference import preferences
from evalflows.evaluators.subject import ExampleView, RunView
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import FallbackSpec

Function = Callable[..., Any]
Points = tuple[float | None, float | None]

POINTS: Mapping[str | None, Points] = {
    **dict.fromkeys(("first", "left"), (1.0, 0.0)),
    **dict.fromkeys(("second", "right"), (0.0, 1.0)),
    "tie": (0.5, 0.5),
    None: (None, None),
}
"""The scores of two runs by the winner, for preferences without scores."""


class DynamicComparisonRunEvaluator:
    """A sync or async function that compares runs, which can also be called directly on runs.

    Raises InputError if the function has parameters that cannot be filled.
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
        """Compare the runs. Raises TypeError or ValueError if the function does not return a preference."""
        if self.is_async:
            return asyncio.run(self.acompare_runs(runs, example))
        return self._result(self._bound.call(_arguments(runs, example)), runs)

    async def acompare_runs(self, runs: Sequence[Run], example: Example | None = None) -> ComparisonEvaluationResult:
        """Like `compare_runs`, for async callers."""
        returned = self._bound.call(_arguments(runs, example))
        return self._result(await returned if self.is_async else returned, runs)

    __call__ = compare_runs

    def _result(self, returned: object, runs: Sequence[Run]) -> ComparisonEvaluationResult:
        results = preferences(_by_stored_ids(returned), self.__name__, [run_key(run.id) for run in runs])
        if len(results) != 1:
            raise ValueError(f"{self.__name__}: got {len(results)} preferences, wanted one")
        (preference,) = results
        scores = preference.scores or POINTS[preference.winner]
        return ComparisonEvaluationResult(
            key=preference.key or self.__name__,
            scores={run.id: score for run, score in zip(runs, scores, strict=True)},
            comment=preference.comment,
        )


def comparison_evaluator(func: Function) -> DynamicComparisonRunEvaluator:
    """Wrap a function in an object with `compare_runs`. Optional: a function is a pairwise evaluator too."""
    return DynamicComparisonRunEvaluator(func)


def as_comparator(evaluator: Any) -> Any:
    """Wrap a pairwise evaluator so that it receives LangSmith's objects.

    Our own evaluators, given by name or as a spec, are returned unchanged. Raises InputError if the evaluator cannot
    be called or has parameters that cannot be filled.
    """
    if isinstance(evaluator, str | Mapping | FallbackSpec):
        return evaluator
    function = _function_of(evaluator)
    bound = _bound(function)

    def call(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        return _by_stored_ids(bound.call(_arguments(_linked(runs, example), example_of_view(example)) | models))

    async def acall(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        return _by_stored_ids(await bound.call(_arguments(_linked(runs, example), example_of_view(example)) | models))

    compare: Any = acall if bound.is_async else call
    update_wrapper(compare, function).__name__ = bound.name
    names = ("runs", "example", *sorted(bound.asked & {"complete", "embed"}))
    compare.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in names])
    return compare


def _function_of(evaluator: Any) -> Function:
    """Return the function inside the decorator's object (LangSmith's own too): it names and versions the metric."""
    is_decorated = hasattr(evaluator, "compare_runs")
    inner = (getattr(evaluator, name, None) for name in ("afunc", "func", "compare_runs") if is_decorated)
    function = next((candidate for candidate in inner if candidate is not None), evaluator)
    if not callable(function):
        kind = type(evaluator).__name__
        raise InputError(f"evaluate: evaluators: got {kind}, wanted a function or an object with compare_runs")
    return function  # type: ignore[no-any-return]


def _bound(function: Function) -> Bound:
    name = evaluator_name(function)
    return bind(as_named(function, name, "pair"), name=name, scope="pair")


def _linked(runs: Sequence[RunView], example: ExampleView) -> list[Run]:
    """Convert the runs to LangSmith's, which refer to their example."""
    return [replace(run_of_view(run), reference_example_id=example.id) for run in runs]


def _arguments(runs: Sequence[Run], example: Example | None) -> dict[str, Any]:
    """Return every argument that a pairwise evaluator may request; missing ones are empty."""
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
    """Replace run ids in an evaluator's result by the store's: a program may have converted them to UUIDs."""
    if isinstance(returned, list):
        return [_by_stored_ids(result) for result in returned]
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
