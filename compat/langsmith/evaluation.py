"""`evaluate` by LangSmith's names and shapes, over `flows.evaluate`."""

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, overload

from compat.langsmith.comparators import DynamicComparisonRunEvaluator, comparison_evaluator
from compat.langsmith.comparison import ComparativeExperimentResults, compare_two, evaluate_comparative
from compat.langsmith.datasets import as_data
from compat.langsmith.functions import as_evaluator, as_target
from compat.langsmith.refusal import refusing
from compat.langsmith.schemas import ComparisonEvaluationResult, EvaluationResult, Example, Run
from compat.langsmith.views import dataset_id, example_of, result_of, run_of
from specs.errors import InputError
from specs.reference import name_of
from store.parquet import Store

if TYPE_CHECKING:
    import pandas as pd

    from flows import ExperimentResult

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
"""Two experiments: their names or ids, or what `evaluate` gave back."""


class EvaluationResults(TypedDict):
    """Several judgements at once."""

    results: list[EvaluationResult]


class ExperimentResultRow(TypedDict):
    """One run, the example that it is of, and its judgements."""

    run: Run
    example: Example
    evaluation_results: EvaluationResults


class RunEvaluator:
    """What has evaluate_run may stand for an evaluator; it need not be of this class."""

    def evaluate_run(self, run: Run, example: Example | None = None, evaluator_run_id: uuid.UUID | None = None) -> Any:
        raise NotImplementedError


def run_evaluator(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is: any function may be an evaluator."""
    return func


class ExperimentResults:
    """A finished experiment: its rows in the dataset's order, each repetition after the other."""

    def __init__(self, result: "ExperimentResult") -> None:
        (row,) = Store().read("experiments", result.experiment_id)
        self.experiment_id: str = row.experiment_id
        self.experiment_name: str = row.name
        self.url: str | None = None  # there is no page of it
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
        """None where the examples were not those of a dataset."""
        return self._dataset

    def wait(self) -> None:
        """Nothing is left to wait for."""

    def to_pandas(self, start: int | None = 0, end: int | None = None) -> "pd.DataFrame":
        """A row a run: inputs.*, outputs.*, error, reference.*, feedback.*, execution_time, example_id, id."""
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
    experiment="each call is an experiment of its own; `evalflows resume` goes on with one",
    blocking="the results are there when the experiment is done",
    upload_results="every result is kept in the store",
    error_handling="an answer that failed is a row with the error, and counts as missing",
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
    """Run a target on a dataset and judge every answer; or, of two experiments, compare their answers in pairs.

    What it makes bears a name that no other has.

    Args:
        target: A function of the inputs as one dict, plain or async, or LangChain's runnable; or two experiments that
            exist, for which see `evaluate_comparative`.
        data: A dataset, its name or its id, or examples.
        evaluators: Functions of (run, example), or of any of inputs, outputs, reference_outputs, and so on.
        summary_evaluators: The same, of the lists of them.
        metadata: Whatever should be found again with it.
        experiment_prefix: What the experiment is called before the hyphen; the target's name where left out.
        description: What it is for.
        max_concurrency: Most items in the target, or in the evaluators, at once; 0 is one, None is as many as fit.
        num_repetitions: How often each example is answered.
        client: Changes nothing: there is one store.
        disable_evaluator_tracing: Changes nothing: evaluators' calls are in the ledger, and no runs.
        kwargs: load_nested and randomize_order, of two experiments.

    Raises InputError for what cannot work and for options that cannot be honoured, before anything is called, and
    IncompleteError if not all was done, or nothing was answered; what there is is kept then too.
    """
    import flows  # loads Prefect, which takes seconds

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
        raise InputError(f"evaluate: got {min(kwargs)!r}, which only two experiments as the target may have")
    function = as_target(target)
    result = flows.evaluate(
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
    """`evaluate`, from a program that has an event loop: that goes on meanwhile. The options are the same.

    `data` may also be examples to iterate over asynchronously, and the results can be.
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
