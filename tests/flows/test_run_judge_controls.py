"""Known-answer controls of a judge, and a judge that is down."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, completion, error, serving
from planted_difference import ROWS, N, spec, verdict

from evalflows import run
from evalflows.engine.controls import controls_of
from evalflows.reports.results import remarks_on, results_of
from evalflows.specs import ExperimentSpec, IncompleteError, InputError
from evalflows.specs.evaluator import FallbackSpec
from evalflows.store import Store
from evalflows.store.snapshots import to_examples

pytestmark = pytest.mark.usefixtures("without_prefect")


def answers(says: Callable[[str, str], bool]) -> Callable[[Request], Reply]:
    """Repeat questions in capitals, and judge answers by `says(reference, answer)`."""

    def answer(request: Request) -> Reply:
        text = request["messages"][-1]["content"]
        fenced = re.findall(r"\[BEGIN (?:JSON )?(\w+)\]\n(.*?)\n\[END \1\]", text, flags=re.S)
        if not fenced:
            return completion(text.upper())
        (_, reference), (_, candidate) = fenced[1:]
        return completion(json.dumps({"reasoning": "Because.", "correct": says(reference, candidate)}))

    return answer


def judged_spec(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    return spec(
        evaluators=[{"use": "correctness", "name": "judge", "connection": "mock", "controls": 10}],
        composites=[{"name": "all", "weights": {"judge": 1}}],
        connections={"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1}},
        **changes,
    )


def test_a_judge_that_passes_its_controls_decides() -> None:
    with serving(Endpoint(answer=answers(lambda reference, answer: reference == answer))) as endpoint:
        run(judged_spec(endpoint))
    assert rows("select passed, n_checked from checks where subject_kind = 'judge'") == [(True, 30)]
    assert verdict("judge")[:2] == ("worse", None)
    assert endpoint.calls <= 2 * N + 20 + 1, "the last is a trial"


def controls(judge: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is asked of each control of a judge on these rows: its arguments."""
    examples = to_examples(enumerate(rows, 1), "rows")
    return [one.arguments for one in controls_of(FallbackSpec(**judge), examples, 2, owner="o", of_pairs=False)]


def test_controls_have_the_shape_that_the_judge_asks_for() -> None:
    rows = [
        {"inputs": "q", "reference_outputs": {"answer": "Paris"}},
        {"inputs": "r", "reference_outputs": {"answer": "Oslo"}},
    ]
    keyed, *_ = controls({"use": "correctness", "args": {"key": "reply"}}, rows)
    assert keyed["outputs"] in ({"reply": "Paris"}, {"reply": "Oslo"})
    context = {"use": "faithfulness", "args": {"context": "outputs.documents.text"}}
    right, wrong, _ = controls(context, rows)[:3]
    told = right["outputs"]["output"]
    assert right["outputs"] == {"output": told, "documents": [{"text": told}]}
    assert wrong["outputs"]["documents"] == [{"text": told}] and wrong["outputs"]["output"] != told
    recall = {"use": "context_recall", "args": {"context": "outputs.contexts"}}
    _, other, _ = controls(recall, rows)[:3]
    assert other["outputs"]["contexts"] == [other["outputs"]["output"]]
    several = [{"inputs": "q", "reference_outputs": {"a": name, "b": "x"}} for name in ("Paris", "Oslo")]
    assert controls({"use": "correctness", "args": {"key": "a"}}, several)[0]["outputs"]["b"] == "x"


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ({"use": "correctness", "args": {"key": "reply"}}, "got a reference with a, b, wanted 'reply' (`key`)"),
        ({"use": "faithfulness"}, "controls: it judges none of the first 6"),
        ({"use": f"{__name__}:needs_a_plan"}, "a reference as the answer cannot be judged: KeyError: 'plan'"),
    ],
)
def test_controls_that_cannot_be_judged_are_bad_input_before_anything_is_paid(
    judge: dict[str, Any], message: str
) -> None:
    rows = [{"inputs": "q", "reference_outputs": {"a": name, "b": "x"}} for name in ("Paris", "Oslo")]
    with serving(Endpoint()) as endpoint:
        connections = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        evaluators = [judge | {"name": "judge", "connection": "mock", "controls": 2}]
        with pytest.raises(InputError, match=re.escape(message)):
            run(spec(dataset={"rows": rows}, evaluators=evaluators, connections=connections))
        assert endpoint.calls == 0
    assert not Store().query("select 1 from source.experiments")


def needs_a_plan(outputs: dict[str, Any], complete: Callable[..., Any]) -> bool:
    return bool(complete(outputs["plan"]))


@pytest.mark.slow
def test_a_judge_that_fails_its_controls_decides_nothing() -> None:
    with serving(Endpoint(answer=answers(lambda reference, answer: answer != "no idea"))) as endpoint:
        identities = run(judged_spec(endpoint))
    assert rows("select passed from checks where subject_kind = 'judge'") == [(False,)]
    conclusion, reason, difference = verdict("judge")
    assert (conclusion, difference) == ("not_enough_evidence", -0.5)
    assert reason.startswith(
        "tried on answers known to be right or wrong, this judge accepted 100% of the 10 right ones and 100% of the 10 "
    )
    assert verdict("all")[1].startswith("it depends on judge: tried on answers known to be right or wrong")
    assert any(
        one.text.startswith("not enough evidence in judge: ") for one in remarks_on(results_of(Store(), identities))
    )


@pytest.mark.slow
def test_a_judge_that_is_down_is_called_again_by_a_resume() -> None:
    fair = answers(lambda reference, answer: reference == answer)
    with serving(Endpoint(answer=lambda request: error(503, "down"))) as endpoint:
        down = judged_spec(endpoint, chunk_retries=0, max_concurrency=4)  # fewer at once than open the breaker
        with pytest.raises(IncompleteError, match=r"by judge \(\d+ of the last \d+ failed, .*: HTTP 503: down\)"):
            run(down)
        assert verdict("judge")[0] == "not_enough_evidence"
        assert rows("select count(*), count(value) from scores where metric = 'judge'") == [(2 * N, 0)]
        ((group,),) = rows("select distinct run_group from experiments")
        endpoint.answer = fair
        run(down, resume=group)
    assert verdict("judge")[:2] == ("worse", None)
    assert rows("select status, count(*) from scores where metric = 'judge' group by all") == [("scored", 2 * N)]


@pytest.mark.slow
def test_a_failing_judge_is_reported_when_some_examples_do_not_apply() -> None:
    partly = [*ROWS[:5], {"id": "q99", "inputs": {"question": "q99"}}]
    with serving(Endpoint(answer=lambda request: error(401, "no such key"))) as endpoint:
        refused = judged_spec(endpoint, dataset={"rows": partly})
        with pytest.raises(IncompleteError, match=r"judge judged none of 5 answers: HTTP 401: no such key"):
            run(refused)
    ((message,),) = rows("select message from checks where subject_kind = 'judge'")
    assert message.startswith("this judge could not be validated") and message.endswith(
        "failed: HTTP 401: no such key)"
    )
