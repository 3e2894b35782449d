"""Evaluate functions and other targets from a program or a notebook."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from evalflows.api.running import run  # early: loaded after a program's connection, DuckDB reports leaks at its end
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.process_memory import without_collection

if TYPE_CHECKING:
    from evalflows.api.comparisons import ComparativeResult, Compared, PairwiseEvaluator
    from evalflows.api.experiment_specs import Data, Evaluator, Target
    from evalflows.api.results import ExperimentResult

FAILURES_SAID = 3
"""Errors that `evaluate` names after a run."""


@overload
def evaluate(
    target: "Target", /, data: "Data", evaluators: "Sequence[Evaluator]" = (), **settings: Any
) -> "ExperimentResult": ...


@overload
def evaluate(
    target: "tuple[str | ExperimentResult, ...]", /, *, evaluators: "Sequence[PairwiseEvaluator]", **settings: Any
) -> "ComparativeResult": ...


def evaluate(
    target: "Target | Compared",
    /,
    data: "Data | None" = None,
    evaluators: Sequence[Any] = (),
    *,
    summary_evaluators: "Sequence[Evaluator]" = (),
    experiment_prefix: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int | None = None,
    num_repetitions: int = 1,
    run_key: str | None = None,
    columns: Mapping[str, Any] | None = None,
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
        from evalflows.api.comparisons import evaluate_comparative

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
    with without_collection():
        from evalflows.api.experiment_specs import experiment_spec
        from evalflows.api.results import ExperimentResult
        from evalflows.reports.experiment_report import failures_of
        from evalflows.store.queries.continuing import begun_since, continued_by
        from evalflows.store.records import now
        from evalflows.store.store import Store

    fields = {
        "description": description or "",
        "metadata": dict(metadata or {}),
        "repetitions": num_repetitions,
        "max_concurrency": 1 if max_concurrency == 0 else max_concurrency,
        "run_key": run_key,
    }
    given = (data, evaluators, summary_evaluators, columns, experiment_prefix, fields | settings)
    spec = experiment_spec(target, *given)  # type: ignore[arg-type]  # raises if it is no target
    began = now()
    try:
        identity = run(spec)[0]
    except KeyboardInterrupt as stopped:
        stopped._render_traceback_ = lambda: ["KeyboardInterrupt"]  # type: ignore[attr-defined]  # for notebooks
        if (interrupted := begun_since(Store(), began)) is not None:
            print_note(f"interrupted, and what is done is kept; {continued_by(Store(), interrupted)}")
        raise
    result = ExperimentResult(identity)
    for failure in failures_of(Store(), [result.experiment_id])[:FAILURES_SAID]:
        what = "answers" if failure.source == "target" else f"judgements by {failure.source}"
        print_note(f"{failure.experiment}: {failure.count} of {len(result)} {what} failed: {failure.error}")
    return result


@overload
async def aevaluate(
    target: "Target", /, data: "Data", evaluators: "Sequence[Evaluator]" = (), **settings: Any
) -> "ExperimentResult": ...


@overload
async def aevaluate(
    target: "tuple[str | ExperimentResult, ...]", /, *, evaluators: "Sequence[PairwiseEvaluator]", **settings: Any
) -> "ComparativeResult": ...


async def aevaluate(
    target: Any, /, data: Any = None, evaluators: Sequence[Any] = (), **settings: Any
) -> "ExperimentResult | ComparativeResult":
    """Run `evaluate` without blocking the event loop. The arguments are the same."""
    import asyncio

    return await asyncio.to_thread(partial(evaluate, target, data, evaluators, **settings))
