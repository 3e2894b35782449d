"""What real packages export is read: inputs, outputs, tool calls, tokens, sessions and tags; None if not captured."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import langfuse_program
import pytest
from endpoint import Endpoint, serving
from instrumented import (
    ANSWER,
    ARGUMENTS,
    CONVERSATION,
    QUESTION,
    RESULT,
    Exported,
    answer,
    ask_under_langsmith,
    ask_within_a_span,
    exporting,
    instrumented,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evalflows.telemetry.otlp import rows_of_traces
from evalflows.telemetry.views import TraceView, trace_view

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""The packages' own."""

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(Endpoint(answer=answer)) as endpoint:
        yield endpoint


@pytest.fixture
def exported() -> Iterator[Exported]:
    with exporting() as exported:
        yield exported


def assert_captured(trace: TraceView) -> None:
    """The trace's input, output, conversation, tool call and tokens are there."""
    assert (trace.input, trace.output) == (QUESTION, ANSWER)
    assert_spoken(trace)
    (call,) = trace.tool_calls
    assert (call.name, call.arguments, call.result) == ("weather", ARGUMENTS, RESULT)


def assert_spoken(trace: TraceView) -> None:
    first, second = trace.of_type("generation")
    assert plain(trace.messages) == CONVERSATION
    assert plain(second.messages) == CONVERSATION
    assert plain(first.messages) == CONVERSATION[:3]
    for made in (first, second):
        assert (made.model, made.tokens_in, made.tokens_out, made.latency_s is not None) == ("mock-1", 10, 5, True)
    assert (trace.tokens_in, trace.tokens_out) == (20, 10)


def assert_not_captured(trace: TraceView) -> None:
    """No content is there, and no blank in its place; the tokens are."""
    assert (trace.input, trace.output, trace.messages) == (None, None, None)
    for view in trace.observations:
        assert (view.input, view.output, view.messages) == (None, None, None)
    assert all((call.arguments, call.result) == (None, None) for call in trace.tool_calls)
    assert (trace.tokens_in, trace.tokens_out) == (20, 10)


def plain(messages: Any) -> Any:
    """Messages as compared: arguments and results of tools without regard to spaces in their JSON."""
    return [
        message
        | ({"content": json.dumps(json.loads(message["content"]))} if message["role"] == "tool" else {})
        | ({"tool_calls": [_plain_call(call) for call in message["tool_calls"]]} if "tool_calls" in message else {})
        for message in messages
    ]


def _plain_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return call | {"function": function | {"arguments": json.dumps(json.loads(function["arguments"]))}}


# OpenTelemetry's own


