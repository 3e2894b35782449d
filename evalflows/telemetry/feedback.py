"""Feedback in OpenTelemetry's data: `gen_ai.evaluation.result`, and OpenInference's annotations and evaluations.

It is about what it points at, never about its carrier. A span that links to others carries feedback on these; a span
of an evaluator carries feedback on its parent; any other span, and a log record's span, is itself what was judged.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from evalflows.store.trace_records import ObservationRow
from evalflows.telemetry.conventions.openai_messages import parsed as parsed_json
from evalflows.telemetry.feedback import Feedback, Subject, add_feedback, of_observation, of_trace
from evalflows.telemetry.fields import Fields, from_text
from evalflows.telemetry.parsed import Telemetry

RESULT = "gen_ai.evaluation.result"
"""The event, of a span or a log record, with the result of one evaluation."""
PERSON = "HUMAN"
_GENAI = "gen_ai.evaluation."
_ITEM = re.compile(r"(?:(trace|session)\.)?(?:annotations|evaluations)\.(\d+)\.(?:annotation|evaluation)\.(\w+)")
"""An attribute of OpenInference: of the span, its trace or its session; the place in the list; the field."""
_MARKS = (RESULT, "annotations.", "evaluations.")

Result = tuple[str | None, dict[str, Any], datetime]
"""What feedback is about of OpenInference's scopes (trace, session; None: the span), its fields, and its time."""


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
        error=": ".join(str(part) for part in (failure, fields.get("explanation")) if part) if failure else None,
        evaluator=scope or "otlp",
        version=str(fields.get("version") or "otlp"),
        by_person=is_person,
        labeller=str(identifier) if is_person and identifier is not None else None,
        identity=identifier,
        at=at,
        metadata=metadata if isinstance(metadata, dict) else {},
    )
