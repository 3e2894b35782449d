"""pydantic-evals' evaluators, with the real package, through the flow give what calling them gives."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from endpoint import Endpoint, serving
from foreign_evaluators import ANSWERS, ROWS, async_client, judged, no_network, refusing, said, scores_of, verdict

from evalflows.engine.spec_evaluators import bind_evaluator, reference_to
from evalflows.specs import InputError
from evalflows.specs.evaluator import EvaluatorSpec

evals = pytest.importorskip("pydantic_evals.evaluators", reason="pydantic-evals comes with the extra `others`")
otel = pytest.importorskip("pydantic_evals.otel", reason="pydantic-evals comes with the extra `others`")
models = pytest.importorskip("pydantic_ai.models.openai", reason="pydantic-ai needs its extra `openai`")
providers = pytest.importorskip("pydantic_ai.providers.openai", reason="pydantic-ai needs its extra `openai`")


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with no_network(monkeypatch):
        yield


def model(client: Any, name: str = "mock-1") -> Any:
    return models.OpenAIChatModel(name, provider=providers.OpenAIProvider(openai_client=client))


@dataclass
class Lettered(evals.Evaluator):  # type: ignore[misc,name-defined]
    """Several results at once: a number, a label, a reason."""

    most: int = 5

    def evaluate(self, ctx: Any) -> Any:
        fits = evals.EvaluationReason(value=len(ctx.output) <= self.most, reason=f"{ctx.name}: {ctx.inputs}")
        return {"letters": len(ctx.output), "first": ctx.output[0], "fits": fits}


@dataclass
class Later(evals.Evaluator):  # type: ignore[misc,name-defined]
    async def evaluate(self, ctx: Any) -> Any:
        await asyncio.sleep(0)
        return ctx.output != ctx.expected_output


@dataclass
class Measured(evals.Evaluator):  # type: ignore[misc,name-defined]
    """Raises where the metadata has no topic; a version of its own."""

    tag: str = "v1"

    def evaluate(self, ctx: Any) -> Any:
        assert ctx.duration >= 0 and ctx.attributes == {} and ctx.metrics == {}
        return ctx.metadata["topic"]

    def get_evaluator_version(self) -> str:
        return self.tag


def context(example: str) -> Any:
    """What pydantic-evals itself would show of a row."""
    row = next(one for one in ROWS if one["id"] == example)
    return evals.EvaluatorContext(
        name=example,
        inputs=row["inputs"]["input"],
        metadata=row.get("metadata"),
        expected_output=row.get("outputs", {}).get("output"),
        output=ANSWERS[row["inputs"]["input"]],
        duration=0.01,
        _span_tree=otel.SpanTreeRecordingError("none"),
        attributes={},
        metrics={},
    )


def direct(evaluator: Any, example: str) -> dict[str, tuple[Any, Any, Any]]:
    """Each result's number, label and reason, by its name."""
    given = asyncio.run(evaluator.evaluate_async(context(example)))
    each = given if isinstance(given, dict) else {evaluator.get_default_evaluation_name(): given}
    found = {}
    for name, one in each.items():
        value, why = (one.value, one.reason) if isinstance(one, evals.EvaluationReason) else (one, None)
        found[name] = (None, value, why) if isinstance(value, str) else (float(value), None, why)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_every_score_label_and_reason_is_that_of_a_direct_call() -> None:
    rules = [
        *(evals.Equals("Paris"), evals.EqualsExpected(), evals.Contains("O", case_sensitive=False)),
        *(evals.IsInstance("str"), evals.MaxDuration(60), Lettered(), Later()),
    ]
    never = evals.MaxDuration(0)
    with serving(Endpoint(answer=verdict)) as endpoint, serving(Endpoint(answer=refusing)) as down:
        rubric = "Names the right city."
        judge = evals.LLMJudge(rubric, model(async_client(endpoint)), include_input=True, include_expected_output=True)
        scored = evals.LLMJudge(
            rubric, model(async_client(endpoint)), score={"evaluation_name": "quality"}, assertion=False
        )
        broken = evals.GEval("Right?", ["Look."], model=model(async_client(down)))
        result = judged(
            [
                *(*rules, judge, broken, Measured()),
                {"use": reference_to(scored), "name": "rubric"},
                {"use": reference_to(never), "name": "at_once"},
                {"use": "pydantic_evals.evaluators:Contains", "name": "in_yaml", "args": {"value": "y"}},
                {"use": reference_to(evals.HasMatchingSpan({"name_equals": "x"})), "name": "span"},
            ]
        )
        asked = endpoint.calls
    with serving(Endpoint(answer=verdict)) as endpoint:
        again = evals.LLMJudge(rubric, model(async_client(endpoint)), include_input=True, include_expected_output=True)
        answers = asyncio.run(_each(again))
    for rule in rules:
        for row in ROWS:
            example = str(row["id"])
            for metric, wanted in direct(rule, example).items():
                assert said(scores_of(result, metric)[example]) == wanted, metric
    assert {e: r.value for e, r in scores_of(result, "Contains").items()} == {
        "right": 0,
        "wrong": 0,
        "near": 1,
        "open": 0,
    }
    assert "does not contain" in (scores_of(result, "Contains")["right"].comment or "")
    assert scores_of(result, "EqualsExpected")["open"].status == "not_applicable", "an empty mapping"
    assert [r.value for r in scores_of(result, "EqualsExpected").values()] == [1.0, 0.0, 0.0, None]
    assert scores_of(result, "fits")["near"].data_type == "BOOLEAN"
    assert {r.value for r in scores_of(result, "at_once").values()} == {0.0}
    assert [said(r)[0] for r in scores_of(result, "in_yaml").values()] == [0, 1, 1, 0]

    rows = scores_of(result, "LLMJudge")
    assert {e: said(row) for e, row in rows.items()} == {
        e: (float(reason.value), None, reason.reason) for e, reason in answers.items()
    }
    assert [rows[e].value for e in ("right", "wrong")] == [1.0, 0.0]
    assert (rows["right"].calls, rows["right"].tokens_in, rows["right"].judge_model) == (1, 10, "mock-1")
    assert {e: said(row)[0] for e, row in scores_of(result, "rubric").items()} == {
        "right": 1,
        "wrong": 0,
        "near": 1,
        "open": 1,
    }
    assert asked == 8
    assert {row.status for row in scores_of(result, "GEval").values()} == {"failed"}
    measured = scores_of(result, "Measured")
    assert measured["open"].label == "none" and measured["right"].status == "failed"
    assert {(r.status, "spans are not recorded" in (r.error or "")) for r in scores_of(result, "span").values()} == (
        {("failed", True)}
    )


