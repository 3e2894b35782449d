"""autoevals' scorers through the flow give what calling them gives."""

from collections.abc import Iterator
from typing import Any

import pytest
from endpoint import Endpoint, serving
from foreign_evaluators import (
    ANSWERS,
    ROWS,
    async_client,
    client,
    judged,
    kept,
    no_network,
    priced_client,
    refusing,
    said,
    scores_of,
    verdict,
)
from user_places import without_places

from evalflows.engine.spec_evaluators import bind_evaluator, evaluator_version, prepare_evaluator, reference_to
from evalflows.evaluators.foreign import evaluator_name
from evalflows.specs import InputError
from evalflows.specs.evaluator import EvaluatorSpec

autoevals = pytest.importorskip("autoevals", reason="autoevals comes with the extra `others`")

EXPECTED = {row["id"]: row.get("outputs", {}).get("output") for row in ROWS}
GIVEN = {row["id"]: ANSWERS[row["inputs"]["input"]] for row in ROWS}
ASKED = {row["id"]: row["inputs"]["input"] for row in ROWS}
WITH_REFERENCE = ("right", "wrong", "near")


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with no_network(monkeypatch):
        yield
    autoevals.init()


def direct(scorer: Any, example: str, **more: Any) -> Any:
    return scorer.eval(output=GIVEN[example], expected=EXPECTED[example], input=ASKED[example], **more)


class Broken(autoevals.Scorer):  # type: ignore[misc,name-defined]
    """A scorer that raises for one answer, and skips another."""

    def _run_eval_sync(self, output: Any, expected: Any = None, **kwargs: Any) -> Any:
        if output == "Paris":
            raise KeyError("no such city")
        return autoevals.Score(name="Broken", score=None if output == "42" else 0.25)


class Silent(autoevals.Scorer):  # type: ignore[misc,name-defined]
    """A scorer of the old kind: its error is in the score, beside a number."""

    def _run_eval_sync(self, output: Any, expected: Any = None, **kwargs: Any) -> Any:
        return autoevals.Score(name="Silent", score=0, error=RuntimeError("the judge slept"))


