"""Answers of OpenTelemetry's protocol, in the encoding of the request."""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToJson
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsPartialSuccess, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from starlette.responses import Response

from evalflows.receiver.journal import Encoding, Signal

CONTENT_TYPES: Mapping[Encoding, str] = {"protobuf": "application/x-protobuf", "json": "application/json"}
RETRY_AFTER_S = 2
"""Seconds after which a client that was sent away for now should try again."""
MOST_NAMED = 3
"""Rejected spans that an answer names."""
GRPC_CODES = {400: 3, 401: 16, 403: 7, 408: 4, 413: 8, 415: 3, 503: 14}
"""The code of gRPC that the body of an error states."""


def accepted(signal: Signal, encoding: Encoding, rejected: Sequence[str]) -> Response:
    """Return the answer to a request whose valid spans or log records are on disk; the others are counted and named."""
    message: Any
    if signal == "traces":
        partial = ExportTracePartialSuccess(rejected_spans=len(rejected), error_message=_named(rejected))
        message = ExportTraceServiceResponse(partial_success=partial if rejected else None)
    else:
        of_logs = ExportLogsPartialSuccess(rejected_log_records=len(rejected), error_message=_named(rejected))
        message = ExportLogsServiceResponse(partial_success=of_logs if rejected else None)
    return _response(message, encoding, 200, {})


def refused(status: int, encoding: Encoding, reason: str) -> Response:
    """Return the answer to a request of which nothing was kept."""
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
    if status == 401:
        headers = {"www-authenticate": "Bearer"}
    return _response(Status(code=GRPC_CODES[status], message=reason), encoding, status, headers)


def _named(rejected: Sequence[str]) -> str:
    more = len(rejected) - MOST_NAMED
    return "; ".join(rejected[:MOST_NAMED]) + (f" (and {more} more)" if more > 0 else "")


def _response(message: Any, encoding: Encoding, status: int, headers: Mapping[str, str]) -> Response:
    # no ids in it, so protobuf's JSON is right
    body = message.SerializeToString() if encoding == "protobuf" else MessageToJson(message, indent=None)
    return Response(body, status, headers, media_type=CONTENT_TYPES[encoding])
