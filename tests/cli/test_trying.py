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
    given = {"turns": ["Hello", "Please refund A1"], "history": [{"role": "user", "content": "Hi"}]}
    row = {"id": "q1", "inputs": given | {"state": {"orders": ORDERS}}, "reference_outputs": {"actions": ["pay"]}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    target = {
        "kind": "conversation",
        "name": "shop",
        "target": {"kind": "python", "function": "shop:agent"},
        "world": "shop:Shop",
    }
    spec = {"name": "s", "dataset": "rows.jsonl", "targets": [target]}
    solved = {"use": "turns_to_goal", "args": {"solved": "actions_match"}}
    spec |= {"evaluators": [solved, "actions_match", {"use": "correctness", "connection": "openai"}]}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    scripted = CliRunner().invoke(cli, ["try", "q1", "--spec", "spec.yaml"])
    assert scripted.output.splitlines() == [
        "user: Hi",
        "user: Hello",
        "assistant: Which order?",
        "user: Please refund A1",
        '  look_up({"order":"A1"})',
        '    {"status":"paid","total":20.0}',
        '  refund({"order":"A1"})',
        "    done",
        "assistant: done",
        "ended: script; 0 paid calls",
        "  orders.A1.status: 'paid' → 'refunded'",
        "  orders.A1.reason: None → 'late'",
        "actions_match: 0 (no call of pay)",
        "turns_to_goal: does not apply",
    ]
    mine = CliRunner().invoke(cli, ["try", "q1", "--spec", "spec.yaml", "--user", "me"], input="refund B2\n\n")
    assert "    done\nassistant: done" in mine.output and "ended: user" in mine.output
    assert "orders.B2.status: 'sent' → 'refunded'" in mine.output
    document = json.loads(CliRunner().invoke(cli, ["try", "q1", "--spec", "spec.yaml", "--format", "json"]).output)
    assert document["ended"] == "script" and len(document["messages"]) == 5
    assert document["scores"] == {"actions_match": 0, "turns_to_goal": None}
    for arguments, says in (
        (["q2", "--spec", "spec.yaml"], "got 'q2'"),
        (["q1"], "got neither"),
        (
            ["q1", "--spec", "spec.yaml", "--set", "targets.0.user={kind: simulated}"],
            "evalflows: target 'shop': example 'q1': the user's goal: got ",
        ),
        (
            ["q1", "--spec", "spec.yaml", "--set", "targets.0.user={messages: inputs.x}"],
            "got none, wanted one of: scripted",
        ),
        (
            ["q1", "--spec", "spec.yaml", "--set", "targets.0.max_turns=1", "--set", "targets.0.on_max_turns=fail"],
            "max_turns: 1 cuts 1 of 1 scripts, the first 'q1' with 2 messages",
        ),
        (["q1", "--spec", "spec.yaml", "--target", "x"], "wanted one of: shop"),
        (["q1", "--spec", "spec.yaml", "--set", "targets.0.target.function=shop:silent"], "agent_failed: turn 1"),
    ):
        failed = CliRunner().invoke(cli, ["try", *arguments])
        assert (failed.exit_code, says in failed.output) == (2, True), failed.output


def test_a_trial_whose_user_is_rejected_is_shown_whole_and_a_person_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row = {"id": "q1", "inputs": {"goal": "x", "state": {"orders": ORDERS}}, "metadata": {"topic": "refunds"}}
    row |= {"reference_outputs": {"at_most": {"refund": 1}}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))

    def answer(request: Request) -> Reply:
        if "response_format" in request:
            return completion('{"reasoning": "it did", "verdict": "gave_up"}')
        return completion("Please refund A1" if len(request["messages"]) < 3 else "[END]")

    with serving(Endpoint(answer=answer)) as endpoint:
        mock = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        target = {
            "kind": "conversation",
            "target": {"kind": "python", "function": "shop:asks_for_all"},
            "user": {"kind": "simulated", "connection": "mock"},
            "user_check": {"connection": "mock"},
            "world": "shop:Shop",
        }
        spec = {"name": "s", "dataset": "rows.jsonl", "targets": [target], "connections": mock}
        spec |= {"evaluators": ["actions_match"]}
        (tmp_path / "spec.yaml").write_text(json.dumps(spec))
        rejected = CliRunner().invoke(cli, ["try", "q1", "--spec", "spec.yaml"])
        n_calls = endpoint.calls
        mine = CliRunner().invoke(cli, ["try", "q1", "--spec", "spec.yaml", "--user", "me"], input="refund B2\n\n")
        assert (mine.exit_code, endpoint.calls - n_calls) == (0, 0), mine.output
    trial = [
        "user: Please refund A1",
        '  refund({"order":"A1"})',
        "    done",
        "assistant: refunds 0 done",
        "user_check: gave_up: it did",
    ]
    end = ["ended: user; 6 paid calls", "  orders.A1.status: 'paid' → 'refunded'", "  orders.A1.reason: None → 'late'"]
    end += ["actions_match: 1"]  # the calls of the trial before do not count
    said = rejected.output.splitlines()
    assert (rejected.exit_code, said[:-1]) == (2, [*trial, *trial, *end])
    assert "invalid_trial: the user did not keep to its goal in 2 trials: gave_up: it did" in said[-1]
