"""Conversations in runs: an application with its session and its tools, who is invalid, and what a kill costs."""

import json
import random
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from catalog_rows import one, rows
from click.testing import CliRunner
from endpoint import Endpoint, Reply, Request, completion, serving
from interrupted_runs import finish, killed_and_resumed
from shop import ORDERS

from evalflows import plan, run
from evalflows.analysis.comparability import is_same_target
from evalflows.cli.main import cli
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.store import connect
from evalflows.store.queries.continuing import continuing
from evalflows.store.store import Store

TURNS = 6


def spec(target: dict[str, Any], examples: list[dict[str, Any]], **changes: Any) -> ExperimentSpec:
    fields = {
        "name": "talks",
        "dataset": {"rows": examples, "name": "talks"},
        "targets": [{"kind": "conversation", **target}],
        "evaluators": ["state_matches", "tool_errors", "turns_to_goal"],
    }
    return ExperimentSpec.model_validate(fields | changes)


def examples(n: int = 3, **inputs: Any) -> list[dict[str, Any]]:
    given = {"turns": ["Hello", "Please refund A1"], "state": {"orders": ORDERS}} | inputs
    wanted = {"state": {"orders": {"A1": {"status": "refunded"}}}}
    return [{"id": f"q{number}", "inputs": given, "reference_outputs": wanted} for number in range(n)]


@pytest.mark.usefixtures("without_prefect")
def test_an_application_reaches_its_world_by_mcp_and_keeps_its_session() -> None:
    """Each trial has its own world: the application refunds in the one at its address, and only there."""
    import asyncio

    from mcp.client.session import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def refund(address: str) -> str:
        async with streamable_http_client(address) as streams, ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            assert {tool.name for tool in (await session.list_tools()).tools} == {"look_up", "refund"}
            missing = await session.call_tool("look_up", {"order": "Z9"})
            assert missing.is_error
            return str((await session.call_tool("refund", {"order": "A1"})).content[0].text)  # type: ignore[union-attr]

    def answer(request: Request) -> Reply:
        (newest,) = request["messages"]
        if "refund" not in newest["content"]:
            return Reply({"reply": "Which order?", "done": False})
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as thread:  # the endpoint runs a loop of its own
            return Reply({"reply": thread.submit(asyncio.run, refund(request["tools"])).result(), "done": True})

    with serving(Endpoint(answer=answer)) as endpoint:
        target = {
            "target": {"kind": "http", "url": endpoint.base_url, "answer": "reply"},
            "world": "shop:Shop",
            "world_at": "field:tools",
            "session": "header:X-Session",
            "stop_at": "done",
        }
        run(spec(target, examples()))
    sessions = [headers["x-session"] for headers in endpoint.headers if "x-session" in headers]
    assert len({*sessions}) == 3 and len(sessions) == 6
    found = rows("select outputs ->> 'ended', calls, json_array_length(steps) from outputs")
    assert found == [("agent", 2, 2)] * 3
    (row,) = Store().read("experiments", one("select experiment_id from experiments")[0])
    assert is_same_target(row, row) is None, "the application does not say its version"
    assert rows("select metric, value from scores order by all") == [
        *[("state_matches", 1.0)] * 3,
        *[("tool_errors", 1.0)] * 3,
        *[("turns_to_goal", 2.0)] * 3,
    ]


@pytest.mark.usefixtures("without_prefect")
def test_what_a_row_lacks_is_said_before_anything_is_paid(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Endpoint()) as endpoint:
        mock = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        user = {"kind": "simulated", "connection": "mock"}
        target = {"target": {"kind": "chat", "connection": "mock"}, "user": user, "world": "shop:Shop"}
        for inputs, says in (({}, "the user's goal"), ({"goal": "x", "state": None}, "needs a state")):
            with pytest.raises(InputError, match=f"example 'q0': .*{says}"):
                run(spec(target, examples(**inputs), connections=mock))
        scripted = {"target": {"kind": "chat", "connection": "mock"}, "world": "shop:Shop"}
        wanted = [
            examples()[0] | {"reference_outputs": each} for each in ({"forbidden": "refund"}, {"actions": ["refnd"]})
        ]
        asked = [spec(scripted, [row], connections=mock, evaluators=["actions_match"]) for row in wanted]
        with pytest.raises(InputError, match="evaluator 'actions_match': example 'q0': forbidden: got 'refund'"):
            run(asked[0])
        plan(asked[1])
    assert "'refnd' is not a tool of the world, wanted refund" in capsys.readouterr().err
    assert endpoint.calls == 0


