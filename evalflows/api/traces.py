"""Evaluate traces of production from a program, a notebook or the command line."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from evalflows.api.batch_result import BatchEvaluationResult, BatchEvaluationResumeToken
from evalflows.api.calling import RaisedToCaller, call_flow, flow_settings
from evalflows.api.programs import evaluator_fields
from evalflows.engine.anchors import with_frozen_anchors
from evalflows.engine.preflight import check_traces
from evalflows.engine.run_context import RunContext
from evalflows.evaluators.foreign import evaluator_name
from evalflows.prefect_server import begin_early
from evalflows.reports.progress import Watch, show_progress
from evalflows.specs.errors import IncompleteError, InputError, first_problem, short
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.metrics import CompositeSpec
from evalflows.specs.reference import refer
from evalflows.specs.traces import Filter, TraceEvaluationSpec, TraceScope
from evalflows.store.store import Store


def evaluate_traces(
    spec: TraceEvaluationSpec,
    *,
    backfill_from: datetime | None = None,
    backfill_to: datetime | None = None,
    newest_first: bool = False,
    resume: str | None = None,
    watch: Watch | None = None,
) -> str:
    """Judge what is new in production since the last start of an evaluation, as a flow, and return the batch's id.

    Args:
        spec: Which items to judge, and by which evaluators; checked before Prefect starts.
        backfill_from: Judge the items that began since then instead, whether new or not.
        backfill_to: The end of the start times of these items.
        newest_first: Judge all items, those that began last first.
        resume: Judge the rest of this batch.
        watch: Called every second with the progress.

    Items that an evaluator of the same version has judged are not judged again. Raise InputError if the spec is wrong,
    and IncompleteError if judgements could not be made.
    """
    with RaisedToCaller(), call_flow(watch):
        begin_early()
        run = RunContext(with_frozen_anchors(Store(), check_traces(spec)))
        from evalflows.flows.evaluate_traces import evaluate_traces as flow  # late: making a flow takes time

        with run.handed_on(), flow_settings() as run.caller.server:
            return flow(run.prepared.spec, backfill_from, backfill_to, newest_first, resume)


def run_batched_evaluation(
    *,
    evaluators: Sequence[Any],
    mapper: Callable[..., Any] | str | Mapping[str, str] | None = None,
    scope: TraceScope = "traces",
    filter: Filter | None = None,  # noqa: A002 Langfuse's name
    composite_evaluators: Sequence[Any] = (),
    composite_evaluator: Callable[..., Any] | None = None,
    max_items: int | None = None,
    max_concurrency: int | None = None,
    fetch_batch_size: int = 50,
    sample_rate: float | None = None,
    max_retries: int = 3,
    resume_from: BatchEvaluationResumeToken | None = None,
    verbose: bool = False,
    name: str = "batched evaluation",
    metadata: Mapping[str, Any] | None = None,
    **settings: Any,
) -> BatchEvaluationResult:
    """Judge stored traces, observations or sessions, those that began last first.

    Args:
        evaluators: Functions, `"module:name"`, short names of built-in evaluators, or specs.
        mapper: A function that gets an item as `item` and returns EvaluatorInputs or a mapping with their fields; or
            paths for these. Default: the item's own input and output.
        scope: What one item is.
        filter: Which items: JSON as in Langfuse, or a condition in SQL.
        composite_evaluators: Functions that ask for `evaluations`, or mappings with `name` and `weights`.
        composite_evaluator: The same, for a single function.
        max_items: Maximum number of items; the result's `resume_token` judges the others.
        max_concurrency: Maximum number of items judged concurrently.
        fetch_batch_size: Items read at once; the next ones are read while these are judged.
        sample_rate: Share of the traces to judge, for evaluators without their own.
        max_retries: Number of retries of items whose judge could not be reached.
        resume_from: The token of an earlier result, whose rest is judged, with the same filter.
        verbose: Show progress on standard error.
        name: Name of the evaluation.
        metadata: Metadata to store with it.
        settings: Further fields of TraceEvaluationSpec.

    An item that an evaluator of the same version has judged is not judged again; its scores are in the result. Raise
    InputError, before anything is called, if the settings are wrong.
    """
    composites = [*composite_evaluators, *([composite_evaluator] if composite_evaluator else [])]
    weighted = [
        composite for composite in composites if isinstance(composite, CompositeSpec) or _is_weighted(composite)
    ]
    combining = [_named(composite) for composite in composites if composite not in weighted]
    judges = [_sampled(_named(evaluator), sample_rate) for evaluator in evaluators]
    try:
        spec = TraceEvaluationSpec(
            name=name,
            metadata=dict(metadata or {}),
            scope=scope,
            filter=_filter_of(filter, resume_from),
            mapper=refer(mapper) if callable(mapper) else dict(mapper) if isinstance(mapper, Mapping) else mapper,
            evaluators=[*judges, *combining],
            composites=weighted,
            max_items=max_items,
            max_concurrency=max_concurrency,
            fetch_batch_size=fetch_batch_size,
            chunk_retries=min(max_retries, 10),
            **settings,
        )
    except ValidationError as error:
        raise InputError(first_problem(error, "run_batched_evaluation", TraceEvaluationSpec)) from None
    if resume_from is not None and resume_from.cursor is None:
        raise InputError("resume_from: got a token without a cursor, wanted the resume_token of a result")
    resume = resume_from.cursor if resume_from is not None else None
    with show_progress(Console(stderr=True)) if verbose else nullcontext() as watch:
        try:
            batch = evaluate_traces(spec, newest_first=True, resume=resume, watch=watch)
        except IncompleteError as error:
            if error.batch is None:
                raise
            batch = error.batch
    own = [
        *(evaluator.metric for evaluator in spec.evaluators[len(spec.evaluators) - len(combining) :]),
        *(composite.name for composite in spec.composites),
    ]
    return BatchEvaluationResult(batch, composites=own)


def _filter_of(given: Filter | None, resume_from: BatchEvaluationResumeToken | None) -> Filter | None:
    """Return the filter of a batch, which is that of the batch that it resumes."""
    if resume_from is None:
        return given
    if given is not None and _parsed(given) != _parsed(resume_from.filter):
        raise InputError(f"resume_from: got the filter {short(given)}, wanted none, or that of its batch")
    return resume_from.filter


def _parsed(given: object) -> object:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except ValueError:  # a condition in SQL
        return given


def _named(evaluator: Any) -> Any:
    """Return an evaluator's fields, with its function's name: traces have no measures to keep it apart from."""
    fields = evaluator_fields(evaluator)
    is_object = not isinstance(evaluator, str | Mapping | EvaluatorSpec)
    return {**fields, "name": evaluator_name(evaluator)} if is_object and isinstance(fields, dict) else fields


def _is_weighted(composite: Any) -> bool:
    return isinstance(composite, Mapping) and "weights" in composite


def _sampled(evaluator: Any, rate: float | None) -> Any:
    """Return an evaluator's fields with a sampling rate, unless it has its own."""
    if rate is None:
        return evaluator
    if isinstance(evaluator, str):
        return {"use": evaluator, "sample_rate": rate}
    if isinstance(evaluator, Mapping):
        return {"sample_rate": rate, **evaluator}
    return evaluator if evaluator.sample_rate is not None else evaluator.model_copy(update={"sample_rate": rate})