def tone(endpoint: Endpoint) -> Any:
    return autoevals.LLMClassifier(
        name="tone",
        prompt_template="Asked {{input}}, of {{metadata.topic}}. Said {{output}}. Is it polite?",
        choice_scores={"Yes": 1, "No": 0.2},
        model="mock-1",
        client=async_client(endpoint),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_every_score_and_rationale_is_that_of_a_direct_call_and_failures_are_rows_of_their_own() -> None:
    with serving(Endpoint(answer=verdict)) as endpoint, serving(Endpoint(answer=refusing)) as down:
        factuality = autoevals.Factuality(client=priced_client(endpoint), model="gpt-4o-mini")
        refused = autoevals.Possible(client=client(down), model="mock-1")
        autoevals.init(client(endpoint), default_model="mock-1")
        result = judged(
            [
                *(autoevals.Levenshtein(), autoevals.ExactMatch, autoevals.NumericDiff(), autoevals.ValidJSON()),
                *(factuality, tone(endpoint), refused, Broken(), Silent()),
                {"use": "autoevals:ClosedQA", "name": "closed", "args": {"criteria": "Names a city."}},
            ]
        )
        asked = endpoint.calls
        wanted = {e: direct(factuality, e) for e in WITH_REFERENCE}
        closed = {e: direct(autoevals.ClosedQA(), e, criteria="Names a city.") for e in GIVEN}
    for scorer in (autoevals.Levenshtein(), autoevals.ExactMatch()):
        rows = scores_of(result, evaluator_name(scorer))
        assert {e: said(rows[e]) for e in WITH_REFERENCE} == {
            e: (direct(scorer, e).score, None, None) for e in WITH_REFERENCE
        }
        assert rows["open"].status == "not_applicable", "there is nothing to compare with"
    assert [said(scores_of(result, "Levenshtein")[e])[0] for e in WITH_REFERENCE] == [1.0, 1 - 7 / 8, 1 - 1 / 5]
    assert {e: said(row)[0] for e, row in scores_of(result, "ValidJSON").items()} == dict.fromkeys(GIVEN, 0.0)

    rows = scores_of(result, "Factuality")
    assert {e: said(rows[e]) for e in WITH_REFERENCE} == {
        e: (wanted[e].score, None, wanted[e].metadata["rationale"]) for e in WITH_REFERENCE
    }
    assert [rows[e].value for e in WITH_REFERENCE] == [1.0, 0.0, 1.0]
    assert kept(rows["wrong"]) == {"choice": "D", "rationale": "Compared."}
    assert rows["open"].status == "not_applicable" and rows["open"].calls is None, "it may have made some itself"

    rows = scores_of(result, "closed")
    assert {e: said(row)[0] for e, row in rows.items()} == {e: score.score for e, score in closed.items()}
    assert {e: said(row)[0] for e, row in rows.items()} == {"right": 1, "wrong": 0, "near": 1, "open": 1}
    assert {e: said(row)[0] for e, row in scores_of(result, "tone").items()} == {
        "right": 1,
        "wrong": 0.2,
        "near": 1,
        "open": 1,
    }
    assert asked == 3 + 4 + 4, "each judgement asked once"

    rows = scores_of(result, "Broken")
    assert (rows["right"].status, rows["right"].value, without_places(rows["right"].error)) == (
        "failed",
        None,
        "KeyError: 'no such city'",
    )
    assert (rows["wrong"].value, rows["open"].status, rows["open"].value) == (0.25, "not_applicable", None)
    for row in scores_of(result, "Silent").values():
        assert (row.status, row.value) == ("failed", None) and "the judge slept" in (row.error or "")
    assert {row.status for row in scores_of(result, "Possible").values()} == {"failed"}
    assert scores_of(result, "NumericDiff")["right"].status == "failed", "texts have no difference"
    row = scores_of(result, "Factuality")["right"]
    assert (row.calls, row.tokens_in, row.tokens_out, row.judge_model) == (1, 10, 5, "mock-1")
    assert row.cost_usd == pytest.approx(10 * 0.15e-6 + 5 * 0.60e-6), "as the provider lists it"


def bound(evaluator: Any, **args: Any) -> Any:
    use = evaluator if isinstance(evaluator, str) else reference_to(evaluator)
    return bind_evaluator(EvaluatorSpec(use=use, args=args))


def version(evaluator: Any, **args: Any) -> str:
    use = evaluator if isinstance(evaluator, str) else reference_to(evaluator)
    spec = EvaluatorSpec(use=use, args=args)
    return evaluator_version(prepare_evaluator(spec), {})


def test_versions_tell_scorers_and_their_settings_apart() -> None:
    assert evaluator_name(autoevals.Factuality(model="m")) == "Factuality", "its class is LLMClassifier"
    assert evaluator_name(autoevals.Levenshtein) == evaluator_name(autoevals.Levenshtein()) == "Levenshtein"
    same = {version(autoevals.Levenshtein()) for _ in range(3)}
    assert len(same) == 1
    others = [
        autoevals.JSONDiff(),
        autoevals.JSONDiff(preserve_strings=True),
        autoevals.JSONDiff(string_scorer=autoevals.ExactMatch()),
        autoevals.Factuality(model="a"),
        autoevals.Factuality(model="b"),
        autoevals.ClosedQA(model="a"),
        autoevals.LLMClassifier("mood", "{{output}}", {"a": 1}, model="m"),
        autoevals.LLMClassifier("mood", "{{output}}", {"a": 0}, model="m"),
    ]
    assert len(same | {version(one) for one in others}) == 1 + len(others)
    assert version("autoevals:ClosedQA", criteria="a") != version("autoevals:ClosedQA", criteria="b")


def test_a_version_does_not_tell_the_key_of_a_client() -> None:
    import openai

    made = [autoevals.Factuality(client=openai.OpenAI(api_key=key, base_url="http://a/v1")) for key in ("one", "two")]
    elsewhere = autoevals.Factuality(client=openai.OpenAI(api_key="one", base_url="http://b/v1"))
    assert version(made[0]) == version(made[1]) != version(elsewhere)


def test_an_async_client_makes_an_async_judge_and_no_other_does() -> None:
    import openai

    plain, later = openai.OpenAI(api_key="k"), openai.AsyncOpenAI(api_key="k")
    assert not bound(autoevals.Factuality(client=plain)).is_async
    assert bound(autoevals.Factuality(client=later)).is_async
    assert bound(autoevals.ListContains(pairwise_scorer=autoevals.EmbeddingSimilarity(client=later))).is_async
    autoevals.init(later)
    assert bound(autoevals.Factuality()).is_async
    assert not bound(autoevals.Levenshtein()).is_async


def test_settings_go_where_the_scorer_takes_them() -> None:
    from evalflows.evaluators.views import ExampleView, RunView, offer_run

    available = offer_run(
        ExampleView(id="e", inputs={"input": "q"}, reference_outputs={"output": "x"}),
        RunView(id="r", inputs={"input": "q"}, outputs={"output": '{"a": 1}'}),
    )
    number = {"type": "object", "properties": {"a": {"type": "number"}}}
    text = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert [bound("autoevals:ValidJSON", schema=s).call(available)[0].value for s in (number, text)] == [1, 0]
    assert [bound(autoevals.ValidJSON(schema=s)).call(available)[0].value for s in (number, text)] == [1, 0]
    assert bound(autoevals.ValidJSON()).call(available)[0].value == 1, "the reference is no schema"
    with pytest.raises(
        InputError, match=r"evaluator 'LLMClassifier': LLMClassifier cannot be instantiated: TypeError: "
    ):
        bound("autoevals:LLMClassifier")


def test_context_is_looked_up_and_what_a_template_lacks_is_an_error() -> None:
    from evalflows.evaluators.views import ExampleView, RunView, offer_run

    class Overlap(autoevals.Scorer):  # type: ignore[misc,name-defined]
        def _run_eval_sync(self, output: Any, expected: Any = None, context: Any = None, **kwargs: Any) -> Any:
            return autoevals.Score(name="Overlap", score=float(output["said"] in context))

    def available(inputs: dict[str, Any], **answer: Any) -> dict[str, Any]:
        example = ExampleView(id="e", inputs={"input": "q", **inputs})
        return offer_run(example, RunView(id="r", inputs=example.inputs, outputs={"said": "Rome", **answer}))

    judge = bound(Overlap())
    assert judge.call(available({"context": "In Rome."}))[0].value == 1.0
    assert judge.call(available({"context": "In Bonn."}, context="In Rome."))[0].value == 0.0, (
        "the dataset's goes first"
    )
    assert judge.call(available({}, context="In Rome."))[0].value == 1.0, "what the target found"
    with pytest.raises(ValueError, match=r"asks for 'criteria', wanted it under args"):
        bound(autoevals.ClosedQA(model="m")).call(available({}, criteria="whatever the target likes"))
