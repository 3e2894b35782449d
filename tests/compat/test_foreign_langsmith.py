"""LangSmith's evaluators, with the real package, through the flow give what calling them gives."""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from endpoint import Endpoint, serving
from foreign_evaluators import ROWS, client, judged, kept, no_network, said, scores_of, verdict

from evalflows.engine.spec_evaluators import bind_evaluator, reference_to
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.store import Store

langsmith = pytest.importorskip("langsmith", reason="langsmith comes with the extra `others`")
evaluation = pytest.importorskip("langsmith.evaluation", reason="langsmith comes with the extra `others`")
schemas = pytest.importorskip("langsmith.schemas", reason="langsmith comes with the extra `others`")

EXAMPLES = {row["id"]: row for row in ROWS}


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with no_network(monkeypatch):
        yield


def graded(asked: str, answer: str, reference: str | None) -> dict[str, Any]:
    return {"score": float(answer == reference), "value": "same" if answer == reference else "other", "comment": asked}


def string_evaluator(name: str = "graded") -> Any:
    return evaluation.StringEvaluator(evaluation_name=name, grading_function=graded)


@evaluation.run_evaluator
def checked(run: Any, example: Any) -> Any:
    assert isinstance(run, schemas.Run) and isinstance(example, schemas.Example)
    assert run.latency is not None and run.status == "success" and isinstance(run.id, uuid.UUID)
    said = run.outputs["output"]
    return evaluation.EvaluationResult(key="letters", score=len(said), comment=said, evaluator_info={"by": "rule"})


@evaluation.run_evaluator
def subset(outputs: Any, reference_outputs: Any) -> Any:
    return {"key": "subset", "score": outputs == reference_outputs}


@evaluation.run_evaluator
async def several(run: Any, example: Any) -> Any:
    same = run.outputs == example.outputs
    return {"results": [{"key": "same", "score": same}, {"key": "which", "value": example.metadata["example_id"]}]}


class Fails(evaluation.RunEvaluator):  # type: ignore[misc,name-defined]
    """Raises for an example without a reference."""

    def evaluate_run(self, run: Any, example: Any = None, evaluator_run_id: Any = None) -> Any:
        return evaluation.EvaluationResult(key="Fails", score=len(example.outputs["output"]))


class Awaited(evaluation.RunEvaluator):  # type: ignore[misc,name-defined]
    async def aevaluate_run(self, run: Any, example: Any = None, evaluator_run_id: Any = None) -> Any:
        return evaluation.EvaluationResult(key="Awaited", score=None, comment="nothing to say")


