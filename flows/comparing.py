"""Comparing experiments, as functions."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from pydantic import ValidationError

from flows.compare_experiments import compare_experiments
from flows.comparison_result import ComparativeResult
from flows.result import ExperimentResult
from specs.comparison import ComparisonSpec
from specs.errors import InputError, first_problem
from specs.evaluator import FallbackSpec
from specs.reference import name_of
from tasks.progress import Watch, watched
from tasks.resolve import reference_to
from tasks.settle_comparison import settled

Compared = Sequence[str | ExperimentResult]
"""Experiments: their names or ids, or what `evaluate` gave back."""

PairwiseEvaluator = Callable[..., Any] | str | Mapping[str, Any] | FallbackSpec


def compare(spec: ComparisonSpec, resume: str | None = None, watch: Watch | None = None) -> str:
    """Run a comparison as a flow, and return its id.

    The spec is checked before Prefect starts. `watch` is called every second with how far it is. Raises InputError for
    a mistake, and IncompleteError where something was left undone.
    """
    checked = settled(spec)
    with watched(watch), temporary_settings(set_defaults={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        return compare_experiments(checked, resume)


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
    """Have evaluators say which answers are better, of two or more experiments that exist.

    Args:
        experiments: Their names or ids, or what `evaluate` gave back; the first is the baseline.
        evaluators: Functions of any of inputs, outputs (a list), reference_outputs, runs (a list), example; or
            `"module:name"`, `"pairwise_preference"`, or specs.
        experiment_prefix: What the comparison is called.
        description: What it is for.
        metadata: Whatever should be found again with it.
        max_concurrency: Most pairs judged at once; 0 is one.
        randomize_order: Draw for each pair which answer is shown first; else that of the experiment named first is.
        both_orders: Ask twice, with each answer first; verdicts that differ are a tie.
        load_nested: Give evaluators the steps of the runs too.
        settings: Further fields of ComparisonSpec, such as baseline, pairs, failed_output, by, seed, run_key.

    Raises InputError for what cannot work, before anything is called, and IncompleteError if not all was done.
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
            experiments=[one if isinstance(one, str) else one.experiment_id for one in experiments],
            evaluators=[_evaluator(evaluator) for evaluator in evaluators],
            max_concurrency=max_concurrency or 1,
            randomize_order=randomize_order,
            both_orders=both_orders,
            load_nested=load_nested,
            **settings,
        )
    except ValidationError as error:
        raise InputError(first_problem(error, "evaluate_comparative")) from error
    return ComparativeResult(compare(spec))


async def aevaluate_comparative(
    experiments: Compared, /, evaluators: Sequence[PairwiseEvaluator], **settings: Any
) -> ComparativeResult:
    """`evaluate_comparative`, from a program that has an event loop: that goes on meanwhile."""
    return await asyncio.to_thread(evaluate_comparative, experiments, evaluators, **settings)


def _evaluator(evaluator: PairwiseEvaluator) -> object:
    if isinstance(evaluator, str | FallbackSpec):
        return evaluator
    if not isinstance(evaluator, Mapping):
        return {"use": reference_to(evaluator), "name": name_of(evaluator)}
    use = evaluator.get("use")
    if use is None or isinstance(use, str):
        return evaluator
    return {**evaluator, "use": reference_to(use), "name": evaluator.get("name") or name_of(use)}
