"""Programs written for Langfuse, with other import lines."""

import ast
import json
import runpy
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, completion, serving
from made_traces import BEGAN, observation

from evalflows.compat.langfuse import Evaluation, get_client
from evalflows.store import Store
from evalflows.store.observations import write_observations
from evalflows.store.trace_records import ObservationRow

PROGRAMS = Path(__file__).parent / "programs" / "langfuse"
Run = Callable[[str], list[str]]
N_ANSWERS = 120


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], without_prefect: None
) -> Run:
    """Run a program as `python NAME.py` does, in this process; return the lines that it printed."""

    def run(name: str) -> list[str]:
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def answers() -> Iterator[ObservationRow]:
    """Traces of production that the program's filter finds, older ones first: each fifth looks something up."""
    for n in range(N_ANSWERS):
        looks_up = n % 5 == 0
        call = {"name": "search", "arguments": {"query": f"harbour {n}"}}
        text = f"Berth {n} is free" + (" today, as the harbour master wrote in his book this morning" * (n % 4 == 0))
        attributes = {
            "langfuse.trace.tags": ["production", "web"],
            "langfuse.user.id": f"user-{n % 7}",
            "langfuse.trace.metadata.expected": f"berth {n if n % 10 else 'none'} ",
        }
        if looks_up:
            attributes["langfuse.trace.metadata.needs_tool"] = "search"
        yield observation(
            f"answer{n}",
            input=f"Which berth is free, {n}?",
            output={"text": text, "tool_calls": [call] if looks_up else []},
            began=BEGAN + timedelta(seconds=n),
            attributes=attributes,
        )


def others() -> Iterator[ObservationRow]:
    """Traces that the filter leaves out: by their tags, or by their name."""
    for n in range(10):
        yield observation(f"staging{n}", began=BEGAN, attributes={"langfuse.trace.tags": ["staging"]})
        tags = {"langfuse.trace.tags": ["production"]}
        yield observation(f"health{n}", name="health-check", began=BEGAN, attributes=tags)


@pytest.mark.slow
def test_production_is_evaluated_as_in_langfuse(run: Run, store: Store) -> None:
    write_observations(store, [*answers(), *others()])
    judged = range(N_ANSWERS)
    length = [0.5 if n % 4 == 0 else 1.0 for n in judged]
    correctness = [float(n % 10 != 0) for n in judged]
    quality = sum(0.2 * a + 0.5 * b + 0.3 for a, b in zip(length, correctness, strict=True)) / len(judged)
    printed = run("production")
    assert printed == [
        "items: 120 of 120, failed: 0",
        "scores: 360, composite: 120",
        "length: 120 of 120",
        "correctness: 120 of 120",
        "tool_use: 120 of 120",
        f"quality: {quality:.3f} of 120",
        "errors: {}",
        "more: False",
        "done",
    ]
    names = "select metric, count(*), count(distinct subject_id), round(avg(value), 6) from trace_scores group by 1"
    assert rows(names + " order by 1") == [
        ("correctness", 120, 120, pytest.approx(sum(correctness) / 120)),
        ("length", 120, 120, pytest.approx(sum(length) / 120)),
        ("quality", 120, 120, pytest.approx(quality)),
        ("tool_use", 120, 120, 1.0),
    ]
    assert run("composites") == [
        "20 {'LookupError': 1}",
        "answer100 {'accuracy': 1.0, 'length': 0.26, 'strict': 0.26, 'weighed': 0.778}",
        "1.0",
        "answer101 {'accuracy': 1.0, 'length': 1.0, 'strict': 1.0, 'weighed': 1.0}",
        "1.0",
    ]
    calls = "select max(recorded_at) from staging.scores where evaluator <> 'strict'"
    before = rows(calls)
    assert run("production") == printed
    assert rows(calls) == before, "nothing is judged again"


def calls_of_a_model(trace: str, n: int) -> Iterator[ObservationRow]:
    began, tags = BEGAN + timedelta(minutes=n), {"langfuse.trace.tags": ["production"]}
    yield observation(trace, began=began, attributes=tags)
    said = [{"role": "user", "content": f"Question {n}?"}]
    answer = [{"role": "assistant", "content": "short" if n % 3 else "a long answer " * 10}]
    yield observation(
        trace,
        "call",
        parent="root",
        name="chat",
        type="generation",
        input=None,
        output=None,
        began=began,
        attributes=tags
        | {
            "langfuse.observation.type": "generation",
            "gen_ai.request.model": "mock-1",
            "gen_ai.input.messages": [{**one, "parts": [{"type": "text", "content": one["content"]}]} for one in said],
            "gen_ai.output.messages": [
                {"role": "assistant", "parts": [{"type": "text", "content": one["content"]}]} for one in answer
            ],
        },
    )


@pytest.mark.slow
def test_observations_are_evaluated_as_in_langfuse_5(run: Run, store: Store) -> None:
    write_observations(store, [row for n in range(20) for row in calls_of_a_model(f"t{n:02}", n)])
    last = sorted(f"t{n:02}-call" for n in range(4))
    assert run("observations") == ["8 True True", "8 True True", "4 True False", f"20 {last}"]
    found = "select metric, count(*), avg(value), any_value(label) from trace_scores where subject_kind = 'observation'"
    assert rows(found + " group by 1 order by 1") == [
        ("brevity", 20, pytest.approx(13 / 20), None),
        ("kind", 20, None, "GENERATION"),
        ("passed", 20, pytest.approx(13 / 20), None),
        ("question", 20, pytest.approx(11.5), None),
    ]


