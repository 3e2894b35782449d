"""LangSmith's exports: runs, as its client lists them and its bulk export writes them, and feedback on runs."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from evalflows.specs.errors import InputError, short
from evalflows.store.observations import day_of, split_attributes
from evalflows.store.trace_records import ObservationRow
from evalflows.telemetry.conventions.openai_messages import parsed as parsed_json
from evalflows.telemetry.exports.identity import moment_of, span_id_of, trace_id_of
from evalflows.telemetry.feedback import Feedback, Subject, add_feedback, of_observation, of_trace
from evalflows.telemetry.parsed import Telemetry

SOURCE: Final = "langsmith"
IN_COLUMNS = ("name", "start_time", "end_time", "error", "child_runs")
"""Fields of a run that are columns of the store, or have records of their own."""
PEOPLE = ("app",)
"""Sources of feedback that are people: annotations in LangSmith's UI."""
_UUID = re.compile(r"[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}$")


def is_langsmith(record: Mapping[str, Any]) -> bool:
    """Whether a record has the fields that LangSmith's runs and feedback have."""
    return _is_run(record) or _is_feedback(record)


def _is_run(record: Mapping[str, Any]) -> bool:
    return "id" in record and "run_type" in record and "start_time" in record


def _is_feedback(record: Mapping[str, Any]) -> bool:
    return "key" in record and "run_id" in record and ("score" in record or "value" in record)


def telemetry_of(record: Any) -> Telemetry:
    """Return the rows of a record. Raise InputError if it is none of LangSmith's."""
    parsed = Telemetry()
    if not isinstance(record, dict):
        raise InputError(f"got {type(record).__name__}, wanted a run or feedback of LangSmith")
    if _is_run(record):
        _add_run(parsed, record)
    elif _is_feedback(record):
        _add_feedback(parsed, record)
    else:
        got = ", ".join(list(record)[:5])
        raise InputError(f"got {got or 'an empty object'}, wanted a run or feedback of LangSmith")
    return parsed


def _add_run(parsed: Telemetry, run: Mapping[str, Any]) -> None:
    row = _observation(run)
    parsed.observations.append(row)
    all_stats = parsed_json(run.get("feedback_stats"))
    for key, stats in all_stats.items() if isinstance(all_stats, dict) else ():
        if isinstance(stats, dict):
            _add_stats(parsed, row, str(key), stats)
    for child in run.get("child_runs") or ():
        if isinstance(child, dict) and _is_run(child):
            try:
                _add_run(parsed, {"trace_id": run.get("trace_id") or run["id"], "parent_run_id": run["id"]} | child)
            except InputError as error:
                parsed.rejected.append(f"run {child.get('id')}: {error}")


def _observation(run: Mapping[str, Any]) -> ObservationRow:
    started_at = moment_of(run["start_time"], "start_time")
    if started_at is None or not run["id"]:
        raise InputError(f"run {short(run['id'])}: got no {'id' if started_at else 'start_time'}, wanted one")
    parent, error = _parent(run), run.get("error")
    kept = {name: value for name, value in run.items() if value is not None and name not in IN_COLUMNS}
    attributes, contents = split_attributes(kept)
    return ObservationRow(
        trace_id=trace_id_of(SOURCE, _trace(run)),
        span_id=span_id_of(SOURCE, run["id"]),
        parent_id=span_id_of(SOURCE, parent) if parent else None,
        day=day_of(started_at),
        source=SOURCE,
        name=str(run.get("name") or run["run_type"]),
        started_at=started_at,
        ended_at=moment_of(run.get("end_time"), "end_time"),
        status="error"
        if error or run.get("status") == "error"
        else "ok"
        if run.get("status") == "success"
        else "unset",
        status_message=str(error) if error else None,
        attributes=attributes,
        contents=contents,
    )


def _order(run: Mapping[str, Any]) -> list[str]:
    """Return the ids of a run and of those above it, the root's first, of its `dotted_order`."""
    parts = str(run.get("dotted_order") or "").split(".")
    return [found[0] for part in parts if (found := _UUID.search(part))]


def _trace(run: Mapping[str, Any]) -> Any:
    order = _order(run)
    return run.get("trace_id") or (order[0] if order else None) or run["id"]


def _parent(run: Mapping[str, Any]) -> Any:
    if parent := run.get("parent_run_id"):
        return parent
    above = parsed_json(run.get("parent_run_ids"))
    if isinstance(above, list) and above:
        return above[-1]
    order = _order(run)
    return order[-2] if len(order) > 1 else None


def _subject(trace: Any, run: Any) -> Subject:
    identity = trace_id_of(SOURCE, trace)
    return of_trace(identity) if str(run) == str(trace) else of_observation(identity, span_id_of(SOURCE, run))


def _add_stats(parsed: Telemetry, row: ObservationRow, key: str, stats: Mapping[str, Any]) -> None:
    """Add the mean of a run's feedback, which is all that an export of runs has of it."""
    subject = of_observation(row.trace_id, row.span_id) if row.parent_id else of_trace(row.trace_id)
    values = stats.get("values")
    label = next(iter(values)) if isinstance(values, dict) and len(values) == 1 else None
    if stats.get("avg") is None and label is None:
        parsed.ignored += 1
        return
    add_feedback(
        parsed,
        Feedback(
            source=SOURCE,
            subject=subject,
            metric=key,
            value=stats.get("avg"),
            label=label,
            evaluator=SOURCE,
            version="feedback_stats",
            identity=key,
            at=row.started_at,
            metadata=dict(stats),
        ),
    )


def _add_feedback(parsed: Telemetry, feedback: Mapping[str, Any]) -> None:
    run, trace = feedback.get("run_id"), feedback.get("trace_id")
    if not run or not trace:
        if not run:
            parsed.ignored += 1  # of a whole project
            return
        raise InputError(f"feedback {short(feedback['key'])}: got no trace_id, wanted that of its run")
    giver = parsed_json(feedback.get("feedback_source"))
    giver = giver if isinstance(giver, dict) else {"type": giver}
    by_person = giver.get("type") in PEOPLE
    labeller = giver.get("user_name") or giver.get("user_id")
    score, value = feedback.get("score"), feedback.get("value")
    kept = {name: item for name, item in feedback.items() if name not in ("key", "score", "value", "comment")}
    add_feedback(
        parsed,
        Feedback(
            source=SOURCE,
            subject=_subject(trace, run),
            metric=str(feedback["key"]),
            value=score if score is not None or isinstance(value, str | dict) else value,
            label=value if isinstance(value, str | dict) else None,
            comment=feedback.get("comment"),
            evaluator=SOURCE,
            version=str(giver.get("type") or "api"),
            by_person=by_person,
            labeller=str(labeller) if labeller else None,
            identity=feedback.get("id"),
            at=_given_at(feedback),
            metadata=kept,
        ),
    )


def _given_at(feedback: Mapping[str, Any]) -> datetime:
    for name in ("created_at", "modified_at", "start_time"):
        if (moment := moment_of(feedback.get(name), name)) is not None:
            return moment
    raise InputError(f"feedback {short(feedback['key'])}: got no created_at, wanted a time")
