"""Feedback on production that came with it: scores from evaluators and labels from people, of what they are about."""

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from evalflows.specs.metric import MAX_NUMBER
from evalflows.store.observations import feedback_owner
from evalflows.store.records import DataType, Json, LabelRow, ScoreRow, derived_id, to_json
from evalflows.store.trace_records import TraceSource
from evalflows.telemetry.parsed import Telemetry

Subject = tuple[Literal["trace", "observation", "session"], str]
"""What feedback is about: its kind, and its id; that of an observation begins with its trace's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """One piece of feedback, from an evaluator or, if `by_person`, from a person."""

    source: TraceSource
    subject: Subject
    metric: str
    value: Any = None
    label: Any = None
    comment: Any = None
    error: str | None = None  # why an evaluator gave no value
    evaluator: str
    version: str
    by_person: bool = False
    labeller: str | None = None
    identity: Any = None  # of its own, where it was given one
    at: datetime
    metadata: dict[str, Any] = field(default_factory=dict)


def of_trace(trace_id: str) -> Subject:
    return "trace", trace_id


def of_observation(trace_id: str, span_id: str) -> Subject:
    return "observation", f"{trace_id}/{span_id}"


def add_feedback(parsed: Telemetry, feedback: Feedback) -> None:
    """Add feedback as a score or, from a person, as a label. Both belong to the day on which it was given."""
    if feedback.by_person:
        parsed.labels.append(_label(feedback))
    else:
        parsed.scores.append(_score(feedback))


def _score(feedback: Feedback) -> ScoreRow:
    kind, subject = feedback.subject
    value, label, data_type = _values(feedback)
    is_empty = value is None and label is None
    error = feedback.error or (f"got {feedback.value}, wanted a finite number" if _is_unusable(feedback) else None)
    return ScoreRow(
        score_id=_id(feedback),
        subject_kind=kind,
        subject_id=subject,
        experiment_id=feedback_owner(feedback.at),
        metric=feedback.metric,
        value=value,
        label=label,
        data_type=data_type,
        comment=_text(feedback.comment),
        status=("failed" if error else "not_applicable") if is_empty else "scored",
        error=error if is_empty else None,
        evaluator=feedback.evaluator,
        evaluator_version=feedback.version,
        metadata=_json(feedback.metadata),
    )


def _label(feedback: Feedback) -> LabelRow:
    kind, subject = feedback.subject
    value, label, data_type = _values(feedback)
    return LabelRow(
        label_id=_id(feedback),
        batch_id=feedback_owner(feedback.at),
        subject_kind=kind,
        subject_id=subject,
        metric=feedback.metric,
        value=value,
        label=label,
        data_type=data_type,
        labeller=feedback.labeller,
        comment=_text(feedback.comment),
        source=feedback.source,
        metadata=_json(feedback.metadata),
        labelled_at=feedback.at,
    )


def _id(feedback: Feedback) -> str:
    """Return an id that is the same each time the feedback is read."""
    identity = feedback.at.isoformat() if feedback.identity is None else str(feedback.identity)
    giver = feedback.labeller if feedback.by_person else f"{feedback.evaluator} {feedback.version}"
    return derived_id("feedback", *feedback.subject, feedback.metric, giver, identity)


def _values(feedback: Feedback) -> tuple[float | None, str | None, DataType | None]:
    """Return the value, the label and their type. A number that is not finite is none."""
    value, label = feedback.value, _text(feedback.label)
    if isinstance(value, str):
        value, label = None, label or (None if _is_unusable(feedback) else value)
    if isinstance(value, bool):
        return float(value), label, "BOOLEAN"
    number = _number(value)
    if number is None:
        return None, label, None if label is None else "CATEGORICAL"
    return number, label, "NUMERIC"


def _is_unusable(feedback: Feedback) -> bool:
    """Whether the value is a number that is not finite, or far too large; also as text, since JSON has no NaN."""
    try:
        return not (math.isfinite(number := float(feedback.value)) and abs(number) <= MAX_NUMBER)
    except (TypeError, ValueError):
        return False


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and abs(number) <= MAX_NUMBER else None


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else to_json(value, mend=True)


def _json(metadata: dict[str, Any]) -> Json | None:
    kept = {name: value for name, value in metadata.items() if value is not None}
    try:
        return to_json(kept, mend=True) if kept else None
    except ValueError:  # NaN, which metadata that is JSON text may contain
        return to_json({name: str(value) for name, value in kept.items()}, mend=True)
