"""Adapter for pydantic-evals: instances or subclasses of `Evaluator`, whose `evaluate` takes a context."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from evalflows.evaluators.foreign.judge import Adapted, version_values
from evalflows.evaluators.foreign.names import evaluator_name
from evalflows.evaluators.score import Score
from evalflows.evaluators.subject import ExampleView, RunView, unwrapped
from evalflows.specs.errors import InputError
from evalflows.specs.reference import comes_from, version_of

PACKAGE = "pydantic_evals"

_NO_SPANS = "spans are not recorded: evalflows stores a run's steps, and this evaluator needs OpenTelemetry spans"
_ON_SPANS = "pydantic_evals.evaluators.agentic"
_ON_REPORTS = "ReportEvaluator"


def recognises(evaluator: object) -> bool:
    return comes_from(evaluator, PACKAGE) and callable(getattr(evaluator, "evaluate", None))


def split_settings(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return dict(settings), {}


def adapt(evaluator: Any, settings: dict[str, Any], where: str) -> Adapted:
    """Adapt an evaluator. It gets an EvaluatorContext with the values before they were wrapped, the run's duration, and
    its tokens and cost as metrics.

    It cannot see spans: `span_tree` raises, as in pydantic-evals if no spans were recorded. Raise InputError for a
    report evaluator, and for built-in evaluators that would treat missing spans as a failed run.
    """
    kinds = {f"{base.__module__}.{base.__name__}" for base in type(evaluator).__mro__}
    if settings:
        raise InputError(f"{where}: got the setting {min(settings)!r} for an instance, wanted no settings")
    if any(kind.endswith(f".{_ON_REPORTS}") for kind in kinds):
        raise InputError(f"{where}: got a report evaluator of pydantic-evals, wanted one that judges a case")
    if any(kind.startswith(f"{_ON_SPANS}.") for kind in kinds):
        raise InputError(f"{where}: {_NO_SPANS}")

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(evaluator.evaluate_sync(_context(example, run)), evaluator)

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(await evaluator.evaluate_async(_context(example, run)), evaluator)

    return Adapted(judge=judge_async if _is_async(evaluator) else judge, parts=_parts(evaluator))


def _is_async(evaluator: Any) -> bool:
    """Return whether the user wrote an async `evaluate`, or `evaluate_async` itself."""
    owner = next((base for base in type(evaluator).__mro__ if "evaluate_async" in vars(base)), object)
    return inspect.iscoroutinefunction(evaluator.evaluate) or not owner.__module__.startswith(f"{PACKAGE}.")


def _parts(evaluator: Any) -> object:
    arguments = evaluator.build_serialization_arguments()  # represents a model by its name
    return [
        version_of(type(evaluator)),
        evaluator_name(evaluator),
        evaluator.get_evaluator_version(),
        version_values(arguments),
    ]


def _context(example: ExampleView, run: RunView) -> Any:
    known = {"input_tokens": run.tokens_in, "output_tokens": run.tokens_out, "cost": run.cost_usd}
    return import_module("pydantic_evals.evaluators").EvaluatorContext(
        name=example.id,
        inputs=example.input,
        metadata=example.metadata or None,
        expected_output=example.expected_output,
        output=unwrapped(run.outputs, "output"),
        duration=run.latency_s,  # None if unknown, so that a comparison with it raises instead of being wrong
        attributes={},
        metrics={name: value for name, value in known.items() if value is not None},
        _span_tree=import_module("pydantic_evals.otel").SpanTreeRecordingError(_NO_SPANS),
    )


def _scores(given: Any, evaluator: Any) -> list[Any]:
    """Convert the result: a scalar gets the evaluator's name, a mapping its keys; an empty mapping does not apply."""
    by_name = given if isinstance(given, Mapping) else {evaluator.get_default_evaluation_name(): given}
    return [_score(name, value) for name, value in by_name.items()]


def _score(name: str, given: Any) -> Score:
    has_reason = comes_from(given, PACKAGE) and hasattr(given, "reason")
    value, reason = (given.value, given.reason) if has_reason else (given, None)
    return Score(key=str(name), value=value, comment=reason)
