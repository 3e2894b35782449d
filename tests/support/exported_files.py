"""Files of traces, as a Collector and other projects export them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otlp_requests import in_json, span, traces

SECOND = "1af7651916cd43dd8448eb211c80319c"


def written(path: Path, *records: Any, end: str = "\n") -> str:
    """Write records as JSON lines; bytes are lines as they are."""
    lines = (one if isinstance(one, bytes) else json.dumps(one).encode() for one in records)
    path.write_bytes(b"\n".join(lines) + end.encode())
    return str(path)


def line(name: str = "answer", trace_id: str | None = None, **fields: Any) -> bytes:
    """A line of the Collector's file exporter with one span."""
    return in_json(traces(span(name, **fields, **({} if trace_id is None else {"trace_id": trace_id}))))


def observation(**fields: Any) -> dict[str, Any]:
    """An observation of Langfuse's blob storage."""
    return {
        "id": "obs-1",
        "trace_id": "my trace",
        "project_id": "p",
        "type": "GENERATION",
        "start_time": "2026-01-01 10:00:00.250",
        "end_time": "2026-01-01 10:00:01.750",
        "name": "call",
        "provided_model_name": "gpt-4o",
        "usage_details": {"input": 7, "output": 3, "total": 10},
        "cost_details": {"total": 0.02},
        "input": '[{"role": "user", "content": "hi"}]',
        "output": '{"role": "assistant", "content": "hello"}',
        "level": "DEFAULT",
    } | fields


def trace(**fields: Any) -> dict[str, Any]:
    """A trace of Langfuse's blob storage."""
    return {
        "id": "my trace",
        "timestamp": "2026-01-01 10:00:00.000",
        "name": "user-query",
        "project_id": "p",
        "user_id": "u1",
        "session_id": "s1",
        "release": "1.4",
        "tags": ["production"],
        "metadata": {"plan": "paid"},
        "input": '{"question": "hi"}',
        "output": "hello",
    } | fields


def score(**fields: Any) -> dict[str, Any]:
    """A score of Langfuse's blob storage."""
    return {
        "id": "score-1",
        "timestamp": "2026-01-02 08:00:00.000",
        "trace_id": "my trace",
        "observation_id": None,
        "name": "quality",
        "value": 0.5,
        "source": "API",
        "data_type": "NUMERIC",
        "string_value": None,
        "comment": "half",
    } | fields


RUN, CHILD = "018f2c1e-0000-7000-8000-000000000001", "018f2c1e-0000-7000-8000-000000000002"


def run(**fields: Any) -> dict[str, Any]:
    """A run of LangSmith."""
    return {
        "id": RUN,
        "trace_id": RUN,
        "dotted_order": f"20260101T100000000000Z{RUN}",
        "name": "answered",
        "run_type": "chain",
        "start_time": "2026-01-01T10:00:00",
        "end_time": "2026-01-01T10:00:02",
        "inputs": {"question": "hi"},
        "outputs": {"output": "hello"},
        "extra": {"metadata": {"session_id": "s1", "user_id": "u1", "plan": "paid"}},
        "tags": ["production"],
        "session_id": "018f2c1e-0000-7000-8000-0000000000ff",
        "status": "success",
    } | fields


def feedback(**fields: Any) -> dict[str, Any]:
    """Feedback of LangSmith."""
    return {
        "id": "018f2c1e-0000-7000-8000-0000000000aa",
        "run_id": RUN,
        "trace_id": RUN,
        "key": "quality",
        "score": 1.0,
        "comment": "fine",
        "created_at": "2026-01-02T08:00:00",
        "feedback_source": {"type": "api"},
    } | fields


def by_name(rows: Any) -> Mapping[str, Any]:
    return {row.name: row for row in rows}
