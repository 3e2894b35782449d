"""Compare experiments."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from evalflows.api.calling import RaisedToCaller, call_flow, flow_settings
from evalflows.api.comparative_result import ComparativeResult
from evalflows.api.results import ExperimentResult
from evalflows.engine.spec_evaluators import named_reference
from evalflows.reports.progress import Watch
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import IncompleteError, InputError, first_problem
from evalflows.specs.escaping import one_line, print_note
from evalflows.specs.evaluator import FallbackSpec
from evalflows.tasks.compare import check_and_resolve
from evalflows.tasks.start import refuse_if_running

Compared = Sequence[str | ExperimentResult]
"""Experiments: names, ids, or results of `evaluate`."""

PairwiseEvaluator = Callable[..., Any] | str | Mapping[str, Any] | FallbackSpec


def compare(spec: ComparisonSpec, resume: str | None = None, watch: Watch | None = None) -> str:
    """Run a comparison as a flow and return its id.

    Args:
        spec: The comparison; checked before Prefect starts.
        resume: Id of a comparison to resume.
        watch: Called every second with the progress.

    Raise InputError if the spec is wrong, and IncompleteError if the comparison could not be completed.
    """
    from evalflows.flows.compare_experiments import compare_experiments  # late: making a flow takes time

    with RaisedToCaller(), call_flow(watch):
        refuse_if_running(spec, resume)
        checked = check_and_resolve(spec)
        with checked.handed_on(), flow_settings() as checked.caller.server:
            return compare_experiments(checked.prepared.spec, resume)


def evaluate_comparative(
    experiments: Compared,
    /,
    evaluators: Sequence[PairwiseEvaluator] | PairwiseEvaluator,
    *,
    experiment_prefix: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int = 5,
    randomize_order: bool = True,
    both_orders: bool = False,
    load_nested: bool = False,
    **settings: Any,
) -> ComparativeResult:
    """Compare the answers of two or more existing experiments pair by pair.

    Args:
        experiments: Names, ids, or results of `evaluate`; the first is the baseline.
        evaluators: Functions that take any of inputs, outputs (a list), reference_outputs, runs (a list), example; or
            `"module:name"`, `"pairwise_preference"`, or specs.
        experiment_prefix: Name of the comparison.
        description: Purpose of the comparison.
        metadata: Metadata to store with it.
        max_concurrency: Maximum number of pairs judged at once; 0 means 1.
        randomize_order: Show the answers of each pair in random order; if false, in the order of `experiments`.
        both_orders: Judge each pair in both orders; if the verdicts differ, the pair is a tie.
        load_nested: Pass the steps of the runs to the evaluators.
        settings: Further fields of ComparisonSpec, such as baseline, pairs, failed_output, slice_by, seed, run_key.

    Failed judgements are reported on standard error. Raise InputError, before anything is called, if the settings are
    wrong, and IncompleteError if the comparison could not be completed, or every judgement failed.
    """
    if "name" in settings:
        raise InputError("evaluate_comparative: got name, wanted experiment_prefix")
    if callable(evaluators) or isinstance(evaluators, str | Mapping | FallbackSpec):
        evaluators = [evaluators]
    try:
        spec = ComparisonSpec(
            name=experiment_prefix or "",
            description=description or "",
            metadata=dict(metadata or {}),
            experiments=[
                experiment if isinstance(experiment, str) else experiment.experiment_id for experiment in experiments
            ],
            evaluators=[_evaluator(evaluator) for evaluator in evaluators],
            max_concurrency=max_concurrency or 1,
            randomize_order=randomize_order,
            both_orders=both_orders,
            load_nested=load_nested,
            **settings,
        )
    except ValidationError as error:
        raise InputError(first_problem(error, "evaluate_comparative")) from (error if error.error_count() > 1 else None)
    result = ComparativeResult(compare(spec))
    _report_failures(result)
    return result


def _report_failures(result: ComparativeResult) -> None:
    """Print how many judgements of each metric failed, and why the first did. Raise IncompleteError if all did."""
    pairs = list(result)
    failed = [pair for pair in pairs if pair["status"] == "missing"]
    counts = Counter(pair["metric"] for pair in failed)
    errors = {pair["metric"]: one_line(pair["error"]) for pair in reversed(failed)}
    for metric, count in counts.items():
        of_metric = sum(pair["metric"] == metric for pair in pairs)
        print_note(f"{result.name}: {count} of {of_metric} judgements by {metric} failed: {errors[metric]}")
    if pairs and len(failed) == len(pairs):
        raise IncompleteError(f"{result.name}: all {len(pairs)} judgements failed: {errors[pairs[0]['metric']]}")


async def aevaluate_comparative(
    experiments: Compared, /, evaluators: Sequence[PairwiseEvaluator], **settings: Any
) -> ComparativeResult:
    """Run `evaluate_comparative` without blocking the event loop. The arguments are the same."""
    return await asyncio.to_thread(evaluate_comparative, experiments, evaluators, **settings)


def _evaluator(evaluator: PairwiseEvaluator) -> object:
    if isinstance(evaluator, str | FallbackSpec):
        return evaluator
    if not isinstance(evaluator, Mapping):
        return named_reference(evaluator)
    use = evaluator.get("use")
    if use is None or isinstance(use, str):
        return evaluator
    return {**evaluator, **named_reference(use, evaluator.get("name"))}
