"""Langfuse's exports: traces, observations and scores, of its blob storage, its API, and its package's own models."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from catalog_rows import one, rows
from exported_files import observation, score, trace, written
from otlp_requests import SPAN, TRACE

from evalflows.store.queries.traces import observations_of_trace
from evalflows.store.store import Store
from evalflows.telemetry.exports import Added, add_traces
from evalflows.telemetry.views import TraceView, trace_view

AT = datetime(2026, 1, 1, 10, tzinfo=UTC)


def added(tmp_path: Path, *records: Any, name: str = "export.jsonl") -> Added:
    done = add_traces(Store(), written(tmp_path / name, *records))
    assert (done.format, done.rejected) == ("langfuse", [])
    return done


def the_trace() -> TraceView:
    (identity,) = one("select trace_id from traces")
    return trace_view(observations_of_trace(Store(), identity))


def assert_complete(found: TraceView) -> None:
    assert (found.name, found.session_id, found.user_id, found.version) == ("user-query", "s1", "u1", "1.4")
    assert (found.input, found.output, found.tags) == ({"question": "hi"}, "hello", ["production"])
    assert (found.tokens_in, found.tokens_out, found.cost_usd) == (7, 3, 0.02)
    root, call = found.observations
    assert (root.type, root.parent_id, root.metadata["plan"]) == ("span", None, "paid")
    assert (call.type, call.parent_id, call.model, call.latency_s) == ("generation", root.id, "gpt-4o", 1.5)
    assert call.messages == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def test_traces_and_observations_of_the_blob_storage_are_files_of_their_own(tmp_path: Path) -> None:
    added(tmp_path, observation(), name="observations.jsonl")
    added(tmp_path, trace(), name="traces.jsonl")
    assert_complete(the_trace())
    assert one("select name, input, tokens_in, cost_usd from traces") == ("user-query", '{"question": "hi"}', 7, 0.02)


def test_a_trace_of_the_api_has_its_observations_and_scores(tmp_path: Path) -> None:
    """In camel case, with values that are parsed."""
    call = {
        "id": "obs-1",
        "traceId": "my trace",
        "type": "GENERATION",
        "startTime": "2026-01-01T10:00:00.250Z",
        "endTime": "2026-01-01T10:00:01.750Z",
        "name": "call",
        "model": "gpt-4o",
        "usageDetails": {"input": 7, "output": 3},
        "costDetails": {"total": 0.02},
        "input": [{"role": "user", "content": "hi"}],
        "output": {"role": "assistant", "content": "hello"},
    }
    given = {"id": "s", "traceId": "my trace", "name": "quality", "value": 1, "source": "EVAL", "dataType": "BOOLEAN"}
    whole = {
        "id": "my trace",
        "timestamp": "2026-01-01T10:00:00Z",
        "projectId": "p",
        "name": "user-query",
        "userId": "u1",
        "sessionId": "s1",
        "release": "1.4",
        "tags": ["production"],
        "metadata": {"plan": "paid"},
        "input": {"question": "hi"},
        "output": "hello",
        "latency": 2.0,
        "observations": [call],
        "scores": [given | {"timestamp": "2026-01-02T08:00:00Z"}],
    }
    done = added(tmp_path, {"data": [whole], "meta": {"page": 1}})
    assert (done.new, done.scores) == (2, 1)
    assert_complete(the_trace())
    assert the_trace().latency_s == 2.0
    assert rows("select metric, value, data_type, evaluator from trace_scores") == [
        ("quality", 1.0, "BOOLEAN", "langfuse")
    ]


def test_ids_that_are_not_hexadecimal_are_stable_and_kept(tmp_path: Path) -> None:
    added(tmp_path, observation(), observation(id="obs-2", parent_observation_id="obs-1"))
    found = rows(
        "select span_id, parent_id, attributes ->> 'id', attributes ->> 'trace_id' from observations order by 3"
    )
    (first, _, *ids), (second, parent, *_) = found
    assert ids == ["obs-1", "my trace"]
    assert parent == first != second
    assert {len(first), len(second)} == {16}
    assert len(one("select trace_id from traces")[0]) == 32


def test_scores_are_of_what_they_name(tmp_path: Path) -> None:
    done = added(
        tmp_path,
        observation(),
        score(),
        score(id="2", name="tone", observation_id="obs-1", data_type="CATEGORICAL", value=1, string_value="kind"),
        score(id="3", name="solved", trace_id=None, session_id="s1", data_type="BOOLEAN", value=0),
        score(id="4", name="rating", source="ANNOTATION", author_user_id="anna", value=4),
        score(id="5", name="run", trace_id=None, dataset_run_id="r"),
    )
    assert (done.scores, done.labels, done.n_rejected) == (3, 1, 0)
    trace_id, span_id = one("select trace_id, span_id from observations")
    query = (
        "select metric, subject_kind, subject_id, value, label, data_type, comment, status from trace_scores order by 1"
    )
    assert rows(query) == [
        ("quality", "trace", trace_id, 0.5, None, "NUMERIC", "half", "scored"),
        ("solved", "session", "s1", 0.0, None, "BOOLEAN", "half", "scored"),
        ("tone", "observation", f"{trace_id}/{span_id}", None, "kind", "CATEGORICAL", "half", "scored"),
    ]
    assert rows("select metric, value, labeller, source, trace_id from trace_labels") == [
        ("rating", 4.0, "anna", "langfuse", trace_id)
    ]


INCOMPLETE = [
    (observation(start_time=None), "got no startTime, wanted a time"),
    (observation(start_time="noon"), "startTime: got 'noon', wanted a time such as 2026-01-31T12:00:00Z"),
    (observation(id=None), "got no id, wanted that of the observation"),
    (trace(timestamp=""), "got no timestamp, wanted a time"),
    (score(timestamp=None), "got no timestamp, wanted a time"),
]


def test_a_record_without_what_it_needs_costs_only_itself(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "o.jsonl", observation(), *(record for record, _ in INCOMPLETE))
    wanted = [f"{path}: line {number}: {problem}" for number, (_, problem) in enumerate(INCOMPLETE, start=2)]
    done = add_traces(store, path)
    assert (done.new, done.rejected) == (1, wanted)


def test_models_of_the_package_are_read(tmp_path: Path) -> None:
    """What `langfuse.api.observations` and `langfuse.api.scores` answer, as their models write it."""
    from langfuse.api.commons import ObservationV2
    from langfuse.api.commons.types.score import Score_Categorical, Score_Numeric

    call = ObservationV2(
        id=SPAN,
        trace_id=TRACE,
        start_time=AT,
        end_time=AT + timedelta(seconds=1.5),
        project_id="p",
        type="GENERATION",
        name="call",
        user_id="u1",
        session_id="s1",
        trace_name="user-query",
        tags=["production"],
        release="1.4",
        input=[{"role": "user", "content": "hi"}],
        output={"role": "assistant", "content": "hello"},
        model="gpt-4o",
        usage_details={"input": 7, "output": 3},
        cost_details={"total": 0.02},
        metadata={"plan": "paid"},
    )
    common: dict[str, Any] = {
        "trace_id": TRACE,
        "timestamp": AT,
        "created_at": AT,
        "updated_at": AT,
        "environment": "x",
    }
    scores = (
        Score_Numeric(id="1", name="quality", value=0.5, source="API", **common),
        Score_Categorical(id="2", name="tone", value=1, string_value="kind", source="ANNOTATION", **common),
    )
    done = added(tmp_path, *(json.loads(model.json()) for model in (call, *scores)))
    assert (done.new, done.scores, done.labels) == (1, 1, 1)
    found = the_trace()
    assert (found.name, found.session_id, found.user_id, found.version) == ("user-query", "s1", "u1", "1.4")
    assert (found.input, found.output, found.tags) == ("hi", "hello", ["production"])
    assert (found.tokens_in, found.tokens_out, found.cost_usd, found.latency_s) == (7, 3, 0.02, 1.5)
    assert (found.observations[0].model, found.observations[0].metadata["plan"]) == ("gpt-4o", "paid")
    assert rows("select value from trace_scores") == [(0.5,)]
    assert rows("select label, data_type from trace_labels") == [("kind", "CATEGORICAL")]
