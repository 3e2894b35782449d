"""openevals' evaluators through the flow give what calling them gives."""

from collections.abc import Iterator
from inspect import signature
from typing import Any

import pytest
from endpoint import Endpoint, serving
from foreign_evaluators import async_client, client, judged, no_network, refusing, said, scores_of, verdict

from evalflows.engine.spec_evaluators import bind_evaluator, evaluator_version, prepare_evaluator, reference_to
from evalflows.evaluators.foreign import evaluator_name
from evalflows.specs import InputError
from evalflows.specs.evaluator import EvaluatorSpec

openevals = pytest.importorskip("openevals", reason="openevals comes with the extra `others`")
json_match = pytest.importorskip("openevals.json", reason="openevals comes with the extra `others`")


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with no_network(monkeypatch):
        yield


def looked_up(city: str) -> list[dict[str, Any]]:
    """A trajectory: one call of a tool, and what came of it."""
    call = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": f'{{"city": "{city}"}}'}}
    return [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "found"},
        {"role": "assistant", "content": f"In {city}."},
    ]


ROWS = [
    {"id": "right", "inputs": {"q": "France"}, "outputs": {"city": "Paris", "messages": looked_up("Paris")}},
    {"id": "wrong", "inputs": {"q": "Australia"}, "outputs": {"city": "Canberra", "messages": looked_up("Canberra")}},
    {"id": "open", "inputs": {"q": "Japan"}},
]
GIVEN = {"France": "Paris", "Australia": "Sydney", "Japan": "Tokyo"}
OUTPUTS = {
    row["id"]: {"city": GIVEN[row["inputs"]["q"]], "messages": looked_up(GIVEN[row["inputs"]["q"]])} for row in ROWS
}
REFERENCES = {row["id"]: row.get("outputs") for row in ROWS}
COMPARED = ("right", "wrong")


def target(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"city": GIVEN[inputs["q"]], "messages": looked_up(GIVEN[inputs["q"]])}


def direct(evaluator: Any, example: str) -> Any:
    """By the names that it has, as LangSmith calls it."""
    question = next(row["inputs"] for row in ROWS if row["id"] == example)
    given = {"inputs": question, "outputs": OUTPUTS[example], "reference_outputs": REFERENCES[example]}
    return evaluator(**{name: given[name] for name in given if name in signature(evaluator).parameters})


