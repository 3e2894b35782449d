"""Traces and logs of OpenTelemetry's protocol (OTLP), as protobuf or JSON, as rows: every valid span, whatever else is
in the request. Its elements are counted before it is parsed: an empty span takes two bytes of a request, almost none
after compression, and some hundred bytes of memory once it is an object.

Requests are protobuf messages, or those that `parse_json` returns. (protobuf's own JSON parser must not be used: it
reads OTLP's hexadecimal ids as base64, without an error.)
"""

import base64
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import orjson

from evalflows.specs.errors import InputError, describe, short
from evalflows.store.observations import EPOCH, day_of, split_attributes
from evalflows.store.records import Json, derived_id, to_json
from evalflows.store.trace_records import ObservationRow, SpanStatus
from evalflows.telemetry.feedback import RESULT, Telemetry, add_results_of_record, add_results_of_span

Attributes = dict[str, Any]

_VALUES = ("string_value", "int_value", "bool_value", "double_value", "array_value", "kvlist_value", "bytes_value")

KINDS = (None, "internal", "server", "client", "producer", "consumer")
STATUSES: tuple[SpanStatus, ...] = ("unset", "ok", "error")
LATEST_NS = 2**63 - 1
"""The year 2262; what claims to be later is set back to it."""
THIS_CENTURY_NS = 946_684_800 * 10**9
GENAI = "gen_ai."
"""How the names of events about model calls begin; other log records are ignored."""
BODY = "body"
"""The attribute under which a log record's body is stored."""
OF_NO_SPAN = b"1" * 8
"""The id of a span in place of that of a result that is about a whole trace."""
MOST_REPEATED = 64 << 20
"""Characters of resources and scopes of a request as rows have them: each row those of its own."""
TIME = "time_unix_nano"
"""The attribute with a log record's time in ns: records of one model call often share a microsecond."""

IDS = ("traceId", "spanId", "parentSpanId")
ENUMS = {
    "SPAN_KIND_": ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"),
    "STATUS_CODE_": ("UNSET", "OK", "ERROR"),
}
"""How protobuf names the values of `kind` and `code`, in the order of their numbers."""

SPANS, LOGS = "resourceSpans", "resourceLogs"
OTHERS = ("resourceMetrics", "resourceProfiles")
"""Requests that are about no trace."""
IN_SNAKE_CASE = ("resource_spans", "resource_logs", "resource_metrics", "resource_profiles")
_HEXADECIMAL = re.compile(r"([\da-fA-F]{2})*")
_LEVELS = {SPANS: ("scopeSpans", "spans"), LOGS: ("scopeLogs", "logRecords")}

MOST_ELEMENTS = 500_000
"""Elements of all lists of a request: resources, scopes, spans, log records, events, links, attributes and values. As
objects they take some 200 MB."""
MOST_FIELDS = 8 * MOST_ELEMENTS
"""Fields of a request in protobuf, or texts of one in JSON, which take a second to count."""
SMALLEST = 2
"""Bytes of an element."""

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)

_TAGS = bytes(byte for byte in range(256) if byte & 7 == 2)
"""What the tag of a field with a length, which each element is, begins with. Texts have such bytes, too."""


def attributes_of(pairs: Iterable[Any]) -> Attributes:
    """Return key-value pairs as a dictionary; of two pairs with the same key, the last counts."""
    return {pair.key: value_of(pair.value) for pair in pairs}


