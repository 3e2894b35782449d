"""Instrumented programs send to a receiver, each in a process of its own; what they did is read from the store."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sending_program
from instrumented import ANSWER, ARGUMENTS, QUESTION, RESULT
from receiving import Running, receiving

from evalflows.store.store import Store
from evalflows.telemetry.views import TraceView, trace_view

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sending_program.__file__)
TOKEN = "a-secret"
COMPRESSION = {"genai-openai": "gzip", "openllmetry": "deflate", "openinference": "none", "pydantic-ai": "gzip"}


@pytest.fixture
def running(store_root: Path) -> Iterator[Running]:
    with receiving(store_root, "--token", TOKEN) as running:
        yield running


def trace_of(name: str, running: Running, store_root: Path) -> TraceView:
    """Run the program under an instrumentation, and read the trace that it has sent."""
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": running.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{TOKEN}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": COMPRESSION.get(name, "gzip"),
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_AND_EVENT",
        "LANGFUSE_HOST": running.url,
        "LANGFUSE_BASE_URL": running.url,
        "LANGFUSE_PUBLIC_KEY": "a-public-key",
        "LANGFUSE_SECRET_KEY": TOKEN,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{PROGRAM.parent}",
    }
    done = subprocess.run(
        [sys.executable, "-P", PROGRAM, name], env=os.environ | environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    running.stop()
    store = Store(store_root)
    days = [day for (day,) in store.query("select distinct day from source.observations")]
    rows = [row for day in days for row in store.read("observations", day)]
    assert len({row.trace_id for row in rows}) == 1, done.stderr
    return trace_view(rows)


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("genai-openai", "langfuse")),
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("openllmetry", "openinference", "pydantic-ai")),
    ],
)
def test_a_program_sends_what_it_did(name: str, running: Running, store_root: Path) -> None:
    trace = trace_of(name, running, store_root)
    called = {"args": [], "kwargs": {"question": QUESTION}}
    assert trace.input == (called if name == "langfuse" else QUESTION)
    assert trace.output == ANSWER
    (call,) = trace.tool_calls
    assert (call.name, call.arguments, call.result) == ("weather", ARGUMENTS, RESULT)
    first, second = trace.of_type("generation")
    assert [(made.model, made.tokens_in, made.tokens_out) for made in (first, second)] == [("mock-1", 10, 5)] * 2
    assert (trace.tokens_in, trace.tokens_out) == (20, 10)
    assert trace.session_id == "s1"
    assert trace.user_id == (None if name == "pydantic-ai" else "u1")
    assert trace.tags == (["production"] if name in ("openinference", "langfuse") else [])
    if name != "langfuse":
        assert (trace.service, trace.version) == ("weather-bot", "1.4")


@pytest.mark.soak
def test_langfuse_with_another_key_is_refused(running: Running, store_root: Path) -> None:
    environment = {
        "LANGFUSE_BASE_URL": running.url,
        "LANGFUSE_PUBLIC_KEY": "a-public-key",
        "LANGFUSE_SECRET_KEY": "another",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{PROGRAM.parent}",
    }
    command = [sys.executable, "-P", PROGRAM, "langfuse"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    assert "401" in done.stderr
    running.stop()
    assert Store(store_root).query("select count(*) from source.observations") == [(0,)]