async def _each(judge: Any) -> dict[str, Any]:
    return {str(row["id"]): (await judge.evaluate(context(str(row["id"]))))["LLMJudge"] for row in ROWS}


def test_those_that_need_spans_or_reports_are_refused_before_anything_is_called() -> None:
    needing = evals.MaxToolCalls(max_calls=1) if hasattr(evals, "MaxToolCalls") else None
    assert needing is not None
    with pytest.raises(InputError, match=r"^evaluator 'calls': spans are not recorded"):
        bind_evaluator(EvaluatorSpec(use=reference_to(needing), name="calls"))
    report = next(one for one in vars(evals).values() if getattr(one, "__name__", "") == "ConfusionMatrixEvaluator")
    with pytest.raises(InputError, match="got a report evaluator of pydantic-evals"):
        bind_evaluator(EvaluatorSpec(use=reference_to(report())))
    with pytest.raises(InputError, match=r"Contains cannot be instantiated: TypeError"):
        bind_evaluator(EvaluatorSpec(use="pydantic_evals.evaluators:Contains"))


def test_a_duration_that_is_not_known_is_no_short_one() -> None:
    from evalflows.evaluators.views import ExampleView, RunView, offer_run

    available = offer_run(ExampleView(id="e", inputs={}), RunView(id="r", inputs={}, outputs={"output": "x"}))
    judge = bind_evaluator(EvaluatorSpec(use="pydantic_evals.evaluators:MaxDuration", args={"seconds": 1}))
    with pytest.raises(TypeError):
        judge.call(available)
