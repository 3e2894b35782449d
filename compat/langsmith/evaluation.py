"""LangSmith's `evaluate` on top of `evalflows.evaluate`."""

import asyncio
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.langsmith.comparators import DynamicComparisonRunEvaluator, comparison_evaluator
from evalflows.compat.langsmith.comparison import ComparativeExperimentResults, compare_two, evaluate_comparative
from evalflows.compat.langsmith.datasets import as_data
from evalflows.compat.langsmith.existing import aevaluate_existing, evaluate_existing, is_experiment
from evalflows.compat.langsmith.experiments import refuse_target_only
from evalflows.compat.langsmith.functions import as_evaluator, as_target
from evalflows.compat.langsmith.results import EvaluationResults, ExperimentResultRow, ExperimentResults
from evalflows.compat.langsmith.schemas import ComparisonEvaluationResult, EvaluationResult, Example, Run
from evalflows.compat.langsmith.string_evaluators import LangChainStringEvaluator
from evalflows.compat.refusal import refusing
from evalflows.specs.errors import InputError
from evalflows.specs.reference import name_of
from evalflows.store.parquet import Store

__all__ = [
    "ComparativeExperimentResults",
    "ComparisonEvaluationResult",
    "DynamicComparisonRunEvaluator",
    "EvaluationResult",
    "EvaluationResults",
    "ExperimentResultRow",
    "ExperimentResults",
    "LangChainStringEvaluator",
    "RunEvaluator",
    "aevaluate",
    "aevaluate_existing",
    "comparison_evaluator",
    "evaluate",
    "evaluate_comparative",
    "evaluate_existing",
    "run_evaluator",
]

__getattr__ = ABSENT.of_module(__name__)

Pair = tuple[Any, Any] | list[Any]
"""Two experiments: their names or ids, or results of `evaluate`."""


class _Unset(int):
    """The default of `max_concurrency`, to tell it from a 0 of the caller's."""


_ONE_AT_A_TIME = _Unset(0)
_PAIRS_AT_ONCE = 5


class RunEvaluator:
    """Any object with `evaluate_run` can be used as an evaluator; it need not inherit from this class."""

    def evaluate_run(self, run: Run, example: Example | None = None, evaluator_run_id: uuid.UUID | None = None) -> Any:
        raise NotImplementedError


def run_evaluator(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function unchanged: any function can be an evaluator."""
    return func


@overload
def evaluate(target: Pair, /, *, evaluators: Sequence[Any], **options: Any) -> ComparativeExperimentResults: ...


@overload
def evaluate(
    target: Any,
    /,
    data: Any = None,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    **options: Any,
) -> ExperimentResults: ...


@refusing(
    experiment="each call starts a new experiment; `evalflows resume` continues an interrupted one",
    blocking="results are returned when the experiment is finished",
    upload_results="all results are stored in the store",
    error_handling="a failed answer is a row with the error and counts as missing",
)
def evaluate(
    target: Any,
    /,
    data: Any = None,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    experiment_prefix: str | None = None,
    description: str | None = None,
    max_concurrency: int | None = _ONE_AT_A_TIME,
    num_repetitions: int = 1,
    client: Any = None,
    blocking: bool = True,
    experiment: Any = None,
    upload_results: bool = True,
    disable_evaluator_tracing: bool = False,
    error_handling: str = "log",
    **kwargs: Any,
) -> ExperimentResults | ComparativeExperimentResults:
    """Run a target on a dataset and evaluate every answer, or compare the answers of two experiments in pairs.

    The experiment or comparison gets a unique name.

    Args:
        target: A sync or async function of the inputs as one dict, or a LangChain runnable; an existing experiment,
            for which see `evaluate_existing`; or two, for which see `evaluate_comparative`.
        data: A dataset, its name or id, or examples.
        evaluators: Functions of (run, example), or of any of inputs, outputs, reference_outputs, and so on.
        summary_evaluators: Likewise, with lists over all runs.
        metadata: Metadata stored with the experiment.
        experiment_prefix: The experiment's name before the hyphen; by default the target's name.
        description: A description of the experiment.
        max_concurrency: The maximum number of items in the target, or in the evaluators, at once; 0 means one, None
            as many as the limits allow. For two experiments the default is 5.
        num_repetitions: The number of answers per example.
        client: Has no effect: there is only one store.
        disable_evaluator_tracing: Has no effect: evaluators' calls are recorded in the ledger, not as runs.
        kwargs: load_nested, for experiments, and randomize_order, for two.

    Raises InputError for invalid arguments and unsupported options before anything is called, and IncompleteError if
    not everything was done or no answer succeeded; finished results are stored even then.
    """
    import evalflows  # loads Prefect, which takes seconds

    if isinstance(target, tuple | list):
        return compare_two(
            target,
            {"data": data, "summary_evaluators": summary_evaluators, "num_repetitions": num_repetitions},
            kwargs,
            evaluators=evaluators or (),
            experiment_prefix=experiment_prefix,
            description=description,
            max_concurrency=_pairs_at_once(max_concurrency),
            metadata=metadata,
        )
    if unknown := kwargs.keys() - ({"load_nested"} if is_experiment(target) else ()):
        raise InputError(f"evaluate: got {min(unknown)!r}, wanted it only with two experiments as the target")
    if is_experiment(target):
        of_target = {"data": data, "experiment_prefix": experiment_prefix, "description": description}
        refuse_target_only(of_target | {"num_repetitions": num_repetitions})
        return evaluate_existing(target, evaluators, summary_evaluators, metadata, max_concurrency)
    function = as_target(target)
    result = evalflows.evaluate(
        function,
        as_data(Store(), data),
        [as_evaluator(evaluator) for evaluator in evaluators or ()],
        summary_evaluators=[as_evaluator(evaluator, "run") for evaluator in summary_evaluators or ()],
        experiment_prefix=f"{experiment_prefix or name_of(function)}-{secrets.token_hex(4)}",
        description=description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        num_repetitions=num_repetitions,
    )
    return ExperimentResults(result)


@overload
async def aevaluate(target: Pair, /, *, evaluators: Sequence[Any], **options: Any) -> ComparativeExperimentResults: ...


@overload
async def aevaluate(
    target: Any,
    /,
    data: Any = None,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    **options: Any,
) -> ExperimentResults: ...


async def aevaluate(
    target: Any,
    /,
    data: Any = None,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    **options: Any,
) -> ExperimentResults | ComparativeExperimentResults:
    """Like `evaluate`, for async callers, whose event loop it does not block. The options are the same.

    `data` may also be an async iterable of examples, and the results can be iterated asynchronously.
    """
    if hasattr(data, "__aiter__"):
        data = [example async for example in data]
    return await asyncio.to_thread(evaluate, target, data, evaluators, summary_evaluators, **options)


def _pairs_at_once(max_concurrency: int | None) -> int:
    unset = max_concurrency is None or isinstance(max_concurrency, _Unset)
    return _PAIRS_AT_ONCE if unset else max_concurrency or 0