class Asks(evaluation.RunEvaluator):  # type: ignore[misc,name-defined]
    """A judge of the user's own, with a client of the user's own."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked

    def evaluate_run(self, run: Any, example: Any = None, evaluator_run_id: Any = None) -> Any:
        question = [{"role": "user", "content": str(run.outputs)}]
        answer = self.asked.chat.completions.create(model="mock-1", messages=question, response_format={"type": "text"})
        return {"key": "Asks", "score": '"score": true' in answer.choices[0].message.content}


def by_run(run: Any, example: Any) -> dict[str, Any]:
    return {"key": "by_run", "score": run.outputs == example.outputs, "comment": example.id}


def by_name(outputs: dict[str, Any], reference_outputs: dict[str, Any] | None) -> dict[str, Any]:
    return {"results": [{"key": "n", "score": len(outputs)}, evaluation.EvaluationResult(key="none", score=None)]}


def share(outputs: list[Any], reference_outputs: list[Any]) -> Any:
    pairs = zip(outputs, reference_outputs, strict=True)
    return evaluation.EvaluationResult(
        key="share", score=sum(a == b for a, b in pairs) / len(outputs), comment="of all"
    )


def pairs(runs: list[Any], examples: list[Any]) -> Mapping[str, Any]:
    return {"results": [{"key": "runs", "score": len(runs)}, {"key": "examples", "score": len(examples)}]}


def theirs(row: Any, output: str) -> tuple[Any, Any]:
    """The run and the example that LangSmith itself would show."""
    run = schemas.Run(
        id=uuid.uuid4(),
        name="t",
        run_type="chain",
        status="success",
        start_time=0,
        end_time=1,
        inputs=row["inputs"],
        outputs={"output": output},
    )
    return run, schemas.Example(id=uuid.uuid4(), inputs=row["inputs"], outputs=row.get("outputs"))


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_every_score_label_and_comment_is_that_of_a_direct_call() -> None:
    with serving(Endpoint(answer=verdict)) as endpoint:
        evaluators = [string_evaluator(), checked, subset, several, Fails(), Awaited(), by_run, by_name]
        summaries: list[Any] = [share, pairs]
        result = judged([*evaluators, Asks(client(endpoint))], summary_evaluators=summaries)
    answers = {item.example.example_id: item.output.outputs or "" for item in result}
    given = {example: text.split('"')[3] for example, text in answers.items()}

    for evaluator in (string_evaluator(), checked, subset):
        direct = {e: evaluator.evaluate_run(*theirs(EXAMPLES[e], given[e])) for e in EXAMPLES}
        rows = scores_of(result, direct["right"].key)
        assert {e: said(row) for e, row in rows.items()} == {
            e: (float(one.score), one.value, one.comment) for e, one in direct.items()
        }
    rows = scores_of(result, "graded")
    assert said(rows["right"]) == (1.0, "same", "capital of France")
    assert said(rows["wrong"]) == (0.0, "other", "capital of Australia")
    assert kept(scores_of(result, "letters")["right"]) == {"evaluator_info": {"by": "rule"}}
    assert [said(scores_of(result, "subset")[e])[0] for e in EXAMPLES] == [1.0, 0.0, 0.0, 0.0]
    assert scores_of(result, "subset")["right"].data_type == "BOOLEAN"

    assert {e: said(row)[0] for e, row in scores_of(result, "same").items()} == {
        "right": 1,
        "wrong": 0,
        "near": 0,
        "open": 0,
    }
    assert {e: said(row)[1] for e, row in scores_of(result, "which").items()} == {e: e for e in EXAMPLES}
    assert {e: row.status for e, row in scores_of(result, "Fails").items()} == {
        **dict.fromkeys(("right", "wrong", "near"), "scored"),
        "open": "failed",
    }
    assert [(row.status, row.comment) for row in scores_of(result, "Awaited").values()] == [
        ("not_applicable", "nothing to say")
    ] * 4
    assert {e: said(row)[2] for e, row in scores_of(result, "by_run").items()} == {e: e for e in EXAMPLES}
    assert scores_of(result, "n")["open"].value == 1 and scores_of(result, "none")["open"].status == "not_applicable"
    rows = scores_of(result, "Asks")
    assert {e: (said(row)[0], row.calls) for e, row in rows.items()} == {
        "right": (1, 1),
        "wrong": (0, 1),
        "near": (1, 1),
        "open": (1, 1),
    }
    summed = {
        s.metric: s.value for s in Store().read("judgements", result.experiment_id) if s.subject_kind == "experiment"
    }
    assert summed == {"share": 1 / 4, "runs": 4, "examples": 4}


def test_steps_are_child_runs_and_ids_that_are_uuids_stay() -> None:
    from evalflows.evaluators.views import ExampleView, RunView, offer_run

    seen: list[Any] = []

    class Sees(evaluation.RunEvaluator):  # type: ignore[misc,name-defined]
        def evaluate_run(self, run: Any, example: Any = None, evaluator_run_id: Any = None) -> Any:
            seen.append((run, example))
            return evaluation.EvaluationResult(key="Sees", score=1)

    identity = uuid.uuid4()
    step = {"id": "s1", "parent": None, "kind": "llm", "name": "ask", "inputs": "q", "outputs": {"a": 1}}
    run = RunView(id=str(identity), inputs={"q": 1}, outputs={"a": 1}, steps=[step], tokens_in=3, tokens_out=4)
    bind_evaluator(EvaluatorSpec(use=reference_to(Sees()))).call(offer_run(ExampleView(id="e1", inputs={"q": 1}), run))
    ((shown, example),) = seen
    assert (shown.id, shown.total_tokens, example.metadata) == (identity, 7, {"example_id": "e1"})
    (child,) = shown.child_runs
    assert (child.run_type, child.inputs, child.outputs, child.parent_run_id) == (
        *("llm", {"input": "q"}, {"a": 1}, identity),
    )
