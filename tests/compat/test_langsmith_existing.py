"""LangSmith's evaluate_existing: new scores for the answers of an existing experiment."""

import asyncio
import uuid
from typing import Any

import pytest

from evalflows.compat.langsmith import Client, aevaluate_existing, evaluate, evaluate_existing, traceable
from evalflows.compat.langsmith.evaluation import ExperimentResults
from evalflows.compat.langsmith.schemas import Example, Run
from evalflows.specs import InputError
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

ROWS = [{"inputs": {"q": f"q{i}"}, "outputs": {"a": f"Q{i}"}} for i in range(3)]
calls: list[str] = []


@traceable
def shout(text: str) -> str:
    return text.upper()


def target(inputs: dict[str, Any]) -> dict[str, Any]:
    calls.append(inputs["q"])
    if inputs["q"] == "q2":
        raise OSError("gone")
    return {"a": shout(inputs["q"])}


def right(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
    return bool(outputs == reference_outputs)


def nested(run: Run, example: Example) -> int:
    return len(run.child_runs)


def share_right(outputs: list[dict[str, Any]], reference_outputs: list[dict[str, Any]]) -> float:
    return sum(a == b for a, b in zip(outputs, reference_outputs, strict=True)) / len(outputs)


@pytest.fixture
def first() -> ExperimentResults:
    client = Client()
    client.create_dataset("letters")
    client.create_examples(dataset_name="letters", examples=ROWS)
    calls.clear()
    return evaluate(target, data="letters", num_repetitions=2, experiment_prefix="first", description="the first")


@pytest.mark.slow
def test_answers_are_evaluated_again_without_a_call_and_what_cannot_be_is_refused(first: ExperimentResults) -> None:
    assert len(calls) == 6
    again = evaluate_existing(
        first.experiment_name, evaluators=[right, nested], summary_evaluators=[share_right], metadata={"why": "later"}
    )
    assert len(calls) == 6, "the target is not called"
    assert again.experiment_name.startswith(f"{first.experiment_name}-") and again.experiment_id != first.experiment_id
    assert again.get_dataset_id() == first.get_dataset_id() is not None
    assert [(row["run"].outputs, row["example"]) for row in again] == [
        (row["run"].outputs, row["example"]) for row in first
    ]
    scores = [{result.key: result.score for result in row["evaluation_results"]["results"]} for row in again]
    assert scores == 2 * [
        {"nested": 1.0, "right": True},
        {"nested": 1.0, "right": True},
        {"nested": None, "right": None},
    ]
    (summary,) = again.summary_results["results"]
    assert (summary.key, round(summary.score or 0, 3)) == ("share_right", 0.667)
    project = Client().read_project(project_id=again.experiment_id)
    assert (project.metadata, project.description) == ({"why": "later"}, "the first")
    reused = Store().query(
        "select count(*) from source.outputs n join source.outputs o on n.reused_from = o.run_id "
        "where n.experiment_id = ? and o.experiment_id = ?",
        [again.experiment_id, first.experiment_id],
    )
    assert reused == [(4,)]
    later = asyncio.run(aevaluate_existing(first.experiment_id, summary_evaluators=[share_right]))
    assert next(iter(evaluate(project, evaluators=[nested])))["evaluation_results"]["results"][0].score is not None
    assert [result.key for result in later.summary_results["results"]] == ["share_right"]
    Client().create_example({"q": "q3"}, dataset_name="letters")
    calls.clear()
    grown = evaluate(target, data="letters", evaluators=[right], experiment=first.experiment_name)
    assert calls == ["q2", "q3"], "what failed, and what is new"
    assert [row["run"].error is None for row in grown] == [True, True, False, True]
    assert len({first.experiment_id, grown.experiment_id}) == 2
    assert grown.experiment_name.startswith("first-")
    n_before = Store().query("select count(*) from source.experiments")
    for call, message in (
        (lambda: evaluate_existing("nowhere", [right]), "experiment 'nowhere': not in"),
        (lambda: evaluate_existing(uuid.uuid4(), [right]), "not in"),
        (lambda: evaluate_existing(first), "got no evaluators"),
        (lambda: evaluate_existing(3, [right]), "evaluate_existing: experiment: got int, wanted an experiment's name"),
        (lambda: evaluate(first, evaluators=[right], num_repetitions=3), "num_repetitions: got 3, wanted 1"),
        (lambda: evaluate(first, evaluators=[right], experiment_prefix="x"), "experiment_prefix: got 'x'"),
        (lambda: evaluate(first, evaluators=[right], randomize_order=True), "only with two experiments"),
        (lambda: evaluate(target, data="letters", experiment="nowhere"), "experiment 'nowhere': not in"),
        (lambda: evaluate(target, data="letters", experiment=first, experiment_prefix="x"), "wanted one of them"),
        (lambda: evaluate(shout, data="letters", experiment=first), "asked another version of 'target', wanted the"),
        (lambda: evaluate(first, evaluatorss=[right]), "got 'evaluatorss', wanted evaluators or"),
    ):
        with pytest.raises(InputError, match=message) as raised:
            call()  # type: ignore[no-untyped-call]
        assert "\n" not in str(raised.value)
    assert Store().query("select count(*) from source.experiments") == n_before
