"""Feedback that came with production: scores from evaluators and labels from people, of what they are about.

It is about what it points at, never about its carrier. A span that links to others carries feedback on these; a span
of an evaluator carries feedback on its parent; any other span, and a log record's span, is itself what was judged.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Literal

from evalflows.specs.frozen import dataclass
from evalflows.specs.metrics import MAX_NUMBER
from evalflows.store.observations import feedback_owner
from evalflows.store.records import DataType, Json, JudgementRow, LabelRow, derived_id, to_json
from evalflows.store.trace_records import ObservationRow, TraceSource
from evalflows.telemetry.conventions import Fields, from_text
from evalflows.telemetry.conventions import parsed as parsed_json

RESULT = "gen_ai.evaluation.result"
"""The event, of a span or a log record, with the result of one evaluation."""
PERSON = "HUMAN"
_GENAI = "gen_ai.evaluation."
_ITEM = re.compile(r"(?:(trace|session)\.)?(?:annotations|evaluations)\.(\d+)\.(?:annotation|evaluation)\.(\w+)")
"""An attribute of OpenInference: of the span, its trace or its session; the place in the list; the field."""
_MARKS = (RESULT, "annotations.", "evaluations.")

Result = tuple[str | None, dict[str, Any], datetime]
"""What feedback is about of OpenInference's scopes (trace, session; None: the span), its fields, and its time."""


@dataclass(slots=True, kw_only=True)
class Telemetry:
    """The rows of one request, or of one record of a file."""

    observations: list[ObservationRow] = field(default_factory=list)
    scores: list[JudgementRow] = field(default_factory=list)  # from evaluators
    labels: list[LabelRow] = field(default_factory=list)  # from people
    rejected: list[str] = field(default_factory=list)  # one line per span or log record that is invalid
    untraced: list[Mapping[str, Any]] = field(default_factory=list)  # feedback that names a run, and not its trace
    ignored: int = 0  # log records that are about no trace, or no GenAI events; feedback that points at nothing

    @property
    def n_rows(self) -> int:
        return len(self.observations) + len(self.scores) + len(self.labels)


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


def _score(feedback: Feedback) -> JudgementRow:
    kind, subject = feedback.subject
    value, label, data_type = _values(feedback)
    is_empty = value is None and label is None
    error = feedback.error or (f"got {feedback.value}, wanted a finite number" if _is_unusable(feedback) else None)
    return JudgementRow(
        judgement_id=_id(feedback),
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
    """Return whether the value is a number that is not finite, or too large; also as text: JSON has no NaN."""
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


def add_results_of_span(parsed: Telemetry, row: ObservationRow) -> None:
    """Add the feedback that a span carries. Feedback that points at nothing is counted as ignored."""
    if not any(mark in text for mark in _MARKS for text in (row.attributes, row.contents or "", row.events or "")):
        return
    fields = Fields.of(row)
    targets = _targets(row, fields)
    for scope, result, at in [*_of_events(row), *_of_attributes(row, fields.attributes)]:
        subjects = _subjects(scope, targets, fields)
        parsed.ignored += not subjects
        for subject in subjects:
            add_feedback(parsed, _feedback(result, subject, at, row.scope))


def add_results_of_record(
    parsed: Telemetry, attributes: Mapping[str, Any], ids: tuple[str, str | None], at: datetime, scope: str | None
) -> None:
    """Add the feedback of a log record on its span, or on its trace if it names no span."""
    trace_id, span_id = ids
    subject = of_observation(trace_id, span_id) if span_id else of_trace(trace_id)
    add_feedback(parsed, _feedback(_of_genai(attributes), subject, at, scope))


def _targets(row: ObservationRow, fields: Fields) -> list[tuple[str, str | None]]:
    """Return the trace and span that a span's feedback is about; None in place of a root span, which is its trace."""
    links = [(link["trace_id"], link["span_id"]) for link in from_text(row.links) or ()]
    if valid := [(trace, span) for trace, span in links if len(trace) == 32]:
        return [(trace, span if len(span) == 16 and span.strip("0") else None) for trace, span in valid]
    if fields.type() == "evaluator":
        return [(row.trace_id, row.parent_id)] if row.parent_id else []
    return [(row.trace_id, row.span_id if row.parent_id else None)]


def _subjects(scope: str | None, targets: list[tuple[str, str | None]], fields: Fields) -> list[Subject]:
    if scope == "session":
        session = fields.text("session_id")
        return [("session", session)] if session else []
    if scope == "trace":
        return [of_trace(trace) for trace in dict.fromkeys(trace for trace, _ in targets)]
    return [of_observation(trace, span) if span else of_trace(trace) for trace, span in targets]


def _of_events(row: ObservationRow) -> Iterator[Result]:
    for event in from_text(row.events) or ():
        if event["name"] == RESULT:
            at = datetime.fromisoformat(event["at"]) if event.get("at") else row.started_at
            yield None, _of_genai(event.get("attributes") or {}), at


def _of_genai(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event under the names of OpenInference."""
    fields = {
        "name": attributes.get(f"{_GENAI}name"),
        "score": attributes.get(f"{_GENAI}score.value"),
        "label": attributes.get(f"{_GENAI}score.label"),
        "explanation": attributes.get(f"{_GENAI}explanation"),
        "error": attributes.get("error.type"),
        "version": attributes.get(f"{_GENAI}evaluator.version"),
        "metadata": dict(attributes),
    }
    kinds = [value for name, value in attributes.items() if name.endswith("annotator_kind")]
    return fields | ({"annotator_kind": kinds[0]} if kinds else {})


def _of_attributes(row: ObservationRow, attributes: Mapping[str, Any]) -> Iterator[Result]:
    items: dict[tuple[str | None, str, str], dict[str, Any]] = {}
    for name, value in attributes.items():
        if found := _ITEM.fullmatch(name):
            family = "annotations" if "annotations." in name else "evaluations"
            items.setdefault((found[1], family, found[2]), {})[found[3]] = value
    seen: list[tuple[str | None, dict[str, Any]]] = []
    for (scope, _, _), fields in items.items():
        if (scope, fields) not in seen:  # both forms may carry the same result
            seen.append((scope, fields))
            yield scope, fields, row.started_at


def _feedback(fields: Mapping[str, Any], subject: Subject, at: datetime, scope: str | None) -> Feedback:
    metadata = parsed_json(fields.get("metadata"))
    is_person = fields.get("annotator_kind") == PERSON
    identifier = fields.get("identifier")
    failure = fields.get("error")
    return Feedback(
        source="otlp",
        subject=subject,
        metric=str(fields.get("name") or "evaluation"),
        value=fields.get("score"),
        label=fields.get("label"),
        comment=fields.get("explanation"),
        error=": ".join(str(text) for text in (failure, fields.get("explanation")) if text) if failure else None,
        evaluator=scope or "otlp",
        version=str(fields.get("version") or "otlp"),
        by_person=is_person,
        labeller=str(identifier) if is_person and identifier is not None else None,
        identity=identifier,
        at=at,
        metadata=metadata if isinstance(metadata, dict) else {},
    )
