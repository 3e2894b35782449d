"""The calls of LangChain's page on comparing two texts, by a connection whose answers were written down."""

import ast
import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, completion, serving

from evalflows.compat.langchain import load_evaluator
from evalflows.evaluators.fence import fenced
from evalflows.llm.budget import Budget
from evalflows.llm.ledger import Recorder, recording
from evalflows.specs.errors import CallError
from evalflows.store.records import CallRow

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = Path(__file__).parent / "programs" / "langchain"
FERRY = {
    "prediction": "the ferry leaves at noon",
    "prediction_b": "9:30",
    "input": "When does the first ferry leave?",
    "reference": "half past nine",
}

RECORDED = {
    "When does the first ferry leave?": {"reasoning": "B has the reference's time, A has not.", "verdict": "B"},
    "What is a tide?": {"reasoning": "Both are true, and B says how and why.", "verdict": "B"},
    "Write two lines about a lighthouse.": {"reasoning": "A is plain, B is all ornament.", "verdict": "A"},
}
BY_OWN_PROMPT = "A names the ship that the record knows. B does not.\n[[A]]"


def recorded(request: Request) -> Reply:
    """By schema where one is asked for, else the text that a prompt of one's own wants."""
    (message,) = request["messages"]
    if "response_format" not in request:
        return completion(BY_OWN_PROMPT)
    (answer,) = (answer for question, answer in RECORDED.items() if fenced(question) in message["content"])
    return completion(json.dumps(answer))


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with serving(Endpoint(answer=recorded)) as serves:
        monkeypatch.setenv("OPENAI_BASE_URL", serves.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
        monkeypatch.delenv("OPENAI_MODEL", raising=False)
        yield serves


@pytest.mark.slow
def test_the_program_of_the_page_runs(tmp_path: Path, endpoint: Endpoint, store_root: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "pairwise.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    ferry, tide, lighthouse, other, *shown, ship = done.stdout.splitlines()
    results = [ast.literal_eval(line) for line in (ferry, tide, lighthouse, other, ship)]
    assert [list(result) for result in results] == 5 * [["reasoning", "value", "score"]]
    assert [(result["value"], result["score"]) for result in results] == [
        ("B", 0),
        ("B", 0),
        ("A", 1),
        ("B", 0),
        ("A", 1),
    ]
    assert results[0]["reasoning"] == "B has the reference's time, A has not."
    assert results[3]["reasoning"].endswith("\n[[B]]\n") and results[4]["reasoning"] == BY_OWN_PROMPT
    assert shown[1] == "Weigh these:" and shown[2].startswith("- helpfulness: ") and "A: {prediction}" in shown
    check_what_was_asked(endpoint)
    assert not store_root.exists() and list(tmp_path.iterdir()) == []


def check_what_was_asked(endpoint: Endpoint) -> None:
    """Four calls, since another model answered one; each shows what its comparison has, and no more."""
    ferry, tide, lighthouse, ship = (request["messages"][0]["content"] for request in endpoint.requests)
    assert {(request["model"], request["temperature"]) for request in endpoint.requests} == {("gpt-4o-mini", 0)}
    assert [fenced("half past nine") in text for text in (ferry, tide)] == [True, False]
    assert "- restraint: Does it do without ornament?" in lighthouse and "- helpfulness" not in lighthouse
    assert ship.startswith("Two harbour pilots") and f"A: {fenced('The wreck off the point is the Amalia.')}" in ship


def test_a_connection_is_asked_by_its_name_in_whatever_loop(tmp_path: Path, monkeypatch: Any) -> None:
    async def both() -> list[dict[str, Any]]:
        evaluator = load_evaluator("labeled_pairwise_string", llm="house")
        return [evaluator.evaluate_string_pairs(**FERRY), await evaluator.aevaluate_string_pairs(**FERRY)]

    with serving(Endpoint(answer=recorded)) as endpoint:
        path = tmp_path / "connections.yaml"
        path.write_text(f"house: {{base_url: '{endpoint.base_url}', model: judge-1, api_key_env: HOUSE_KEY}}\n")
        monkeypatch.setenv("EVALFLOWS_CONNECTIONS", str(path))
        monkeypatch.setenv("HOUSE_KEY", "key-of-the-house")
        assert [result["value"] for result in asyncio.run(both())] == ["B", "B"]
        in_threads = [threading.Thread(target=lambda: asyncio.run(both())) for _ in range(3)]
        for thread in in_threads:
            thread.start()
        for thread in in_threads:
            thread.join(30)
    assert endpoint.calls == 1  # the same comparison is paid once
    assert endpoint.requests[0]["model"] == "judge-1" and endpoint.keys == ["bearer key-of-the-house"]


def test_a_call_inside_an_experiment_is_kept_there_and_spends_of_its_budget(endpoint: Endpoint) -> None:
    kept: list[CallRow] = []
    recorder = Recorder(keep=kept.append, experiment_id="e1", budget=Budget(calls=1))
    evaluator = load_evaluator("labeled_pairwise_string")
    first = FERRY | {"prediction": "when the tide serves"}
    with recording(recorder):
        assert evaluator.evaluate_string_pairs(**first)["value"] == "B"
        with pytest.raises(CallError) as raised:
            asyncio.run(evaluator.aevaluate_string_pairs(**first | {"prediction": "never"}))
    assert raised.value.kind == "over_budget" and endpoint.calls == 1
    assert [(row.experiment_id, row.status) for row in kept if row.status == "ok"] == [("e1", "ok")]


def test_a_call_that_fails_raises_rather_than_preferring_somebody(endpoint: Endpoint) -> None:
    endpoint.answer = lambda request: Reply({"error": {"message": "no such model"}}, 404)
    with pytest.raises(CallError, match="no such model"):
        load_evaluator("pairwise_string").evaluate_string_pairs(prediction="x", prediction_b="y", input="?")


def test_langchains_own_models_and_templates_are_taken() -> None:
    models = pytest.importorskip("langchain_core.language_models.fake_chat_models")
    prompts = pytest.importorskip("langchain_core.prompts")
    own = "{criteria}\n{input} {{asked}}\n{reference}\nA: {prediction}\nB: {prediction_b}"
    sides = [fenced(FERRY[name]) for name in ("input", "reference", "prediction", "prediction_b")]
    llm = models.FakeListChatModel(responses=["The second.\n[[B]]", "Neither.\n[[C]]"])
    prompt = prompts.PromptTemplate.from_template(own)
    evaluator = load_evaluator("labeled_pairwise_string", llm=llm, prompt=prompt, criteria={"brevity": "Short?"})
    assert evaluator.prompt == prompt.partial(criteria="- brevity: Short?")
    assert evaluator.evaluate_string_pairs(**FERRY)["value"] == "B"
    assert asyncio.run(evaluator.aevaluate_string_pairs(**FERRY))["value"] is None
    request = evaluator._request(**FERRY)
    assert request == "- brevity: Short?\n{} {{asked}}\n{}\nA: {}\nB: {}".format(*sides)


def test_a_prompt_of_several_messages_is_asked_as_such() -> None:
    prompts = pytest.importorskip("langchain_core.prompts")
    models = pytest.importorskip("langchain_core.language_models.fake_chat_models")
    human = "{input}\n{prediction}\n{prediction_b}"
    prompt = prompts.ChatPromptTemplate.from_messages([("system", "Judge by {criteria}"), ("human", human)])
    asked: list[Any] = []

    async def complete(messages: Any, **parameters: Any) -> Any:
        asked.extend(messages)
        return type("Answer", (), {"text": "[[A]]"})()

    pair = {name: FERRY[name] for name in ("prediction", "prediction_b", "input")}
    for llm in (complete, models.FakeListChatModel(responses=["[[A]]"])):
        evaluator = load_evaluator("pairwise_string", llm=llm, prompt=prompt, criteria="depth")
        assert evaluator.evaluate_string_pairs(**pair)["value"] == "A"
    sides = (fenced(pair[name]) for name in ("input", "prediction", "prediction_b"))
    assert [message["role"] for message in asked] == ["system", "user"]
    assert asked[0]["content"].startswith("Judge by - depth: ") and asked[1]["content"] == "\n".join(sides)
