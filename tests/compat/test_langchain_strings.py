"""LangChain's evaluators of one text, alone and as LangSmith's LangChainStringEvaluator."""

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from recorded_models import Invoked

from evalflows.compat import langchain
from evalflows.compat.langchain import (
    ConstitutionalPrinciple,
    StringEvaluator,
    load_evaluator,
    resolve_pairwise_criteria,
)
from evalflows.compat.langsmith import evaluate
from evalflows.compat.langsmith.evaluation import LangChainStringEvaluator
from evalflows.compat.langsmith.schemas import Example, Run
from evalflows.llm import loop
from evalflows.specs import InputError
from evalflows.specs.errors import CallError
from evalflows.specs.protocols import Completion

SIDES = {"prediction": "It is noon.", "input": "When?", "reference": "noon"}


class Complete:
    """A `complete` that says yes, or gives the number, and keeps what it was asked."""

    def __init__(self, number: int = 7) -> None:
        self.number, self.asked = number, list[str]()

    async def __call__(self, messages: Any, *, schema: Any, **parameters: Any) -> Completion:
        self.asked.append(messages)
        kinds = {"boolean": True, "string": "Because.", "integer": self.number, "number": self.number}
        fields = {name: kinds.get(part.get("type"), self.number) for name, part in schema["properties"].items()}
        return Completion(text="", parsed=fields, model="recorded", call_id="1")


def test_a_model_judges_by_each_name() -> None:
    complete = Complete()
    yes = {"reasoning": "Because.", "value": "Y", "score": 1}
    for name, settings, wanted, metric in (
        ("qa", {}, yes, "correctness"),
        ("cot_qa", {}, yes, "correctness"),
        ("criteria", {"criteria": "conciseness"}, yes, "conciseness"),
        ("labeled_criteria", {"criteria": {"polite": "Is it polite?"}}, yes, "polite"),
        ("score_string", {}, {"reasoning": "Because.", "value": 7, "score": 7}, "score_string"),
        (
            "labeled_score_string",
            {"normalize_by": 10},
            {"reasoning": "Because.", "value": 0.7, "score": 0.7},
            "score_string",
        ),
    ):
        evaluator = load_evaluator(name, llm=complete, **settings)  # type: ignore[arg-type]
        sides = SIDES if evaluator.requires_reference else {**SIDES, "reference": None}
        assert (evaluator.evaluation_name, evaluator.evaluate_strings(**sides)) == (metric, wanted), name
    shown = ["noon" in text.replace("It is noon.", "") for text in complete.asked]
    assert shown == [True, True, False, True, False, True], "only the labelled ones show the reference"


def test_a_model_with_invoke_is_asked_for_text() -> None:
    tagged = Invoked("Because.\n[[correct: false]]")
    result = load_evaluator("qa", llm=tagged).evaluate_strings(**SIDES)
    assert result == {"reasoning": "Because.", "value": "N", "score": 0}
    assert "It is noon." in tagged.asked[0][0]
    for name, answer, wanted in (  # as LangChain's models answer
        ("qa", "It is.\nGRADE: INCORRECT", 0),
        ("context_qa", "That is INCORRECT.", 0),
        ("criteria", "Short it is.\n\nY", 1),
        ("labeled_score_string", "Rating: [[9]]", 9),
    ):
        judge = load_evaluator(name, llm=Invoked(answer))
        sides = SIDES if judge.requires_reference else {**SIDES, "reference": None}
        assert judge.evaluate_strings(**sides)["score"] == wanted, name
        for other in ("Rating: 9", "That is not correct.", "It is NOT CORRECT", "Y or so", "CORRECT or INCORRECT"):
            with pytest.raises(CallError, match="at the end of the answer"):
                load_evaluator(name, llm=Invoked(other)).evaluate_strings(**sides)


def test_a_trajectory_is_judged_with_its_tools_and_the_reference() -> None:
    steps = [(SimpleNamespace(tool="tides", tool_input="Ryde", log="I look it up."), "9:30")]
    given: Any = {"prediction": "Half past nine.", "input": "When?", "agent_trajectory": steps, "reference": "At 9:30."}
    complete, tool = Complete(5), SimpleNamespace(name="tides", description="The times of a harbour.")
    judge = load_evaluator("trajectory", llm=complete, agent_tools=[tool])
    assert judge.evaluate_agent_trajectory(**given) == {"score": 1.0, "reasoning": "Because."}
    for part in ("I look it up.", "Ryde", "9:30", "Half past nine.", "At 9:30.", "The times of a harbour."):
        assert part in complete.asked[0], part

    class Both(Invoked):
        async def ainvoke(self, prompt: Any, **parameters: Any) -> str:
            return "Poor.\nScore: 1"

    both = load_evaluator("trajectory", llm=Both("Good.\nScore: 4"))
    assert both.evaluate_agent_trajectory(**given) == {"score": 0.75, "reasoning": "Good."}
    assert asyncio.run(both.aevaluate_agent_trajectory(**given)) == {"score": 0.0, "reasoning": "Poor."}
    with pytest.raises(CallError, match="at the end of the answer"):
        load_evaluator("trajectory", llm=Invoked("Score: 9")).evaluate_agent_trajectory(**given)


class Short(StringEvaluator):
    """A custom evaluator without a reference."""

    def _evaluate_strings(self, *, prediction: str, **_: Any) -> dict[str, Any]:
        return {"score": int(len(prediction) < 3)}


def test_a_custom_evaluator_needs_one_method() -> None:
    assert Short().evaluate_strings(prediction="ab") == {"score": 1}
    assert asyncio.run(Short().aevaluate_strings(prediction="abc")) == {"score": 0}
    with pytest.warns(UserWarning, match="^Ignoring reference in Short, as it is not expected"):
        Short().evaluate_strings(prediction="abc", reference="?")


