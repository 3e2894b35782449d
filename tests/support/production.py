"""Production in the store: traces with an input and an output, and scores of them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from evalflows.store.observations import split_attributes, write_observations
from evalflows.store.records import JudgementRow, derived_id
from evalflows.store.store import Store
from evalflows.store.trace_records import ObservationRow, evaluation_id

BEGAN = datetime(2026, 11, 1, 8, tzinfo=UTC)


def trace_id(name: str) -> str:
    """The id of a trace by a short name."""
    return derived_id(name)[:32]


def trace(
    name: str,
    input: Any = None,  # noqa: A002
    output: Any = None,
    *,
    minute: int = 0,
    began: datetime | None = None,
    session: str | None = None,
    version: str | None = None,
    **attributes: Any,
) -> ObservationRow:
    """One trace of one span, with the attributes of OpenInference. Values that are not text are JSON."""
    given = {
        "input.value": input,
        "output.value": output,
        "session.id": session,
        "service.version": version,
        **attributes,
    }
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items() if value is not None
    }
    short, contents = split_attributes(texts)
    began = began or BEGAN + timedelta(minutes=minute)
    return ObservationRow(
        trace_id=trace_id(name),
        span_id=trace_id(name)[:16],
        day=began.date().isoformat(),
        source="otlp",
        name="answer",
        started_at=began,
        ended_at=began + timedelta(seconds=1),
        attributes=short,
        contents=contents,
        resource=None if version is None else json.dumps({"service.version": version}),
    )


def score(
    name: str,
    metric: str,
    value: float | None,
    *,
    evaluation: str = "watch",
    evaluator: str | None = None,
    version: str = "v1",
    began: datetime = BEGAN,
    **fields: Any,
) -> JudgementRow:
    """A score of a trace by its short name, as a trace evaluation gives it."""
    judge = evaluator or metric
    identity = trace_id(name)
    return JudgementRow(
        judgement_id=derived_id("trace", identity, metric, judge, version),
        subject_kind="trace",
        subject_id=identity,
        subject_at=began,
        experiment_id=f"{evaluation_id(evaluation)}-{began.date().isoformat()}",
        metric=metric,
        value=value,
        status="scored" if value is not None else "failed",
        evaluator=judge,
        evaluator_version=version,
        **fields,
    )


def produce(store: Store, *traces: ObservationRow, scores: list[JudgementRow] | None = None) -> None:
    write_observations(store, traces, scores=scores or [])
