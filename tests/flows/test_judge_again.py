"""Stored answers, pairs and items of production are judged again, by another judge or by the same one today."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from catalog_rows import rows
from click.testing import CliRunner, Result
from endpoint import Endpoint, Reply, completion, serving
from page_client import page_client

import evalflows
from evalflows.analysis.two_judges import two_judges
from evalflows.cli.main import cli
from evalflows.cli.schema import schema_of
from evalflows.flows.run_experiment import judge_again
from evalflows.reports.two_judges import remarks_of
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

N, HARD = 60, 40
CODE = """
asked = []

def old(q):
    asked.append(q)
    return f"{q} says no" if int(q[1:]) % 3 == 0 else f"{q} says yes."

def new(q):
    asked.append(q)
    return f"{q} says yes"

async def right(outputs, complete):
    said = await complete(f"right? {outputs['output']}")
    return {"score": said.text == "yes", "comment": f"it is {said.text}"}

async def better(outputs, complete):
    said = await complete(f"better? {outputs[0]['output']} or {outputs[1]['output']}")
    return "tie" if said.text == "yes" else "A"
"""
GATE = {"name": "release", "non_inferiority": {"right": 0.05}, "thresholds": {"latency": 5, "right": 0.9}}


def reply(request: dict[str, Any]) -> Reply:
    """The dear model says what the answer says; the cheap one says no to all hard questions."""
    asked = str(request["messages"])
    is_hard = int(asked.split("q", 1)[1].split()[0]) >= HARD
    made = completion("no" if "no" in asked.split("?", 1)[1] or (is_hard and request["model"] == "cheap") else "yes")
    made.body["model"] = request["model"]
    return made


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    (tmp_path / "mine_again.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine_again", None)
    with serving(Endpoint(answer=reply)) as found:
        yield found


def connections(endpoint: Endpoint, *models: str) -> dict[str, Any]:
    prices = {"dear": 100.0, "cheap": 10.0}
    return {
        model: {"kind": "endpoint", "base_url": endpoint.base_url, "model": model}
        | {f"usd_per_million_{side}_tokens": prices[model] for side in ("input", "output")}
        for model in models
    }


def spec(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    fields = {
        "name": "support",
        "dataset": {"rows": [{"id": f"q{n:02}", "inputs": {"q": f"q{n}"}} for n in range(N)]},
        "targets": [{"kind": "python", "name": name, "function": f"mine_again:{name}"} for name in ("old", "new")],
        "evaluators": [{"use": "mine_again:right", "connection": "dear"}],
        "connections": connections(endpoint, "dear"),
        "gates": [GATE],
    }
    return ExperimentSpec.model_validate(fields | changes)


def cheap(endpoint: Endpoint, use: str = "mine_again:right", **fields: Any) -> str:
    judge = {"use": use, "connection": "cheap", **fields}
    Path("judge.yaml").write_text(
        yaml.safe_dump({"evaluators": [judge], "connections": connections(endpoint, "cheap")})
    )
    return "judge.yaml"


def command(*arguments: str, code: int = 0) -> Result:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["judge", *arguments])
    assert done.exit_code == code, done.output
    return done


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
def test_another_judge_of_a_run_group_is_put_beside_the_first(endpoint: Endpoint, store: Store) -> None:
    before = evalflows.run(spec(endpoint))
    asked = len(sys.modules["mine_again"].asked)
    names = json.dumps(
        [
            {"run_id": run, "value": "yes" if "yes" in text else "no"}
            for run, text in rows("select run_id, outputs::varchar from outputs where example_id < 'q50'")
        ]
    )
    Path("labels.json").write_text(names)
    CliRunner().invoke(cli, ["labels", "import", "labels.json", "--metric", "right", "--labeller", "ann"])
    calls = endpoint.calls
    planned = said(command("support", "--with", cheap(endpoint, name="mild"), "--plan").output)
    assert f"right by cheap: {2 * N} judgements, as before: about 0.0180 USD" in planned
    assert endpoint.calls == calls
    table = said(command("support", "--with", "judge.yaml", "--compare-cost", "--budget", "1").stdout)
    assert (endpoint.calls, len(sys.modules["mine_again"].asked)) == (calls + 2 * N, asked), "no target is asked"

    record = two_judges(store, before[0])
    assert list(record.before) == before
    (metric,) = record.metrics
    n_flips = sum(n >= HARD and n % 3 != 0 for n in range(N)) + N - HARD
    assert (metric.n, len(metric.flips), metric.n_lower, metric.n_higher) == (2 * N, n_flips, n_flips, 0)
    assert metric.share.share == pytest.approx(1 - n_flips / (2 * N)) and metric.stricter == "after"
    assert metric.difference and metric.difference.difference == pytest.approx(-n_flips / (2 * N))
    assert metric.share.n_clusters == N, "two answers to one example are no two examples"
    assert (metric.before.usd_each, metric.after.usd_each) == (pytest.approx(1.5e-3), pytest.approx(1.5e-4))
    labels = metric.labels
    assert labels and (labels.n, labels.before) == (100, 1.0) and labels.loss is True
    assert labels.after == pytest.approx(1 - sum(1 + (n % 3 != 0) for n in range(HARD, 50)) / 100)
    (verdict,) = record.verdicts
    assert verdict.before.conclusion == "better" and (verdict.candidate, verdict.baseline) == ("new", "old")
    (gate,) = record.gates
    assert (gate.before, gate.after) == ("PASS", "FAIL")
    of_answers = [[rule for rule in of if rule.metric == "latency"] for of in (gate.rules_before, gate.rules_after)]
    assert of_answers[0] == of_answers[1] and of_answers[0][0].outcome == "met", "the answers took as long as they took"
    for remark in remarks_of(record):
        assert said(remark.text) in table, remark.text
    assert "cheap is stricter" in table and "saves 90%" in table and "q40" in table

    measured = (
        "select example_id, repetition, outputs::varchar, latency_s from outputs o where experiment_id = ? order by 1"
    )
    with evalflows.store.connect() as catalog:
        for was, now in zip(before, record.after, strict=True):
            assert catalog.execute(measured, [was]).fetchall() == catalog.execute(measured, [now]).fetchall()
    assert rows("select count(*) from decisions") == [(1,)], "no gate decides anew"
    document = json.loads(command(before[1], "--stored", "--format", "json").stdout)
    jsonschema.validate(document, schema_of("judge"))
    page = page_client().get(f"/two-judges?of={before[1]}").text
    assert "cheap is stricter" in page and page.count("before: yes") == 20
    listed = page_client().get("/two-judges").text
    assert "support-judged-again" in listed and "/two-judges?of=" in page_client().get(f"/experiments/{before[0]}").text


@pytest.mark.slow
def test_the_same_judge_today_takes_nothing_from_the_ledger_and_flows_can_ask_it(
    endpoint: Endpoint, store: Store
) -> None:
    (before,) = evalflows.run(spec(endpoint, targets=spec(endpoint).targets[:1], gates=[], repetitions=2))
    calls = Counter(str(request) for request in endpoint.requests)
    (again,) = judge_again([before], max_calls=2 * N)
    assert Counter(str(request) for request in endpoint.requests) == {call: 2 * n for call, n in calls.items()}
    (metric,) = two_judges(store, again).metrics
    assert not metric.flips and metric.share.n_clusters == N
    (third,) = judge_again(["support"], [{"use": "mine_again:right", "connection": "dear", "repeats": 2}])
    assert list(two_judges(store, "support").after) == [third], "the newest"
    result = evalflows.judge_again("support", evaluators={"use": "length_between", "args": {"most": 14}})
    assert len(result.flips()) and "the same score" in str(result)
    with pytest.raises(InputError, match="bugdet_usd"):
        evalflows.judge_again("support", bugdet_usd=1)


@pytest.mark.slow
def test_pairs_and_items_of_production(endpoint: Endpoint, store: Store) -> None:
    evalflows.run(spec(endpoint, evaluators=[], gates=[]))
    fields = {"experiments": ["support-old", "support-new"], "name": "pairs", "randomize_order": False}
    judge = {"use": "mine_again:better", "connection": "dear"}
    Path("pairs.yaml").write_text(
        yaml.safe_dump({**fields, "evaluators": [judge], "connections": connections(endpoint, "dear")})
    )
    assert CliRunner().invoke(cli, ["compare", "pairs.yaml"]).exit_code == 0
    text = said(command("pairs", "--with", cheap(endpoint, "mine_again:better"), "--compare-cost").stdout)
    assert "saves 90%" in text and f"of {N} pairs" in text
    (metric,) = two_judges(store, "pairs").metrics
    assert len(metric.flips) == sum(n % 3 != 0 for n in range(HARD, N))
    assert metric.difference and metric.difference.difference == pytest.approx(-0.5 * len(metric.flips) / N)

    began = "2026-11-20T08:00:00Z"
    lines = [{"trace_id": f"t{n}", "started_at": began, "input": f"q{n}", "output": f"q{n} says yes"} for n in range(N)]
    Path("traces.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    live = {"name": "live", "settle_s": 0, "watch": ["right"]}
    live |= {"evaluators": [{"use": "mine_again:right", "connection": "dear"}]}
    Path("live.yaml").write_text(yaml.safe_dump({**live, "connections": connections(endpoint, "dear")}))
    for arguments in (["traces", "add", "traces.jsonl"], ["evaluate-traces", "live.yaml"]):
        assert (done := CliRunner().invoke(cli, arguments)).exit_code == 0, done.output
    window = ("--in", "live", "--since", "2026-11-20", "--until", "2026-11-21")
    text = said(command(*window, "--with", cheap(endpoint)).stdout)
    assert f"{N - HARD} judged differently: {N - HARD} yes -> no" in text
    record = two_judges(store, "live")
    assert record.subjects == "items" and record.since is not None
    assert rows("select count(*) from trace_scores where evaluation = 'live'") == [(N,)], "the first stay as they are"
    assert page_client().get("/two-judges?of=live").status_code == 200


def test_what_cannot_be_judged_again_is_refused_before_anything_is_paid(endpoint: Endpoint) -> None:
    few = [{"id": f"q{n}", "inputs": {"q": f"q{n}"}} for n in range(3)]
    for name, rows_of in (("support", few), ("other", few[:1])):
        evalflows.run(spec(endpoint, name=name, dataset={"rows": rows_of}, gates=[]))
    calls = endpoint.calls
    Path("two.yaml").write_text("# two\n- {use: contains, name: right}\n- {use: contains, name: wrong}\n")
    Path("none.yaml").write_text("name: support\n")
    Path("panel.yaml").write_text("{use: panel, name: right, panel: [{use: contains}, {use: exact_match}]}")
    for arguments, wanted in (
        (("support", "--with", "two.yaml"), "got the judge 'wrong', wanted the name of the one that it stands in for"),
        (("support", "--with", "none.yaml"), "wanted an evaluator"),
        (("support", "--with", "panel.yaml"), "got the panel 'right', wanted its judges"),
        (("support", "other"), "wanted the same examples and repetitions for all"),
        (("--in", "live", "--since", "2026-11-20"), "wanted a trace evaluation"),
        (("support", "--since", "2026-11-20"), "wanted --in EVALUATION"),
        (("support", "--people", "nope"), "people 'nope': got no labels"),
        (("support", "--stored"), "has not been judged again"),
        ((), "wanted experiments, a comparison, or --in EVALUATION"),
    ):
        done = command(*arguments, code=2)
        assert wanted in done.stderr and done.stderr.count("\n") == 1, done.stderr
    with pytest.raises(InputError, match="stands in for"):
        judge_again(["support"], [{"use": "contains", "name": "nope"}, "contains"])
    assert endpoint.calls == calls
