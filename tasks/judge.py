"""One judgement: an evaluator is called, and what becomes of it is fields of a score, whatever it does."""

import time
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any

from evaluators.score import Judgement, normalise
from llm import loop
from llm.recorder import Recorder, recording
from specs.errors import CallError, ErrorKind, describe
from specs.metric import MetricSpec
from store.records import to_json
from tasks.experiment import ReadyEvaluator

Fields = dict[str, Any]
"""Some of a ScoreRow's."""


async def judged(evaluator: ReadyEvaluator, offered: Mapping[str, Any], recorder: Recorder) -> list[Fields]:
    """Call an evaluator with what it is offered; one element a metric, with what the judgement cost."""
    began = time.perf_counter()
    with recording(recorder):
        outcomes = await _outcomes(evaluator, {**offered, "complete": _complete_for(evaluator)})
    return priced(outcomes, recorder, time.perf_counter() - began)


def priced(outcomes: list[Fields], recorder: Recorder, elapsed: float) -> list[Fields]:
    """What several metrics cost together stands at the first, so that sums are right."""
    models = sorted({completion.model for completion in recorder.completions})
    rows: list[Fields] = []
    for index, outcome in enumerate(outcomes):
        spent = recorder.totals() if index == 0 else {"cost_usd": 0.0}
        latency = elapsed if outcome["status"] in ("scored", "not_applicable") else None
        rows.append({"judge_model": ", ".join(models) or None, "latency_s": latency} | spent | outcome)
    return rows


def failed(evaluator: ReadyEvaluator, kind: ErrorKind, error: str) -> Fields:
    """No value, and an error: never a zero."""
    return {"metric": evaluator.bound.name, "status": "failed", "error_kind": kind, "error": error}


async def _outcomes(evaluator: ReadyEvaluator, offered: Mapping[str, Any]) -> list[Fields]:
    try:
        returned = evaluator.bound.call(offered)
        if evaluator.bound.is_async and isawaitable(returned):
            returned = await returned
    except CallError as error:
        return [failed(evaluator, error.kind, str(error)) | {"attempts": error.attempts}]
    except Exception as error:
        return [failed(evaluator, "raised", describe(error))]
    try:
        return [_scored(judgement, evaluator.metrics) for judgement in normalise(returned, evaluator.bound.name)]
    except Exception as error:  # also what a property of the user's object raises
        return [failed(evaluator, "bad_return", describe(error))]


def _scored(judgement: Judgement, metrics: Mapping[str, MetricSpec]) -> Fields:
    declared = metrics.get(judgement.metric)
    if declared and declared.range and judgement.value is not None:
        low, high = declared.range
        if not low <= judgement.value <= high:
            raise ValueError(f"{judgement.metric}: got {judgement.value:g}, wanted {low:g} to {high:g}")
    names = ("metric", "value", "label", "data_type", "comment", "config_id", "status")
    metadata = None if judgement.metadata is None else to_json(dict(judgement.metadata), mend=True)
    return {name: getattr(judgement, name) for name in names} | {"metadata": metadata}


def _complete_for(evaluator: ReadyEvaluator) -> Callable[..., Any] | None:
    """`complete` as it is for an async evaluator; for a plain one, a function that waits for the answer."""
    complete = evaluator.complete
    if complete is None or evaluator.bound.is_async:
        return complete
    return lambda *args, **kwargs: loop.run(complete(*args, **kwargs))