def value_of(value: Any) -> Any:
    """Return a value as JSON: bytes as base64 text, numbers that JSON lacks as text (NaN), no value as None."""
    if value is None:
        return None
    kind = value.WhichOneof("value") if hasattr(value, "WhichOneof") else _kind(value)
    match kind:
        case "string_value" | "int_value" | "bool_value":
            return getattr(value, kind)
        case "double_value":
            return value.double_value if math.isfinite(value.double_value) else str(value.double_value)
        case "array_value":
            return [value_of(item) for item in value.array_value.values]
        case "kvlist_value":
            return attributes_of(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
    return None


def _kind(value: Any) -> str | None:
    """Return the field of a message of opentelemetry-proto-json that is set."""
    return next((name for name in _VALUES if getattr(value, name) is not None), None)


def parse_json(text: bytes) -> Any:
    """Return a request in OTLP's JSON, of traces or of logs, with the fields of the protobuf message.

    Raise InputError, in one line, if it is neither.
    """
    try:
        return request_of(orjson.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"not OTLP in JSON: {describe(error)}") from error


def request_of(fields: dict[str, Any]) -> Any:
    """Return a request of traces or of logs from its fields in OTLP's JSON.

    Raise ValueError or TypeError if they are invalid.
    """
    # late: the package takes 40 ms to import
    from opentelemetry.proto_json.collector.logs.v1.logs_service import ExportLogsServiceRequest
    from opentelemetry.proto_json.collector.trace.v1.trace_service import ExportTraceServiceRequest

    message = ExportLogsServiceRequest if "resourceLogs" in fields else ExportTraceServiceRequest
    try:
        return message.from_dict(fields)
    except (ValueError, TypeError, AttributeError):
        return message.from_dict(respelled(fields))


def respelled(value: Any, name: str = "") -> Any:
    """Return a request that protobuf's own JSON, or a console, wrote, in OTLP's JSON.

    They name fields in snake_case and values of enums by text; ids are base64 text or begin with `0x`.
    """
    if isinstance(value, dict):
        names = {key: re.sub(r"_([a-z])", lambda letter: letter[1].upper(), key) for key in value}
        return {names[key]: respelled(item, names[key]) for key, item in value.items()}
    if isinstance(value, list):
        return [respelled(item) for item in value]
    if not isinstance(value, str):
        return value
    if name in IDS:
        return hexadecimal(value)
    if name == "severityNumber":
        return 0  # is read nowhere
    for prefix, values in ENUMS.items():
        if name in ("kind", "code") and value.removeprefix(prefix) in values:
            return values.index(value.removeprefix(prefix))
    return value


def hexadecimal(identity: str) -> str:
    """Return an id of 16 or 8 bytes as hexadecimal digits if it is base64 or begins with `0x`, else as it is."""
    if re.fullmatch(r"[A-Za-z\d+/]{22}==|[A-Za-z\d+/]{11}=", identity):
        return base64.b64decode(identity).hex()
    return identity.removeprefix("0x")


def rows_of_traces(request: Any) -> Telemetry:
    """Return the observations of an ExportTraceServiceRequest. Spans with invalid ids are rejected, each in a line."""
    parsed = Telemetry()
    for span, resource, scope in _spans(request):
        if problem := _id_problem(span.trace_id, span.span_id):
            parsed.rejected.append(_rejection(span, problem))
        else:
            row = _row_of_span(span, resource, scope)
            parsed.observations.append(row)
            add_results_of_span(parsed, row)
    return parsed


def invalid_spans(request: Any) -> tuple[int, list[str]]:
    """Return how many spans a request has, and a line per span that `rows_of_traces` would reject; makes no rows."""
    spans = [span for span, *_ in _spans(request)]
    problems = ((span, _id_problem(span.trace_id, span.span_id)) for span in spans)
    return len(spans), [_rejection(span, problem) for span, problem in problems if problem]


def rows_of_logs(request: Any) -> Telemetry:
    """Return the GenAI events of an ExportLogsServiceRequest as observations of kind `log`, under their span.

    The result of an evaluation is a score, or a label, of its span or trace. Other log records, and those that belong
    to no span, are counted and ignored.
    """
    parsed = Telemetry()
    for record, resource, scope in _items(request, "resource_logs", "scope_logs", "log_records"):
        attributes = attributes_of(record.attributes)
        name = getattr(record, "event_name", None) or attributes.get("event.name")
        is_result = name == RESULT
        if not (isinstance(name, str) and name.startswith(GENAI) and record.trace_id and (record.span_id or is_result)):
            parsed.ignored += 1
        elif problem := _id_problem(record.trace_id, record.span_id or OF_NO_SPAN):
            parsed.rejected.append(f"log record {short(name)}: {problem}")
        elif is_result:
            ids = record.trace_id.hex(), record.span_id.hex() or None
            add_results_of_record(parsed, attributes, ids, _at(record), scope)
        else:
            parsed.observations.append(_row_of_record(record, name, attributes, resource, scope))
    return parsed


def _spans(request: Any) -> Iterator[tuple[Any, Json | None, str | None]]:
    return _items(request, "resource_spans", "scope_spans", "spans")


def _items(request: Any, groups: str, scopes: str, items: str) -> Iterator[tuple[Any, Json | None, str | None]]:
    """Yield the spans or log records of a request, each with its resource and the name of its scope.

    Raise InputError if many have long ones.
    """
    repeated = 0
    for group in getattr(request, groups, ()):
        attributes = attributes_of(group.resource.attributes) if group.resource else {}
        resource = to_json(attributes, mend=True) if attributes else None
        for scoped in getattr(group, scopes):
            scope = scoped.scope.name or None if scoped.scope else None
            for item in getattr(scoped, items):
                repeated += len(resource or "") + len(scope or "")
                if repeated > MOST_REPEATED:
                    got = f"more than {MOST_REPEATED >> 20} MB of resources and scopes, counted for each of the {items}"
                    raise InputError(f"got {got}, wanted at most that; send smaller batches")
                yield item, resource, scope


def _rejection(span: Any, problem: str) -> str:
    return f"span {short(span.name)}: {problem}"


def _id_problem(trace_id: bytes, span_id: bytes) -> str | None:
    for name, value, length in (("trace", trace_id, 16), ("span", span_id, 8)):
        if len(value) != length:
            return f"got {f'a {name} id of {len(value)} bytes' if value else f'no {name} id'}, wanted {length} bytes"
        if not any(value):
            return f"got a {name} id of zeros, wanted a valid one"
    return None


def _row_of_span(span: Any, resource: Json | None, scope: str | None) -> ObservationRow:
    started_at, ended_at = _moment(span.start_time_unix_nano), _moment(span.end_time_unix_nano)
    if started_at is None:  # when it began is not known, and so neither is how long it took
        started_at, ended_at = ended_at or EPOCH, None
    attributes, contents = split_attributes(attributes_of(span.attributes))
    status = span.status
    return ObservationRow(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() if any(span.parent_span_id) else None,
        day=day_of(started_at),
        source="otlp",
        name=span.name,
        kind=KINDS[span.kind] if 0 <= span.kind < len(KINDS) else None,
        started_at=started_at,
        ended_at=ended_at,
        status=STATUSES[status.code] if status and 0 <= status.code < len(STATUSES) else "unset",
        status_message=status.message or None if status else None,
        scope=scope,
        resource=resource,
        attributes=attributes,
        contents=contents,
        events=_events(span.events),
        links=_links(span.links),
    )


def _row_of_record(
    record: Any, name: str, attributes: Attributes, resource: Json | None, scope: str | None
) -> ObservationRow:
    at = _at(record)
    body = {} if (content := value_of(record.body)) is None else {BODY: content}
    sent_at = record.time_unix_nano or record.observed_time_unix_nano
    short_ones, contents = split_attributes(attributes | body | {TIME: sent_at})
    trace_id, parent_id = record.trace_id.hex(), record.span_id.hex()
    identity = derived_id(trace_id, parent_id, name, short_ones, contents)
    return ObservationRow(
        trace_id=trace_id,
        span_id=identity[:16],
        parent_id=parent_id,
        day=day_of(at),
        source="otlp",
        name=name,
        kind="log",
        started_at=at,
        scope=scope,
        resource=resource,
        attributes=short_ones,
        contents=contents,
    )


def _at(record: Any) -> datetime:
    return _moment(record.time_unix_nano) or _moment(record.observed_time_unix_nano) or EPOCH


def _moment(nanoseconds: int) -> datetime | None:
    """Return a time in ns since 1970; None for 0, which says that it was not recorded.

    Some programs send s, ms or µs instead. As ns, a time of this century in another unit would be in 1970.
    """
    if not nanoseconds:
        return None
    per_ns = next((unit for unit in (10**9, 10**6, 10**3) if THIS_CENTURY_NS <= nanoseconds * unit <= LATEST_NS), 1)
    return EPOCH + timedelta(microseconds=min(max(nanoseconds, 0) * per_ns, LATEST_NS) // 1000)


def _events(events: Any) -> Json | None:
    found = [
        {"name": event.name, "at": _text(event.time_unix_nano), "attributes": attributes_of(event.attributes)}
        for event in events or ()
    ]
    return to_json(found, mend=True) if found else None


def _links(links: Any) -> Json | None:
    found = [
        {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex(), "attributes": attributes_of(link.attributes)}
        for link in links or ()
    ]
    return to_json(found, mend=True) if found else None


def _text(nanoseconds: int) -> str | None:
    return at.isoformat() if (at := _moment(nanoseconds)) else None


def rows_of_fields(fields: Any) -> Telemetry:
    """Return the rows of a request of traces or logs in JSON. A span or log record that is invalid is rejected, in a
    line.

    Raise InputError if the value is no such request; one of metrics is ignored.
    """
    if not isinstance(fields, dict):
        raise InputError(f"not OTLP: got {type(fields).__name__}, wanted an object with {SPANS} or {LOGS}")
    if any(name in fields for name in IN_SNAKE_CASE):
        fields = respelled(fields)
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
        return merged([_alone(request, item, kind) for request, item in _split(fields, kind)])


def _alone(fields: dict[str, Any], item: Any, kind: str) -> Telemetry:
    """Return the rows of a request with a single span or log record, which is rejected if it is invalid."""
    what = "span" if kind == SPANS else "log record"
    name = item.get("name", item.get("eventName")) if isinstance(item, dict) else item
    if isinstance(item, dict) and (problem := _otlp_json_id_problem(item)):
        return Telemetry(rejected=[f"{what} {short(name)}: {problem}"])
    try:
        return (rows_of_traces if kind == SPANS else rows_of_logs)(request_of(fields))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Telemetry(rejected=[" ".join(f"{what} {short(name)}: {error}".split())])


def _otlp_json_id_problem(item: dict[str, Any]) -> str | None:
    """Return why an id cannot be read; those that can are checked with the others."""
    for field, name in zip(IDS, ("trace id", "span id", "parent id"), strict=True):
        value = item.get(field)
        if value is not None and not (isinstance(value, str) and _HEXADECIMAL.fullmatch(hexadecimal(value))):
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


class TooManyElementsError(Exception):
    """A request with more elements than MOST_ELEMENTS."""


def check_elements_of_json(body: bytes) -> None:
    """Raise TooManyElementsError for more objects than allowed. Lists and other values count as a quarter of one."""
    if len(body) <= SMALLEST * MOST_ELEMENTS or _elements_of_json(body) <= MOST_ELEMENTS:
        return
    if body.count(b'"') > 2 * MOST_FIELDS or _elements_of_json(_STRINGS.sub(b"", body)) > MOST_ELEMENTS:
        raise TooManyElementsError


def _elements_of_json(body: bytes) -> int:
    return body.count(b"{") + (body.count(b"[") + body.count(b",")) // 4


def check_elements_of_protobuf(body: bytes, kind: Any) -> None:
    """Raise TooManyElementsError for a message with more elements than allowed, and InputError for a malformed one.

    Args:
        body: The message.
        kind: The descriptor of its type.
    """
    if len(body) > SMALLEST * MOST_ELEMENTS and len(body) - len(body.translate(None, _TAGS)) > MOST_ELEMENTS:
        try:
            _count(body, kind)
        except IndexError:
            raise InputError("body: not OTLP in protobuf: it ends too early") from None


def _count(body: bytes, kind: Any) -> None:
    """Count the elements as `check_elements_of_protobuf`. Raise IndexError for a message that ends too early."""
    n_elements = n_fields = 0
    todo = [(0, len(body), kind)]
    while todo:
        at, end, kind = todo.pop()
        messages, groups = _messages_in(kind), 0  # a group is skipped: it is no field of OTLP
        while at < end:
            n_fields += 1
            tag, at = body[at], at + 1
            if tag > 127:
                tag, at = _varint(body, at - 1)
            match tag & 7:
                case 2:
                    length, at = body[at], at + 1
                    if length > 127:
                        length, at = _varint(body, at - 1)
                    if (message := messages.get(tag >> 3)) is not None and not groups:
                        within, is_listed = message
                        n_elements += is_listed
                        todo.append((at, at + length, within))
                    at += length
                case 0:
                    at = _varint(body, at)[1] if body[at] > 127 else at + 1
                case 1:
                    at += 8
                case 3:
                    groups += 1
                case 4:
                    groups -= 1
                case 5:
                    at += 4
                case _:
                    raise InputError("body: not OTLP in protobuf: it has an unknown type of field")
            if n_elements > MOST_ELEMENTS or n_fields > MOST_FIELDS:
                raise TooManyElementsError
        if at > end:
            raise IndexError


@cache
def _messages_in(kind: Any) -> Mapping[int, tuple[Any, bool]]:
    """Return the messages that are fields of a message, by number, and whether each is a list of them."""
    return {field.number: (field.message_type, field.is_repeated) for field in kind.fields if field.message_type}


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Return an integer of the wire format, and where it ends."""
    byte = body[at]
    value, shift, at = byte & 127, 7, at + 1
    while byte > 127:
        byte = body[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if shift > 70:
            raise InputError("body: not OTLP in protobuf: it has a number of more than 64 bits")
    return value, at
