"""Judges that share a call: what is asked, who pays, what is tried alone, and what a gate makes of it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from batch_endpoint import BatchEndpoint, serve_batches, value_of
from catalog_rows import one, rows
from click.testing import CliRunner
from endpoint import Endpoint, Reply, Request, completion, error, serving

from evalflows import plan, run
from evalflows.cli.main import cli
from evalflows.engine.judging_again import GivenJudges, experiments_again
from evalflows.specs import InputError
from evalflows.specs.experiment import ExperimentSpec

pytestmark = pytest.mark.usefixtures("store_root", "without_prefect")

N = 30
BUNDLE = "quality"


@dataclass
class Judge:
    """A model that judges, and that can be made to judge otherwise when it is asked for several answers."""

    differs: bool = False
    shared: list[Request] = field(default_factory=list)
    alone: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        if "response_format" not in request:
            return completion("an answer")
        schema = request["response_format"]["json_schema"]["schema"]
        found = re.search(r"^q(\d+)$", request["messages"][0]["content"], re.MULTILINE)
        values = value_of(schema, int(found[1]) if found else 0)
        if schema["title"] != "bundle":
            if schema["title"] != "trial":
                self.alone.append(request)
            return completion(json.dumps(values))
        self.shared.append(request)
        if self.differs and len(self.shared) % 3 == 0:
            values["task_1"]["correct"] = not values["task_1"]["correct"]
        return completion(json.dumps(values))


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture
def endpoint(judge: Judge) -> Iterator[Endpoint]:
    with serving(Endpoint(answer=judge)) as served:
        yield served


def bundled(**fields: Any) -> list[dict[str, Any]]:
    shared = {"connection": "m", "bundle": BUNDLE} | fields
    return [{"use": use} | shared for use in ("correctness", "toxicity")]


def spec(base_url: str, evaluators: list[Any], n: int = N, **changes: Any) -> ExperimentSpec:
    connection = {"kind": "endpoint", "base_url": base_url, "model": "m", "attempts": 1, "batch": {"poll_s": 0.01}}
    prices = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 1.0}
    examples = [{"id": f"e{k}", "inputs": {"q": f"q{k}"}, "reference_outputs": {"a": "an answer"}} for k in range(n)]
    del examples[0]["reference_outputs"]
    whole = {
        "name": "bundled",
        "dataset": {"rows": examples},
        "connections": {"m": connection | prices},
        "targets": [{"kind": "chat", "connection": "m", "name": "t", "user": "{q}"}],
        "evaluators": evaluators,
        "chunk_retries": 0,
    }
    return ExperimentSpec.model_validate(whole | changes)


GATE = {"gates": [{"name": "release", "thresholds": {"correctness": 0.5}}]}
DECIDED = """select d.conclusion, r.reason_code from gate_rules r join gate_decisions d using (decision_id)
             order by d.decided_at desc limit 1"""
SCORES = """select example_id, metric, status, value, label from judgements where subject_kind = 'run'
            and experiment_id in (select experiment_id from experiments where name = '{}') order by all"""


def test_a_bundle_asks_once_and_is_tried_alone_before_the_first_decision(
    endpoint: Endpoint, judge: Judge, capsys: pytest.CaptureFixture[str]
) -> None:
    run(spec(endpoint.base_url, bundled(), name="together", **GATE))
    said = " ".join(capsys.readouterr().err.split())
    assert len(judge.shared) == N - 1, "the example without a reference is asked of one judge only, as it is alone"
    assert len(judge.alone) == 1 + 2 * 2 * 20
    prompt = judge.shared[0]["messages"][0]["content"]
    assert [prompt.count(text) for text in ("[BEGIN", "(text 1)", "# task_2")] == [2, 2, 1], "each text is there once"
    assert "bundle 'quality', tried on 20 answers: 20 calls instead of 40, at 50% of the price" in said
    apart = "its scores in one call with toxicity differ by 0% from those alone (two tries alone: 0%)"
    assert f"correctness: {apart}, on 20 answers judged both ways" in said
    assert one("select conclusion from gate_decisions") == ("PASS",)
    paid = """select evaluator, count(*), sum(calls), sum(calls_cached), sum(tokens_in) from judgements
              group by 1 order by 1"""
    assert rows(paid)[0][1:4] == (N, N - 1, 0) and rows(paid)[1][1:4] == (N, 1, N - 1)
    assert rows(paid)[1][4] == 10, "tokens of a shared call are those of the judge that pays"
    before = len(judge.shared), len(judge.alone)
    stricter = {"use": "correctness", "connection": "m", "args": {"instructions": "Be strict."}}
    other_model = stricter | {"model": "n"}
    kept, taken_out = (
        experiments_again(["together"], GivenJudges(evaluators=[one])) for one in (stricter, other_model)
    )
    assert [[*kept.bundles], [*taken_out.bundles]] == [[BUNDLE], []], "a judge of another model shares no call"
    run(spec(endpoint.base_url, bundled(), name="again", use_cache=False, **GATE))
    assert (len(judge.shared), len(judge.alone)) == (before[0] + N - 1, before[1] + 1), "its version was tried before"
    run(spec(endpoint.base_url, [{"use": use, "connection": "m"} for use in ("correctness", "toxicity")], name="alone"))
    assert rows(SCORES.format("alone")) == rows(SCORES.format("together")) == rows(SCORES.format("again"))
    versions = "select count(distinct evaluator_version) from judgements where evaluator = 'correctness'"
    assert one(versions) == (2,), "a bundle is a version of its judges"


def test_a_gate_does_not_decide_on_a_bundle_that_disagrees(endpoint: Endpoint, judge: Judge) -> None:
    judge.differs = True
    run(spec(endpoint.base_url, bundled(), **GATE))
    assert one(DECIDED) == ("NOT ENOUGH EVIDENCE", "bundle_disagrees")
    passed = rows("select subject_id, passed from checks where name = 'bundle' order by 1")
    assert passed == [("correctness", False), ("toxicity", True)]
    judge.alone.clear()
    low = {"gates": [{"name": "release", "thresholds": {"correctness": 0.05}}]}  # whichever answers came third
    run(spec(endpoint.base_url, bundled(bundle_unchecked=True), name="unchecked", **low))
    assert one(DECIDED)[0] == "PASS" and not judge.alone
    shown = " ".join(CliRunner().invoke(cli, ["show", "unchecked", "--all"]).output.split())
    assert "correctness: whether sharing a call with toxicity changes its scores was not tested (bundle_un" in shown


def test_a_bundle_that_could_not_be_tried_decides_nothing(endpoint: Endpoint, judge: Judge) -> None:
    def without_calls_alone(request: Request) -> Reply:
        reply = judge(request)
        return error(400, "no more") if judge.alone[1:] else reply

    endpoint.answer = without_calls_alone
    run(spec(endpoint.base_url, bundled(), **GATE))
    assert one(DECIDED) == ("NOT ENOUGH EVIDENCE", "bundle_not_checked")


def test_a_shared_call_that_fails_is_one_call_and_fails_for_all(endpoint: Endpoint, judge: Judge) -> None:
    def refused(request: Request) -> Reply:
        return (
            error(400, "no such parameter")
            if "bundle" in json.dumps(request.get("response_format"))
            else judge(request)
        )

    endpoint.answer = refused
    run(spec(endpoint.base_url, bundled(bundle_unchecked=True), 4))
    failed = "select evaluator, count(*), sum(calls) from judgements where status = 'failed' group by 1 order by 1"
    assert rows(failed) == [("correctness", 3, 3), ("toxicity", 3, 0)]
    assert one("select count(distinct error) from judgements where status = 'failed'") == (1,)


def test_batches_answer_shared_calls(judge: Judge) -> None:
    with serve_batches(BatchEndpoint(answer=judge)) as endpoint:
        run(spec(endpoint.base_url, bundled(bundle_unchecked=True), mode="batch"))
    assert len(judge.shared) == N - 1 and len(endpoint.batches) == 2
    assert one("select count(*), count(distinct metric) from judgements where status = 'scored'") == (2 * N - 1, 2)


def test_a_judge_that_is_tried_again_asks_beside_the_others_as_before(endpoint: Endpoint, judge: Judge) -> None:
    own = {"use": "judges:polite_if_not_busy", "retry_on": ["BusyError"]}
    evaluators = [each | given for each, given in zip(bundled(bundle_unchecked=True), ({}, own), strict=True)]
    run(spec(endpoint.base_url, evaluators, 5, chunk_retries=4, chunk_retry_delay_s=0.01))
    assert len(judge.shared) == 4 and len(judge.alone) == 1
    assert one("select count(*), sum(calls) from judgements where metric = 'polite_if_not_busy'") == (5, 1)


def test_what_cannot_share_a_call_is_refused_before_the_first(endpoint: Endpoint) -> None:
    url, (first, second) = endpoint.base_url, bundled()
    for evaluators, wanted in (
        (
            [first, {"use": "toxicity", "connection": "m"}],
            "bundle 'quality': got one judge, correctness, wanted at least",
        ),
        ([first, second | {"model": "n"}], "bundle 'quality': model: got None and 'n' of correctness and toxicity"),
        ([first, second | {"bundle": None, "bundle_sample": 5}], "bundle_sample: got it without bundle"),
        ([{"use": "cascade", "tiers": [first], "bundle": BUNDLE}], "bundle"),
    ):
        with pytest.raises(ValueError, match=wanted):
            spec(url, evaluators)
    for use in ("exact_match", "judges:polite_at_once"):
        with pytest.raises(InputError, match=f"bundle 'quality': got {use}, wanted a built-in judge, or an async"):
            run(spec(url, [first, second | {"use": use}]))
    tagged = {"kind": "endpoint", "base_url": url, "model": "m", "answer_form": "text"}
    with pytest.raises(InputError, match="bundle: got connection 'm' with answer_form: text, wanted json_schema"):
        run(spec(url, bundled(), connections={"m": tagged}))
    assert endpoint.calls == 0


def test_a_plan_counts_shared_calls_and_those_alone(endpoint: Endpoint) -> None:
    planned = {line.caller: line for line in plan(spec(endpoint.base_url, bundled(controls=3))).calls}
    assert [*planned] == [
        "t", "correctness, toxicity", "correctness: alone", "correctness: controls", "toxicity: alone",
        "toxicity: controls",
    ]  # fmt: skip
    shared, alone = planned["correctness, toxicity"], planned["toxicity: alone"]
    assert (shared.calls, alone.calls, shared.note) == (N, 40, "in one call")
    assert shared.size.tokens_in is not None and alone.size.tokens_in is not None
    assert shared.size.tokens_in > alone.size.tokens_in