def correctness(made: Any, judge: Any, **options: Any) -> Any:
    prompt = "Asked {inputs}, wanted {reference_outputs}, got {outputs}. Is it right?"
    return made(prompt=prompt, judge=judge, model="mock-1", **{"feedback_key": "correctness"} | options)


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_every_score_and_comment_is_that_of_a_direct_call() -> None:
    fields = json_match.create_json_match_evaluator(aggregator="all", exclude_keys=["messages"])
    each = json_match.create_json_match_evaluator(exclude_keys=["messages"])
    trajectory = openevals.create_trajectory_match_evaluator(trajectory_match_mode="strict")
    unordered = openevals.create_trajectory_match_evaluator(
        trajectory_match_mode="unordered", tool_args_match_mode="ignore"
    )
    with serving(Endpoint(answer=verdict)) as endpoint, serving(Endpoint(answer=refusing)) as down:
        judge = correctness(openevals.create_llm_as_judge, client(endpoint))
        later = correctness(openevals.create_async_llm_as_judge, async_client(endpoint), feedback_key="later")
        broken = correctness(openevals.create_llm_as_judge, client(down), feedback_key="broken")
        grounded = openevals.create_llm_as_judge(
            prompt="Only by {context}: {outputs}?", judge=client(endpoint), model="mock-1", use_reasoning=False
        )
        result = judged(
            [
                *(openevals.exact_match, fields, trajectory, unordered, judge, later, broken),
                {"use": reference_to(grounded), "name": "grounded", "args": {"context": "an atlas"}},
                {"use": reference_to(each), "name": "fields"},
            ],
            rows=ROWS,
            target=target,
        )
        wanted = {example: direct(judge, example) for example in COMPARED}
    for evaluator, first in ((openevals.exact_match, 1.0), (trajectory, 1.0), (unordered, 1.0), (fields, 1.0)):
        answers = {example: direct(evaluator, example) for example in COMPARED}
        answers = {e: answer[0] if isinstance(answer, list) else answer for e, answer in answers.items()}
        rows = scores_of(result, answers["right"]["key"])
        assert {e: said(rows[e]) for e in COMPARED} == {
            e: (float(answer["score"]), None, answer["comment"]) for e, answer in answers.items()
        }
        assert rows["right"].value == first
        assert answers["right"]["key"].startswith(evaluator_name(evaluator)), "so that a failure is of the same metric"
    assert [scores_of(result, "exact_match")[e].value for e in COMPARED] == [1.0, 0.0]
    assert [scores_of(result, "trajectory_unordered_match")[e].value for e in COMPARED] == [1.0, 1.0], "by its tools"
    assert scores_of(result, "exact_match")["open"].status == "failed", "it wants a reference, and says so"
    assert scores_of(result, "trajectory_strict_match")["open"].value == 0.0, "a trajectory against none"

    rows = scores_of(result, "correctness")
    assert {e: said(rows[e]) for e in COMPARED} == {
        e: (float(answer["score"]), None, answer["comment"]) for e, answer in wanted.items()
    }
    assert [said(rows[e]) for e in COMPARED] == [(1.0, None, "It agrees."), (0.0, None, "It differs.")]
    assert [said(scores_of(result, "later")[e]) for e in COMPARED] == [said(rows[e]) for e in COMPARED]
    assert (rows["right"].data_type, rows["right"].calls, rows["right"].tokens_in) == ("BOOLEAN", 1, 10)
    assert "reference_outputs" in (rows["open"].error or ""), "its prompt has a place for what is not there"
    assert {row.status for row in scores_of(result, "broken").values()} == {"failed"}
    assert {e: said(row)[0] for e, row in scores_of(result, "grounded").items()} == {"right": 1, "wrong": 0, "open": 1}
    assert [scores_of(result, "fields")[e].value for e in COMPARED] == [1.0, 0.0], "its one score bears the spec's name"


def version(evaluator: Any) -> str:
    spec = EvaluatorSpec(use=reference_to(evaluator))
    return evaluator_version(prepare_evaluator(spec), {})


def test_a_version_stays_when_a_judge_has_filled_in_its_model() -> None:
    with serving(Endpoint(answer=verdict)) as endpoint:
        judge = openevals.create_llm_as_judge(prompt="{outputs}?", judge=client(endpoint), model="openai:mock-1")
        before = version(judge)
        judge(outputs="anything")
    assert version(judge) == before


def test_what_makes_an_evaluator_is_none() -> None:
    with pytest.raises(InputError, match=r"asks for 'prompt', wanted the result of the create_… function"):
        bind_evaluator(EvaluatorSpec(use="openevals:create_llm_as_judge"))
    with pytest.raises(
        InputError, match=r"got an evaluator of openevals, which judges one run, wanted it under evaluators"
    ):
        bind_evaluator(EvaluatorSpec(use="openevals:exact_match"), "run")


def test_a_list_of_messages_that_was_wrapped_is_a_trajectory() -> None:
    from evalflows.evaluators.views import ExampleView, RunView, offer_run

    example = ExampleView(id="e", inputs={}, reference_outputs={"output": looked_up("Rome")})
    judge = bind_evaluator(EvaluatorSpec(use=reference_to(openevals.create_trajectory_match_evaluator())))
    for city, wanted in (("Rome", 1.0), ("Bonn", 0.0)):
        run = RunView(id="r", inputs={}, outputs={"output": looked_up(city)})
        assert judge.call(offer_run(example, run))[0].value == wanted
