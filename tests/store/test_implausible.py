"""Costs, tokens and times that cannot be: kept and named, and in no sum, day or window."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from otlp_requests import span, traces

from evalflows.specs.retention import RetentionSpec
from evalflows.store.observations import last_owner, write_observations
from evalflows.store.queries.traces import observations_of_trace
from evalflows.store.queries.unknown_rows import unknown_observations
from evalflows.store.records import now
from evalflows.store.retention import would_retain
from evalflows.store.sql import ask
from evalflows.store.store import Store
from evalflows.telemetry.otlp import rows_of_traces
from evalflows.telemetry.views import trace_view

GENERATION = {"gen_ai.operation.name": "chat"}
COST, IN, OUT = "llm.cost.total", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
SECOND = 10**9


def written(store: Store, **fields: Any) -> tuple[Any, ...]:
    """The trace of an ordinary span and of one more with these fields."""
    start = int((now() - timedelta(hours=1)).timestamp()) * SECOND
    usual = span("usual", attributes={**GENERATION, COST: 0.5, IN: 10, OUT: 2}, start=start, end=start + SECOND)
    other = {"start": start, "end": start + SECOND, **fields, "attributes": GENERATION | fields.get("attributes", {})}
    rows = rows_of_traces(traces(usual, span("other", span_id="ab" * 8, **other))).observations
    write_observations(store, rows)
    assert unknown_observations(store, rows).rows == [], "known when they come again"
    (found,) = ask(store, ("select cost_usd, tokens_in, tokens_out, latency_s, implausible from traces", []))
    ((trace_id,),) = store.query("select distinct trace_id from source.observations")
    view = trace_view(observations_of_trace(store, trace_id))
    assert found[0][:4] == (view.cost_usd, view.tokens_in, view.tokens_out, view.latency_s), "in Python as in SQL"
    return found[0]


@pytest.mark.parametrize("cost", [1e308, -1.0, 1e6 + 1, "inf", "NaN", "-1e300"])
def test_implausible_costs_are_in_no_sum(cost: Any, store: Store) -> None:
    assert written(store, attributes={COST: cost}) == (0.5, 10, 2, 1.0, ["cost_usd"])
    ((kept,),) = store.query(f"""select attributes ->> '$."{COST}"' from source.observations where name = 'other'""")
    assert str(float(kept)) == str(float(cost)), "as it was sent"


def test_implausible_tokens_are_in_no_sum_and_plausible_ones_are(store: Store) -> None:
    found = written(store, attributes={IN: 10**18, OUT: -5, COST: 1e6})
    assert found == (1e6 + 0.5, 10, 2, 1.0, ["tokens_in", "tokens_out"])


@pytest.mark.parametrize(
    ("start", "end", "implausible"),
    [
        (2**63 - 1, 2**63 - 1, ["ended_at", "started_at"]),
        (10**13, 10**13, ["ended_at", "started_at"]),
        (None, 2**63 - 1, ["ended_at"]),
        (datetime(2001, 1, 1, tzinfo=UTC).timestamp() * SECOND, None, ["ended_at"]),
    ],
)
def test_a_span_of_another_age_is_in_no_sum_and_not_the_last(
    start: float | None, end: int | None, implausible: list[str], store: Store
) -> None:
    fields = {"start": start, "end": end}
    found = written(store, **{name: int(value) for name, value in fields.items() if value is not None})
    assert found[4] == implausible
    assert (last_owner(store, "observations") or "9") <= now().date().isoformat()
    old = would_retain(store, RetentionSpec(trace_texts_days=7))
    assert [dict(one.rows) for one in old] == [{}], "as old as its record"
    ((newest, latency),) = store.query("select max(started_at), max(latency_s) from staging.observations")
    assert newest < now() and latency == 1
