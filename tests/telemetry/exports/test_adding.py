"""Files of traces are added once: what is known is left alone, what is broken is named, and the rest is kept."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import one, rows
from exported_files import SECOND, feedback, line, observation, run, score, trace, written
from otlp_requests import SPAN, START, TRACE, in_json, span, traces

from evalflows.specs.columns import TraceColumns
from evalflows.specs.errors import InputError
from evalflows.store.store import Store
from evalflows.telemetry import exports
from evalflows.telemetry.exports import Added, add_traces


def counts(added: Added) -> tuple[int, int, int, int]:
    return added.new, added.changed, added.known, added.n_rejected


def test_a_file_that_is_read_twice_adds_nothing(store: Store, tmp_path: Path) -> None:
    request = traces(
        span(span_id="11" * 8, events={"gen_ai.evaluation.result": {"gen_ai.evaluation.name": "good"}}), span("other")
    )
    path = written(tmp_path / "traces.jsonl", in_json(request), line(trace_id=SECOND))
    assert counts(add_traces(store, path)) == (3, 0, 0, 0)
    before = rows("select trace_id, span_id, recorded_at from observations order by all")
    again = add_traces(store, path)
    assert (*counts(again), again.scores) == (0, 0, 3, 0, 0)
    assert rows("select trace_id, span_id, recorded_at from observations order by all") == before
    assert one("select count(*) from scores") == (1,)


def test_an_observation_that_was_exported_before_it_ended_is_replaced(store: Store, tmp_path: Path) -> None:
    begun = observation(end_time=None, output=None)
    assert counts(add_traces(store, written(tmp_path / "begun.jsonl", begun))) == (1, 0, 0, 0)
    assert counts(add_traces(store, written(tmp_path / "ended.jsonl", observation()))) == (0, 1, 0, 0)
    assert rows("select latency_s, output is not null from observations") == [(1.5, True)]


def test_the_format_is_recognised_by_the_first_record(store: Store, tmp_path: Path) -> None:
    for first, form in (
        (json.loads(line()), "otlp"),
        ({"resourceLogs": []}, "otlp"),
        (trace(), "langfuse"),
        (observation(), "langfuse"),
        (score(), "langfuse"),
        (run(), "langsmith"),
        (feedback(), "langsmith"),
        ({"input": "q", "output": "a", "started_at": "2026-01-01"}, "rows"),
    ):
        assert add_traces(store, written(tmp_path / "file.jsonl", first)).format == form


def test_a_whole_request_per_file_and_a_list_are_read(store: Store, tmp_path: Path) -> None:
    for name, text in (
        ("whole", json.dumps(json.loads(line()), indent=2)),
        ("wide", line().decode().replace(",", ",\n", 1)),
    ):
        whole = tmp_path / f"{name}.json"
        whole.write_text(text)
        assert add_traces(store, str(whole)).n_rejected == 0
    assert one("select count(*) from observations") == (1,)
    for name, text in (("indented", json.dumps([run(), feedback()], indent=2)), ("flat", json.dumps([run()]))):
        path = tmp_path / f"{name}.json"
        path.write_text(text)
        assert add_traces(store, str(path)).n_rejected == 0
    assert one("select count(*) from traces") == (2,)


# what is broken


def test_a_truncated_file_keeps_all_before_the_cut(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "cut.jsonl", line(), line(trace_id=SECOND)[:120], end="")
    added = add_traces(store, path)
    assert counts(added) == (1, 0, 0, 1)
    assert added.rejected[0].startswith(f"{path}: line 2: not JSON: ")
    assert added.rejected[0].endswith("; the file ends in the middle of it")


def test_a_truncated_gzip_keeps_all_before_the_cut(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    lines = b"".join(line(trace_id=f"{number:032x}") + b"\n" for number in range(1, 2000))
    packed = gzip.compress(lines)
    path.write_bytes(packed[: len(packed) // 2])
    added = add_traces(store, str(path))
    assert added.new > 100
    assert added.n_rejected == 1
    assert added.rejected[0].startswith(f"{path}: cannot be read: Compressed file ended")


@pytest.mark.parametrize("broken", [[b'{"a": ', b'{"b": '], [b"x" * 3_000]])
def test_lines_that_are_broken_at_the_beginning_cost_only_themselves(
    store: Store, tmp_path: Path, broken: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MAX_LINE", 2_000)
    added = add_traces(store, written(tmp_path / "bad.jsonl", *broken, line(), line(trace_id=SECOND)))
    assert counts(added) == (2, 0, 0, len(broken))


INVALID_SPANS = [
    ({"traceId": ""}, "span 'bad': got no trace id, wanted 16 bytes"),
    ({"traceId": None}, "span 'bad': got no trace id, wanted 16 bytes"),
    ({"traceId": "ab" * 8}, "span 'bad': got a trace id of 8 bytes, wanted 16 bytes"),
    ({"traceId": "abc"}, "span 'bad': got 'abc' as trace id, wanted hexadecimal digits"),
    ({"spanId": "t60cKTjEP/g"}, "span 'bad': got 't60cKTjEP/g' as span id, wanted hexadecimal digits"),
    ({"spanId": 5}, "span 'bad': got 5 as span id, wanted hexadecimal digits"),
    ({"startTimeUnixNano": "soon"}, "span 'bad': Invalid int64 value for field 'start_time_unix_nano': soon"),
]


def test_a_span_that_is_invalid_costs_only_itself(store: Store, tmp_path: Path) -> None:
    good = {"traceId": TRACE, "spanId": SPAN, "name": "good", "startTimeUnixNano": str(START)}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}

    def request(fields: dict[str, Any]) -> dict[str, Any]:
        scope = {"scope": {"name": "library"}, "spans": [good | {"name": "bad"} | fields, good]}
        return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}

    path = written(tmp_path / "t.jsonl", *(request(fields) for fields, _ in INVALID_SPANS))
    wanted = [f"{path}: line {number}: {problem}" for number, (_, problem) in enumerate(INVALID_SPANS, start=1)]
    assert add_traces(store, path).rejected == wanted
    assert rows("select name, service, scope from observations") == [("good", "shop", "library")]


def test_a_line_that_is_too_long_costs_only_itself(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MAX_LINE", 1 << 20)
    long = line(attributes={"input.value": "x" * (2 << 20)})
    path = written(tmp_path / "t.jsonl", line(), long, line(trace_id=SECOND))
    added = add_traces(store, path)
    assert counts(added) == (2, 0, 0, 1)
    assert added.rejected == [f"{path}: line 2: longer than 1 MB, wanted shorter lines"]


NO_EXPORTS = [
    (b"", "is empty, wanted at least one record"),
    (b"\n \n", "is empty, wanted at least one record"),
    (b"\x00\x01\x02\xff" * 100, "got binary data, wanted JSON lines, JSON, CSV or Parquet (.gz if it is gzipped)"),
    (gzip.compress(b"{}", mtime=0), "got binary data, wanted JSON lines, JSON, CSV or Parquet (.gz if it is gzipped)"),
    (b"hello\nworld\n", "line 1: not JSON: "),
    (b'{"a": 1, "b": 2}\n', "line 1: its format is not recognised by 'a, b', wanted --format, or --columns"),
    (b"{\n", "not JSON: "),
]


def test_what_is_no_export_or_of_another_format_is_refused_in_one_line(store: Store, tmp_path: Path) -> None:
    def refusal(**settings: Any) -> str:
        with pytest.raises(InputError) as caught:
            add_traces(store, str(path), **settings)
        return str(caught.value).removeprefix(f"{path}: ")

    path = tmp_path / "file.json"
    for content, problem in NO_EXPORTS:
        path.write_bytes(content)
        assert refusal().startswith(problem)
    written(path, observation())
    fields = "id, trace_id, project_id, type, start_time"
    assert refusal(form="otlp").startswith(f"line 1: not OTLP: got '{fields}', wanted an object with")
    assert refusal(form="langsmith").startswith(f"line 1: got {fields}, wanted a run or feedback of LangSmith")
    assert refusal(form="rows").startswith("line 1: got no started_at, wanted a column with the time")
    assert one("select count(*) from observations") == (0,)


def test_a_gzip_bomb_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b"x" * (80 << 20)))
    with pytest.raises(InputError, match="unpacks to more than 64 MB, 200 times its size"):
        add_traces(store, str(path))


# plain rows


def test_columns_make_traces_of_rows(store: Store, tmp_path: Path) -> None:
    row = {
        "q": "hi",
        "a": "hello",
        "at": 1_767_225_600_000,
        "took": 1.5,
        "who": {"user": "u1"},
        "labels": "production, beta",
        "usage": {"in": 7, "out": 3},
        "llm": "gpt-4o",
        "plan": "paid",
    }
    columns = TraceColumns(
        input="q",
        output="a",
        started_at="at",
        latency_s="took",
        user_id="who.user",
        tags="labels",
        tokens_in="usage.in",
        tokens_out="usage.out",
        model="llm",
    )
    path = written(tmp_path / "rows.jsonl", row, row | {"q": "ho"})
    assert counts(add_traces(store, path, columns=columns)) == (2, 0, 0, 0)
    assert counts(add_traces(store, path, columns=columns)) == (0, 0, 2, 0)
    query = "select input, output, user_id, tags, models, tokens_in, tokens_out, latency_s, started_at::date::varchar"
    (first, _) = rows(f"{query} from traces order by input")
    assert first == ("hi", "hello", "u1", ["beta", "production"], ["gpt-4o"], 7, 3, 1.5, "2026-01-01")
    assert rows("select distinct attributes ->> '$.metadata.plan' from observations") == [("paid",)]


def test_rows_of_one_trace_are_a_tree(store: Store, tmp_path: Path) -> None:
    root = {"trace_id": "t-1", "span_id": "a", "name": "answer", "input": "hi", "started_at": "2026-01-01T00:00:00Z"}
    tool = {"trace_id": "t-1", "span_id": "b", "parent_id": "a", "type": "tool", "name": "search", "error": "down"}
    add_traces(store, written(tmp_path / "r.jsonl", root, tool | {"started_at": "2026-01-01T00:00:01Z", "input": "x"}))
    assert rows("select name, observations, errors from traces") == [("answer", 2, 1)]
    query = """select c.name, c.status, c.status_message, p.name from observations c
               join observations p on c.parent_id = p.span_id and c.trace_id = p.trace_id"""
    assert rows(query) == [("search", "error", "down", "answer")]
    assert rows("select distinct attributes ->> 'trace_id' from observations") == [("t-1",)]


def test_csv_and_parquet_are_read(store: Store, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = tmp_path / "rows.csv"
    table.write_text("input,output,started_at,session_id\nhi,hello,2026-01-01 10:00,s1\nho,,2026-01-01 11:00,s1\n")
    assert counts(add_traces(store, str(table))) == (2, 0, 0, 0)
    assert rows("select output from traces order by started_at") == [("hello",), (None,)]
    parquet = tmp_path / "rows.parquet"
    moment = pa.array([START // 1000], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"input": ["hey"], "output": ["hi"], "started_at": moment}), parquet)
    assert counts(add_traces(store, str(parquet))) == (1, 0, 0, 0)
    assert one("select list(traces) from sessions") == ([2],)


def test_a_row_with_a_time_that_is_none_is_rejected(store: Store, tmp_path: Path) -> None:
    good = {"input": "hi", "started_at": "2026-01-01"}
    bad = [good | {"started_at": at} for at in ("soon", "2026-13-01", True, {"a": 1}, 1e300)]
    added = add_traces(store, written(tmp_path / "r.jsonl", good, *bad))
    assert counts(added) == (1, 0, 0, 5)
    for number, text in enumerate(added.rejected, start=2):
        assert f"line {number}: started_at: got " in text
        assert text.endswith("wanted a time such as 2026-01-31T12:00:00Z")


def test_many_records_are_written_in_batches(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "BATCH_ROWS", 7)
    path = written(tmp_path / "t.jsonl", *(line(trace_id=f"{number:032x}") for number in range(1, 31)))
    assert counts(add_traces(store, path)) == (30, 0, 0, 0)
    assert one("select count(*) from traces") == (30,)


def test_a_truncated_list_keeps_all_before_the_cut(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps([observation(), observation(id="obs-2")], indent=1)[:-40])
    added = add_traces(store, str(path))
    assert counts(added) == (1, 0, 0, 1)
    assert added.rejected[0].startswith(f"{path}: element 2: not JSON: ")
