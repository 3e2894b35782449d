"""One request in OTLP's JSON, as the Collector's file exporter writes it: what is invalid in it costs only itself."""

import re
from collections.abc import Iterator
from typing import Any

import orjson

from evalflows.specs.errors import InputError, short
from evalflows.telemetry.otlp import request_of, rows_of_logs, rows_of_traces
from evalflows.telemetry.parsed import Telemetry

SPANS, LOGS = "resourceSpans", "resourceLogs"
OTHERS = ("resourceMetrics", "resourceProfiles")
"""Requests that are about no trace."""
_HEXADECIMAL = re.compile(r"([\da-fA-F]{2})*")
_LEVELS = {SPANS: ("scopeSpans", "spans"), LOGS: ("scopeLogs", "logRecords")}


def rows_of_json(text: bytes) -> Telemetry:
    """Return the rows of a request of traces or logs. A span or log record that is invalid is rejected, in a line.

    Raise InputError if the text is no such request; one of metrics is ignored.
    """
    try:
        fields = orjson.loads(text)
    except ValueError as error:
        raise InputError(f"not JSON: {error}") from error
    return rows_of_fields(fields)


def rows_of_fields(fields: Any) -> Telemetry:
    """Return the rows of a request whose JSON is parsed, as `rows_of_json`."""
    if not isinstance(fields, dict):
        raise InputError(f"not OTLP: got {type(fields).__name__}, wanted an object with {SPANS} or {LOGS}")
    kinds = [kind for kind in (SPANS, LOGS) if kind in fields]
    if not kinds and not any(kind in fields for kind in OTHERS):
        got = ", ".join(list(fields)[:5]) or "an empty object"
        raise InputError(f"not OTLP: got {short(got)}, wanted an object with {SPANS} or {LOGS}")
    if not kinds:
        return Telemetry(ignored=1)
    return merged([_of_kind({kind: fields[kind]}, kind) for kind in kinds])


def merged(parts: list[Telemetry]) -> Telemetry:
    """Return several as one."""
    return Telemetry(
        observations=[row for part in parts for row in part.observations],
        scores=[row for part in parts for row in part.scores],
        labels=[row for part in parts for row in part.labels],
        rejected=[line for part in parts for line in part.rejected],
        ignored=sum(part.ignored for part in parts),
    )


def _of_kind(fields: dict[str, Any], kind: str) -> Telemetry:
    rows_of = rows_of_traces if kind == SPANS else rows_of_logs
    try:
        return rows_of(request_of(fields))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return merged([_alone(one, item, kind) for one, item in _split(fields, kind)])


def _alone(fields: dict[str, Any], item: Any, kind: str) -> Telemetry:
    """Return the rows of a request with a single span or log record, which is rejected if it is invalid."""
    what = "span" if kind == SPANS else "log record"
    name = item.get("name", item.get("eventName")) if isinstance(item, dict) else item
    if isinstance(item, dict) and (problem := _id_problem(item)):
        return Telemetry(rejected=[f"{what} {short(name)}: {problem}"])
    try:
        return (rows_of_traces if kind == SPANS else rows_of_logs)(request_of(fields))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Telemetry(rejected=[" ".join(f"{what} {short(name)}: {error}".split())])


def _id_problem(item: dict[str, Any]) -> str | None:
    """Return why an id cannot be read; those that can are checked with the others."""
    for field, name in (("traceId", "trace id"), ("spanId", "span id"), ("parentSpanId", "parent id")):
        if (value := item.get(field)) is not None and not (isinstance(value, str) and _HEXADECIMAL.fullmatch(value)):
            return f"got {short(value)} as {name}, wanted hexadecimal digits"
    return None


def _split(fields: dict[str, Any], kind: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield a request for each span or log record, and the item. Raise InputError where the request has another form.

    Resources and scopes that are invalid themselves are left out: they only describe their spans.
    """
    scopes, items = _LEVELS[kind]
    for resource in _objects(fields[kind], kind):
        for scope in _objects(resource.get(scopes), scopes):
            for item in _listed(scope.get(items), items):
                single = {**_valid(scope, "scope"), items: [item]}
                yield {kind: [{**_valid(resource, "resource"), scopes: [single]}]}, item


def _valid(group: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the description of a group of spans, if there is a valid one."""
    if not isinstance(group.get(name), dict):
        return {}
    described = {name: group[name]}
    probe = described if name == "resource" else {"scopeSpans": [described]}
    try:
        request_of({SPANS: [probe]})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return described


def _objects(value: Any, name: str) -> Iterator[dict[str, Any]]:
    for item in _listed(value, name):
        if not isinstance(item, dict):
            raise InputError(f"not OTLP: {name}: got {type(item).__name__}, wanted an object")
        yield item


def _listed(value: Any, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError(f"not OTLP: {name}: got {type(value).__name__}, wanted a list")
    return value
