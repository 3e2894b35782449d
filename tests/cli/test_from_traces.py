"""evalflows dataset from-traces, in this process."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from endpoint import Endpoint, Reply, Request, completion, error, serving
from production import produce, score, trace, trace_id

from evalflows import dataset_from_traces
from evalflows.cli.main import cli
from evalflows.specs.errors import InputError
from evalflows.store import Store
from evalflows.store.records import ExampleRow
from evalflows.store.snapshots import current_snapshot, load_snapshot


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["dataset", "from-traces", "--name", "faq", *arguments])
    assert done.exit_code == 0, done.stderr or done.exception
    return done.stdout


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["dataset", "from-traces", "--name", "faq", *arguments])
    assert (done.exit_code, done.stdout) == (2, ""), done.exception
    assert done.stderr.startswith("evalflows: ") and done.stderr.count("\n") == 1
    assert Store().query("select count(*) from source.dataset_versions") == [(0,)]
    return done.stderr


def examples(name: str = "faq") -> list[ExampleRow]:
    store = Store()
    return list(load_snapshot(store, current_snapshot(store, name) or ""))


def questions() -> list[Any]:
    return [json.loads(example.inputs)["input"] for example in examples()]


def version_metadata() -> Any:
    query = "select metadata from source.dataset_versions order by recorded_at desc limit 1"
    return json.loads(Store().query(query)[0][0])


def test_traces_become_examples_with_where_they_come_from(store: Store) -> None:
    produce(store, trace("a", "How?", "So.", session="s1", version="1.4"), trace("b", {"question": "Why?"}, minute=5))
    assert "2 examples; 2 added, 0 unchanged" in said()
    newest, oldest = examples()
    assert (newest.example_id, newest.inputs, newest.cluster) == (trace_id("b"), '{"question":"Why?"}', None)
    assert (oldest.inputs, oldest.reference_outputs, oldest.cluster) == ('{"input":"How?"}', None, "s1")
    dataset_from_traces("kept", keep_output_as_reference=True)
    assert [example.reference_outputs for example in examples("kept")] == [None, '{"output":"So."}']
    produce(store, trace("c", "Hi ada@example.org", minute=9), trace("d", "Hi bob@example.org", minute=9))
    same = said("--since", "2026-11-01T08:06", "--until", "2026-11-01T09:00", "--filter", "[]")
    assert "1 added, 2 unchanged\n  left out: 1 duplicates\n  masked: email 1\n" in same
    assert json.loads(oldest.metadata or "") == {
        "trace_id": trace_id("a"),
        "version": "1.4",
        "started_at": "2026-11-01T08:00:00+00:00",
    }


def test_a_dataset_grows_and_the_same_traces_add_nothing(store: Store) -> None:
    produce(store, trace("a", "How?"), trace("b", "Why?", minute=1))
    said()
    before = examples()
    assert "2 examples; 0 added, 2 unchanged\n  left out: 2 already in the dataset" in said()
    assert Store().query("select count(*) from source.dataset_versions") == [(1,)]
    produce(store, trace("c", "Who?", minute=2), trace("d", " how? ", minute=3))
    assert "3 examples; 1 added, 2 unchanged\n  left out: 3 already in the dataset" in said()
    assert [example.example_id for example in examples()] == [*(one.example_id for one in before), trace_id("c")]
    assert version_metadata()["added"] == 1


def test_duplicates_and_what_was_not_captured_are_left_out(store: Store) -> None:
    produce(
        store,
        *(
            trace(name, f"Where is  {where}?", minute=n)
            for n, (name, where) in enumerate(zip("abc", "XxY", strict=True))
        ),
        trace("d", None, "an answer"),
    )
    assert "2 examples; 2 added, 0 unchanged\n  left out: 1 duplicates, 1 not captured\n" in said()
    assert questions() == ["Where is  Y?", "Where is  x?"]
    assert version_metadata()["left_out"] == {"duplicates": 1, "not_captured": 1, "failed": 0, "unscored": 0}


def test_secrets_are_masked_before_they_are_written(store: Store, store_root: Path) -> None:
    messages = [{"role": "user", "content": "I am ada@example.org; T-77 of ada@example.org"}]
    produce(
        store,
        trace("a", {"messages": messages, "api_key": "plain"}, "Dear ada@example.org", session="ada@example.org"),
        trace("b", {"messages": [{"role": "user", "content": "I am bob@example.org; T-78 of bob@example.org"}]}),
    )
    out = said("--keep-output-as-reference", "--mask", r"ticket=T-\d+", "--where", f"trace_id = '{trace_id('a')}'")
    assert "  masked: credential 1, email 3, ticket 1\n" in out
    (example,) = examples()
    assert json.loads(example.inputs) == {
        "messages": [{"role": "user", "content": "I am <email-1>; <ticket-1> of <email-1>"}],
        "api_key": "<credential-1>",
    }
    assert example.reference_outputs == '{"output":"Dear <email-1>"}'
    assert example.cluster is not None and example.cluster.startswith("masked-")
    assert version_metadata()["masked"] == {"credential": 1, "email": 3, "ticket": 1}
    assert version_metadata()["selection"]["mask"] == ["ticket"]
    written = b"".join(path.read_bytes() for path in (store_root / "examples").glob("**/*.parquet"))
    assert b"<email-1>" in written and b"ada@" not in written


def scored(store: Store) -> None:
    """Five traces, of which `d` has no score; judges disagree on `c`."""
    values = {"a": 0.9, "b": 0.1, "c": 1.0, "e": 0.45}
    other = {"a": 0.9, "b": 0.1, "c": 0.0, "e": 0.5}
    old = score("a", "correct", 0.0, version="v0")
    rows = [score(name, "correct", value) for name, value in values.items()]
    rows += [score(name, "correct", value, evaluator="second", version="w1") for name, value in other.items()]
    produce(store, *(trace(name, name, minute=n) for n, name in enumerate("abcde")), scores=[old])
    produce(store, scores=[*rows, score("d", "correct", None), score("d", "latency", 3.0), score("a", "latency", 9.0)])


def test_the_order(store: Store) -> None:
    scored(store)
    worst = ("--order", "worst", "--metric", "correct")
    for number, (arguments, wanted) in enumerate(
        (
            (("--order", "newest"), ["e", "d", "c", "b", "a"]),
            (worst, ["c", "b", "e", "a"]),
            ((*worst, "--limit", "2"), ["c", "b"]),
            (("--order", "worst", "--metric", "latency"), ["a", "d"]),
            (("--order", "uncertain", "--metric", "correct", "--limit", "2"), ["c", "e"]),
        )
    ):
        done = CliRunner().invoke(cli, ["dataset", "from-traces", "--name", f"d{number}", *arguments])
        asked = [json.loads(example.inputs)["input"] for example in examples(f"d{number}")]
        assert asked[: len(wanted)] == wanted, done.output
        assert ("left out: 3 without a score" in done.stdout) == ("latency" in arguments)
    again = CliRunner().invoke(cli, ["dataset", "from-traces", "--name", "d2", *worst, "--limit", "2"])
    assert "2 examples; 0 added, 2 unchanged" in again.stdout, "a limit counts what the dataset has"


def test_sessions_go_by_the_worst_of_their_traces(store: Store) -> None:
    named = [("a", "s1"), ("b", "s1"), ("c", "s2"), ("d", "s3")]
    produce(
        store,
        *(trace(name, f"q{name}", "So.", session=session, minute=n) for n, (name, session) in enumerate(named)),
        scores=[score("a", "correct", 1.0), score("b", "correct", 0.2), score("c", "correct", 0.5)],
    )
    out = said("--scope", "sessions", "--order", "worst", "--metric", "correct")
    assert "2 added, 0 unchanged\n  left out: 1 without a score" in out
    assert [example.example_id for example in examples()] == ["s1", "s2"]


def test_a_random_order_depends_on_its_seed_alone(store: Store) -> None:
    produce(store, *(trace(f"t{n}", f"q{n}", minute=n) for n in range(30)))
    drawn = [said("--order", "random", "--limit", "5", "--seed", str(seed)) for seed in (1, 1)]
    assert "0 added, 5 unchanged" in drawn[1]
    assert "added, 5 unchanged" in said("--order", "random", "--limit", "5", "--seed", "2")
    assert 5 < len(examples()) <= 10


def test_a_mapper_of_paths_and_one_of_a_function(store: Store) -> None:
    produce(store, trace("a", {"question": "How?", "answer": "So."}, metadata={"plan": "paid"}))
    said("--mapper", "input=input.question,expected_output=input.answer,metadata=metadata")
    (example,) = examples()
    assert (example.inputs, example.reference_outputs) == ('{"input":"How?"}', '{"output":"So."}')
    assert json.loads(example.metadata or "")["trace_id"] == trace_id("a")
    Path("own_mapper.py").write_text(
        "def mapped(item):\n    return {'input': {'q': item.input['question'].upper()}, 'metadata': {'n': 1}}\n"
    )
    done = CliRunner().invoke(cli, ["dataset", "from-traces", "--name", "own", "--mapper", "own_mapper:mapped"])
    assert done.exit_code == 0, done.stderr
    (example,) = examples("own")
    assert example.inputs == '{"q":"HOW?"}' and json.loads(example.metadata or "")["n"] == 1


def test_sessions_become_conversations(store: Store) -> None:
    produce(
        store,
        trace("a", "Hello?", "Hi.", session="s1"),
        trace("b", "Who are you?", "A program.", session="s1", minute=1),
        trace("c", "Alone?", "Yes.", session="s2", minute=2),
        trace("d", None, None, session="s3", minute=3),
    )
    assert "2 added, 0 unchanged\n  left out: 1 not captured" in said("--scope", "sessions")
    _, first = examples()
    assert (first.example_id, first.cluster, first.reference_outputs) == ("s1", "s1", None)
    assert first.inputs == '{"messages":[{"content":"Hello?","role":"user"}]}'
    assert json.loads(first.metadata or "")["trace_ids"] == [trace_id("a"), trace_id("b")]
    next_turns = dataset_from_traces("turns", scope="sessions", turns="next", keep_output_as_reference=True)
    assert next_turns.counts.added == 3
    of_s1 = [example for example in examples("turns") if example.cluster == "s1"]
    assert [example.example_id for example in of_s1] == ["s1#1", "s1#2"]
    assert of_s1[1].reference_outputs == '{"output":"A program."}'


def test_users_are_drawn_from_conversations_as_drafts_with_the_original_beside(store: Store, tmp_path: Path) -> None:
    """Their secrets are masked before a model reads them; a conversation that it cannot read is counted."""

    def answer(request: Request) -> Reply:
        text = json.dumps(request["messages"])
        if "Alone?" in text:
            return error(400, "not this one")
        drawn = {"goal": "You want to know who it is.", "persona": "brief", "facts": [f"masked: {'ada@' not in text}"]}
        return completion(json.dumps(drawn))

    produce(
        store,
        trace("a", "Hello? I am ada@example.org", "Hi.", session="s1"),
        trace("b", "Who are you?", "A program.", session="s1", minute=1),
        trace("c", "Alone?", "Yes.", session="s2", minute=2),
    )
    with serving(Endpoint(answer=answer)) as endpoint:
        mine = {"mine": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        (tmp_path / "connections.yaml").write_text(json.dumps(mine))
        out = said("--scope", "sessions", "--as-users", "mine")
        assert "on the page Review: evalflows dashboard" in out
        assert "1 examples; 1 added" in out and "1 could not be mapped: s2: HTTP 400: not this one" in out
        assert "0 added, 1 unchanged" in said("--scope", "sessions", "--as-users", "mine")
    (drawn,) = examples()
    inputs, metadata = json.loads(drawn.inputs), json.loads(drawn.metadata or "")
    assert (inputs["goal"], inputs["facts"]) == ("You want to know who it is.", ["masked: True"])
    assert inputs["first_message"].startswith("Hello? I am ") and drawn.reference_outputs is None
    assert metadata["draft"] is True
    assert [message["role"] for message in metadata["original"]] == ["user", "assistant"] * 2
    assert (
        "as_users: wanted the scope sessions"
        in CliRunner().invoke(cli, ["dataset", "from-traces", "--name", "faq", "--as-users", "mine"]).stderr
    )


def test_bad_input_is_one_line(store: Store) -> None:
    assert "traces: none meet the filter" in refused()
    produce(store, trace("a"), scores=[score("a", "correct", 0.5), score("a", "label", None)])
    assert "got 1 whose input was not captured, wanted at least one" in refused()
    for arguments, message in (
        (("--where", "read_csv('/etc/passwd') is null"), "filter: "),
        (("--filter", '{"wrong": 1}'), "got the column 'wrong' for traces"),
        (("--where", "true", "--filter", "{}"), "--where and --filter: wanted one of them"),
        (("--order", "worst"), "order: got worst without a metric"),
        (("--metric", "correct"), "got 'correct' with the order newest"),
        (("--order", "worst", "--metric", "label"), "metric 'label': no traces have numeric scores of it"),
        (("--mask", "x=("), "mask: x: got '(', wanted a regular expression"),
        (("--mask", "x=a*"), "which matches an empty text"),
        (("--mask", "nothing"), "--mask: got 'nothing', wanted NAME=VALUE"),
        (("--mapper", "input=a..b"), "path 'a..b'"),
        (("--mapper", "no_such_module:x"), "no_such_module"),
        (("--since", "soon"), "--since: got 'soon'"),
        (("--turns", "next"), "turns: wanted only with the scope sessions"),
    ):
        assert message in refused(*arguments), arguments


def test_a_mapper_that_fails_is_counted_with_the_first_reason(store: Store) -> None:
    produce(store, trace("a", "How?"), trace("b", {"question": "Why?"}))
    Path("half_mapper.py").write_text("def mapped(item):\n    return {'input': item.input['question']}\n")
    out = said("--mapper", "half_mapper:mapped")
    assert f"1 could not be mapped: {trace_id('a')}: TypeError" in out
    assert questions() == ["Why?"]
    with pytest.raises(InputError, match="1 that could not be mapped"):
        dataset_from_traces("other", filter={"trace_id": trace_id("a")}, mapper="half_mapper:mapped")
