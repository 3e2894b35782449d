"""A small program that asks a model twice, with a tool between, run under real instrumentations; what they export."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import openai
import wrapt
from endpoint import Endpoint, Reply, Request, completion
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from evalflows.store.trace_records import ObservationRow
from evalflows.telemetry.feedback import Telemetry
from evalflows.telemetry.otlp import merged, rows_of_logs, rows_of_traces
from evalflows.telemetry.views import TraceView, trace_view

QUESTION, INSTRUCTIONS, ANSWER = "What is the weather in Paris?", "Be brief.", "It is sunny."
ARGUMENTS, RESULT = {"city": "Paris"}, {"sky": "clear"}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
REQUEST = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": QUESTION}]
CONVERSATION = [
    *REQUEST,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": '{"sky": "clear"}', "tool_call_id": "call_1"},
    {"role": "assistant", "content": ANSWER},
]
"""The whole conversation as OpenAI writes it."""


def answer(request: Request) -> Reply:
    """Call the tool first, and answer once it has answered."""
    if any(message["role"] == "tool" for message in request["messages"]):
        return completion(ANSWER)
    return completion(None, finish_reason="tool_calls", tool_calls=[CALL])


def ask(client: openai.OpenAI, use_tool: Callable[..., Any] = lambda city: RESULT) -> str | None:
    """Ask the model, run the tool that it calls, and ask again."""
    made = client.chat.completions.create(model="mock-1", messages=CONVERSATION[:2], tools=[TOOL])  # type: ignore[call-overload]
    assert made.choices[0].message.tool_calls
    use_tool(**ARGUMENTS)
    made = client.chat.completions.create(model="mock-1", messages=CONVERSATION[:4], tools=[TOOL])  # type: ignore[call-overload]
    text: str | None = made.choices[0].message.content
    return text


@dataclass
class Exported:
    """Where an instrumentation exports to, in this process."""

    tracer_provider: TracerProvider
    logger_provider: LoggerProvider
    spans: InMemorySpanExporter
    logs: InMemoryLogRecordExporter

    def parsed(self) -> Telemetry:
        """What was exported, sent in OpenTelemetry's protocol and read."""
        self.tracer_provider.force_flush()
        traces = rows_of_traces(encode_spans(self.spans.get_finished_spans()))
        both = merged([traces, rows_of_logs(encode_logs(self.logs.get_finished_logs()))])
        assert not both.rejected
        return both

    def rows(self) -> list[ObservationRow]:
        return self.parsed().observations

    def trace(self) -> TraceView:
        rows = self.rows()
        assert len({row.trace_id for row in rows}) == 1
        return trace_view(rows)


@contextmanager
def exporting() -> Iterator[Exported]:
    resource = Resource({"service.name": "weather-bot", "service.version": "1.4"})
    exported = Exported(
        TracerProvider(resource=resource, shutdown_on_exit=False),
        LoggerProvider(resource=resource, shutdown_on_exit=False),
        InMemorySpanExporter(),
        InMemoryLogRecordExporter(),
    )
    exported.tracer_provider.add_span_processor(SimpleSpanProcessor(exported.spans))
    exported.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(exported.logs))
    yield exported
    exported.tracer_provider.shutdown()
    exported.logger_provider.shutdown()


@contextmanager
def instrumented(instrumentor: Any, exported: Exported) -> Iterator[None]:
    instrumentor.instrument(tracer_provider=exported.tracer_provider, logger_provider=exported.logger_provider)
    try:
        yield
    finally:
        instrumentor.uninstrument()
        _unwrap_openai()


def _unwrap_openai() -> None:
    """Undo what an instrumentation leaves wrapped (OpenLLMetry all of it), so that no later test is recorded."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("openai.resources")]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    for one in classes:
        for name, method in list(vars(one).items()):
            if isinstance(method, wrapt.BaseObjectProxy):
                setattr(one, name, method.__wrapped__)


def client_of(endpoint: Endpoint) -> openai.OpenAI:
    return openai.OpenAI(base_url=endpoint.base_url, api_key="k")


def ask_under_langsmith(langsmith: Any, endpoint: Endpoint) -> None:
    """Run the program as a traced function of langsmith's, with its tags, session and user."""
    from langsmith import traceable, tracing_context
    from langsmith.wrappers import wrap_openai

    @traceable(run_type="tool")
    def weather(city: str) -> dict[str, str]:
        return RESULT

    @traceable(tags=["production", "beta"], metadata={"session_id": "s1", "user_id": "u1", "plan": "paid"})
    def answered(question: str) -> str | None:
        return ask(client, weather)

    with tracing_context(enabled=True, client=langsmith), client_of(endpoint) as bare:
        client = wrap_openai(bare)
        answered(QUESTION)


def ask_within_a_span(exported: Exported, endpoint: Endpoint) -> None:
    """Run the program as a step of an application with spans of its own."""
    tracer = exported.tracer_provider.get_tracer("weather-bot")
    whose = {"session.id": "s1", "user.id": "u1"}  # as OpenTelemetry's conventions name them
    with tracer.start_as_current_span("answer", attributes=whose), client_of(endpoint) as client:
        ask(client)
