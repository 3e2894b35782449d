"""Files of traces: what a Collector, a console, Langfuse, LangSmith or Phoenix exported, and plain rows, read record by
record and added to the store: what is known is left alone.

Their fields are named in one of two ways (`traceId`, `trace_id`) and are kept as they came. A trace is stored as an
observation of its own, the root of those that have no parent. Spans are a JSON object each, as OpenTelemetry's console
exporter for Python prints them and as Phoenix exports them.
"""

# What cannot be read costs only itself: of a truncated file, all records before the cut are kept.

import codecs
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, Final, Literal

import orjson

from evalflows.specs.columns import TraceColumns, at_path
from evalflows.specs.errors import InputError, describe, short
from evalflows.specs.files import located
from evalflows.specs.frozen import dataclass
from evalflows.store.file_formats import open_file, read_rows, suffix
from evalflows.store.observations import EPOCH, day_of, seal_past_days, split_attributes, write_observations
from evalflows.store.queries.unknown_rows import (
    traces_of_spans,
    unknown_labels,
    unknown_observations,
    unknown_scores,
)
from evalflows.store.records import derived_id, now, to_json
from evalflows.store.store import Store
from evalflows.store.trace_records import ObservationRow, SpanStatus
from evalflows.telemetry.conventions import parsed as parsed_json
from evalflows.telemetry.costs import with_listed_costs
from evalflows.telemetry.feedback import (
    Feedback,
    Subject,
    Telemetry,
    add_feedback,
    add_results_of_span,
    of_observation,
    of_trace,
)
from evalflows.telemetry.otlp import IN_SNAKE_CASE, LOGS, OTHERS, SPANS, hexadecimal, merged, rows_of_fields

LANGFUSE: Final = "langfuse"
PARTS = ("observations", "scores")
"""Fields of a trace that have records of their own; in a list of traces, only their ids."""
LANGFUSE_IN_COLUMNS = ("name", "startTime", "start_time", "endTime", "end_time", "timestamp")
"""Fields that are columns of the store."""
PERSON = "ANNOTATION"

LANGSMITH: Final = "langsmith"
LANGSMITH_IN_COLUMNS = ("name", "start_time", "end_time", "error", "child_runs")
"""Fields of a run that are columns of the store, or have records of their own."""
PEOPLE = ("app",)
"""Sources of feedback that are people: annotations in LangSmith's UI."""
_SEPARATORS = re.compile(r"[, \t\r\n]*")
_UUID = re.compile(r"[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}$")

MAX_LINE = 64 << 20
"""Bytes of the longest line that is read, so that one line cannot take all memory."""
MAX_DOCUMENT = 1 << 30
"""Bytes of the largest file that is a single JSON document."""
TABLES = (".csv", ".parquet")
LISTS = ("data", "traces", "observations", "scores", "runs", "feedback")
"""Fields in which an answer of an API holds its records."""

ROWS: Final = "rows"
LIFTED = ("started_at", "ended_at", "latency_s", "trace_id", "span_id", "parent_id", "name", "status", "error")
"""Fields that are columns of the store; the others are attributes."""
OF_MODELS = ("model", "tokens_in", "tokens_out")
"""Fields that only a call of a model has."""

Format = Literal["otlp", "spans", "langfuse", "langsmith", "rows"]
Reader = Callable[[Any], Telemetry]
Kinds = Iterable[tuple[Callable[..., bool], Callable[..., None]]]
"""How a kind of record is told from others, and what adds its rows."""

BATCH_ROWS, BATCH_CHARACTERS = 5_000, 32 << 20
"""How much is in memory at once."""
SHOWN = 20
"""Lines about rejected records that a report has; the others are counted."""

STATUSES: Mapping[str, SpanStatus] = {"OK": "ok", "ERROR": "error"}
PREFIX = "attributes."
"""How Phoenix's data frames name the columns of attributes."""

_UNITS = ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (math.inf, 1e9))
"""Below which a number counts how many parts of a second since 1970."""


def _is_score(record: Mapping[str, Any]) -> bool:
    of_subject = any(_field(record, name) for name in ("traceId", "sessionId", "observationId", "datasetRunId"))
    return of_subject and "name" in record and "source" in record and ("value" in record or _has(record, "stringValue"))


