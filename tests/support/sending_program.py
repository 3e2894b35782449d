"""The program of instrumented.py under one instrumentation, exporting as the environment says: to a receiver.

Run as `python sending_program.py INSTRUMENTATION`, in a process of its own, as an application would be.
"""

import sys
from contextlib import ExitStack, nullcontext
from typing import Any

from endpoint import Endpoint, serving
from instrumented import QUESTION, RESULT, Exported, answer, ask_within_a_span, instrumented


def sending() -> Exported:
    """Providers that export by OpenTelemetry's own exporters, which the environment configures."""
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, InMemoryLogRecordExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    resource = Resource({"service.name": "weather-bot", "service.version": "1.4"})
    tracers, loggers = TracerProvider(resource=resource), LoggerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    return Exported(tracers, loggers, InMemorySpanExporter(), InMemoryLogRecordExporter())


def run_agent(exported: Exported, endpoint: Endpoint) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import Instrumentation
    from pydantic_ai.models.instrumented import InstrumentationSettings
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=endpoint.base_url, api_key="k")
    capability = Instrumentation(InstrumentationSettings(tracer_provider=exported.tracer_provider))
    model = OpenAIChatModel("mock-1", provider=provider)
    agent = Agent(model, name="bot", instructions="Be brief.", capabilities=[capability])

    @agent.tool_plain
    def weather(city: str) -> dict[str, str]:
        return RESULT

    agent.run_sync(QUESTION, conversation_id="s1")


def instrumentor(name: str) -> Any:
    match name:
        case "genai-openai":
            from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
        case "openllmetry":
            from opentelemetry.instrumentation.openai import OpenAIInstrumentor
        case "openinference":
            from openinference.instrumentation.openai import OpenAIInstrumentor
    return OpenAIInstrumentor()


def run(name: str, endpoint: Endpoint) -> None:
    if name == "langfuse":
        import langfuse_program

        langfuse_program.run(None, endpoint)
        return
    exported = sending()
    if name == "pydantic-ai":
        run_agent(exported, endpoint)
    else:
        with ExitStack() as stack:
            stack.enter_context(instrumented(instrumentor(name), exported))
            stack.enter_context(_session() if name == "openinference" else nullcontext())
            ask_within_a_span(exported, endpoint)
    exported.tracer_provider.shutdown()
    exported.logger_provider.shutdown()


def _session() -> Any:
    from openinference.instrumentation import using_attributes

    return using_attributes(session_id="s1", user_id="u1", tags=["production"])


if __name__ == "__main__":
    with serving(Endpoint(answer=answer)) as endpoint:
        run(sys.argv[1], endpoint)