def test_rules_judge_by_each_name() -> None:
    def score(name: str, prediction: str, reference: str | None = None, **settings: Any) -> Any:
        return load_evaluator(name, **settings).evaluate_strings(prediction=prediction, reference=reference)["score"]

    assert (score("exact_match", "a", "a"), score("exact_match", "A", "a")) == (1, 0)
    assert score("exact_match", "A", "a", ignore_case=True) == 1
    assert (score("regex_match", "ab12", r"\d+"), score("regex_match", "ab", r"\d+")) == (1, 0)
    assert (score("json_validity", "[1]"), score("json_validity", "[1")) == (1, 0)
    assert score("string_distance", "same", "same") == 0
    assert score("string_distance", "abc", "abd", distance="levenshtein", normalize_score=False) == 1

    class Embeddings:
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[1.0, float(text == "b")] for text in texts]

    assert score("embedding_distance", "a", "b", embeddings=Embeddings(), distance_metric="euclidean") == 1
    between: dict[str, Any] = {"prediction": "a", "prediction_b": "b"}
    edits = load_evaluator("pairwise_string_distance", distance="levenshtein")
    assert edits.evaluate_string_pairs(**between) == {"score": 1.0}
    vectors = load_evaluator("pairwise_embedding_distance", embeddings=Embeddings(), distance_metric="euclidean")
    assert asyncio.run(vectors.aevaluate_string_pairs(**between)) == {"score": 1.0}
    assert not load_evaluator("string_distance").higher_is_better
    assert not load_evaluator("criteria", llm=Complete(), criteria="harmfulness").higher_is_better


def test_what_cannot_be_is_refused_in_one_line() -> None:
    for call, error, message in (
        (
            lambda: load_evaluator("qa", llm=Complete(), prompt="x"),
            InputError,
            "qa: got 'prompt', wanted only llm_kwargs",
        ),
        (
            lambda: load_evaluator("criteria", llm=Complete(), criteria="x"),
            ValueError,
            "criteria: got 'x', wanted one of",
        ),
        (lambda: load_evaluator("json_validity", x=1), InputError, "got 'x', wanted no settings"),
        (
            lambda: load_evaluator("qa", llm=Complete()).evaluate_strings(prediction="x"),
            ValueError,
            "requires an input",
        ),
        (lambda: load_evaluator("exact_match").evaluate_strings(prediction="x"), ValueError, "requires a reference"),
        (
            lambda: load_evaluator("json_validity").evaluate_strings(prediction="x", y=1),
            InputError,
            "evaluate_strings: y: got 1, wanted it omitted",
        ),
        (lambda: LangChainStringEvaluator("pairwise_string", config={"llm": Complete()}), InputError, "of one text"),
        (lambda: LangChainStringEvaluator(3), InputError, "got 3, wanted a name or a string evaluator"),
    ):
        with pytest.raises(error, match=message) as raised:
            call()  # type: ignore[no-untyped-call]
        assert "\n" not in str(raised.value)

    with pytest.raises(InputError, match="wanted aevaluate_strings"):
        loop.run(_on_the_loop())


async def _on_the_loop() -> Any:
    return load_evaluator("qa", llm=Complete()).evaluate_strings(**SIDES)


def test_a_principle_by_its_name_is_that_of_the_package_else_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "harmful1"
    message = rf"^criteria: got the principle '{name}' by its name, wanted ConstitutionalPrinciple\(name="
    for criteria in (name, ["depth", name]):
        with pytest.raises(InputError, match=message):
            resolve_pairwise_criteria(criteria)
        with pytest.raises(InputError, match=message):
            load_evaluator("criteria", llm=Complete(), criteria=criteria)
    own = ConstitutionalPrinciple(name=name, critique_request="Say where it does harm.")
    assert resolve_pairwise_criteria(own) == {name: "Say where it does harm."}
    judge = load_evaluator("criteria", llm=Complete(), criteria=own)
    assert judge.evaluate_strings(prediction="a", input="b")["score"] == 1
    with pytest.raises(ImportError, match="PRINCIPLES: not supported here: use ConstitutionalPrinciple"):
        langchain.PRINCIPLES  # noqa: B018
    installed = ModuleType("principles")
    installed.PRINCIPLES = {name: own}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "langchain_classic.chains.constitutional_ai.principles", installed)
    assert resolve_pairwise_criteria([name, "depth"])[name] == "Say where it does harm."
    judge = load_evaluator("criteria", llm=Complete(), criteria=name)
    assert judge.evaluate_strings(prediction="a", input="b")["score"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_they_judge_an_experiment() -> None:
    def prepare(run: Run, example: Example | None) -> dict[str, Any]:
        assert run.outputs and example
        reference = (example.outputs or {}).get("answer")
        return {"prediction": run.outputs["answer"], "reference": reference, "input": run.inputs["q"]}

    def target(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"answer": inputs["q"], "words": 1}

    rows = [{"inputs": {"q": "noon"}, "outputs": {"answer": "noon"}}, {"inputs": {"q": "moon"}}]
    complete = Complete()
    results = evaluate(
        target,
        data=rows,
        evaluators=[
            LangChainStringEvaluator("qa", config={"llm": complete}, prepare_data=prepare),
            LangChainStringEvaluator("string_distance", prepare_data=prepare),
            LangChainStringEvaluator("exact_match"),
        ],
    )
    first, second = ({one.key: one for one in row["evaluation_results"]["results"]} for row in results)
    assert (first["correctness"].score, first["string_distance"].score) == (True, 0.0)
    assert (second["correctness"].score, second["string_distance"].score) == (None, None)
    assert "got the fields answer, words, wanted one, or prepare_data" in str(first["exact_match"].comment)
