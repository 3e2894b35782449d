"""Requests to a receiver in this process, and its answers decoded."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from otlp_requests import span, traces
from starlette.testclient import TestClient

from evalflows.receiver import Receiver
from evalflows.store.store import Store

PROTOBUF, JSON = "application/x-protobuf", "application/json"


@dataclass
class Client:
    """A client of one receiver."""

    receiver: Receiver
    http: TestClient

    def post(
        self, body: bytes | Iterator[bytes], kind: str = PROTOBUF, path: str = "/v1/traces", **headers: str
    ) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(path, content=body, headers={"content-type": kind} | named)

    def refusal(self, body: bytes | Iterator[bytes], kind: str = PROTOBUF, **headers: str) -> tuple[int, str]:
        """The status of a request that is refused, and the reason in the answer's body."""
        answer = self.post(body, kind, **headers)
        if answer.headers["content-type"] == PROTOBUF:
            return answer.status_code, Status.FromString(answer.content).message
        return answer.status_code, answer.json()["message"]


def partial(answer: Any) -> tuple[int, str]:
    """How many spans an answer in protobuf rejects, and why."""
    success = ExportTraceServiceResponse.FromString(answer.content).partial_success
    return success.rejected_spans, success.error_message


def body_of(*names: str, **fields: Any) -> bytes:
    """A request with a span per name, each with an id of its own."""
    return traces(*(span(name, span_id=f"{n + 1:016x}", **fields) for n, name in enumerate(names))).SerializeToString()


def names(store: Store) -> list[str]:
    """The names of the spans in the store."""
    return [name for (name,) in store.query("select name from source.observations order by name")]