def _is_observation(record: Mapping[str, Any]) -> bool:
    return _has(record, "traceId") and _has(record, "startTime") and "type" in record


def _is_trace(record: Mapping[str, Any]) -> bool:
    marks = ("projectId", "sessionId", "userId", "bookmarked", "observations", "release")
    return "id" in record and "timestamp" in record and any(_has(record, mark) for mark in marks)


def _added_as(kinds: Kinds, wanted: str, record: Any) -> Telemetry:
    """Return the rows of a record of the first kind that it is. Raise InputError if it is none."""
    if not isinstance(record, dict):
        raise InputError(f"got {type(record).__name__}, wanted {wanted}")
    add = next((add for is_one, add in kinds if is_one(record)), None)
    if add is None:
        raise InputError(f"got {', '.join(list(record)[:5]) or 'an empty object'}, wanted {wanted}")
    parsed = Telemetry()
    add(parsed, record)
    return parsed


def add_trace(parsed: Telemetry, trace: Mapping[str, Any]) -> None:
    parsed.observations.append(_root(trace))
    for name, add in (("observations", add_observation), ("scores", add_score)):
        parts = parsed_json(trace.get(name))
        for row in parts if isinstance(parts, list) else ():
            if isinstance(row, dict):
                whole = {"traceId": trace["id"]} | row
                try:
                    add(parsed, whole)
                except InputError as error:
                    parsed.rejected.append(f"{name.removesuffix('s')} {row.get('id')}: {error}")


def add_observation(parsed: Telemetry, observation: Mapping[str, Any]) -> None:
    parsed.observations.append(_observation(observation))


def _root(trace: Mapping[str, Any]) -> ObservationRow:
    started_at = _moment(trace, "timestamp")
    attributes, contents = _attributes({name: value for name, value in trace.items() if name not in PARTS})
    return ObservationRow(
        trace_id=trace_id_of(LANGFUSE, trace["id"]),
        span_id=_root_id(trace["id"]),
        day=day_of(started_at),
        source=LANGFUSE,
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
        trace_id=trace_id_of(LANGFUSE, trace),
        span_id=span_id_of(LANGFUSE, identity),
        parent_id=span_id_of(LANGFUSE, parent) if parent else _root_id(trace),
        day=day_of(started_at),
        source=LANGFUSE,
        name=str(record.get("name") or record["type"]),
        started_at=started_at,
        ended_at=ended_at_of(started_at, moment_of(_field(record, "endTime"), "endTime"), record.get("latency")),
        status="error" if record.get("level") == "ERROR" else "unset",
        status_message=_field(record, "statusMessage") or None,
        attributes=attributes,
        contents=contents,
    )


def _root_id(trace: Any) -> str:
    return derived_id(LANGFUSE, "root", str(trace))[:16]


def _attributes(record: Mapping[str, Any]) -> tuple[str, str | None]:
    kept = {name: value for name, value in record.items() if value is not None and name not in LANGFUSE_IN_COLUMNS}
    return split_attributes(kept)


