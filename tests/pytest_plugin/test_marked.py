"""Tests marked `langsmith`: each becomes an example of an experiment, with its result and feedback as scores."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pandas  # noqa: F401  # what the inner pytest imports, it would forget
import pytest
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, completion, serving

import evalflows
from evalflows.compat.langsmith import Client, recorded_cases, testing

pytest_plugins = ["pytester"]

MODULE = """
import openai
import pytest
from evalflows.compat.langsmith import expect, testing as t, trace, traceable, wrappers

client = wrappers.wrap_openai(openai.OpenAI())

def ask(model, text):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=model, messages=messages).choices[0].message.content

@pytest.mark.langsmith
def test_logs_everything():
    t.log_inputs({"question": "a knot?"})
    answer = ask("app-1", "a knot?")
    t.log_outputs({"answer": answer})
    t.log_reference_outputs({"answer": "bowline"})
    with t.trace_feedback():
        grade = ask("judge-1", answer)
        t.log_feedback(key="correct", score=grade == "yes", comment="as the judge says")
    t.log_feedback(key="mood", value="calm")
    assert answer

@pytest.mark.langsmith(output_keys=["wanted"], metadata={"topic": "sums"}, split="easy")
@pytest.mark.parametrize("a, b, wanted", [(1, 2, 3), (2, 2, 5)], ids=["right", "wrong"])
def test_adds(a, b, wanted):
    with trace("adding", inputs={"a": a}) as step:
        step.end(outputs={"sum": a + b})
    t.log_outputs({"sum": a + b})
    t.log_feedback([{"key": "distance", "score": abs(a + b - wanted)}])
    assert a + b == wanted

@pytest.mark.langsmith
def test_expects():
    text = "hello there"
    expect(text).to_contain("there")
    expect.score(0.8, key="similarity").to_be_greater_than(0.5)
    expect.edit_distance("hello", "hallo").to_be_less_than(0.1)

def test_plain():
    assert True

@pytest.mark.langsmith
def test_skipped():
    pytest.skip("not today")
