"""Spans that a console printed, or Phoenix exported, are those of OpenTelemetry's protocol."""

import io
import json
from pathlib import Path

import pytest
from catalog_rows import rows
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from evalflows.specs.errors import InputError
from evalflows.store.store import Store
from evalflows.telemetry.exports import add_traces

COLUMNS = "name, type, kind, status, status_message, input, output, service"


def printed() -> str:
    """What OpenTelemetry's console exporter prints of two spans: one object after another, each over several lines."""
    console = io.StringIO()
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=console)))
    tracer = provider.get_tracer("shop")
    with pytest.raises(ValueError), tracer.start_as_current_span("answer", attributes={"input.value": "hi"}):
        with tracer.start_as_current_span("chat", attributes={"gen_ai.request.model": "m"}) as call:
            call.add_event("gen_ai.choice", {"message": "yo"})
        raise ValueError("boom")
    return console.getvalue()


def test_what_a_console_printed_is_read_up_to_a_cut(store: Store, tmp_path: Path) -> None:
    path, text = tmp_path / "console.txt", printed()
    path.write_text(text)
    added = add_traces(store, str(path))
    assert (added.format, added.records, added.new, added.rejected) == ("spans", 2, 2, [])
    assert rows(f"select {COLUMNS} from observations order by started_at") == [
        ("answer", "span", "internal", "error", "ValueError: boom", "hi", None, "shop"),
        ("chat", "generation", "internal", "unset", None, None, '[{"event":"gen_ai.choice","content":"yo"}]', "shop"),
    ]
    path.write_text(text[:-9])
    assert add_traces(store, str(path)).rejected[0].startswith(f"{path}: object 2: not JSON")


def test_an_export_of_phoenix_is_read(store: Store, tmp_path: Path) -> None:
    """Of a data frame, in which attributes are columns and messages a list."""
    span = {
        "name": "llm",
        "span_kind": "LLM",
        "parent_id": None,
        "start_time": "2026-01-01T10:00:00+00:00",
        "end_time": "2026-01-01T10:00:01+00:00",
        "status_code": "OK",
        "status_message": "",
        "events": [],
        "context.trace_id": "ab" * 16,
        "context.span_id": "cd" * 8,
        "attributes.llm.input_messages": [{"message.content": "hi", "message.role": "user"}],
        "attributes.output.value": "yo",
        "attributes.llm.token_count.prompt": 3,
    }
    path = tmp_path / "spans.jsonl"
    path.write_text(json.dumps(span) + "\n" + json.dumps(span | {"context.span_id": "x"}) + "\n")
    rejected = add_traces(store, str(path)).rejected
    assert rejected == [f"{path}: line 2: context.span_id: got 'x', wanted 16 hexadecimal digits"]
    assert rows(f"select {COLUMNS}, tokens_in, latency_s from observations") == [
        ("llm", "generation", None, "ok", None, '[{"message.content":"hi","message.role":"user"}]', "yo", None, 3, 1.0)
    ]
    path.write_text('{"name": "a", "start_time": "now"}')
    with pytest.raises(InputError, match="got 'name, start_time', wanted a span with its context"):
        add_traces(store, str(path), form="spans")
