"""What a request carries: its body, decompressed within a limit, and checked before it is accepted."""

import zlib
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evalflows.receiver.journal import Encoding, Entry
from evalflows.specs.errors import InputError, describe
from evalflows.telemetry.otlp import invalid_spans, parse_json, rows_of_logs, rows_of_traces
from evalflows.telemetry.parsed import Telemetry

ENCODINGS: dict[str, Encoding] = {"application/x-protobuf": "protobuf", "application/json": "json"}
COMPRESSIONS = ("gzip", "deflate")
STEP = 1 << 20
"""Bytes that are decompressed in one step."""
MESSAGES: dict[str, Any] = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}
GROUPS = {"traces": "resource_spans", "logs": "resource_logs"}


class TooLargeError(Exception):
    """A body above the limit."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a valid request has: whether anything is to be kept, and a line per invalid span or log record."""

    is_empty: bool
    rejected: list[str]


def decompressed(body: bytes, limit: int) -> bytes:
    """Return a body that was compressed by gzip or zlib.

    Raise TooLargeError above `limit` bytes, before more is in memory, and InputError for what is not whole.
    """
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    found = bytearray()
    while not reader.eof:
        try:
            step = reader.decompress(body, STEP)
        except zlib.error as error:
            raise InputError(f"body: got what cannot be decompressed ({error})") from error
        found += step
        body = reader.unconsumed_tail
        if len(found) > limit:
            raise TooLargeError
        if not step and not body and not reader.eof:
            raise InputError("body: its compressed data end too early")
    if reader.unused_data:
        raise InputError(f"body: {len(reader.unused_data)} bytes follow its compressed data")
    return bytes(found)


def checked(entry: Entry) -> Checked:
    """Check an entry: what is accepted must become rows later. Raise InputError, in one line, if it is unreadable."""
    try:
        message = _message(entry)
        if entry.signal == "traces" and entry.encoding == "protobuf":  # the many: their rows are made later
            n_spans, rejected = invalid_spans(message)
            return Checked(n_spans == len(rejected), rejected)
        parsed = _rows(entry, message)
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise InputError(f"body: not OTLP: {describe(error)}") from error
    return Checked(not (parsed.observations or parsed.scores or parsed.labels), parsed.rejected)


def telemetry_of(entry: Entry) -> Telemetry:
    """Return the rows of an entry."""
    return _rows(entry, _message(entry))


def _message(entry: Entry) -> Any:
    if entry.encoding == "protobuf":
        try:
            return MESSAGES[entry.signal].FromString(entry.body)
        except DecodeError as error:
            raise InputError(f"body: not OTLP in protobuf: {error}") from error
    message = parse_json(entry.body)
    if not hasattr(message, GROUPS[entry.signal]) and any(getattr(message, name, ()) for name in GROUPS.values()):
        raise InputError(f"body: got another signal, wanted {entry.signal}")
    return message


def _rows(entry: Entry, message: Any) -> Telemetry:
    return rows_of_traces(message) if entry.signal == "traces" else rows_of_logs(message)
