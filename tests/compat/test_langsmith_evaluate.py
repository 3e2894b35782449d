"""LangSmith's evaluate: targets, data and evaluators of every form, its results, and what the client reads of them."""

import asyncio
import json
import re
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.documents import Document
from user_places import without_places

from evalflows.compat import langsmith
from evalflows.compat.langsmith import Client, EvaluationResult, RunEvaluator, evaluate, traceable
from evalflows.compat.langsmith.datasets import as_data
from evalflows.compat.langsmith.schemas import Example, Run
from evalflows.compat.langsmith.user_functions import as_target
from evalflows.compat.langsmith.utils import LangSmithConflictError, LangSmithNotFoundError
from evalflows.specs import IncompleteError, InputError
from evalflows.specs.dataset import DatasetSpec
from evalflows.store import Store, connect
from evalflows.store.queries.lookup import find_experiments

ROWS = [{"inputs": {"q": f"q{i}"}, "outputs": {"a": f"Q{i}"}, "split": f"s{i % 2}"} for i in range(4)]


@pytest.fixture
def client() -> Client:
    made = Client()
    made.create_dataset("letters")
    made.create_examples(dataset_name="letters", examples=ROWS)
    return made


def upper(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"a": inputs["q"].upper()}


def right(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
    return bool(outputs == reference_outputs)


class Length(RunEvaluator):
    def evaluate_run(self, run: Run, example: Example | None = None, evaluator_run_id: uuid.UUID | None = None) -> Any:
        return EvaluationResult(key="length", score=len((run.outputs or {})["a"]), comment=example and example.id)


def legacy(r: Run, e: Example) -> dict[str, Any]:
    assert isinstance(r, Run) and isinstance(e, Example)
    return {"key": "renamed", "score": float(r.outputs == e.outputs), "comment": r.inputs["q"]}


def several(run: Run, example: Example) -> dict[str, Any]:
    assert run.latency is not None and run.trace_id == run.id
    return {"results": [{"key": "x", "score": 1}, EvaluationResult(key="y", value="fine")]}


async def mood(inputs: dict[str, Any]) -> str:
    await asyncio.sleep(0)
    return "good" if inputs["q"] != "q0" else "bad"


def fails(run: Run, example: Example) -> bool:
    if run.inputs["q"] == "q1":
        raise ValueError("not this one")
    return True


def share(outputs: list[Any], reference_outputs: list[Any]) -> float:
    return sum(a == b for a, b in zip(outputs, reference_outputs, strict=True)) / len(outputs)


def counted(runs: list[Run], examples: list[Example]) -> dict[str, Any]:
    assert all(isinstance(run, Run) for run in runs) and all(isinstance(e, Example) for e in examples)
    return {"key": "n", "score": len(runs)}


def old(rs: list[Run], es: list[Example]) -> list[dict[str, Any]]:
    return [{"key": "first", "score": len(rs)}, {"key": "second", "score": len(es)}]


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_every_form_of_evaluator_and_what_the_results_are(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVALFLOWS_DASHBOARD_URL", "https://evals.example.com")
    results = client.evaluate(
        upper,
        data="letters",
        evaluators=[right, Length(), legacy, several, mood, fails, "contains"],
        summary_evaluators=[share, counted, old],
        experiment_prefix="forms",
        metadata={"commit": "abc"},
        description="all forms",
    )
    assert re.fullmatch(r"forms-[0-9a-z]{8}", results.experiment_name)
    assert results.url == f"https://evals.example.com/experiments/{results.experiment_id}"
    assert f"experiment {results.experiment_name}: {results.url}\n" in capsys.readouterr().err
    assert len(results) == len(list(results)) == 4
    assert results.get_dataset_id() == client.read_dataset(dataset_name="letters").id
    row = list(results)[1]
    assert (row["run"].inputs, row["run"].outputs, row["run"].error) == ({"q": "q1"}, {"a": "Q1"}, None)
    assert (row["example"].outputs, row["run"].reference_example_id) == ({"a": "Q1"}, row["example"].id)
    found = {result.key: result for result in row["evaluation_results"]["results"]}
    assert {key: result.score if result.value is None else result.value for key, result in found.items()} == {
        "right": True,
        "length": 2.0,
        "renamed": 1.0,
        "x": 1.0,
        "y": "fine",
        "mood": "good",
        "fails": None,
        "contains": True,
    }
    failed = found["fails"]
    assert (failed.score, failed.extra) == (None, {"error": True})
    assert without_places(failed.comment) == "ValueError: not this one"
    assert (found["renamed"].comment, found["length"].comment) == ("q1", row["example"].id)

    frame = results.to_pandas()
    assert [*frame.columns[:4]] == ["inputs.q", "outputs.a", "error", "reference.a"]
    assert [*frame.columns[-3:]] == ["execution_time", "example_id", "id"]
    assert [*frame["feedback.fails"]] == [True, None, True, True]
    assert len(results.to_pandas(start=1, end=3)) == 2

    project = client.read_project(project_name=results.experiment_name, include_stats=True)
    assert (project.id, project.description, project.metadata) == (
        results.experiment_id,
        "all forms",
        {"commit": "abc"},
    )
    assert (project.run_count, project.error_rate, project.reference_dataset_id) == (4, 0.0, results.get_dataset_id())
    assert isinstance(project.latency_p50, timedelta) and project.total_cost is None, "its calls are not known"
    assert project.feedback_stats is not None and project.session_feedback_stats is not None
    assert project.feedback_stats["fails"] == {"n": 3, "avg": 1.0, "missing": 1}
    summary = {key: value["avg"] for key, value in project.session_feedback_stats.items()}
    assert summary == {"share": 1.0, "n": 4.0, "first": 4.0, "second": 4.0}


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_what_the_client_lists_of_an_experiment(client: Client) -> None:
    def target(inputs: dict[str, Any]) -> dict[str, Any]:
        if inputs["q"] == "q2":
            raise OSError("gone")
        return upper(inputs)

    @traceable(run_type="tool")
    def shout(q: str) -> str:
        return q.upper()

    def calls(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"a": shout(inputs["q"])}

    results = evaluate(target, data="letters", evaluators=[right, fails], experiment_prefix="listed", blocking=False)
    newer = evaluate(calls, data="letters", evaluators=[right], experiment_prefix="listed", upload_results=False)
    found = [find_experiments(Store(), reference) for reference in ("listed~1", "listed", newer.experiment_name)]
    assert found == [[results.experiment_id], [newer.experiment_id], [newer.experiment_id]], "one history"
    assert Store().read("experiments", newer.experiment_id)[0].tags == ["trial"]
    for given, count in (
        ({"run_type": "tool"}, 4),
        ({"filter": 'eq(run_type, "tool")'}, 4),
        ({"filter": 'and(eq(is_root, true), lt(latency, "5s"), eq(feedback_key, "right"), gte(feedback_score, 1))'}, 4),
        ({"filter": 'or(eq(feedback_score, 0), search("Q3"))', "select": ["id"]}, 1),
        ({"is_root": False}, 4),
        ({"trace_id": next(iter(newer))["run"].id}, 2),
    ):
        assert len(list(client.list_runs(project_name=newer.experiment_name, **given))) == count, given  # type: ignore[arg-type]
    with pytest.raises(InputError, match="filter: got the field 'nothing', wanted one of id, name"):
        list(client.list_runs(project_name="listed", filter='eq(nothing, "x")'))
    frame = client.get_test_results(project_name=results.experiment_name)
    assert [*frame["reference.a"]] == ["Q0", "Q1", "Q2", "Q3"] and frame["input.q"][1] == "q1"
    assert frame["feedback.right"].to_list() == pytest.approx([1, 1, float("nan"), 1], nan_ok=True)
    whole = client.get_experiment_results(results.experiment_name, limit=2)
    assert (whole["run_stats"]["run_count"], whole["feedback_stats"]["right"]["n"]) == (4, 3)
    assert [[run.feedback_stats["right"]["avg"] for run in one.runs] for one in whole["examples_with_runs"]] == [
        [1],
        [1],
    ]
    runs = list(client.list_runs(project_name=results.experiment_name, is_root=True))
    assert {run.id for run in runs} == {row["run"].id for row in results}
    assert [run.start_time for run in runs] == sorted((run.start_time for run in runs), reverse=True)
    (failed,) = client.list_runs(project_id=results.experiment_id, error=True)
    assert (without_places(failed.error), failed.status, failed.outputs) == ("OSError: gone", "error", None)
    assert len(list(client.list_runs(project_name=results.experiment_name, error=False, limit=2))) == 2
    assert len(list(client.list_runs(reference_example_id=failed.reference_example_id))) == 2, "in both experiments"
    assert client.read_run(uuid.UUID(failed.id)) == failed

    feedback = list(client.list_feedback(run_ids=[run.id for run in runs], feedback_key="fails"))
    assert len(feedback) == 4 and {one.key for one in feedback} == {"fails"}
    by_run = {one.run_id: one for one in feedback}
    assert by_run[failed.id].score is None
    assert without_places(by_run[failed.id].comment) == "no output to judge: OSError: gone"
    comments = {without_places(one.comment) for one in feedback if one.score is None}
    assert comments == {"no output to judge: OSError: gone", "ValueError: not this one"}
    assert len(list(client.list_feedback(run_ids=[failed.id], feedback_key=["fails", "right"]))) == 2
    assert len(list(client.list_feedback(limit=5))) == 5

    for said in ({"score": 1, "comment": "fine by me"}, {"value": "rude", "source_info": {"who": "ann"}}):
        client.create_feedback(failed.id, "person", **said)  # type: ignore[arg-type]
    human = list(client.list_feedback(run_ids=[failed.id], feedback_key="person"))
    assert [(one.score, one.value, one.comment) for one in human] == [(1.0, None, "fine by me"), (None, "rude", None)]
    with connect() as catalog:
        labels = "select metric, value, label, example_id, experiment_id from labels order by recorded_at"
        assert catalog.execute(labels).fetchall() == [
            ("person", 1.0, None, failed.reference_example_id, results.experiment_id),
            ("person", None, "rude", failed.reference_example_id, results.experiment_id),
        ]


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_projects_are_experiments(client: Client) -> None:
    def down(inputs: dict[str, Any]) -> None:
        raise ConnectionError("down")

    first = evaluate(upper, data="letters", evaluators=[right], experiment_prefix="a", metadata={"n": 1})
    with pytest.raises(IncompleteError, match="none of 1 answered: ConnectionError: down"):
        evaluate(down, data=ROWS[:1], experiment_prefix="b", metadata={"n": 2})
    second, *others = client.list_projects()
    assert [project.name for project in others] == [first.experiment_name], "the newest first"
    assert [without_places(run.error) for run in client.list_runs(project_name=second.name)] == [
        "ConnectionError: down"
    ]
    for wanted in (
        {"project_ids": [first.experiment_id]},
        {"name": first.experiment_name},
        {"name_contains": "a-"},
        {"reference_dataset_name": "letters"},
        {"reference_dataset_id": first.get_dataset_id()},
        {"metadata": {"n": 1}},
    ):
        (project,) = client.list_projects(**wanted)  # type: ignore[arg-type]
        assert (project.id, project.run_count) == (first.experiment_id, None)
    (counted,) = client.list_projects(limit=1, include_stats=True)
    assert (counted.id, counted.run_count) == (second.id, 1)
    assert list(client.list_projects(reference_free=True)) == []
    assert client.has_project(first.experiment_name) and not client.has_project("a")


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_data_of_every_form(client: Client) -> None:
    def has_no_reference(reference_outputs: dict[str, Any]) -> bool:
        return reference_outputs.get("a") is None

    dataset = client.read_dataset(dataset_name="letters")
    for whole in ("letters", dataset, dataset.id, uuid.UUID(dataset.id), client.list_examples(dataset_name="letters")):
        assert as_data(Store(), whole) == DatasetSpec(name="letters")
    assert as_data(Store(), ROWS[:1]).rows == ROWS[:1]
    chosen = [*client.list_examples(dataset_name="letters", splits=["s1"]), {"inputs": {"q": "x"}}]
    part = evaluate(upper, data=chosen, evaluators=[has_no_reference])
    assert [row["example"].inputs["q"] for row in part] == ["q1", "q3", "x"]
    scores = [row["evaluation_results"]["results"][0].score for row in part]
    assert scores == [False, False, True], "without a reference it is empty, as there"
    assert part.get_dataset_id() is None
    known = {example.id for example in client.list_examples(dataset_name="letters")}
    assert len({row["example"].id for row in part} - known) == 1, "the others are the same examples"
    with connect() as catalog:
        assert catalog.execute("select name, n_examples from datasets").fetchall() == [("letters", 4)]


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_a_target_gets_the_inputs_as_one_dict_whatever_it_calls_them(client: Client) -> None:
    def named_like_a_field(q: dict[str, Any], a: str = "own", **rest: Any) -> dict[str, Any]:
        return {"a": q["q"].upper(), "default": a, "rest": rest}

    def with_metadata(inputs: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        return inputs | metadata

    class Runnable:
        def invoke(self, input: dict[str, Any], config: Any = None) -> dict[str, Any]:  # noqa: A002
            return upper(input)

    results = evaluate(named_like_a_field, data="letters")
    assert next(iter(results))["run"].outputs == {"a": "Q0", "default": "own", "rest": {}}
    assert results.experiment_name.startswith("named_like_a_field-")
    assert as_target(upper) is upper
    assert as_target(with_metadata)(inputs={"q": 1}, metadata={"m": 2}) == {"q": 1, "m": 2}
    assert as_target(Runnable())(inputs={"q": "x"}) == {"a": "X"}


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_what_happened_in_a_run_is_in_its_child_runs(client: Client) -> None:
    @traceable(run_type="retriever")
    def fetch(q: str) -> list[str]:
        return [q, q]

    @traceable
    def pipeline(inputs: dict[str, Any]) -> dict[str, Any]:
        found = [] if inputs["q"] == "q3" else fetch(inputs["q"])
        return {"a": len(found) * "x"}

    def names(run: Run) -> str:
        return ", ".join(child.name for child in run.child_runs) or "none"

    results = evaluate(pipeline, data="letters", evaluators=[names], max_concurrency=1)
    said = [row["evaluation_results"]["results"][0].value for row in results]
    assert said == [*["fetch"] * 3, "none"], "the steps of one answer are not those of the next"
    (child,) = client.read_run(next(iter(results))["run"].id).child_runs
    assert (child.run_type, child.inputs, child.outputs) == ("retriever", {"q": "q0"}, {"output": ["q0", "q0"]})
    assert child.parent_run_id == child.trace_id == next(iter(results))["run"].id


def test_what_cannot_be_is_refused_before_anything_is_called(client: Client) -> None:
    with pytest.raises(LangSmithNotFoundError, match=r"^dataset 'empty': not in the store"):
        client.read_dataset(dataset_name="empty")
    client.create_dataset("empty")
    with pytest.raises(LangSmithConflictError, match=r"^dataset 'empty': already in the store"):
        client.create_dataset("empty")

    def none() -> None: ...

    def two(a: Any, b: Any) -> None: ...

    for arguments, message in (
        ({"error_handling": "ignore"}, "error_handling: got 'ignore', wanted 'log'"),
        ({"data": []}, "data: got no examples"),
        ({"data": "empty"}, "dataset 'empty': has no examples yet"),
        ({"data": "nowhere"}, "dataset 'nowhere': not in the store, wanted one of: empty, letters"),
        ({"target": "an-experiment"}, "data: got 'letters', wanted None: an experiment has its own"),
        ({"target": "an-experiment", "data": None}, "experiment 'an-experiment': not in"),
        ({"target": none}, "got no parameter, wanted the inputs"),
        ({"target": two}, "got parameter 'b', wanted the inputs, then at most attachments and metadata"),
        ({"evaluators": [3]}, "evaluators: got int, wanted a function"),
        ({"evaluators": [lambda a, b, c: True]}, "asks for 'a', wanted any of inputs, outputs"),
        ({"summary_evaluators": [lambda a: True]}, "asks for 'a', wanted any of inputs, outputs"),
    ):
        given: dict[str, Any] = {"target": upper, "data": "letters", "evaluators": [right]} | arguments
        with pytest.raises(InputError, match=message) as raised:
            client.evaluate(given.pop("target"), **given)
        assert "\n" not in str(raised.value)
    for call, message in (
        (lambda: client.list_runs(), "wanted project_name or project_id, run_ids, or reference_example_id"),
        (lambda: client.list_runs(project_name="p", filter="eq(x, 1"), "filter: got 'eq"),
        (lambda: client.list_runs(project_name="p", query="x"), "query: got 'x'"),
        (lambda: client.list_runs(project_name="nowhere"), "experiment 'nowhere': not in"),
        (lambda: client.read_run("0" * 32), "not in the store"),
        (lambda: client.create_feedback("0" * 32, "k", score=1), "not in the store"),
    ):
        with pytest.raises(InputError, match=message):
            call()  # type: ignore[no-untyped-call]
    with connect() as catalog:
        assert catalog.execute("select count(*) from experiments").fetchone() == (0,)


@dataclass
class Passage:
    page_content: str


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_failures_have_the_keys_of_the_source_and_objects_their_attributes(client: Client) -> None:
    def found(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"a": inputs["q"], "documents": [Passage("ebb"), Document(page_content="flood", metadata={"n": 1})]}

    def grounded(run: Run, example: Example) -> dict[str, Any]:
        documents: Any = run.outputs["documents"] if run.outputs else []
        texts = [one.page_content for one in documents] + [one["page_content"] for one in documents]
        return {"key": "texts", "score": texts == ["ebb", "flood"] * 2 and documents[1].metadata.n == 1}

    def broken(outputs: Any) -> Any:
        if outputs.documents:
            raise ValueError("no tide")
        return {
            "results": [{"key": "high", "score": 1}, EvaluationResult(key="low", score=2), {"key": "mid", "score": 3}]
        }

    results = evaluate(found, "letters", [broken, grounded, lambda outputs: 1, lambda outputs: 2])
    for row in results:
        given = row["evaluation_results"]["results"]
        assert [one.key for one in given] == ["high", "low", "mid", "texts", "function", "function_2"]
        assert [one.score for one in given] == [None, None, None, True, 1, 2]
        assert all("no tide" in str(one.comment) and one.extra == {"error": True} for one in given[:3])
    assert "feedback.mid" in results.to_pandas()
    example = next(client.list_examples(dataset_name="letters"))
    assert example.dict()["inputs"] == json.loads(example.json())["inputs"] == example.inputs
    assert "cluster" not in example.model_dump(exclude_none=True)
    assert json.loads(next(client.list_dataset_versions(dataset_name="letters")).json())["snapshot_id"][:5] == "snap-"

    client.create_dataset("empty")
    for data, said in (("empty", "No examples found in the dataset"), ([], "Must specify 'data'"), (iter(()), "No ex")):
        with pytest.raises(ValueError, match=said) as raised:
            evaluate(found, data)
        assert isinstance(raised.value, InputError)


def test_test_marks_as_pytest_s_mark_does() -> None:
    def case() -> None: ...

    def other() -> None: ...

    marked, with_settings = langsmith.test(case), langsmith.unit(output_keys=["z"])(other)
    assert [(mark.name, mark.kwargs) for mark in marked.pytestmark] == [("langsmith", {})]
    assert [mark.kwargs for mark in with_settings.pytestmark] == [{"output_keys": ["z"]}]
    assert not langsmith.test.__test__, "a module that imports it has one test less"
