"""LangSmith's `evaluate` on top of `evalflows.evaluate`."""

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, overload

from evalflows.compat.langsmith.comparators import DynamicComparisonRunEvaluator, comparison_evaluator
from evalflows.compat.langsmith.comparison import ComparativeExperimentResults, compare_two, evaluate_comparative
from evalflows.compat.langsmith.datasets import as_data
from evalflows.compat.langsmith.functions import as_evaluator, as_target
from evalflows.compat.langsmith.refusal import refusing
from evalflows.compat.langsmith.schemas import ComparisonEvaluationResult, EvaluationResult, Example, Run
from evalflows.compat.langsmith.views import dataset_id, example_of, result_of, run_of
from evalflows.specs.errors import InputError
from evalflows.specs.reference import name_of
from evalflows.store.parquet import Store

if TYPE_CHECKING:
    import pandas as pd

    from evalflows import ExperimentResult

__all__ = [
    "ComparativeExperimentResults",
    "ComparisonEvaluationResult",
    "DynamicComparisonRunEvaluator",
    "EvaluationResult",
    "EvaluationResults",
    "ExperimentResultRow",
    "ExperimentResults",
    "RunEvaluator",
    "aevaluate",
    "comparison_evaluator",
    "evaluate",
    "evaluate_comparative",
    "run_evaluator",
]

Pair = tuple[Any, Any] | list[Any]
"""Two experiments: their names or ids, or results of `evaluate`."""


class EvaluationResults(TypedDict):
    """Several judgements."""

    results: list[EvaluationResult]


class ExperimentResultRow(TypedDict):
    """One run, its example and its judgements."""

    run: Run
    example: Example
    evaluation_results: EvaluationResults


class RunEvaluator:
    """Any object with `evaluate_run` can be used as an evaluator; it need not inherit from this class."""

    def evaluate_run(self, run: Run, example: Example | None = None, evaluator_run_id: uuid.UUID | None = None) -> Any:
        raise NotImplementedError


def run_evaluator(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function unchanged: any function can be an evaluator."""
    return func


class ExperimentResults:
    """A finished experiment: its rows in the dataset's order, one repetition after the other."""

    def __init__(self, result: "ExperimentResult") -> None:
        (row,) = Store().read("experiments", result.experiment_id)
        self.experiment_id: str = row.experiment_id
        self.experiment_name: str = row.name
        self.url: str | None = None  # there is no web page
        self._dataset = dataset_id(row.dataset_name)
        self._rows = [
            ExperimentResultRow(
                run=run_of(item.output, (example := example_of(item.example, self._dataset)).inputs),
                example=example,
                evaluation_results={"results": [result_of(s) for s in item.scores if s.status != "sampled_out"]},
            )
            for item in result
        ]

    def __repr__(self) -> str:
        return f"<ExperimentResults {self.experiment_name}>"

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ExperimentResultRow]:
        return iter(self._rows)

    async def __aiter__(self) -> AsyncIterator[ExperimentResultRow]:
        for row in self._rows:
            yield row

    def get_dataset_id(self) -> str | None:
        """Return the dataset's id; None if the examples were not from a named dataset."""
        return self._dataset

    def wait(self) -> None:
        """Do nothing: the experiment is finished."""

    def to_pandas(self, start: int | None = 0, end: int | None = None) -> "pd.DataFrame":
        """Return one row per run: inputs.*, outputs.*, error, reference.*, feedback.*, execution_time and ids."""
        import pandas as pd

        return pd.DataFrame([_flat(row) for row in self._rows[start:end]])


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
    max_concurrency: int | None = 0,
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
        target: A sync or async function of the inputs as one dict, or a LangChain runnable; or two existing
            experiments, for which see `evaluate_comparative`.
        data: A dataset, its name or id, or examples.
        evaluators: Functions of (run, example), or of any of inputs, outputs, reference_outputs, and so on.
        summary_evaluators: Likewise, with lists over all runs.
        metadata: Metadata stored with the experiment.
        experiment_prefix: The experiment's name before the hyphen; by default the target's name.
        description: A description of the experiment.
        max_concurrency: The maximum number of items in the target, or in the evaluators, at once; 0 means one, None
            as many as the limits allow.
        num_repetitions: The number of answers per example.
        client: Has no effect: there is only one store.
        disable_evaluator_tracing: Has no effect: evaluators' calls are recorded in the ledger, not as runs.
        kwargs: load_nested and randomize_order, for two experiments.

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
            max_concurrency=5 if max_concurrency is None else max_concurrency,
            metadata=metadata,
        )
    if kwargs:
        raise InputError(f"evaluate: got {min(kwargs)!r}, wanted it only with two experiments as the target")
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


def _flat(row: ExperimentResultRow) -> dict[str, Any]:
    run, example = row["run"], row["example"]
    columns: dict[str, Any] = {f"inputs.{name}": value for name, value in example.inputs.items()}
    columns |= {f"outputs.{name}": value for name, value in (run.outputs or {}).items()} | {"error": run.error}
    columns |= {f"reference.{name}": value for name, value in (example.outputs or {}).items()}
    for result in row["evaluation_results"]["results"]:
        columns[f"feedback.{result.key}"] = result.score if result.score is not None else result.value
    return columns | {"execution_time": run.latency, "example_id": example.id, "id": run.id}
