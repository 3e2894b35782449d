"""Experiments compared by a model: verdicts, judge biases, and keys."""

import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pyarrow.parquet
import pytest
from endpoint import Endpoint, Reply, Request, completion, error, serving
from matched import asked
from pairwise_runs import N, Outputs, answered, by_length, conclusion, judged_by, longer, verdict

from evalflows import compare, evaluate
from evalflows.llm import wrap
from evalflows.specs import IncompleteError

pytestmark = pytest.mark.usefixtures("prefect_api", "short_pauses")


def always_first(request: Request) -> Reply:
    return verdict(1)


@pytest.mark.slow
@pytest.mark.parametrize("both_orders", [True, False])
def test_a_fair_judge_decides_and_a_position_biased_judge_does_not(both_orders: bool) -> None:
    old, new = answered("old", "new", n=40)
    with serving(Endpoint(answer=by_length)) as endpoint:
        compare(judged_by(endpoint, [old, new], both_orders=both_orders, name="fair"))
        assert conclusion("fair") == ("better", None)
    assert endpoint.calls == 40 * (1 + both_orders) and endpoint.repeated() == 0
    assert asked("select sum(calls), min(judge_model), max(judge_model) from comparisons") == [
        (endpoint.calls, "mock-1", "mock-1")
    ]
    with serving(Endpoint(answer=always_first)) as endpoint:
        compare(judged_by(endpoint, [new, old], both_orders=both_orders, name="first"))
    found, reason = conclusion("first")
    assert found == "not_enough_evidence"
    assert str(reason).startswith("this judge has a position bias: it ")
    assert "in 100% [" in str(reason)
    biases = asked("select comparison, bias from judge_biases where passed = false order by bias")
    assert biases == [("first", "flip_share")] * both_orders + [("first", "position_preference")]


def test_self_consistency_and_agreement_between_judges_are_reported() -> None:
    counts: dict[str, int] = {}
    lock = threading.Lock()

    def wavers(request: Request) -> Reply:
        """Return a tie for the second of three repeats."""
        key = json.dumps(request["messages"])
        with lock:
            counts[key] = counts.get(key, 0) + 1
        return verdict(0) if counts[key] == 2 else by_length(request)

    old, new = answered("old", "new")
    with serving(Endpoint(answer=wavers)) as endpoint:
        judge = {"use": "pairwise_preference", "connection": "mock", "args": {"repeats": 3}}
        evaluate((old, new), evaluators=[judge, longer], connections=judged_by(endpoint, [old, new]).connections)
    assert endpoint.calls == 3 * N
    assert asked("select distinct repeats, agreement, winner from comparisons where metric <> 'longer'") == [
        (3, pytest.approx(1 / 3), "right")
    ]
    biases = {
        (metric, bias): message for metric, bias, message in asked("select metric, bias, message from judge_biases")
    }
    assert biases["pairwise_preference", "self_consistency"].startswith("repeated its verdict in 33%")
    assert f"on 100.0% of {N} pairs" in biases["longer", "agreement with pairwise_preference"]


KEY = f"sk-test-{random.Random(29).randbytes(24).hex()}"
MARK = "as-quoted-by-the-provider"


@pytest.mark.slow
def test_a_key_is_sent_to_its_provider_and_stored_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Errors and answers quote the key, and so does a judge with its own client."""
    monkeypatch.setenv("COMPARING_KEY", KEY)

    def quotes(request: Request) -> Reply:
        if "q01" in json.dumps(request):
            return error(401, f"Incorrect API key provided: {KEY}. {MARK}")
        return completion(json.dumps({"reasoning": f"{MARK} {KEY}", "preference": 1}))

    def own(outputs: Outputs) -> dict[str, Any]:
        client = wrap(openai.OpenAI(base_url=endpoint.base_url, api_key=os.environ["COMPARING_KEY"], max_retries=0))
        response = client.chat.completions.create(model="m", messages=[{"role": "user", "content": str(outputs)}])
        return {
            "key": "own",
            "winner": "A",
            "comment": response.choices[0].message.content,
            "metadata": {"said": str(response)},
        }

    with serving(Endpoint(answer=quotes)) as endpoint:
        spec = judged_by(endpoint, answered("old", "new"), both_orders=True)
        connection = spec.connections["mock"].model_dump() | {"api_key_env": "COMPARING_KEY"}
        judges: list[Any] = [spec.evaluators[0], own]
        said = ""
        try:
            evaluate(tuple(spec.experiments), evaluators=judges, connections={"mock": connection}, chunk_retries=0)
        except IncompleteError as fault:
            said = str(fault)
    assert f"bearer {KEY}" in endpoint.keys, "the key was sent"
    written = capfd.readouterr()
    kept = "".join(_texts(tmp_path))
    assert MARK in kept, "what was quoted is kept"
    for piece in (KEY[8:24], KEY[24:40], KEY[-16:]):
        assert piece not in kept + said + written.out + written.err


def _texts(root: Path) -> Iterator[str]:
    for path in root.rglob("*"):
        if path.suffix == ".parquet":
            yield str(pyarrow.parquet.read_table(path, partitioning=None).to_pylist())
        elif path.is_file():
            yield path.read_bytes().decode(errors="replace")