@pytest.mark.slow
def test_mappers_get_langfuse_s_items_and_evaluators_exactly_what_they_return(
    store: Store, without_prefect: None
) -> None:
    write_observations(store, [observation("t", input={"input": "q"}, output={"output": {"text": "a"}})])
    seen: list[Any] = []

    async def mapper(trace: Any) -> Any:
        return {"input": trace["input"], "output": trace.observations[0].output, "metadata": {"type": trace.name}}

    def judge(*, input: Any, output: Any, expected_output: Any, metadata: Any) -> Any:  # noqa: A002
        seen.append((input, output, output.output.text, expected_output, metadata))
        return Evaluation(name="judge", value="good", data_type="CATEGORICAL")

    def strict(*, output: Any, **kwargs: Any) -> Any:
        raise LookupError("nothing there")

    def same(*, evaluations: Any, **kwargs: Any) -> Any:
        return Evaluation(name="same", value=evaluations["judge"].value)

    client = get_client()
    result = client.run_batched_evaluation(scope="observations", evaluators=[strict])
    assert result.error_summary == {"LookupError": 1}
    result = client.run_batched_evaluation(
        scope="observations", mapper=lambda item: item.nothing, evaluators=[judge], composite_evaluators=[same]
    )
    assert (result.failed_item_ids, seen, result.item_evaluations) == (["t-root"], [], {})
    result = client.run_batched_evaluation(
        scope="traces", mapper=mapper, evaluators=[judge], composite_evaluators=[same]
    )
    assert seen == [({"input": "q"}, {"output": {"text": "a"}}, "a", None, {"type": "user-query"})]
    assert {one.name: one.value for one in result.item_evaluations["t"]} == {"judge": "good", "same": "good"}
    with pytest.raises(AttributeError, match="value: got the evaluations judge, same, wanted one"):
        [e.value for e in result.item_evaluations.values()]
    result = client.run_batched_evaluation(scope="traces", mapper=mapper, evaluators=[judge])
    assert [(e.name, e.value) for e in result.item_evaluations.values()] == [("judge", "good")]
    assert not hasattr(result.item_evaluations["t"], "score")


def test_only_import_lines_are_ours() -> None:
    pytest.importorskip("langfuse")
    for path in [*PROGRAMS.parent.glob("langfuse/*.py"), *PROGRAMS.parent.glob("langsmith*/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("evalflows"):
                exec(ast.unparse(node).replace("evalflows.compat.", ""), {})  # raises ImportError if they lack it


def said(request: Request) -> Reply:
    """The guide repeats what was found, and the judge reads."""
    text = request["messages"][0]["content"]
    return completion(("yes" if "the sea" in text else "no") if request["model"] == "judge-1" else text)


@pytest.mark.slow
def test_observed_functions_and_chains_are_steps_of_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_core")
    with serving(Endpoint(answer=said)) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
        assert run("observed") == ["[('A tide is the rise and fall of the sea.', True), ('', False)]"]
    assert run("chain") == ["Knots v1 [1.0, 0.0]"]
    query = (
        "select name, o.tokens_in, steps::varchar from outputs o join experiments using (experiment_id) order by 1, 3"
    )
    runs = [(name, tokens, json.loads(steps)) for name, tokens, steps in rows(query)]
    kinds = {(name, tokens, tuple(one["kind"] for one in steps)) for name, tokens, steps in runs}
    assert kinds == {("Guide", 10, ("span", "tool", "retriever", "llm")), ("Knots v1", 20, ("chain", "chain", "llm"))}
    guide, rank, search, _ = max(
        (steps for name, _, steps in runs if name == "Guide"), key=lambda steps: len(str(steps))
    )
    assert (guide["name"], guide["metadata"], rank["metadata"]) == ("harbour-guide", {"model": "guide-1"}, {"found": 1})
    assert rank["outputs"] == search["outputs"] == {"output": ["A tide is the rise and fall of the sea."]}
    assert (rank["parent"], search["parent"]) == (guide["id"], rank["id"])


@pytest.mark.slow
def test_experiments_run_as_in_langfuse(run: Run) -> None:
    lines = run("experiments")
    assert lines[:9] == [
        "item 1:",
        "  input: France",
        "  expected: Paris",
        "  output: {'text': 'It is Paris.', 'tool_calls': [{'arguments': {'country': 'France'}, 'name': 'look_up'}]}",
        "  accuracy: True",
        "  length: 12.000",
        "  overall: 1.000",
        "  tools: 1.000 (look_up)",
        "item 2:",
    ]
    assert "What an assistant knows" in lines
    for line in (
        "experiment: Capitals",
        "4 items",
        "  accuracy: 0.750, 4 of 4 items",
        "  length: 13.750, 4 of 4 items",
        "  overall: 0.750, 4 of 4 items",
        "of the run: mean_accuracy: 0.750 (4 items)",
        "capitals 3 France Paris",
        "[('France', 'It is Paris.', True), ('Spain', 'It is Madrid.', True), ('Italy', 'It is Rome.', True)]",
    ):
        assert line in lines
    stored = rows("select metric, count(*) from scores where subject_kind = 'run' group by 1 order by 1")
    assert stored == [("accuracy", 7), ("length", 7), ("overall", 7), ("tools", 4)]
