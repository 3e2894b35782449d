"""Evaluate functions and other targets from a program or a notebook."""

from functools import partial
from typing import TYPE_CHECKING, Any, overload

from evalflows.specs.errors import InputError
from evalflows.specs.process_memory import with_one_stack, without_collection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evalflows.api.comparisons import ComparativeResult, Compared, PairwiseEvaluator
    from evalflows.api.programs import Data, Evaluator, Target
    from evalflows.api.results import ExperimentResult


@overload
def evaluate(
    target: "Target", /, data: "Data", evaluators: "Sequence[Evaluator]" = (), **settings: Any
) -> "ExperimentResult": ...


@overload
def evaluate(
    target: "tuple[str | ExperimentResult, ...]", /, *, evaluators: "Sequence[PairwiseEvaluator]", **settings: Any
) -> "ComparativeResult": ...


@with_one_stack
def evaluate(
    target: "Target | Compared",
    /,
    data: "Data | None" = None,
    evaluators: "Sequence[Evaluator]" = (),
    *,
    summary_evaluators: "Sequence[Evaluator]" = (),
    experiment_prefix: str | None = None,
    description: str | None = None,
    metadata: "Mapping[str, Any] | None" = None,
    max_concurrency: int | None = None,
    num_repetitions: int = 1,
    run_key: str | None = None,
    columns: "Mapping[str, Any] | None" = None,
    **settings: Any,
) -> "ExperimentResult | ComparativeResult":
    """Run a target on a dataset and evaluate every answer; or compare the answers of a tuple of experiments in pairs.

    Args:
        target: A function of the inputs, sync or async, or a target's spec; or a tuple of experiments: see
            `evaluate_comparative`.
        data: File path, dataset name, snapshot id, rows of {"inputs", "reference_outputs", …}, texts that
                are the inputs, a DataFrame, or a spec.
        evaluators: Functions, `"module:name"`, short names of built-in evaluators, or specs.
        summary_evaluators: The same, for evaluators that score all answers at once.
        experiment_prefix: Name of the experiment.
        description: Purpose of the experiment.
        metadata: Metadata to store with it.
        max_concurrency: Maximum number of examples answered, or answers evaluated, at once; 0 means 1, None means as
            many as the limits allow.
        num_repetitions: Number of answers per example.
        run_key: A later call with the same key continues the experiment.
        columns: The columns of a file, rows or a DataFrame that are the `inputs` and the `reference_outputs`, by name.
        settings: Further fields of ExperimentSpec; `name` and `repetitions` are two of the above by our own names.

    Raise InputError, before anything is called, if the settings are wrong, and IncompleteError if the run could not be
    completed.
    """
    if isinstance(target, tuple | list):
        if data is not None or summary_evaluators or num_repetitions != 1:
            raise InputError("evaluate: got experiments to compare, wanted no data, summary_evaluators or repetitions")
        from evalflows.api.comparisons import evaluate_comparative  # late: pandas is slow to import

        return evaluate_comparative(
            target,
            evaluators,
            experiment_prefix=experiment_prefix,
            description=description,
            metadata=metadata,
            max_concurrency=5 if max_concurrency is None else max_concurrency,
            run_key=run_key,
            **settings,
        )
    if data is None:
        raise InputError("evaluate: got no data, wanted a file's path, a dataset's name, a snapshot's id, or rows")
    if twice := settings.keys() & {"dataset", "targets"}:
        raise InputError(f"evaluate: got {min(twice)}, wanted the target and the data as the first two arguments")
    with without_collection():
        from evalflows.api.programs import result_of, spec_of

    fields = {
        "name": experiment_prefix,
        "description": description or "",
        "metadata": dict(metadata or {}),
        "repetitions": num_repetitions,
        "max_concurrency": 1 if max_concurrency == 0 else max_concurrency,
        "run_key": run_key,
        **settings,
    }
    return result_of(spec_of(target, data, evaluators, summary_evaluators, columns, fields))  # type: ignore[arg-type]  # raises if it is no target


@overload
async def aevaluate(
    target: "Target", /, data: "Data", evaluators: "Sequence[Evaluator]" = (), **settings: Any
) -> "ExperimentResult": ...


@overload
async def aevaluate(
    target: "tuple[str | ExperimentResult, ...]", /, *, evaluators: "Sequence[PairwiseEvaluator]", **settings: Any
) -> "ComparativeResult": ...


async def aevaluate(
    target: Any, /, data: Any = None, evaluators: "Sequence[Any]" = (), **settings: Any
) -> "ExperimentResult | ComparativeResult":
    """Run `evaluate` without blocking the event loop. The arguments are the same."""
    import asyncio

    return await asyncio.to_thread(partial(evaluate, target, data, evaluators, **settings))