@pytest.mark.usefixtures("without_prefect")
def test_a_gate_does_not_decide_on_conversations_whose_user_failed() -> None:
    """The user leaves its goal in every eighth conversation, in both trials: 10 of 45."""

    def answer(request: Request) -> Reply:
        text = json.dumps(request["messages"])
        if not (found := re.search(r"goal (\d\d)", text)):
            return completion('{"ok": true}')  # the trial of parameters
        number = int(found[1])
        if "response_format" in request:
            return completion(json.dumps({"reasoning": "so", "verdict": "kept" if number % 8 else "gave_up"}))
        is_user = request["messages"][0]["role"] == "system"
        spoken = len(request["messages"]) > 2
        return completion("[END]" if is_user and spoken else f"goal {number:02} {'open' if is_user else 'closed'}")

    with serving(Endpoint(answer=answer)) as endpoint:
        mock = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        user = {"kind": "simulated", "connection": "mock"}
        target = {"target": {"kind": "chat", "connection": "mock"}, "user": user, "user_check": {"connection": "mock"}}
        rows_of_users = [{"id": f"q{n}", "inputs": {"goal": f"goal {n:02}"}} for n in range(40)]
        gates = [
            {"name": name, "thresholds": {"turns_to_goal": 2}, "invalid_at_most": most}
            for name, most in (("strict", 0.1), ("lax", 0.5))
        ]
        changes = {"connections": mock, "gates": gates, "evaluators": ["turns_to_goal"], "repetitions": 1}
        run(spec(target, rows_of_users, **changes))
    kinds = rows("select error_kind, count(*) from outputs group by all order by all")
    assert kinds == [("invalid_trial", 5), (None, 35)]
    found = dict(rows("select gate, conclusion from gate_decisions"))
    assert found == {"strict": "NOT ENOUGH EVIDENCE", "lax": "PASS"}
    assert one("select reason_code from gate_rules where gate = 'strict'") == ("invalid_trials",)
    (experiment,) = one("select experiment_id from experiments")
    said = CliRunner().invoke(cli, ["show", experiment]).output
    assert "10 of 45 trials (22%) of target are invalid" in " ".join(said.split())


