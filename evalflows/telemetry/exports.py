"""Langfuse's exports: traces, observations and scores, of its API, its UI and its blob storage.

Their fields are named in one of two ways (`traceId`, `trace_id`) and are kept as they came. A trace is stored as an
observation of its own, the root of those that have no parent.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from evalflows.specs.errors import InputError
from evalflows.store.observations import day_of, split_attributes
from evalflows.store.records import derived_id
from evalflows.store.trace_records import ObservationRow
from evalflows.telemetry.conventions.openai_messages import parsed as parsed_json
from evalflows.telemetry.exports.identity import ended_at_of, moment_of, span_id_of, trace_id_of
from evalflows.telemetry.feedback import Feedback, Subject, add_feedback, of_observation, of_trace
from evalflows.telemetry.parsed import Telemetry

SOURCE: Final = "langfuse"
PARTS = ("observations", "scores")
"""Fields of a trace that have records of their own; in a list of traces, only their ids."""
IN_COLUMNS = ("name", "startTime", "start_time", "endTime", "end_time", "timestamp")
"""Fields that are columns of the store."""
PERSON = "ANNOTATION"


def is_langfuse(record: Mapping[str, Any]) -> bool:
    """Whether a record has the fields that Langfuse's records have."""
    return _is_score(record) or _is_observation(record) or _is_trace(record)


def _is_score(record: Mapping[str, Any]) -> bool:
    of_subject = any(_field(record, name) for name in ("traceId", "sessionId", "observationId", "datasetRunId"))
    return of_subject and "name" in record and "source" in record and ("value" in record or _has(record, "stringValue"))


def _is_observation(record: Mapping[str, Any]) -> bool:
    return _has(record, "traceId") and _has(record, "startTime") and "type" in record


def _is_trace(record: Mapping[str, Any]) -> bool:
    marks = ("projectId", "sessionId", "userId", "bookmarked", "observations", "release")
    return "id" in record and "timestamp" in record and any(_has(record, mark) for mark in marks)


def telemetry_of(record: Any) -> Telemetry:
    """Return the rows of a record. Raise InputError if it is none of Langfuse's."""
    parsed = Telemetry()
    if not isinstance(record, dict):
        raise InputError(f"got {type(record).__name__}, wanted a trace, an observation or a score of Langfuse")
    if _is_score(record):
        _add_score(parsed, record)
    elif _is_observation(record):
        parsed.observations.append(_observation(record))
    elif _is_trace(record):
        _add_trace(parsed, record)
    else:
        got = ", ".join(list(record)[:5])
        raise InputError(f"got {got or 'an empty object'}, wanted a trace, an observation or a score of Langfuse")
    return parsed


def _add_trace(parsed: Telemetry, trace: Mapping[str, Any]) -> None:
    parsed.observations.append(_root(trace))
    for name, add in (("observations", _add_observation), ("scores", _add_score)):
        parts = parsed_json(trace.get(name))
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                whole = {"traceId": trace["id"]} | part
                try:
                    add(parsed, whole)
                except InputError as error:
                    parsed.rejected.append(f"{name.removesuffix('s')} {part.get('id')}: {error}")


def _add_observation(parsed: Telemetry, observation: Mapping[str, Any]) -> None:
    parsed.observations.append(_observation(observation))


def _root(trace: Mapping[str, Any]) -> ObservationRow:
    """Return the row of a trace itself."""
    started_at = _moment(trace, "timestamp")
    attributes, contents = _attributes({name: value for name, value in trace.items() if name not in PARTS})
    return ObservationRow(
        trace_id=trace_id_of(SOURCE, trace["id"]),
        span_id=_root_id(trace["id"]),
        day=day_of(started_at),
        source=SOURCE,
        name=str(trace.get("name") or "trace"),
        started_at=started_at,
        ended_at=ended_at_of(started_at, None, trace.get("latency")),
        attributes=attributes,
        contents=contents,
    )


def _observation(record: Mapping[str, Any]) -> ObservationRow:
    identity, trace = _field(record, "id"), _field(record, "traceId")
    if not identity or not trace:
        raise InputError(f"got no {'id' if trace else 'traceId'}, wanted that of the observation")
    started_at = _moment(record, "startTime")
    parent = _field(record, "parentObservationId")
    attributes, contents = _attributes(record)
    return ObservationRow(
        trace_id=trace_id_of(SOURCE, trace),
        span_id=span_id_of(SOURCE, identity),
        parent_id=span_id_of(SOURCE, parent) if parent else _root_id(trace),
        day=day_of(started_at),
        source=SOURCE,
        name=str(record.get("name") or record["type"]),
        started_at=started_at,
        ended_at=ended_at_of(started_at, moment_of(_field(record, "endTime"), "endTime"), record.get("latency")),
        status="error" if record.get("level") == "ERROR" else "unset",
        status_message=_field(record, "statusMessage") or None,
        attributes=attributes,
        contents=contents,
    )


def _root_id(trace: Any) -> str:
    return derived_id(SOURCE, "root", str(trace))[:16]


def _attributes(record: Mapping[str, Any]) -> tuple[str, str | None]:
    kept = {name: value for name, value in record.items() if value is not None and name not in IN_COLUMNS}
    return split_attributes(kept)


def _add_score(parsed: Telemetry, score: Mapping[str, Any]) -> None:
    trace, session, observation = (_field(score, name) for name in ("traceId", "sessionId", "observationId"))
    if not trace and not session:
        parsed.ignored += 1  # of a dataset's run
        return
    subject: Subject = ("session", str(session))
    if trace:
        identity = trace_id_of(SOURCE, trace)
        subject = of_observation(identity, span_id_of(SOURCE, observation)) if observation else of_trace(identity)
    author = _field(score, "authorUserId")
    kept = {name: value for name, value in score.items() if name not in ("name", "value", "comment", "metadata")}
    parsed_metadata = parsed_json(score.get("metadata"))
    add_feedback(
        parsed,
        Feedback(
            source=SOURCE,
            subject=subject,
            metric=str(score["name"]),
            value=_score_value(score),
            label=_field(score, "stringValue"),
            comment=score.get("comment"),
            evaluator=SOURCE,
            version=str(score["source"]),
            by_person=score["source"] == PERSON,
            labeller=str(author) if author else None,
            identity=score.get("id"),
            at=_moment(score, "timestamp", "createdAt", "updatedAt"),
            metadata=kept | (parsed_metadata if isinstance(parsed_metadata, dict) else {}),
        ),
    )


def _score_value(score: Mapping[str, Any]) -> Any:
    """Return the value as what it is: of a yes or no, Langfuse exports 1 or 0; a category's number is its label's."""
    kind, value = _field(score, "dataType"), score.get("value")
    if kind == "BOOLEAN" and value is not None:
        return str(value).lower() in ("1", "1.0", "true")
    if kind in ("CATEGORICAL", "TEXT", "CORRECTION") and _field(score, "stringValue"):
        return None
    return _as_number(value) if kind == "NUMERIC" else value


def _as_number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _moment(record: Mapping[str, Any], *names: str) -> datetime:
    for name in names:
        if (moment := moment_of(_field(record, name), name)) is not None:
            return moment
    raise InputError(f"got no {names[0]}, wanted a time")


def _field(record: Mapping[str, Any], name: str) -> Any:
    """Return a field under its name in camel case or with underscores."""
    value = record.get(name)
    return record.get(_underscored(name)) if value is None else value


def _has(record: Mapping[str, Any], name: str) -> bool:
    return name in record or _underscored(name) in record


def _underscored(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
