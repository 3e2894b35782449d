"""Files of traces are added once: what is known is left alone, what is broken is named, and the rest is kept."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import one, rows
from exported_files import SECOND, feedback, line, observation, run, score, trace, written
from otlp_requests import SPAN, START, TRACE, in_json, logs, record, span, traces

from evalflows.specs.errors import InputError
from evalflows.specs.trace_columns import TraceColumns
from evalflows.store.parquet import Store
from evalflows.telemetry.exports import adding, records
from evalflows.telemetry.exports.adding import Added, add_traces


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


def test_a_late_span_joins_its_trace(store: Store, tmp_path: Path) -> None:
    add_traces(store, written(tmp_path / "first.jsonl", line("answer", span_id="11" * 8)))
    late = line("late", parent_id="11" * 8, start=START + 10**9)
    assert counts(add_traces(store, written(tmp_path / "late.jsonl", late))) == (1, 0, 0, 0)
    assert rows("select trace_id, name, observations from traces") == [(TRACE, "answer", 2)]


def test_an_observation_that_was_exported_before_it_ended_is_replaced(store: Store, tmp_path: Path) -> None:
    begun = observation(end_time=None, output=None)
    assert counts(add_traces(store, written(tmp_path / "begun.jsonl", begun))) == (1, 0, 0, 0)
    assert counts(add_traces(store, written(tmp_path / "ended.jsonl", observation()))) == (0, 1, 0, 0)
    assert rows("select latency_s, output is not null from observations") == [(1.5, True)]


def test_of_two_copies_in_a_file_the_last_counts(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "o.jsonl", observation(name="draft"), observation(name="final"))
    assert counts(add_traces(store, path))[:2] == (1, 0)
    assert counts(add_traces(store, path))[:2] == (0, 0)
    assert rows("select name from observations") == [("final",)]


def test_many_records_are_written_in_batches(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "BATCH_ROWS", 7)
    path = written(tmp_path / "t.jsonl", *(line(trace_id=f"{number:032x}") for number in range(1, 31)))
    assert counts(add_traces(store, path)) == (30, 0, 0, 0)
    assert one("select count(*) from traces") == (30,)


@pytest.mark.parametrize(
    ("record", "form"),
    [
        (json.loads(line()), "otlp"),
        ({"resourceLogs": []}, "otlp"),
        (trace(), "langfuse"),
        (observation(), "langfuse"),
        (score(), "langfuse"),
        (run(), "langsmith"),
        (feedback(), "langsmith"),
        ({"input": "q", "output": "a", "started_at": "2026-01-01"}, "rows"),
    ],
)
def test_the_format_is_recognised_by_the_first_record(store: Store, tmp_path: Path, record: Any, form: str) -> None:
    assert add_traces(store, written(tmp_path / "file.jsonl", record)).format == form


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


def test_an_answer_of_an_api_is_read(store: Store, tmp_path: Path) -> None:
    page = {"data": [observation(), observation(id="obs-2")], "meta": {"page": 1}}
    assert counts(add_traces(store, written(tmp_path / "page.json", page))) == (2, 0, 0, 0)


def test_gzipped_files_are_read(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl.gz"
    path.write_bytes(gzip.compress(line() + b"\n"))
    assert counts(add_traces(store, str(path))) == (1, 0, 0, 0)


def test_metrics_and_other_logs_are_ignored(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "all.jsonl", {"resourceMetrics": []}, in_json(logs(record("http.request"))), line())
    added = add_traces(store, path)
    assert (added.new, added.ignored, added.n_rejected) == (1, 2, 0)


# what is broken


def test_a_truncated_file_keeps_all_before_the_cut(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "cut.jsonl", line(), line(trace_id=SECOND)[:120], end="")
    added = add_traces(store, path)
    assert counts(added) == (1, 0, 0, 1)
    assert added.rejected[0].startswith(f"{path}: line 2: not JSON: ")
    assert added.rejected[0].endswith("; the file ends in the middle of it")


def test_a_truncated_list_keeps_all_before_the_cut(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps([observation(), observation(id="obs-2")], indent=1)[:-40])
    added = add_traces(store, str(path))
    assert counts(added) == (1, 0, 0, 1)
    assert added.rejected[0].startswith(f"{path}: element 2: not JSON: ")


def test_a_truncated_gzip_keeps_all_before_the_cut(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    lines = b"".join(line(trace_id=f"{number:032x}") + b"\n" for number in range(1, 2000))
    packed = gzip.compress(lines)
    path.write_bytes(packed[: len(packed) // 2])
    added = add_traces(store, str(path))
    assert added.new > 100
    assert added.n_rejected == 1
    assert added.rejected[0].startswith(f"{path}: cannot be read: Compressed file ended")


def test_a_bad_line_costs_only_itself(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "bad.jsonl", line(), b"{", b"[1]", {"a": 1}, line(trace_id=SECOND))
    added = add_traces(store, path)
    assert counts(added) == (2, 0, 0, 3)
    places = [text.removeprefix(f"{path}: ").partition(":")[0] for text in added.rejected]
    assert places == ["line 2", "line 3", "line 4"]


@pytest.mark.parametrize("broken", [[b"{"], [b'{"a": ', b'{"b": '], [b"x", b"y"], [b"x" * 3_000]])
def test_lines_that_are_broken_at_the_beginning_cost_only_themselves(
    store: Store, tmp_path: Path, broken: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_LINE", 2_000)
    added = add_traces(store, written(tmp_path / "bad.jsonl", *broken, line(), line(trace_id=SECOND)))
    assert counts(added) == (2, 0, 0, len(broken))


def test_half_a_character_and_nan_are_mended(store: Store, tmp_path: Path) -> None:
    row = b'{"input": "cut \\ud83d", "output": "x", "tokens_in": NaN, "started_at": "2026-01-01"}'
    assert counts(add_traces(store, written(tmp_path / "r.jsonl", row))) == (1, 0, 0, 0)
    assert rows("select input, tokens_in from observations") == [("cut \ufffd", None)]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"traceId": ""}, "span 'bad': got no trace id, wanted 16 bytes"),
        ({"traceId": None}, "span 'bad': got no trace id, wanted 16 bytes"),
        ({"traceId": "ab" * 8}, "span 'bad': got a trace id of 8 bytes, wanted 16 bytes"),
        ({"traceId": "abc"}, "span 'bad': got 'abc' as trace id, wanted hexadecimal digits"),
        ({"spanId": "t60cKTjEP/g="}, "span 'bad': got 't60cKTjEP/g=' as span id, wanted hexadecimal digits"),
        ({"spanId": 5}, "span 'bad': got 5 as span id, wanted hexadecimal digits"),
        ({"startTimeUnixNano": "soon"}, "span 'bad': Invalid int64 value for field 'start_time_unix_nano': soon"),
    ],
)
def test_a_span_that_is_invalid_costs_only_itself(
    store: Store, tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    good = {"traceId": TRACE, "spanId": SPAN, "name": "good", "startTimeUnixNano": str(START)}
    spans = [good | {"name": "bad"} | fields, good]
    scope = {"scope": {"name": "library"}, "spans": spans}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}
    path = written(tmp_path / "t.jsonl", request)
    added = add_traces(store, path)
    assert added.rejected == [f"{path}: line 1: {problem}"]
    assert rows("select name, service, scope from observations") == [("good", "shop", "library")]


def test_a_clock_that_ran_backwards_is_kept_without_a_latency(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", line(end=START - 10**9))
    assert counts(add_traces(store, path)) == (1, 0, 0, 0)
    assert rows("select latency_s, ended_at < started_at from observations") == [(None, True)]
    assert rows("select latency_s from traces") == [(None,)]


def test_a_line_that_is_too_long_costs_only_itself(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_LINE", 1 << 20)
    long = line(attributes={"input.value": "x" * (2 << 20)})
    path = written(tmp_path / "t.jsonl", line(), long, line(trace_id=SECOND))
    added = add_traces(store, path)
    assert counts(added) == (2, 0, 0, 1)
    assert added.rejected == [f"{path}: line 2: longer than 1 MB, wanted shorter lines"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty, wanted at least one record"),
        (b"\n \n", "is empty, wanted at least one record"),
        (b"\x00\x01\x02\xff" * 100, "is no text, wanted JSON lines, JSON, CSV or Parquet (.gz if it is gzipped)"),
        (gzip.compress(b"{}", mtime=0), "is no text, wanted JSON lines, JSON, CSV or Parquet (.gz if it is gzipped)"),
        (b"hello\nworld\n", "line 1: not JSON: "),
        (b'{"a": 1, "b": 2}\n', "line 1: its format is not recognised by 'a, b', wanted --format, or --columns"),
        (b"{\n", "not JSON: "),
    ],
)
def test_what_is_no_export_is_refused_in_one_line(store: Store, tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        add_traces(store, str(path))
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert one("select count(*) from observations") == (0,)


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ("otlp", "line 1: not OTLP: got 'id, trace_id, project_id, type, start_time', wanted an object with"),
        ("langsmith", "line 1: got id, trace_id, project_id, type, start_time, wanted a run or feedback of LangSmith"),
        ("rows", "line 1: got no started_at, wanted a column with the time"),
    ],
)
def test_a_wrong_format_is_refused_in_one_line(store: Store, tmp_path: Path, form: Any, problem: str) -> None:
    path = written(tmp_path / "o.jsonl", observation())
    with pytest.raises(InputError) as caught:
        add_traces(store, path, form=form)
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert one("select count(*) from observations") == (0,)


def test_a_gzip_bomb_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b"x" * (80 << 20)))
    with pytest.raises(InputError, match="unpacks to more than 64 MB, 200 times its size"):
        add_traces(store, str(path))


def test_only_the_first_broken_records_are_named_and_all_are_counted(store: Store, tmp_path: Path) -> None:
    added = add_traces(store, written(tmp_path / "t.jsonl", line(), *[b"{"] * 50))
    assert (added.n_rejected, len(added.rejected)) == (50, adding.SHOWN)


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


def test_a_column_that_is_not_there_is_refused_before_anything_is_written(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", {"q": "hi", "started_at": "2026-01-01"})
    with pytest.raises(InputError, match="line 1: no column 'question', got q, started_at"):
        add_traces(store, path, columns=TraceColumns(input="question"))


@pytest.mark.parametrize("at", ["soon", "2026-13-01", True, {"a": 1}, 1e300])
def test_a_row_with_a_time_that_is_none_is_rejected(store: Store, tmp_path: Path, at: Any) -> None:
    good = {"input": "hi", "started_at": "2026-01-01"}
    added = add_traces(store, written(tmp_path / "r.jsonl", good, good | {"started_at": at}))
    assert counts(added) == (1, 0, 0, 1)
    assert "line 2: started_at: got " in added.rejected[0]
    assert added.rejected[0].endswith("wanted a time such as 2026-01-31T12:00:00Z")