"""

SCORES = """
select e.metadata ->> 'test' as test, metric, value, label, status, s.comment, s.data_type
from scores s join experiments x using (experiment_id)
join source.examples e on e.example_id = s.example_id and e.snapshot_id = x.snapshot_id order by all
"""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    def answer(request: Request) -> Reply:
        return completion("yes" if request["model"] == "judge-1" else "bowline")

    with serving(Endpoint(answer=answer)) as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
        yield served


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("LANGSMITH_TEST_SUITE", raising=False)
    pytester.makeini("[pytest]\naddopts = -p evalflows.pytest_plugin.plugin --strict-markers")
    pytester.makepyfile(test_app=MODULE)
    return pytester


@pytest.fixture
def loaded(prefect_api: dict[str, str]) -> None:
    evalflows.evaluate(lambda q: q, [{"inputs": {"q": 1}}], ["contains"], experiment_prefix="loaded")
    assert testing and openai


@pytest.mark.slow
@pytest.mark.usefixtures("loaded")
def test_a_suite_is_an_experiment_with_an_example_for_each_test(inner: pytest.Pytester, endpoint: Endpoint) -> None:
    run = inner.runpytest()
    run.assert_outcomes(passed=3, failed=2, skipped=1)
    run.stdout.re_match_lines(
        [r"=+ evalflows experiments =+", r"test_app: 2 of 4 passed: evalflows show test_app-\w{8}"]
    )
    ((name, dataset, n_examples, calls, tokens),) = rows(
        "select name, dataset_name, n_examples, calls, tokens_in from experiments where name = 'test_app'"
    )
    assert (dataset, n_examples, tokens) == ("test_app", 4, 20)
    assert calls is None, "tests may call models in ways that are not recorded"

    found: dict[tuple[str, str], list[Any]] = {
        (test.partition("::")[2], metric): rest
        for test, metric, *rest in rows(SCORES)
        if metric not in ("latency", "cost", "tokens", "answer_length")
        if test is not None
    }
    values = {key: value for key, (value, *_) in found.items() if key[1] in ("pass", "distance", "expectation")}
    assert values == {
        ("test_adds[right]", "pass"): 1,
        ("test_adds[right]", "distance"): 0,
        ("test_adds[wrong]", "pass"): 0,
        ("test_adds[wrong]", "distance"): 1,
        ("test_expects", "pass"): 0,
        ("test_expects", "expectation"): 0,
        ("test_logs_everything", "pass"): 1,
    } | {key: None for key in found if key[1] in ("distance", "expectation") and found[key][2] == "not_applicable"}
    assert found["test_logs_everything", "correct"] == [1, None, "scored", "as the judge says", "BOOLEAN"]
    assert found["test_logs_everything", "mood"][1:3] == ["calm", "scored"]
    assert found["test_expects", "similarity"][:3] == [0.8, None, "scored"]
    ((spec,),) = rows(
        "select metrics from (select spec ->> 'metrics' as metrics from experiments where name = 'test_app')"
    )
    declared = json.loads(spec)["edit_distance"]
    assert (declared["higher_is_better"], declared["range"]) == (False, [0, 1]), "its interval stays within"
    assert found["test_expects", "expectation"][3] == "edit_distance: got 0.2, wanted less than 0.1"
    assert found["test_adds[wrong]", "pass"][3].startswith("AssertionError: assert")

    client = Client()
    examples = {(e.metadata or {})["test"].partition("::")[2]: e for e in client.list_examples(dataset_name=dataset)}
    assert examples["test_adds[right]"].inputs == {"a": 1, "b": 2}
    assert examples["test_adds[right]"].outputs == {"wanted": 3}
    assert ((examples["test_adds[right]"].metadata or {})["topic"], examples["test_adds[right]"].split) == (
        "sums",
        "easy",
    )
    assert examples["test_expects"].inputs == {"test": "test_app.py::test_expects"}
    runs = {run.reference_example_id: run for run in client.list_runs(project_name=name)}
    logged = runs[examples["test_logs_everything"].id]
    assert (logged.inputs, logged.outputs) == ({"question": "a knot?"}, {"answer": "bowline"})
    assert [(step.name, step.run_type) for step in logged.child_runs] == [("ChatOpenAI", "llm")]
    (step,) = runs[examples["test_adds[right]"].id].child_runs
    assert (step.name, step.outputs) == ("adding", {"sum": 3})
    kept = "select coalesce(evaluator, ''), model, tokens_in, subject_id from calls order by 1"
    assert rows(kept) == [("", "app-1", 10, logged.id), ("correct", "judge-1", 10, logged.id)]
    assert endpoint.calls == 2


def test_without_tracking_marked_tests_run_and_nothing_is_recorded(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGSMITH_TEST_TRACKING", "false")
    run = inner.runpytest("-k", "logs or adds")
    run.assert_outcomes(passed=2, failed=1, deselected=3)
    run.stdout.no_fnmatch_line("*evalflows experiments*")


def test_a_test_without_the_mark_cannot_log(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        test_app="""
        import pytest
        from evalflows.compat.langsmith import testing as t
        def test_unmarked():
            t.log_inputs({})
        """
    )
    run = inner.runpytest()
    run.assert_outcomes(failed=1)
    run.stdout.fnmatch_lines(["*InputError: log_inputs: called outside of a test, wanted it in one marked*"])
    run.stdout.no_fnmatch_line("*evalflows experiments*")


MISTAKES = [
    ("t.log_feedback(score=1)", "wanted a key"),
    ("t.log_feedback(key='pass', score=1)", "got 'pass', wanted another"),
    ("t.log_feedback(key='a', score=1); t.log_feedback(key='a', score=2)", "key 'a': logged twice in one test"),
    ("t.log_feedback(key='a', colour=1)", "log_feedback: got 'colour', wanted only comment, key"),
    ("t.log_feedback({'key': 'a'}, key='b')", "got both feedback and its fields"),
    ("t.log_outputs(3)", "log_outputs: got 3, wanted a dict"),
    ("expect.edit_distance('a', 'b', config={'metric': 'x'})", "edit distance: metric: got 'x', wanted one of damerau"),
    ("expect.embedding_distance('a', 'b', config={'x': 1})", "config: got 'x', wanted only metric and encoder"),
]


def test_mistakes_fail_the_test_with_one_line(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(recorded_cases, "record", lambda *_: recorded_cases.Recorded(experiment="x", passed=0, tests=0))
    bodies = "".join(f"@pytest.mark.langsmith\ndef test_{i}():\n    {call}\n" for i, (call, _) in enumerate(MISTAKES))
    pytester.makepyfile(f"import pytest\nfrom evalflows.compat.langsmith import expect, testing as t\n{bodies}")
    run = pytester.runpytest("-p", "evalflows.pytest_plugin.plugin")
    run.assert_outcomes(failed=len(MISTAKES))
    for _, message in MISTAKES:
        run.stdout.fnmatch_lines([f"*InputError: *{message.replace('[', '[[]')}*"])


def test_a_mark_with_other_settings_is_refused_in_one_line(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_app="import pytest\n@pytest.mark.langsmith(repetitions=3)\ndef test_it(): pass\n")
    run = inner.runpytest()
    run.stderr.fnmatch_lines(["ERROR: test_app.py::test_it: *repetitions: not supported here: parametrize the test*"])


def test_expectations_hold_or_raise() -> None:
    from evalflows.compat.langsmith import expect

    def encode(texts: Any) -> list[list[float]]:
        return [[1.0, float(len(text))] for text in texts]

    expect(3).to_be_between(2, 4)
    expect(0.333).to_be_approximately(1 / 3)
    expect(None).to_be_none()
    expect.value([1]).to_equal([1])
    expect("x").against(str.islower)
    expect.edit_distance("ab", "ba").to_equal(0.5)
    expect.edit_distance("ab", "abc", config={"metric": "levenshtein", "normalize_score": False}).to_equal(1)
    expect.embedding_distance("ab", "cd", config={"encoder": encode}).to_be_less_than(1e-9)
    expect.embedding_distance("a", "bcd", config={"encoder": encode, "metric": "manhattan"}).to_equal(2)
    with pytest.raises(AssertionError, match=r"^value: got 3, wanted less than 2$"):
        expect(3).to_be_less_than(2)
    with pytest.raises(ValueError, match="not all zero"):
        expect.embedding_distance("a", "b", config={"encoder": lambda texts: [[0.0], [0.0]]})


@pytest.mark.slow
def test_what_a_worker_reports_can_be_sent(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of xdist send reports as JSON-like values; the process that has collected them all writes."""
    kept: list[Any] = []
    monkeypatch.setattr(
        recorded_cases,
        "record",
        lambda suite, cases, name: kept.extend(cases) or recorded_cases.Recorded(experiment="x", passed=1, tests=1),
    )
    inner.makepyfile(
        test_app="""
        import json, pytest
        from evalflows.compat.langsmith import testing as t
        @pytest.mark.langsmith
        @pytest.mark.parametrize("n", range(4))
        def test_it(n):
            t.log_outputs({"n": n})
        """
    )
    inner.runpytest("-p", "xdist", "-n2").assert_outcomes(passed=4)
    assert sorted(json.dumps(case.outputs) for case in kept) == [f'{{"n": {n}}}' for n in range(4)]