@pytest.mark.parametrize("place", ["SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"])
def test_genai_openai(place: str, exported: Exported, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    monkeypatch.setenv(CAPTURE, place)
    with instrumented(OpenAIInstrumentor(), exported):
        ask_within_a_span(exported, endpoint)
    trace = exported.trace()
    assert_captured(trace)
    assert (trace.name, trace.service, trace.version) == ("answer", "weather-bot", "1.4")
    assert (trace.session_id, trace.user_id) == ("s1", "u1")
    assert {view.type for view in trace.observations} == {"span", "generation"}
    assert trace.of_type("generation")[0].provider == "openai"


def test_genai_openai_without_content(exported: Exported, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    monkeypatch.setenv(CAPTURE, "NO_CONTENT")
    with instrumented(OpenAIInstrumentor(), exported):
        ask_within_a_span(exported, endpoint)
    assert_not_captured(exported.trace())


# OpenLLMetry


@pytest.mark.parametrize("attributes", [True, False])
def test_openllmetry(attributes: bool, exported: Exported, endpoint: Endpoint) -> None:
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    with instrumented(OpenAIInstrumentor(use_attributes=attributes), exported):
        ask_within_a_span(exported, endpoint)
    trace = exported.trace()
    assert (trace.session_id, trace.user_id) == ("s1", "u1")
    if attributes:
        assert_captured(trace)
    else:  # its events leave the id of a tool's message out, so nothing says whose result it is
        assert (trace.input, trace.output, trace.tokens_in) == (QUESTION, ANSWER, 20)
        assert [(call.name, call.arguments) for call in trace.tool_calls] == [("weather", ARGUMENTS)]


# OpenInference


def test_openinference(exported: Exported, endpoint: Endpoint) -> None:
    from openinference.instrumentation import using_attributes
    from openinference.instrumentation.openai import OpenAIInstrumentor

    given = using_attributes(session_id="s1", user_id="u1", tags=["production", "a, b"], metadata={"plan": "paid"})
    with instrumented(OpenAIInstrumentor(), exported), given:
        ask_within_a_span(exported, endpoint)
    trace = exported.trace()
    assert_captured(trace)
    assert (trace.session_id, trace.user_id, trace.tags) == ("s1", "u1", ["a, b", "production"])
    assert trace.of_type("generation")[0].metadata["plan"] == "paid"


# pydantic-ai


def run_agent(exported: Exported, endpoint: Endpoint, **settings: Any) -> TraceView:
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import Instrumentation
    from pydantic_ai.models.instrumented import InstrumentationSettings
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=endpoint.base_url, api_key="k")
    capability = Instrumentation(InstrumentationSettings(tracer_provider=exported.tracer_provider, **settings))
    agent = Agent(
        OpenAIChatModel("mock-1", provider=provider), name="bot", instructions="Be brief.", capabilities=[capability]
    )

    @agent.tool_plain
    def weather(city: str) -> dict[str, str]:
        return RESULT

    agent.run_sync(QUESTION, conversation_id="s1")
    return exported.trace()


@pytest.mark.filterwarnings("ignore:Instrumentation format versions")
@pytest.mark.parametrize("version", [2, 5])
def test_pydantic_ai(version: Any, exported: Exported, endpoint: Endpoint) -> None:
    trace = run_agent(exported, endpoint, version=version)
    assert_captured(trace)
    assert (trace.name in ("agent run", "invoke_agent bot"), trace.session_id) == (True, "s1")
    assert [view.type for view in trace.observations] == ["agent", "generation", "tool", "generation"]
    agent, _, tool, _ = trace.observations
    assert agent.input == {"messages": CONVERSATION[:2]}
    assert agent.output == ANSWER
    assert (tool.input, tool.output, len(tool.tool_calls)) == (ARGUMENTS, RESULT, 1)


def test_pydantic_ai_without_content(exported: Exported, endpoint: Endpoint) -> None:
    trace = run_agent(exported, endpoint, include_content=False)
    assert_not_captured(trace)
    assert [call.name for call in trace.tool_calls] == ["weather"]


# langfuse


@pytest.mark.slow
def test_langfuse() -> None:
    """In a process of its own, since langfuse wraps openai for good."""
    program = Path(langfuse_program.__file__)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{program.parent}"}
    done = subprocess.run([sys.executable, "-P", program], env=environment, capture_output=True, check=True)
    trace = trace_view(rows_of_traces(ExportTraceServiceRequest.FromString(done.stdout)).observations)
    assert trace.input == {"args": [], "kwargs": {"question": QUESTION}}
    assert trace.output == ANSWER
    assert_spoken(trace)
    (call,) = trace.tool_calls
    assert (call.name, call.arguments, call.result, call.id) == ("weather", ARGUMENTS, RESULT, "call_1")
    assert (trace.name, trace.session_id, trace.user_id, trace.tags) == ("user-query", "s1", "u1", ["production"])
    assert (trace.version, trace.metadata["plan"]) == ("1.5", "paid")


# langsmith


def ask_with_langsmith(exported: Exported, endpoint: Endpoint, **settings: Any) -> TraceView:
    from langsmith import Client

    langsmith = Client(
        api_url="http://127.0.0.1:9",
        api_key="k",
        tracing_mode="otel",
        otel_tracer_provider=exported.tracer_provider,
        **settings,
    )

    ask_under_langsmith(langsmith, endpoint)
    langsmith.flush()
    langsmith.close()
    return exported.trace()


def test_langsmith(exported: Exported, endpoint: Endpoint) -> None:
    trace = ask_with_langsmith(exported, endpoint)
    assert (trace.input, trace.output) == ({"question": QUESTION}, {"output": ANSWER})
    assert_spoken(trace)
    (call,) = trace.tool_calls
    assert (call.name, call.arguments, call.result) == ("weather", ARGUMENTS, RESULT)
    assert (trace.name, trace.session_id, trace.user_id) == ("answered", "s1", "u1")
    assert (trace.tags, trace.metadata["plan"]) == (["beta", "production"], "paid")
    assert trace.of_type("generation")[0].provider == "openai"


def test_langsmith_without_content(exported: Exported, endpoint: Endpoint) -> None:
    assert_not_captured(ask_with_langsmith(exported, endpoint, hide_inputs=True, hide_outputs=True))