def add_score(parsed: Telemetry, score: Mapping[str, Any]) -> None:
    trace, session, observation = (_field(score, name) for name in ("traceId", "sessionId", "observationId"))
    if not trace and not session:
        parsed.ignored += 1  # of a dataset's run
        return
    subject: Subject = ("session", str(session))
    if trace:
        identity = trace_id_of(LANGFUSE, trace)
        subject = of_observation(identity, span_id_of(LANGFUSE, observation)) if observation else of_trace(identity)
    author = _field(score, "authorUserId")
    kept = {name: value for name, value in score.items() if name not in ("name", "value", "comment", "metadata")}
    parsed_metadata = parsed_json(score.get("metadata"))
    add_feedback(
        parsed,
        Feedback(
            source=LANGFUSE,
            subject=subject,
            metric=str(score["name"]),
            value=_score_value(score),
            label=_field(score, "stringValue"),
            comment=score.get("comment"),
            evaluator=LANGFUSE,
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


def _moment(record: Mapping[str, Any], *names: str, where: str = "") -> datetime:
    for name in names:
        if (moment := moment_of(_field(record, name), name)) is not None:
            return moment
    raise InputError(f"{where}got no {names[0]}, wanted a time")


def _field(record: Mapping[str, Any], name: str) -> Any:
    """Return a field under its name in camel case or with underscores."""
    value = record.get(name)
    return record.get(_underscored(name)) if value is None else value


def _has(record: Mapping[str, Any], name: str) -> bool:
    return name in record or _underscored(name) in record


def _underscored(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _is_run(record: Mapping[str, Any]) -> bool:
    return "id" in record and "run_type" in record and "start_time" in record


def _is_feedback(record: Mapping[str, Any]) -> bool:
    return "key" in record and "run_id" in record and ("score" in record or "value" in record)


def _add_run(parsed: Telemetry, run: Mapping[str, Any]) -> None:
    row = _langsmith_observation(run)
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


def _langsmith_observation(run: Mapping[str, Any]) -> ObservationRow:
    started_at = moment_of(run["start_time"], "start_time")
    if started_at is None or not run["id"]:
        raise InputError(f"run {short(run['id'])}: got no {'id' if started_at else 'start_time'}, wanted one")
    parent, error = _parent(run), run.get("error")
    kept = {name: value for name, value in run.items() if value is not None and name not in LANGSMITH_IN_COLUMNS}
    attributes, contents = split_attributes(kept)
    return ObservationRow(
        trace_id=trace_id_of(LANGSMITH, _trace(run)),
        span_id=span_id_of(LANGSMITH, run["id"]),
        parent_id=span_id_of(LANGSMITH, parent) if parent else None,
        day=day_of(started_at),
        source=LANGSMITH,
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
    return [found[0] for text in parts if (found := _UUID.search(text))]


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
    identity = trace_id_of(LANGSMITH, trace)
    return of_trace(identity) if str(run) == str(trace) else of_observation(identity, span_id_of(LANGSMITH, run))


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
            source=LANGSMITH,
            subject=subject,
            metric=key,
            value=stats.get("avg"),
            label=label,
            evaluator=LANGSMITH,
            version="feedback_stats",
            identity=key,
            at=row.started_at,
            metadata=dict(stats),
        ),
    )


def _add_feedback(parsed: Telemetry, feedback: Mapping[str, Any]) -> None:
    run, trace = feedback.get("run_id"), feedback.get("trace_id")
    if not run:
        parsed.ignored += 1  # of a whole project
    elif not trace:
        parsed.untraced.append(feedback)
    else:
        _add_feedback_on(parsed, feedback, _subject(trace, run))


def _add_feedback_on(parsed: Telemetry, feedback: Mapping[str, Any], subject: Subject) -> None:
    giver = parsed_json(feedback.get("feedback_source"))
    giver = giver if isinstance(giver, dict) else {"type": giver}
    by_person = giver.get("type") in PEOPLE
    labeller = giver.get("user_name") or giver.get("user_id")
    score, value = feedback.get("score"), feedback.get("value")
    kept = {name: item for name, item in feedback.items() if name not in ("key", "score", "value", "comment")}
    add_feedback(
        parsed,
        Feedback(
            source=LANGSMITH,
            subject=subject,
            metric=str(feedback["key"]),
            value=score if score is not None or isinstance(value, str | dict) else value,
            label=value if isinstance(value, str | dict) else None,
            comment=feedback.get("comment"),
            evaluator=LANGSMITH,
            version=str(giver.get("type") or "api"),
            by_person=by_person,
            labeller=str(labeller) if labeller else None,
            identity=feedback.get("id"),
            at=_moment(
                feedback, "created_at", "modified_at", "start_time", where=f"feedback {short(feedback['key'])}: "
            ),
            metadata=kept,
        ),
    )


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its place, or why it cannot be read."""

    place: str  # such as `line 3`
    value: Any = None
    problem: str | None = None


def read_records(path: str) -> Iterator[Record]:
    """Yield the records of a file: JSON lines, a JSON document, CSV or Parquet, also gzipped (.gz).

    Raise InputError, in one line, if there is nothing in it that can be read at all.
    """
    where = located(path)
    if suffix(where) in TABLES:
        for number, row in read_rows(path):
            yield Record(f"row {number}", {name: value for name, value in row.items() if value is not None})
        return
    try:
        with open_file(where) as file:
            yield from _of_json(file, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, ValueError, zlib.error) as error:  # of gzip: a truncated file, a bomb
        raise InputError(f"{path}: cannot be read: {error}") from error


def _of_json(file: BinaryIO, path: str) -> Iterator[Record]:
    lines = _lines(file)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: is empty, wanted at least one record")
    _, line = first
    if line is not None and not _is_text(line):
        raise InputError(f"{path}: got binary data, wanted JSON lines, JSON, CSV or Parquet (.gz if it is gzipped)")
    if line is None or (value := _parsed(line)) is not None:
        if line is not None and isinstance(value, list):
            yield from _elements(line, path)
        else:
            yield from _of_lines(chain([first], lines))
    else:
        yield from _of_document(file, chain([first], lines), path)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines that are not blank with their numbers, from 1; None for a line that is too long."""
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        elif (bare := line.removeprefix(codecs.BOM_UTF8)).strip():
            yield number, bare


def _is_text(line: bytes) -> bool:
    try:
        line[:4096].decode()
    except UnicodeDecodeError as error:
        return error.start > 4090  # a character that the slice cuts
    return b"\0" not in line[:4096]


def _parsed(line: bytes) -> Any:
    """Return the value of a line; None if it is no JSON value of its own."""
    try:
        return _value(line)
    except (ValueError, RecursionError):
        return None


def _value(line: bytes) -> Any:
    """Return the value of a line. Raise ValueError or RecursionError if it is not JSON.

    Half a character (`"\\ud83d"`, of truncated text) and NaN are read too: the one is mended later, the other missing.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line.decode(), parse_constant=lambda constant: None)


def _of_lines(lines: Iterator[tuple[int, bytes | None]]) -> Iterator[Record]:
    for number, line in lines:
        place = f"line {number}"
        if line is None:
            yield Record(place, problem=f"longer than {MAX_LINE >> 20} MB, wanted shorter lines")
            continue
        try:
            value = _value(line)
        except (ValueError, RecursionError) as error:
            cut = "" if line.endswith(b"\n") else "; the file ends in the middle of it"
            yield Record(place, problem=f"not JSON: {_reason(error)}{cut}")
            continue
        yield from _unfolded(value, place)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' starting at')} at character {error.pos + 1}"
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else "nested too deeply"


def _unfolded(value: Any, place: str) -> Iterator[Record]:
    """Yield the records of an answer of an API, or the record itself."""
    if isinstance(value, dict) and value.keys() <= {*LISTS, "meta", "cursors"}:
        for name in LISTS:
            listed = value.get(name)
            for number, item in enumerate(listed if isinstance(listed, list) else (), start=1):
                yield Record(f"{place}, {name} {number}", item)
    else:
        yield Record(place, value)


def _of_document(file: BinaryIO, lines: Iterator[tuple[int, bytes | None]], path: str) -> Iterator[Record]:
    """Yield the records of one JSON document over several lines, or of lines of which the first is broken."""
    first, second = next(lines), next(lines, (0, b""))
    start = (first[1] or b"").lstrip()[:1]
    if start not in (b"[", b"{") or second[1] is None or isinstance(_parsed(second[1]), dict):
        yield from _of_lines(chain([first, second] if second[0] else [first], lines))
        return
    text = (first[1] or b"") + second[1] + file.read(MAX_DOCUMENT)
    if len(text) > MAX_DOCUMENT:
        raise InputError(f"{path}: a JSON document of more than {MAX_DOCUMENT >> 30} GB, wanted JSON lines")
    if start == b"[":
        yield from _elements(text, path)
        return
    try:
        yield from _unfolded(_value(text), "the document")
    except (ValueError, RecursionError) as error:
        if any(isinstance(_parsed(line), dict) for line in text.splitlines()[2:]):
            yield from _of_lines(_lines(io.BytesIO(text)))
        elif isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            yield from _sequence(_decoded(text, path), 0, "object", "")  # over several lines, as a console prints them
        else:
            raise InputError(f"{path}: not JSON: {_reason(error)}") from error


def _elements(text: bytes, path: str) -> Iterator[Record]:
    """Yield the elements of a list, one at a time; of a truncated list, those before the cut."""
    content = _decoded(text, path)
    return _sequence(content, content.index("[") + 1, "element", "]")


def _decoded(text: bytes, path: str) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error


def _sequence(content: str, position: int, name: str, end: str) -> Iterator[Record]:
    """Yield the values from a position to the end, which is a bracket or, as an empty text, that of the content."""
    decoder = json.JSONDecoder(parse_constant=lambda constant: None)  # NaN, which JSON lacks, is missing
    number = 0
    while True:
        position = _SEPARATORS.match(content, position).end()  # type: ignore[union-attr]  # it matches no character, too
        if content[position : position + 1] == end:
            return
        number += 1
        try:
            value, position = decoder.raw_decode(content, position)
        except (json.JSONDecodeError, RecursionError) as error:
            text_of = getattr(error, "msg", "nested too deeply")
            yield Record(f"{name} {number}", problem=f"not JSON: {text_of}; nothing after it can be read")
            return
        yield Record(f"{name} {number}", value)


@dataclass(slots=True)
class Rows:
    """Reads rows. The columns that `columns` names must be in the first one."""

    columns: TraceColumns = field(default_factory=TraceColumns)
    is_checked: bool = False

    def telemetry(self, row: Any) -> Telemetry:
        """Return the observation of a row. Raise InputError if it is none."""
        if not isinstance(row, dict):
            raise InputError(f"got {type(row).__name__}, wanted an object")
        if not self.is_checked:
            for path in self.columns.model_dump(exclude_none=True).values():
                at_path(row, path)
            self.is_checked = True
        return Telemetry(observations=[_observation_of_row(*self._fields(row))])

    def _fields(self, row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields of a row, and the columns that are none."""
        paths = {name: getattr(self.columns, name) or name for name in TraceColumns.model_fields}
        found = {name: _value_of_row(row, path) for name, path in paths.items()}
        rest = {name: value for name, value in row.items() if name not in paths.values() and value is not None}
        return {name: value for name, value in found.items() if value is not None}, rest


def _value_of_row(row: Mapping[str, Any], path: str) -> Any:
    try:
        value = at_path(row, path)
    except InputError:
        return None
    return None if value == "" else value


def _observation_of_row(fields: dict[str, Any], rest: dict[str, Any]) -> ObservationRow:
    started_at = moment_of(fields.get("started_at"), "started_at")
    if started_at is None:
        raise InputError("got no started_at, wanted a column with the time, such as --columns started_at=COLUMN")
    attributes = {name: value for name, value in fields.items() if name not in LIFTED}
    attributes |= {"tags": parsed_json(fields["tags"])} if "tags" in fields else {}
    if metadata := _metadata(fields, rest):
        attributes["metadata"] = metadata
    if "type" not in fields and any(name in fields for name in OF_MODELS):
        attributes["type"] = "generation"
    short_ones, contents = split_attributes(attributes | _ids(fields))
    content = derived_id(ROWS, short_ones, contents, started_at.isoformat(), str(fields.get("name")))
    trace_id = trace_id_of(ROWS, fields["trace_id"]) if "trace_id" in fields else content
    return ObservationRow(
        trace_id=trace_id,
        span_id=span_id_of(ROWS, fields["span_id"]) if "span_id" in fields else derived_id(trace_id, content)[:16],
        parent_id=span_id_of(ROWS, fields["parent_id"]) if "parent_id" in fields else None,
        day=day_of(started_at),
        source=ROWS,
        name=str(fields.get("name", "row")),
        started_at=started_at,
        ended_at=ended_at_of(started_at, moment_of(fields.get("ended_at"), "ended_at"), fields.get("latency_s")),
        status=_status(fields),
        status_message=str(fields["error"]) if "error" in fields else None,
        attributes=short_ones,
        contents=contents,
    )


def _ids(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids as they came, where the store needs others."""
    given = {"trace_id": trace_id_of, "span_id": span_id_of, "parent_id": span_id_of}
    return {
        name: fields[name]
        for name, made in given.items()
        if name in fields and made(ROWS, fields[name]) != fields[name]
    }


def _metadata(fields: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    given = parsed_json(fields.get("metadata"))
    if given is not None and not isinstance(given, dict):
        given = {"metadata": given}
    return {**rest, **(given or {})}


def _status(fields: Mapping[str, Any]) -> SpanStatus:
    given = fields.get("status")
    if given is None:
        return "error" if "error" in fields else "unset"
    if given not in ("ok", "error", "unset"):
        raise InputError(f"status: got {short(given)}, wanted ok or error")
    return given  # type: ignore[no-any-return]


_LANGFUSE_KINDS: Kinds = ((_is_score, add_score), (_is_observation, add_observation), (_is_trace, add_trace))
_LANGSMITH_KINDS: Kinds = ((_is_run, _add_run), (_is_feedback, _add_feedback))


def reader_of(form: Format, columns: TraceColumns | None) -> Reader:
    """Return what makes rows of a record in a format. It raises InputError for a record in another."""
    match form:
        case "otlp":
            return rows_of_fields
        case "spans":
            return telemetry_of_span
        case "langfuse":
            return partial(_added_as, _LANGFUSE_KINDS, "a trace, an observation or a score of Langfuse")
        case "langsmith":
            return partial(_added_as, _LANGSMITH_KINDS, "a run or feedback of LangSmith")
    return Rows(columns or TraceColumns()).telemetry


def recognised(record: Any, columns: TraceColumns | None) -> Format:
    """Return the format of a record. With `columns`, it is a row. Raise InputError if it is none."""
    if columns is not None:
        return "rows"
    fields = record if isinstance(record, dict) else {}
    if any(name in fields for name in (SPANS, LOGS, *OTHERS, *IN_SNAKE_CASE)):
        return "otlp"
    if is_span(fields):
        return "spans"
    if any(is_one(fields) for is_one, _ in _LANGSMITH_KINDS):
        return "langsmith"
    if any(is_one(fields) for is_one, _ in _LANGFUSE_KINDS):
        return "langfuse"
    if "started_at" in fields and ("input" in fields or "output" in fields):
        return "rows"
    got = short(", ".join(list(fields)[:8])) if fields else type(record).__name__
    raise InputError(f"its format is not recognised by {got}, wanted --format, or --columns for plain rows")


@dataclass(slots=True, kw_only=True)
class Added:
    """What a file had, and what of it was new."""

    path: str
    format: Format | None = None
    records: int = 0
    new: int = 0  # observations
    changed: int = 0  # observations that were known with other values, such as without their output
    known: int = 0
    scores: int = 0  # new or changed
    labels: int = 0
    ignored: int = 0  # about no trace, such as metrics
    n_rejected: int = 0
    rejected: list[str] = field(default_factory=list)  # the first SHOWN, one line each
    untraced: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)  # feedback with its place

    def reject(self, line: str) -> None:
        self.n_rejected += 1
        if len(self.rejected) < SHOWN:
            self.rejected.append(line)


def add_traces(store: Store, path: str, *, form: Format | None = None, columns: TraceColumns | None = None) -> Added:
    """Add the traces of a file, and their feedback. Its format is recognised by its first record, if not given.

    What cannot be read is reported, a line each, and everything else is kept; feedback that names a run without its
    trace waits for `add_untraced`. Raise InputError if nothing can be read, and StorageError if the store cannot be
    written; adding the file again writes what is missing.
    """
    added = Added(path=path, format=form)
    for batch in _batches(_parts(added, columns)):
        _write(store, batch, added)
    if not added.records:
        raise InputError(added.rejected[0] if added.rejected else f"{path}: has no records, wanted at least one")
    seal_past_days(store, now().date().isoformat())
    return added


def add_untraced(store: Store, added: Added) -> None:
    """Add the feedback of a file that names a run without its trace, if the store has the run; report the rest."""
    if not added.untraced:
        return
    runs = traces_of_spans(store, LANGSMITH, [span_id_of(LANGSMITH, given["run_id"]) for _, given in added.untraced])
    parsed = Telemetry()
    for place, given in added.untraced:
        where, span = f"{added.path}: {place}: ", span_id_of(LANGSMITH, given["run_id"])
        try:
            if span not in runs:
                got = f"got no trace_id, and run {short(given['run_id'])} is not in the store"
                raise InputError(f"feedback {short(given['key'])}: {got}, wanted one of them")
            trace, is_root = runs[span]
            _add_feedback_on(parsed, given, of_trace(trace) if is_root else of_observation(trace, span))
        except InputError as error:
            added.reject(f"{where}{error}")
    added.untraced = []
    _write(store, parsed, added)


def _parts(added: Added, columns: TraceColumns | None) -> Iterator[Telemetry]:
    read: Reader | None = None
    try:
        for record in read_records(added.path):
            if record.problem is None and read is None:
                added.format = added.format or _recognised(record, added, columns)
                read = reader_of(added.format, columns)
            yield from _part(record, read, added)
    except InputError as error:
        if not added.records:
            raise
        added.reject(str(error))


def _recognised(record: Record, added: Added, columns: TraceColumns | None) -> Format:
    try:
        return recognised(record.value, columns)
    except InputError as error:
        raise InputError(f"{added.path}: {record.place}: {error}") from error


def _part(record: Record, read: Reader | None, added: Added) -> Iterator[Telemetry]:
    if record.problem is not None or read is None:
        added.reject(f"{added.path}: {record.place}: {record.problem}")
        return
    try:
        part = read(record.value)
    except (InputError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        problem = str(error) if isinstance(error, InputError) else describe(error)
        added.reject(f"{added.path}: {record.place}: {problem}")
        return
    added.records += 1
    added.ignored += part.ignored
    added.untraced += [(record.place, feedback) for feedback in part.untraced]
    for line in part.rejected:
        added.reject(f"{added.path}: {record.place}: {line}")
    yield part


def _batches(parts: Iterator[Telemetry]) -> Iterator[Telemetry]:
    """Yield several parts as one, so that a file of many short records becomes few files of the store."""
    batch: list[Telemetry] = []
    rows = size = 0
    for part in parts:
        batch.append(part)
        rows += part.n_rows
        size += sum(len(row.attributes) + len(row.contents or "") + len(row.events or "") for row in part.observations)
        if rows >= BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield merged(batch)
            batch, rows, size = [], 0, 0
    if batch:
        yield merged(batch)


def _write(store: Store, batch: Telemetry, added: Added) -> None:
    observations = unknown_observations(store, [*with_listed_costs(batch.observations)])
    scores, labels = unknown_scores(store, batch.scores), unknown_labels(store, batch.labels)
    write_observations(store, observations.rows, scores=scores.rows, labels=labels.rows)
    added.new += len(observations.new)
    added.changed += len(observations.changed)
    added.known += len(batch.observations) - len(observations.rows)
    added.scores += len(scores.rows)
    added.labels += len(labels.rows)


def is_span(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields that a span has in either form."""
    return _nested_field(record, "context.trace_id") is not None and "start_time" in record


def telemetry_of_span(record: Any) -> Telemetry:
    """Return the observation of a span. Raise InputError if it is none."""
    if not isinstance(record, dict) or not is_span(record):
        got = ", ".join(list(record)[:5]) if isinstance(record, dict) else type(record).__name__
        raise InputError(f"got {short(got)}, wanted a span with its context and start_time")
    started_at = moment_of(record["start_time"], "start_time")
    if started_at is None:
        raise InputError("got no start_time, wanted a time")
    attributes, contents = split_attributes(_plain_attributes(record))
    parent, code = record.get("parent_id"), _nested_field(record, "status.status_code") or record.get("status_code")
    row = ObservationRow(
        trace_id=_identity(record, "context.trace_id", 32),
        span_id=_identity(record, "context.span_id", 16),
        parent_id=_identity(record, "parent_id", 16) if parent else None,
        day=day_of(started_at),
        source="otlp",
        name=str(record.get("name") or "span"),
        kind=str(record["kind"]).rpartition(".")[2].lower() if record.get("kind") else None,
        started_at=started_at,
        ended_at=moment_of(record.get("end_time"), "end_time"),
        status=STATUSES.get(str(code), "unset"),
        status_message=_nested_field(record, "status.description") or record.get("status_message") or None,
        resource=to_json(resource, mend=True) if (resource := _nested_field(record, "resource.attributes")) else None,
        attributes=attributes,
        contents=contents,
        events=_events(record.get("events")),
    )
    parsed = Telemetry(observations=[row])
    add_results_of_span(parsed, row)
    return parsed


def _nested_field(record: Mapping[str, Any], path: str) -> Any:
    """Return a field under its path, or within the object that the path begins with; None if there is none."""
    name, _, inner = path.partition(".")
    outer = record.get(name)
    return outer.get(inner) if isinstance(outer, Mapping) else record.get(path)


def _identity(record: Mapping[str, Any], path: str, digits: int) -> str:
    given = _nested_field(record, path) if "." in path else record.get(path)
    text = hexadecimal(str(given)).lower()
    if not re.fullmatch(rf"[\da-f]{{{digits}}}", text) or not text.strip("0"):
        raise InputError(f"{path}: got {short(given)}, wanted {digits} hexadecimal digits")
    return text


def _plain_attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {name.removeprefix(PREFIX): value for name, value in record.items() if name.startswith(PREFIX)}
    attributes |= record.get("attributes") or {}
    if kind := record.get("span_kind"):
        attributes.setdefault("openinference.span.kind", kind)
    return {name: value for name, value in attributes.items() if value is not None}


def _events(events: Any) -> str | None:
    found = [
        {
            "name": str(event.get("name")),
            "at": str(event["timestamp"]) if event.get("timestamp") else None,
            "attributes": event.get("attributes") or {},
        }
        for event in (events if isinstance(events, list) else ())
        if isinstance(event, Mapping)
    ]
    return to_json(found, mend=True) if found else None


def trace_id_of(source: str, identity: Any) -> str:
    """Return an id of 32 hex digits: the id itself if it has this form, also as a UUID, else one derived from it."""
    text = str(identity).strip()
    plain = (
        text.replace("-", "").lower()
        if re.fullmatch(r"[\da-fA-F]{8}(-[\da-fA-F]{4}){3}-[\da-fA-F]{12}", text)
        else text
    )
    return _hexadecimal(plain, 32) or derived_id(source, "trace", text)


def span_id_of(source: str, identity: Any) -> str:
    """Return an id of 16 hex digits: the id itself if it has this form, else one derived from it."""
    text = str(identity).strip()
    return _hexadecimal(text, 16) or derived_id(source, "span", text)[:16]


def _hexadecimal(text: str, digits: int) -> str | None:
    is_id = re.fullmatch(rf"[\da-fA-F]{{{digits}}}", text) and text.strip("0")
    return text.lower() if is_id else None


def moment_of(value: Any, name: str) -> datetime | None:
    """Return a time of ISO 8601, in UTC unless it says otherwise, or in s, ms, µs or ns since 1970; None for none.

    Raise InputError if it is no time.
    """
    if value is None or value == "":
        return None
    try:
        return _of_number(float(value)) if _is_number(value) else _of_text(value)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name}: got {short(value)}, wanted a time such as 2026-01-31T12:00:00Z") from None


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return bool(re.fullmatch(r"\s*\d{9,}(\.\d+)?\s*", value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_number(number: float) -> datetime:
    if not math.isfinite(number):
        raise ValueError
    unit = next(unit for below, unit in _UNITS if abs(number) < below)
    return EPOCH + timedelta(microseconds=round(number / unit * 1e6))


def _of_text(value: Any) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip().replace(" UTC", "+00:00"))
    if not isinstance(value, datetime):
        raise TypeError
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def ended_at_of(started_at: datetime, ended_at: datetime | None, seconds: Any) -> datetime | None:
    """Return when something ended: as it says, or else by how long it took; None if neither is known."""
    if ended_at is not None or seconds is None or isinstance(seconds, bool):
        return ended_at
    try:
        return started_at + timedelta(seconds=float(seconds))
    except (ValueError, TypeError, OverflowError):
        return None