def test_tests_of_other_modules_are_left_to_langsmiths_plugin(inner: pytest.Pytester, tmp_path: Path) -> None:
    pytest.importorskip("langsmith.pytest_plugin")
    inner.makeconftest(
        """
        import pytest
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_setup(item):
            theirs = item.get_closest_marker("langsmith") is not None
            print(f"{item.name}: {'theirs' if theirs else 'not theirs'}")
            pytest.skip("only looked at")
        """
    )
    inner.makepyfile(
        test_app="import pytest\nfrom evalflows.compat.langsmith import testing\n"
        "@pytest.mark.langsmith\ndef test_here(): pass\n",
        test_other="import pytest\n@pytest.mark.langsmith\ndef test_there(): pass\n",
    )
    run = inner.runpytest("-p", "langsmith.pytest_plugin", "-s")
    run.stdout.fnmatch_lines(["*test_here: not theirs", "*test_there: theirs"])


@pytest.mark.parametrize("plugin", ["no:langsmith_plugin", "langsmith.pytest_plugin"])
def test_with_langsmiths_output_the_tests_are_listed_with_why_they_failed(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, plugin: str
) -> None:
    monkeypatch.setattr(recorded_cases, "record", lambda *_: recorded_cases.Recorded(experiment="x", passed=1, tests=2))
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID", raising=False)  # beside xdist, their plugin refuses the option
    run = inner.runpytest("-p", plugin, "--langsmith-output", "-k", "adds")
    run.stdout.fnmatch_lines(
        ["*= FAILURES =*", ">*assert a + b == wanted", "*evalflows experiments*", "test_app: 1 of 2*"]
    )
    run.stdout.fnmatch_lines(
        [
            "  passed  test_app.py::test_adds[[]right]  distance 0, * s",
            "  failed  test_app.py::test_adds[[]wrong]  distance 1, * s  AssertionError: *2 + 2*== 5",
            "FAILED test_app.py::test_adds[[]wrong]*",
        ]
    )
