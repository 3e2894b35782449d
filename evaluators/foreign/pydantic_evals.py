"""pydantic-evals: objects of `Evaluator`, whose `evaluate` takes a context, or their classes."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from evaluators.foreign.judge import Foreign, made_of
from evaluators.score import Score
from evaluators.subject import ExampleView, RunView, whole
from specs.errors import InputError
from specs.reference import comes_from, name_of, version_of

PACKAGE = "pydantic_evals"

_NO_SPANS = "spans are not recorded: evalflows keeps a run's steps, and this evaluator reads OpenTelemetry's"
_ON_SPANS = "pydantic_evals.evaluators.agentic"
_ON_REPORTS = "ReportEvaluator"


def is_one(found: object) -> bool:
    return comes_from(found, PACKAGE) and callable(getattr(found, "evaluate", None))


def of_class(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return dict(settings), {}


def foreign(evaluator: Any, settings: dict[str, Any], who: str) -> Foreign:
    """It is shown its own EvaluatorContext: the values from before they were wrapped, the run's seconds, its tokens
    and cost as metrics.

    Cannot see spans: `span_tree` raises, as theirs does where none were recorded. Raises InputError for one of a
    report, and for those of theirs that would take unrecorded spans for a failed run.
    """
    kinds = {f"{one.__module__}.{one.__name__}" for one in type(evaluator).__mro__}
    if settings:
        raise InputError(f"{who}: got the setting {min(settings)!r}, wanted none: it is made already")
    if any(kind.endswith(f".{_ON_REPORTS}") for kind in kinds):
        raise InputError(f"{who}: judges a report of pydantic-evals, wanted one that judges a case")
    if any(kind.startswith(f"{_ON_SPANS}.") for kind in kinds):
        raise InputError(f"{who}: {_NO_SPANS}")

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(evaluator.evaluate_sync(_context(example, run)), evaluator)

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(await evaluator.evaluate_async(_context(example, run)), evaluator)

    return Foreign(judge=judge_async if _is_async(evaluator) else judge, parts=_parts(evaluator))


def _is_async(evaluator: Any) -> bool:
    """Whether its user wrote an async `evaluate`, or `evaluate_async` itself."""
    writer = next((one for one in type(evaluator).__mro__ if "evaluate_async" in vars(one)), object)
    return inspect.iscoroutinefunction(evaluator.evaluate) or not writer.__module__.startswith(f"{PACKAGE}.")


def _parts(evaluator: Any) -> object:
    arguments = evaluator.build_serialization_arguments()  # a model by its name
    return [version_of(type(evaluator)), name_of(evaluator), evaluator.get_evaluator_version(), made_of(arguments)]


def _context(example: ExampleView, run: RunView) -> Any:
    known = {"input_tokens": run.tokens_in, "output_tokens": run.tokens_out, "cost": run.cost_usd}
    return import_module("pydantic_evals.evaluators").EvaluatorContext(
        name=example.id,
        inputs=example.input,
        metadata=example.metadata or None,
        expected_output=example.expected_output,
        output=whole(run.outputs, "output"),
        duration=run.latency_s,  # None where it is not known: then what compares it raises, rather than being wrong
        attributes={},
        metrics={name: value for name, value in known.items() if value is not None},
        _span_tree=import_module("pydantic_evals.otel").SpanTreeRecordingError(_NO_SPANS),
    )


def _scores(given: Any, evaluator: Any) -> list[Any]:
    """A scalar bears the evaluator's name; of a mapping each its key, and an empty one does not apply."""
    each = given if isinstance(given, Mapping) else {evaluator.get_default_evaluation_name(): given}
    return [_score(name, value) for name, value in each.items()]


def _score(name: str, given: Any) -> Score:
    reasoned = comes_from(given, PACKAGE) and hasattr(given, "reason")
    value, reason = (given.value, given.reason) if reasoned else (given, None)
    return Score(key=str(name), value=value, comment=reason)
