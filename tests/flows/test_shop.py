"""The shop that ships: a model that keeps to its prompt solves all tasks with the rules, and breaks them without."""

import json
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, completion, serving

from evalflows import run
from evalflows.specs import load_experiment

pytestmark = pytest.mark.usefixtures("without_prefect")
DATA = Path(__file__).parent.parent.parent / "data"
TASKS = [json.loads(line) for line in (DATA / "datasets" / "shop.jsonl").read_text(encoding="utf-8").splitlines()]


def wanted(task: dict[str, Any], *, has_rules: bool) -> list[dict[str, Any]]:
    """The calls that lead to the expected state; without rules, what the customer asks for instead."""
    reference = task["reference_outputs"]
    if not has_rules and (forbidden := reference.get("forbidden")):
        order = next(iter(reference["state"]["orders"]))
        more = {
            "refund_order": {"reason": "unwanted"},
            "exchange": {"product": "mug"},
            "change_address": {"address": "2 Old Street"},
        }
        more["apply_voucher"] = {"code": "WELCOME10"}
        return [{"name": forbidden[0], "arguments": {"order": order} | more.get(forbidden[0], {})}]
    calls = [
        {"name": name, "arguments": {"product": "kettle"}}
        for name in reference.get("actions", ())
        if name == "get_product"
    ]
    for order, state in reference["state"]["orders"].items():
        own, before = {"order": order}, task["inputs"]["state"]["orders"][order]
        changed = {name: value for name, value in state.items() if before.get(name) != value}
        status = changed.get("status")
        calls += [{"name": "get_order", "arguments": own}]
        calls += [{"name": "cancel_order", "arguments": own}] if status == "cancelled" else []
        calls += (
            [{"name": "refund_order", "arguments": own | {"reason": state.get("reason", "unwanted")}}]
            if status == "refunded"
            else []
        )
        calls += [{"name": "send_return_label", "arguments": own}] if "label_sent" in changed else []
        calls += (
            [{"name": "exchange", "arguments": own | {"product": state["exchanged_for"]}}]
            if status == "exchanged"
            else []
        )
        calls += (
            [{"name": "change_address", "arguments": own | {"address": state["address"]}}]
            if "address" in changed
            else []
        )
        calls += [{"name": "apply_voucher", "arguments": own | {"code": "WELCOME10"}}] if "voucher" in changed else []
    return calls + [
        {"name": "hand_over", "arguments": {"order": order, "why": "x"}}
        for order in reference["state"].get("handed_over", ())
    ]


def agent(request: Request) -> Reply:
    """In the last turn, call the tools one after the other; otherwise ask."""
    messages = request["messages"]
    has_rules = "Rules:" in messages[0]["content"]
    said = [message["content"] for message in messages if message["role"] == "user"]
    task = next(task for task in TASKS if task["inputs"]["turns"][: len(said)] == said)
    calls = wanted(task, has_rules=has_rules)
    made = sum(message["role"] == "tool" for message in messages)
    if len(said) < len(task["inputs"]["turns"]) or made == len(calls):
        return completion("Is there anything else?")
    call = calls[made]
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return completion(None, tool_calls=[{"id": str(made), "type": "function", "function": function}])


def test_every_task_is_solved_with_the_rules_and_the_gate_fails_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA.parent)
    spec = load_experiment(DATA / "experiments" / "shop.yaml")
    with serving(Endpoint(answer=agent)) as endpoint:
        connections = {"auto": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        run(type(spec).model_validate(spec.model_dump() | {"connections": connections}))
    failed = rows("select target, example_id, comment from item_scores where metric = 'state_matches' and value < 1")
    assert {target for target, *_ in failed} == {"without-rules"}
    assert len(failed) == sum("forbidden" in task["reference_outputs"] for task in TASKS), failed
    kept = rows("select target, avg(value) from item_scores where metric = 'actions_match' group by all order by all")
    assert kept[0] == ("with-rules", 1.0) and kept[1][1] < 0.5
    assert rows("select conclusion from gate_decisions") == [("FAIL",)]
    assert (
        rows("select count(distinct step ->> 'name') from (select unnest(steps::json[]) as step from outputs)")[0][0]
        > 8
    )
