"""LangSmith's `evaluate_existing`: evaluate the answers of an existing experiment again, without calling its target."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from evalflows.compat.langsmith.experiments import experiment_of
from evalflows.compat.langsmith.functions import as_evaluator
from evalflows.compat.langsmith.results import ExperimentResults
from evalflows.compat.langsmith.schemas import Identity, TracerSession
from evalflows.compat.refusal import refusing
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store


def is_experiment(target: object) -> bool:
    """Whether a target of `evaluate` is an existing experiment."""
    return isinstance(target, Identity | TracerSession | ExperimentResults)


@refusing(blocking="results are returned when the experiment is finished")
def evaluate_existing(
    experiment: Any,
    /,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int | None = 0,
    client: Any = None,
    load_nested: bool = False,
    blocking: bool = True,
    disable_evaluator_tracing: bool = False,
) -> ExperimentResults:
    """Evaluate the answers of an existing experiment. The scores belong to a new one, which reuses the answers.

    Args:
        experiment: Its name or id, or the result of `evaluate` or `read_project`.
        evaluators: As in `evaluate`.
        summary_evaluators: As in `evaluate`.
        metadata: Metadata stored with the new experiment.
        max_concurrency: The maximum number of answers judged at once; 0 means one, None as many as the limits allow.
        client: Has no effect: there is only one store.
        load_nested: Has no effect: evaluators always get the runs' child runs.
        disable_evaluator_tracing: Has no effect: evaluators' calls are recorded in the ledger, not as runs.

    Raises InputError for invalid arguments and an unknown experiment, before anything is called, and IncompleteError as
    `evaluate` does.
    """
    import evalflows  # loads Prefect, which takes seconds

    row = experiment_of(Store(), experiment, "evaluate_existing: experiment")
    if not evaluators and not summary_evaluators:
        raise InputError("evaluate_existing: got no evaluators, wanted at least one")
    result = evalflows.evaluate(
        {"kind": "recorded", "name": row.target, "experiment": row.experiment_id},
        DatasetSpec(name=row.dataset_name, snapshot=row.snapshot_id),
        [as_evaluator(evaluator) for evaluator in evaluators or ()],
        summary_evaluators=[as_evaluator(evaluator, "run") for evaluator in summary_evaluators or ()],
        experiment_prefix=f"{row.name}-{secrets.token_hex(4)}",
        description=row.description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        num_repetitions=row.repetitions,
    )
    return ExperimentResults(result)


async def aevaluate_existing(
    experiment: Any,
    /,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int | None = 0,
    client: Any = None,
    load_nested: bool = False,
    blocking: bool = True,
    disable_evaluator_tracing: bool = False,
) -> ExperimentResults:
    """Like `evaluate_existing`, for async callers, whose event loop it does not block."""
    call = partial(evaluate_existing, blocking=blocking, load_nested=load_nested)
    return await asyncio.to_thread(call, experiment, evaluators, summary_evaluators, metadata, max_concurrency)
