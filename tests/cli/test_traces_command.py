"""`evalflows traces`: files are added, listed and shown; exit codes and lines on standard error say what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from exported_files import SECOND, line, score, trace, written
from otlp_requests import START, TRACE, in_json, logs, record, span, traces

from evalflows.cli.main import cli

ROOT = "aa" * 8


def command(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["traces", *arguments])


def printed(*arguments: str) -> list[str]:
    done = command(*arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return [text.rstrip() for text in done.stdout.splitlines()]


def document(*arguments: str) -> Any:
    return json.loads("\n".join(printed(*arguments, "--format", "json")))


@pytest.fixture
def added(tmp_path: Path) -> str:
    """A trace with a tool, a failed call of a model, a score and a label; and a second, later trace."""
    root = {"input.value": "What is the weather in Paris? " * 10, "output.value": "It is\nsunny.", "session.id": "s1"}
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m1", "gen_ai.usage.input_tokens": 10}
    judged = {"gen_ai.evaluation.result": {"gen_ai.evaluation.name": "good", "gen_ai.evaluation.score.value": 0.5}}
    request = traces(
        span("answer", span_id=ROOT, attributes=root | {"tag.tags": ["production"]}, events=judged),
        span("weather", span_id="bb" * 8, parent_id=ROOT, attributes={"gen_ai.operation.name": "execute_tool"}),
        span("chat", span_id="cc" * 8, parent_id="bb" * 8, attributes=call, code=2, start=START + 10**8),
    )
    said = {"gen_ai.evaluation.name": "fine", "gen_ai.evaluation.score.label": "yes", "annotator_kind": "HUMAN"}
    labels = logs(record("gen_ai.evaluation.result", span_id=ROOT, attributes=said))
    later = line("later", trace_id=SECOND, span_id="dd" * 8, start=START + 86_400 * 10**9, end=START + 86_402 * 10**9)
    path = written(tmp_path / "traces.jsonl", in_json(request), in_json(labels), later)
    assert printed("add", path) == [f"{path}: otlp, 3 records: 4 new observations, 1 score, 1 label"]
    return path


def test_a_file_that_is_read_in_part_ends_with_code_4(tmp_path: Path) -> None:
    path = written(tmp_path / "cut.jsonl", line(), b"{", line(trace_id=SECOND)[:50], end="")
    done = command("add", path)
    assert (done.exit_code, done.stdout) == (4, f"{path}: otlp, 1 record: 1 new observation, 2 rejected\n")
    assert [text.split(": ")[2] for text in done.stderr.splitlines()] == ["line 2", "line 3"]
    assert len(document("ls")) == 1


def test_a_file_that_cannot_be_read_ends_with_code_2_and_the_others_are_added(tmp_path: Path) -> None:
    good, empty = written(tmp_path / "good.jsonl", line()), tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    missing = str(tmp_path / "missing.jsonl")
    done = command("add", str(empty), good, missing)
    assert (done.exit_code, done.stdout) == (2, f"{good}: otlp, 1 record: 1 new observation\n")
    assert done.stderr.splitlines() == [
        f"evalflows: {empty}: is empty, wanted at least one record",
        f"evalflows: {missing}: cannot be read: No such file or directory",
    ]
    assert len(document("ls")) == 1


def test_wrong_options_are_refused_in_one_line(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", line())
    for arguments, message in (
        (("--format", "langfuse"), f"{path}: line 1: got resourceSpans, wanted a trace, an observation or a score"),
        (("--columns", "question=q"), "--columns: question: no such field, wanted one of: version, input, output"),
        (("--columns", "input=q", "--format", "otlp"), "--columns: got --format otlp, wanted them only for plain rows"),
    ):
        done = command("add", path, *arguments)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"evalflows: {message}")


@pytest.mark.usefixtures("added")
def test_ls_filters() -> None:
    typed = '[{"column": "name", "operator": "starts with", "value": "l", "type": "string"}]'
    for arguments, names in (
        ((), ["later", "answer"]),
        (("--limit", "1"), ["later"]),
        (("--where", "latency_s > 1.9 -- slow ones"), ["later"]),
        (("--filter", '{"tags": ["production"], "name": "answer"}'), ["answer"]),
        (("--filter", typed, "--since", "2026-01-02"), ["later"]),
        (("--where", "false"), []),
    ):
        assert [found["name"] for found in document("ls", *arguments)] == names, arguments
    for arguments, message in (
        (("--where", "nothing = 1"), "filter: sql: Binder Error: "),
        (("--filter", "name = 'x'"), "--filter: got \"name = 'x'\", wanted JSON"),
        (("--filter", '{"colour": "red"}'), "filter: got the column 'colour' for traces, wanted one of "),
        (("--filter", "{}", "--where", "true"), "--where, --filter: got both, wanted one of them"),
    ):
        done = command("ls", *arguments)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"evalflows: {message}")


@pytest.mark.usefixtures("added")
def test_show_prints_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = printed("show", TRACE[:6])
    question = "  input:  " + "What is the weather in Paris? " * 10
    assert lines == [
        "answer  1.50 s  tokens 10+?",
        f"  {TRACE}  2026-01-01 00:00:00 UTC",
        "  session s1  tags production",
        f"{question[:79]}…",
        "  output: It is\\nsunny.",
        "  score good 0.5 by a library",
        "",
        "span answer  1.50 s",
        f"{question[:79]}…",
        "  output: It is\\nsunny.",
        "  label fine yes",
        "  tool weather  1.50 s",
        "    generation chat m1  1.40 s  tokens 10+?",
    ]
    found = document("show", TRACE)
    assert (found["id"], found["name"], found["session_id"]) == (TRACE, "answer", "s1")
    assert [view["type"] for view in found["observations"]] == ["span", "tool", "generation"]
    said = [(one["metric"], one["by_person"]) for one in found["scores_and_labels"]]
    assert said == [("good", False), ("fine", True)]


def test_a_trace_that_is_not_there_and_the_beginning_of_several_ids_are_refused(added: str, tmp_path: Path) -> None:
    printed("add", written(tmp_path / "t.jsonl", line(trace_id="ab" * 16), line(trace_id="ab" * 15 + "cd")))
    absent = "no such trace, see `evalflows traces ls`"
    several = f"got the beginning of {'ab' * 16}, {'ab' * 15}cd, wanted one trace"
    for reference, message in (("", absent), ("ffff", absent), ("x' or true", absent), ("abab", several)):
        done = command("show", reference)
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"evalflows: {reference}: {message}\n")
    assert printed("show", "ab" * 16)


def test_spans_without_their_parent_and_spans_in_a_circle_are_shown(tmp_path: Path) -> None:
    lines = [line("lost", span_id="11" * 8, parent_id="99" * 8)]
    lines += [line("one", span_id="22" * 8, parent_id="33" * 8), line("two", span_id="33" * 8, parent_id="22" * 8)]
    printed("add", written(tmp_path / "t.jsonl", *lines))
    shown = printed("show", TRACE)
    assert shown[-3:] == ["span lost  1.50 s", "span one  1.50 s", "  span two  1.50 s"]


@pytest.mark.usefixtures("store")
def test_nothing_yet() -> None:
    assert printed("ls") == ["no traces yet: `evalflows traces add FILE` adds some"]
    assert document("ls") == []
    assert command("show", "ab").exit_code == 2


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    printed(
        "add", written(tmp_path / "t.jsonl", trace(name="a\x1b[31m", input="\x1b]0;x\x07"), score(comment="\x1b[2J"))
    )
    for shown in (printed("ls"), printed("show", document("ls")[0]["trace_id"])):
        assert "\x1b" not in "\n".join(shown)
        assert "a\\x1b[31m" in "\n".join(shown)


def test_columns_are_named_by_field(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", {"q": "hi", "a": "hello", "at": "2026-01-01T10:00:00Z", "llm": "gpt-4o"})
    assert printed("add", path, "--columns", "input=q, output=a,started_at=at,model=llm") == [
        f"{path}: rows, 1 record: 1 new observation"
    ]
    (found,) = document("ls")
    assert (found["models"], found["started_at"]) == (["gpt-4o"], "2026-01-01T10:00:00+00:00")
