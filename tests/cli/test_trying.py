"""`evalflows try`: another prompt in place of an experiment's own, and what changed."""

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from endpoint import Endpoint, Reply, Request, completion, serving
from shop import ORDERS

from evalflows import approve, run
from evalflows.cli.main import cli
from evalflows.cli.schema import schema_of
from evalflows.specs import ExperimentSpec

pytestmark = pytest.mark.usefixtures("without_prefect")


def answer(request: Request) -> Reply:
    """Billing is what a brief answer gets wrong."""
    prompt, question = (message["content"] for message in request["messages"])
    return completion("no" if prompt == "Be brief." and "billing" in question else "yes")


def test_a_prompt_is_tried_on_what_an_experiment_ran_on_and_compared(tmp_path: Path) -> None:
    prompt = tmp_path / "brief.md"
    prompt.write_text("Be brief.\n")
    topics = ["billing", "login", "other"] * 20
    rows = [
        {"id": f"q{n}", "inputs": {"q": f"{n} {topic}"}, "outputs": {"a": "yes"}, "metadata": {"topic": topic}}
        for n, topic in enumerate(topics)
    ]
    chat = {"kind": "chat", "connection": "mine", "system": "Answer.", "user": "{q}"}
    fields = {
        "dataset": {"rows": rows},
        "evaluators": ["exact_match"],
        "gates": [{"name": "g", "thresholds": {"exact_match": 0.9}}],
    }

    def tried(*arguments: str, code: int = 0) -> str:
        done = CliRunner(env={"COLUMNS": "100"}).invoke(cli, ["try", str(prompt), "--against", *arguments])
        assert done.exit_code == code, done.output
        return " ".join(done.output.split())

    with serving(Endpoint(answer=answer)) as endpoint:
        mine = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}
        (first,) = run(
            ExperimentSpec.model_validate(fields | {"name": "app", "targets": [chat], "connections": {"mine": mine}})
        )
        approve(first, "live")
        printed = tried("live")
        assert (endpoint.calls, endpoint.requests[-1]["messages"][0]["content"]) == (120, "Be brief.")
        assert "worse in exact_match" in printed and "metadata.topic=billing 20 -1.00 [-1.00, -0.68] +0.000" in printed
        assert "brief against target: worse in exact_match" in printed
        assert "PASS" not in printed
        document = json.loads(
            CliRunner().invoke(cli, ["try", str(prompt), "--against", first, "--format", "json"]).stdout
        )
        jsonschema.validate(document, schema_of("try"))
        assert document["candidates"][0]["calls"] == 0, "reused"
        assert endpoint.calls == 120
    (own,) = run(
        ExperimentSpec.model_validate(
            fields | {"name": "own", "targets": [{"kind": "python", "function": "json:dumps"}]}
        )
    )
    refused = "try: got 'own', whose target is of kind python, wanted a chat target, whose prompt is in its spec"
    assert refused in tried(own, code=2)
    prompt.write_bytes(b"\xff\xfe\x00")
    assert "wanted a text in UTF-8" in tried(first, code=2)


def test_an_example_is_played_turn_by_turn_with_the_script_or_with_you(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row = {"id": "q1", "inputs": {"turns": ["Hello", "Please refund A1"], "state": {"orders": ORDERS}}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    target = {
        "kind": "conversation",
        "name": "shop",
        "target": {"kind": "python", "function": "shop:agent"},
        "world": "shop:Shop",
    }
    spec = {"name": "s", "dataset": "rows.jsonl", "targets": [target], "evaluators": ["tool_errors"]}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    scripted = CliRunner().invoke(cli, ["try", "q1", "--spec", "spec.yaml"])
    assert scripted.output.splitlines() == [
        "user: Hello",
        "assistant: Which order?",
        "user: Please refund A1",
        "assistant: done",
        "ended: script; 0 model calls",
        "  orders.A1.status: 'paid' → 'refunded'",
        "  orders.A1.reason: None → 'late'",
    ]
    mine = CliRunner().invoke(cli, ["try", "q1", "--spec", "spec.yaml", "--user", "me"], input="refund B2\n\n")
    assert "you: assistant: done" in mine.output and "ended: user" in mine.output
    assert "orders.B2.status: 'sent' → 'refunded'" in mine.output
    document = json.loads(CliRunner().invoke(cli, ["try", "q1", "--spec", "spec.yaml", "--format", "json"]).output)
    assert document["ended"] == "script" and len(document["messages"]) == 4
    for arguments, says in (
        (["q2", "--spec", "spec.yaml"], "got 'q2'"),
        (["q1"], "got neither"),
        (
            ["q1", "--spec", "spec.yaml", "--set", "targets.0.user={kind: simulated}"],
            "evalflows: the user's goal: got ",
        ),
        (["q1", "--spec", "spec.yaml", "--target", "x"], "wanted one of: shop"),
        (["q1", "--spec", "spec.yaml", "--set", "targets.0.target.function=shop:silent"], "agent_failed: turn 1"),
    ):
        failed = CliRunner().invoke(cli, ["try", *arguments])
        assert (failed.exit_code, says in failed.output) == (2, True), failed.output
