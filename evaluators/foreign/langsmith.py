"""Adapter for LangSmith's RunEvaluator: objects with `evaluate_run(run, example)`. Plain functions need no adapter."""

import inspect
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

from evalflows.evaluators.foreign.judge import Adapted, version_values
from evalflows.evaluators.foreign.names import evaluator_name
from evalflows.evaluators.score import Score
from evalflows.evaluators.subject import ExampleView, RunView
from evalflows.specs.errors import InputError
from evalflows.specs.reference import comes_from

PACKAGE = "langsmith"

_MORE = ("correction", "evaluator_info", "feedback_config", "extra")
"""Fields of a result that go to the metadata. Trace ids do not, since no traces are stored."""


def recognises(evaluator: object) -> bool:
    return callable(getattr(evaluator, "evaluate_run", None))


def split_settings(kind: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return dict(settings), {}


def adapt(evaluator: Any, settings: dict[str, Any], where: str) -> Adapted:
    """Adapt a RunEvaluator. It gets LangSmith's `Run` and `Example`, with UUIDs derived from our ids.

    The metadata has our ids. An object of another package with this method gets our own views. It cannot see a
    project, earlier feedback, or a URL, since there are none.
    """
    if settings:
        raise InputError(f"{where}: got the setting {min(settings)!r} for an instance, wanted no settings")
    is_langsmith = comes_from(evaluator, PACKAGE)

    def views(example: ExampleView, run: RunView) -> tuple[Any, Any]:
        return (_run(run, example), _example(example)) if is_langsmith else (run, example)

    def judge(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(evaluator.evaluate_run(*views(example, run)))

    async def judge_async(example: ExampleView, run: RunView) -> list[Any]:
        return _scores(await evaluator.aevaluate_run(*views(example, run)))

    function = inspect.unwrap(evaluator) if hasattr(evaluator, "__wrapped__") else evaluator
    return Adapted(
        judge=judge_async if _is_async(evaluator) else judge,
        parts=[evaluator_name(evaluator), version_values(function)],
    )


def _is_async(evaluator: Any) -> bool:
    """Return whether the user wrote the async method, or an async function for it."""
    declared = getattr(evaluator, "is_async", None)
    if isinstance(declared, bool):
        return declared
    if inspect.iscoroutinefunction(getattr(type(evaluator), "evaluate_run", None)):
        return False
    owner = next((base for base in type(evaluator).__mro__ if "aevaluate_run" in vars(base)), object)
    return owner is not object and not owner.__module__.startswith(f"{PACKAGE}.")


def _scores(given: Any) -> list[Any]:
    if isinstance(given, Mapping) and "results" in given:
        given = given["results"]
    return [_score(result) for result in (given if isinstance(given, list | tuple) else [given])]


def _score(result: Any) -> Any:
    names = ("key", "score", "value", "comment", "metadata", *_MORE)
    fields = result if isinstance(result, Mapping) else {n: getattr(result, n) for n in names if hasattr(result, n)}
    if not fields:
        return result
    score, value = fields.get("score"), fields.get("value")
    metadata = dict(fields.get("metadata") or {}) | {name: fields[name] for name in _MORE if fields.get(name)}
    return Score(
        key=fields.get("key"),
        value=value if score is None else score,
        label=value if score is not None and isinstance(value, str) else None,
        comment=fields.get("comment"),
        metadata=metadata or None,
    )


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"evalflows:{text}")


def _example(view: ExampleView) -> Any:
    known = {"example_id": view.id, "split": view.split, "cluster": view.cluster}
    ids = {name: value for name, value in known.items() if value is not None}
    return import_module("langsmith.schemas").Example(
        id=_uuid(view.id), inputs=view.inputs, outputs=view.reference_outputs, metadata=ids | view.metadata
    )


def _run(view: RunView, example: ExampleView) -> Any:
    kind, start = import_module("langsmith.schemas").Run, view.started_at or datetime.fromtimestamp(0, tz=UTC)
    known = None not in (view.tokens_in, view.tokens_out)
    return kind(
        id=_uuid(view.id),
        name="Target",
        run_type="chain",
        inputs=view.inputs,
        outputs=view.outputs,
        error=view.error,
        status="success" if view.error is None else "error",
        start_time=start,
        end_time=_end(start, view.latency_s),
        reference_example_id=_uuid(example.id),
        extra={"metadata": {"run_id": view.id, "repetition": view.repetition}},
        child_runs=[_child(step, kind, view.id, start) for step in view.steps],
        prompt_tokens=view.tokens_in,
        completion_tokens=view.tokens_out,
        total_tokens=(view.tokens_in or 0) + (view.tokens_out or 0) if known else None,
        total_cost=view.cost_usd,
    )


def _child(step: Mapping[str, Any], kind: Any, run: str, began: datetime) -> Any:
    """Return a step as a child run; steps stay a flat list in order, with the parent's id on each."""
    start = datetime.fromisoformat(step["started_at"]) if step.get("started_at") else began
    return kind(
        id=_uuid(str(step.get("id") or run)),
        trace_id=_uuid(run),
        parent_run_id=_uuid(str(step.get("parent") or run)),
        name=str(step.get("name") or ""),
        run_type=str(step.get("kind") or "chain"),
        inputs=_fields(step.get("inputs"), "input") or {},
        outputs=_fields(step.get("outputs"), "output"),
        error=step.get("error"),
        start_time=start,
        end_time=_end(start, step.get("latency_s")),
    )


def _fields(value: Any, only: str) -> dict[str, Any] | None:
    return value if value is None or isinstance(value, dict) else {only: value}


def _end(start: datetime, latency_s: float | None) -> datetime | None:
    return None if latency_s is None else start + timedelta(seconds=latency_s)
