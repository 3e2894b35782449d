"""LangSmith's exports: runs that its package records, its bulk export, and feedback."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import one, rows
from endpoint import Endpoint, serving
from exported_files import CHILD, RUN, feedback, run, written
from instrumented import ANSWER, ARGUMENTS, CONVERSATION, QUESTION, RESULT, answer, ask_under_langsmith

from evalflows.store.queries.traces import observations_of_trace
from evalflows.store.store import Store
from evalflows.telemetry.exports import Added, add_traces, add_untraced
from evalflows.telemetry.views import TraceView, trace_view

CHILD_RUN = run(
    id=CHILD,
    name="call",
    run_type="llm",
    start_time="2026-01-01T10:00:01",
    dotted_order=f"20260101T100000000000Z{RUN}.20260101T100001000000Z{CHILD}",
)


def added(tmp_path: Path, *records: Any, name: str = "runs.jsonl") -> Added:
    done = add_traces(Store(), written(tmp_path / name, *records))
    assert (done.format, done.rejected) == ("langsmith", [])
    return done


def the_trace() -> TraceView:
    (identity,) = one("select trace_id from traces")
    return trace_view(observations_of_trace(Store(), identity))


def test_a_run_is_an_observation(tmp_path: Path) -> None:
    added(tmp_path, run())
    found = the_trace()
    assert (found.id, found.name, found.latency_s, found.status) == (RUN.replace("-", ""), "answered", 2.0, "ok")
    assert (found.input, found.output) == ({"question": "hi"}, {"output": "hello"})
    assert (found.session_id, found.user_id, found.tags) == ("s1", "u1", ["production"])  # its own is the project's
    assert (found.metadata["plan"], found.metadata["id"]) == ("paid", RUN)


def test_a_run_is_below_its_parent(tmp_path: Path) -> None:
    query = "select c.name, p.name from observations c join observations p on c.parent_id = p.span_id"
    for fields in ({}, {"parent_run_id": RUN}, {"parent_run_ids": [RUN], "dotted_order": None}, {"trace_id": None}):
        added(tmp_path, run(), CHILD_RUN | fields)
        assert rows(query) == [("call", "answered")]
        assert one("select count(*) from traces") == (1,)


def test_a_bulk_export_holds_objects_as_text(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in run().items()}
    path = tmp_path / "runs.parquet"
    pq.write_table(pa.Table.from_pylist([texts | {"prompt_tokens": 7, "total_cost": "0.5", "run_type": "llm"}]), path)
    assert add_traces(Store(), str(path)).format == "langsmith"
    found = the_trace()
    assert (found.input, found.session_id, found.user_id) == ({"question": "hi"}, "s1", "u1")
    assert (found.tokens_in, found.tokens_out, found.cost_usd) == (7, None, 0.5)
    assert one("select session_id, tokens_in, cost_usd, tags from traces") == ("s1", 7, 0.5, ["production"])


def test_feedback_is_of_its_run(tmp_path: Path) -> None:
    done = added(
        tmp_path,
        run(),
        CHILD_RUN,
        feedback(),
        feedback(id="2", key="tone", run_id=CHILD, score=None, value="kind"),
        feedback(id="3", key="rating", score=4, feedback_source={"type": "app", "user_name": "anna"}),
        feedback(id="4", key="project", run_id=None, trace_id=None),
    )
    assert (done.scores, done.labels, done.ignored) == (2, 1, 1)
    query = "select metric, subject_kind, value, label, data_type, comment, trace_id from trace_scores order by 1"
    trace = RUN.replace("-", "")
    assert rows(query) == [
        ("quality", "trace", 1.0, None, "NUMERIC", "fine", trace),
        ("tone", "observation", None, "kind", "CATEGORICAL", "fine", trace),
    ]
    found = rows("select metric, value, labeller, source, subject_kind from trace_labels")
    assert found == [("rating", 4.0, "anna", "langsmith", "trace")]


def test_the_means_of_a_run_s_feedback_are_scores(tmp_path: Path) -> None:
    stats = {"quality": {"n": 2, "avg": 0.75, "values": {}}, "tone": {"n": 1, "avg": None, "values": {"kind": 1}}}
    done = added(tmp_path, run(feedback_stats=stats | {"note": {"n": 1, "avg": None, "values": {}}}))
    assert (done.scores, done.ignored) == (2, 1)
    found = rows("select metric, value, label, evaluator, evaluator_version from trace_scores order by 1")
    assert found == [
        ("quality", 0.75, None, "langsmith", "feedback_stats"),
        ("tone", None, "kind", "langsmith", "feedback_stats"),
    ]


INCOMPLETE = [
    (run(start_time=None), f"run '{RUN}': got no start_time, wanted one"),
    (feedback(created_at=None), "feedback 'quality': got no created_at, wanted a time"),
    ({"a": 1}, "got a, wanted a run or feedback of LangSmith"),
]


def test_a_record_without_what_it_needs_costs_only_itself(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", run(), *(record for record, _ in INCOMPLETE))
    wanted = [f"{path}: line {number}: {problem}" for number, (_, problem) in enumerate(INCOMPLETE, start=2)]
    done = add_traces(store, path)
    assert (done.new, done.rejected) == (1, wanted)


def test_feedback_without_a_trace_is_on_its_run_that_is_added_later(store: Store, tmp_path: Path) -> None:
    of_runs = [feedback(id=str(n), run_id=run_id, trace_id=None) for n, run_id in enumerate((RUN, CHILD, "0" * 32))]
    done = add_traces(store, written(tmp_path / "feedback.jsonl", *of_runs))
    add_traces(store, written(tmp_path / "runs.jsonl", run(), CHILD_RUN))
    add_untraced(store, done)
    assert [line.partition(": ")[2][:6] for line in done.rejected] == ["line 3"]
    subjects = rows("select subject_kind from labels union all select subject_kind from judgements order by 1")
    assert subjects == [("observation",), ("trace",)]


# what the package records


class Recorder:
    """A session that keeps what LangSmith's client posts instead of sending it."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}

    def mount(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...

    def request(self, method: str, url: str, **arguments: Any) -> Any:
        import requests

        if found := re.search(r"/runs(?:/([\w-]+))?$", url):
            fields = json.loads(arguments.get("data") or "{}")
            identity = found[1] or fields["id"]
            self.runs[identity] = self.runs.get(identity, {"id": identity}) | fields
        response = requests.Response()
        response.status_code, response._content = 200, b"{}"
        return response


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(Endpoint(answer=answer)) as endpoint:
        yield endpoint


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the package's own
def test_runs_that_the_package_records_are_read(tmp_path: Path, endpoint: Endpoint) -> None:
    """Exported as its client lists them: `run.model_dump_json()`."""
    from langsmith import Client
    from langsmith.schemas import Run

    recorder = Recorder()
    langsmith = Client(
        api_url="http://127.0.0.1:9",
        api_key="k",
        session=recorder,
        auto_batch_tracing=False,
        info={},  # type: ignore[arg-type]
    )

    ask_under_langsmith(langsmith, endpoint)
    langsmith.close()
    exported = [json.loads(Run(**fields).model_dump_json()) for fields in recorder.runs.values()]
    added(tmp_path, *exported)
    found = the_trace()
    assert (found.name, found.input, found.output) == ("answered", {"question": QUESTION}, {"output": ANSWER})
    assert (found.session_id, found.user_id, found.tags) == ("s1", "u1", ["beta", "production"])
    assert [view.type for view in found.observations] == ["chain", "generation", "tool", "generation"]
    assert [len(view.messages or ()) for view in found.of_type("generation")] == [3, len(CONVERSATION)]
    assert (found.tokens_in, found.tokens_out) == (20, 10)
    (call,) = found.tool_calls
    assert (call.name, call.arguments, call.result) == ("weather", ARGUMENTS, RESULT)
    first = found.of_type("generation")[0]
    assert (first.model, first.provider, found.observations[0].metadata["plan"]) == ("mock-1", "openai", "paid")


def test_runs_within_a_run_are_read(tmp_path: Path) -> None:
    child = {name: value for name, value in CHILD_RUN.items() if name not in ("trace_id", "dotted_order")}
    assert added(tmp_path, run(child_runs=[child])).new == 2
    assert [view.type for view in the_trace().observations] == ["chain", "generation"]