@pytest.mark.usefixtures("without_prefect")
def test_the_measures_are_the_targets_own_though_a_user_is_paid_once_for_two_targets() -> None:
    def answer(request: Request) -> Reply:
        if "response_format" in request:
            return completion('{"reasoning": "so", "verdict": "kept"}')
        is_user = "You play a user" in str(request["messages"][0]["content"])
        return completion(("[END]" if len(request["messages"]) > 2 else "Hello") if is_user else "Which order?")

    with serving(Endpoint(answer=answer)) as endpoint:
        price = {"usd_per_million_input_tokens": 1e6, "usd_per_million_output_tokens": 0}
        mock = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", **price}}
        paid = {"connection": "mock"}
        user = {"user": {"kind": "simulated", **paid}, "user_check": paid, "kind": "conversation"}
        kinds = {"code": {"kind": "python", "function": "shop:echo"}, "model": {"kind": "chat", **paid}}
        targets = [user | {"name": name, "target": target} for name, target in kinds.items()]
        changes = {"connections": mock, "targets": targets, "evaluators": ["turns_to_goal"]}
        asked = spec({}, examples(goal="x"), **changes)
        most = {line.caller: line.calls for line in plan(asked).calls}
        run(asked)
        assert endpoint.calls == 3 * 6
        planned = {line.caller: line.calls for line in plan(asked).calls}
    users = {f"{name}: {who}": 6 if who == "user" else 3 for name in kinds for who in ("user", "user_check")}
    assert planned == {"code": 0, "model": 3, **users}, "as in the answers, whoever paid for them"
    bound = {caller: 60 if caller.endswith("user") else 6 for caller in users}
    assert most == {"code": None, "model": 60, **bound}
    sums = "sum(o.calls), sum(o.calls_cached), sum(o.tokens_in) > 0, sum(o.cost_usd) > 0, avg(length)"
    of_targets = rows(
        f"select target, {sums} from outputs o join experiments using (experiment_id) group by 1 order by 1"
    )
    assert of_targets == [("code", 0, 0, None, None, 8), ("model", 3, 0, True, True, 12)]
    script = {"target": {"kind": "http", "url": "http://127.0.0.1:9"}}
    assert [line.calls for line in plan(spec(script, examples())).calls] == [3 * 2], "an application's turns count"
    sources = "source, sum(calls), sum(calls_cached), sum(cost_usd) > 0 from cost_and_latency where model = 'all'"
    assert rows(f"select {sources} and source <> 'turns_to_goal' group by 1 order by 1") == [
        ("all", 18, 3, True),
        ("target", 3, 0, True),
        ("target: user", 9, 3, True),
        ("target: user_check", 6, 0, True),
    ]
    reasons = "select metric, reason_code from verdicts where metric in ('latency', 'tokens', 'cost') order by 1"
    assert "not_side_by_side" not in dict(rows(reasons)).values()
    with serving(Endpoint(answer=answer)) as endpoint, pytest.raises(IncompleteError):
        changes["connections"] = {"mock": mock["mock"] | {"base_url": endpoint.base_url}}
        run(spec({}, examples(goal="y"), **changes, budget_usd=1e-3))
    ((last,), *_) = rows("select experiment_id from experiments where budget_usd is not null")
    needed = float(rows("select max(regexp_extract(error, 'most (.*) USD,', 1)) from outputs")[0][0])
    (proposed,) = [part for part in continuing(Store(), last).arguments if "budget_usd=" in part]  # type: ignore[union-attr]
    assert float(proposed.partition("=")[2]) >= needed, "the next call fits"


def talk(request: Request) -> Reply:
    """Say something that only this conversation says; after the last turn, end it."""
    messages = request["messages"]
    is_user = messages[0]["role"] == "system" and messages[0]["content"].startswith("You play a user")
    digest = sha256(json.dumps(messages).encode()).hexdigest()
    return completion(f"{'asked' if is_user else 'answered'} {digest}")


def write_spec(folder: Path, base_url: str, items: int) -> Path:
    lines = [{"id": f"q{i}", "inputs": {"goal": f"goal {i}", "state": {"orders": ORDERS}}} for i in range(items)]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    user = {"kind": "simulated", "connection": "mock"}
    talks = {"kind": "conversation", "user": user, "max_turns": TURNS, "world": "shop:Shop"}
    given = {
        "name": "killed",
        "dataset": {"path": "rows.jsonl"},
        "targets": [talks | {"name": "chat", "target": {"kind": "chat", "connection": "mock"}}],
        "evaluators": ["turns_to_goal"],
        "connections": {"mock": {"kind": "endpoint", "base_url": base_url, "model": "m", "max_in_flight": 10}},
        "chunk_size": max(1, items // 8),
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


@pytest.mark.parametrize(
    ("items", "kills"),
    [pytest.param(24, 2, marks=pytest.mark.slow), pytest.param(300, 20, marks=pytest.mark.soak)],
)
def test_a_killed_conversation_goes_on_at_its_turn(tmp_path: Path, items: int, kills: int) -> None:
    total = items * TURNS * 2
    moments = sorted(random.Random(7).sample(range(10, total - 20), kills))
    with serving(Endpoint(latency_s=0.02, answer=talk)) as endpoint:
        path = write_spec(tmp_path, endpoint.base_url, items)
        finish(killed_and_resumed(tmp_path, None, path, endpoint, moments))
        seen, repeated = endpoint.calls, endpoint.repeated()
    print(f"killed at calls {moments}: the endpoint saw {seen} calls for {total}, {repeated} of them again")
    assert repeated <= kills * 10
    assert seen - repeated == total
    with connect(tmp_path / "killed") as catalog:
        turns = (
            "select count(*), count(distinct example_id), min(json_array_length(outputs -> 'messages')) from outputs"
        )
        assert catalog.execute(turns).fetchall() == [(items, items, 2 * TURNS)]
