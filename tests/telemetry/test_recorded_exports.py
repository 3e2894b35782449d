"""What tracing SDKs exported is read: inputs, outputs, conversation, tool call, tokens and session; in SQL too.

Each file of recorded/ is what one version of an SDK sent for the program of tests/support/instrumented.py, without what
no test needs: definitions of tools, places in code, the machine.
"""

from pathlib import Path
from typing import Any

import pytest
from instrumented import ANSWER, ARGUMENTS, INSTRUCTIONS, QUESTION, RESULT
from otlp_requests import logs, record, span, traces

from evalflows.store import Store
from evalflows.store.observations import write_observations
from evalflows.store.sql import ask
from evalflows.telemetry.exports import add_traces, read_records
from evalflows.telemetry.otlp import merged, rows_of_fields, rows_of_logs, rows_of_traces
from evalflows.telemetry.views import ObservationView, TraceView, trace_view

RECORDED = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.jsonl"))
ASKED_ABOUT = {"question": QUESTION}
"""The input of applications that recorded what their own function was given."""
INPUTS: dict[str, Any] = {"braintrust": ASKED_ABOUT, "mlflow": ASKED_ABOUT}
SESSIONS = ("vercel_ai_5", "vercel_ai_6", "google_adk_1", "google_adk_2", "openlit", "braintrust")
TOTAL_AS_OUTPUT = "google_adk_1"
"""It counted all tokens as those of the answer."""
CALLS: dict[str, Any] = {"braintrust": [], "semantic_kernel": [("w-weather", ARGUMENTS, str(RESULT))]}
"""Tool calls that are recorded otherwise: not at all, or with the plugin's name and the result as Python prints it."""


def trace_of(name: str) -> TraceView:
    parts = [rows_of_fields(record.value) for record in read_records(str(RECORDED / f"{name}.jsonl"))]
    both = merged(parts)
    assert not both.rejected
    return trace_view(both.observations)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_export_is_read(name: str) -> None:
    trace = trace_of(name)
    assert (trace.input, trace.output) == (INPUTS.get(name, QUESTION), ANSWER)
    assert (trace.tokens_in, trace.tokens_out) == (20, 30 if name == TOTAL_AS_OUTPUT else 10)
    assert trace.session_id == ("s1" if name in SESSIONS else None)
    assert trace.messages is not None
    first, *_, last = trace.messages
    assert (first["role"], last) == ("system", {"role": "assistant", "content": ANSWER})
    assert first["content"].startswith(INSTRUCTIONS) and trace.messages[1] == {"role": "user", "content": QUESTION}
    assert {view.model for view in trace.of_type("generation")} == {"mock-1"}
    calls = [(call.name, call.arguments, call.result) for call in trace.tool_calls]
    assert calls == CALLS.get(name, [("weather", ARGUMENTS, RESULT)])


def test_sql_shows_what_traces_show(store: Store) -> None:
    """Each input and output, under the same type: what a mapper gets is what an analyst finds."""
    views: dict[tuple[str, str], ObservationView] = {}
    for name in NAMES:
        add_traces(store, str(RECORDED / f"{name}.jsonl"))
        views |= {(view.trace_id, view.id): view for view in trace_of(name).observations}
    (rows,) = ask(store, ("select trace_id, span_id, type, input, output from observations where kind <> 'log'", ()))
    assert len(rows) == len(views)
    for trace_id, span_id, kind, *sides in rows:
        view = views[trace_id, span_id]
        assert kind == view.type
        for side, shown in zip(sides, (view.input, view.output), strict=True):
            assert (side is None) == (shown is None), (view.name, side, shown)
            text = said(shown)
            assert text is None or text in side.replace("\\", ""), (side, shown)
    (outputs,) = ask(store, ("from traces select list(output order by trace_id)", ()))
    assert len(outputs[0][0]) == len({trace_id for trace_id, _ in views})


def test_sql_shows_messages_that_were_logged_after_midnight(store: Store) -> None:
    midnight, second = 1_764_201_600 * 10**9, 10**9
    call = span(start=midnight - second, end=midnight + second, attributes={"gen_ai.operation.name": "chat"})
    asked = record("gen_ai.user.message", body={"content": "hi"}, at=midnight - second)
    said = record("gen_ai.choice", body={"message": {"role": "assistant", "content": "hello"}}, at=midnight + second)
    both = merged([rows_of_traces(traces(call)), rows_of_logs(logs(asked, said))])
    write_observations(store, both.observations)
    query = "select input, output from observations where kind <> 'log' and day = (select min(day) from observations)"
    (rows,) = ask(store, (query, ()))
    assert len(rows) == 1 and "hi" in rows[0][0] and "hello" in rows[0][1]


def said(side: Any) -> str | None:
    """The text that a side ends with; None if it is anything else."""
    messages = side.get("messages") if isinstance(side, dict) else None
    content = messages[-1]["content"] if messages else side
    return content if isinstance(content, str) and not content.startswith("{") else None
