"""A user's own OpenAI client: its calls are recorded during a run, and work the same without one."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import Any

import openai
import pytest
from endpoint import Endpoint, Reply, error, serving
from pydantic import BaseModel

from evalflows.llm import wrapped
from evalflows.llm.budget import Budget
from evalflows.llm.ledger import NO_USAGE, UNRECORDED, Recorder, Usage, recording
from evalflows.llm.prices import Price
from evalflows.llm.wrapped import CONNECTION, plain, step, wrap
from evalflows.specs import CallError, InputError
from evalflows.specs.connections import EndpointConnection, LocalConnection
from evalflows.specs.errors import StorageError
from evalflows.store.records import CallRow, to_json

ASKED = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "temperature": 0}
KEY = "sk-very-secret"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(Endpoint()) as one:
        yield one


def client(endpoint: Endpoint, **options: Any) -> openai.OpenAI:
    return wrap(openai.OpenAI(base_url=endpoint.base_url, api_key=KEY, max_retries=0, **options))


def recorder(kept: list[CallRow]) -> Recorder:
    return Recorder(keep=kept.append, experiment_id="exp-1", subject_id="run-1", evaluator="judge")


def test_a_call_is_kept_and_told_and_is_a_step(endpoint: Endpoint) -> None:
    kept: list[CallRow] = []
    with recording(recorder(kept)) as run:
        answer = client(endpoint).chat.completions.create(**ASKED)
    text = answer.choices[0].message.content
    (row,) = kept
    assert (row.status, row.connection, row.base_url, row.model, row.answered_by) == (
        *("ok", CONNECTION, endpoint.base_url, "m", "mock-1"),
    )
    assert (row.experiment_id, row.subject_id, row.evaluator, row.reusable) == ("exp-1", "run-1", "judge", False)
    assert (row.tokens_in, row.tokens_out, row.cost_usd, row.finish_reason) == (10, 5, None, "stop")
    assert json.loads(row.request) == ASKED == endpoint.requests[0]
    assert json.loads(row.response or "")["message"] == {"role": "assistant", "content": text}
    assert run.answered == [(row, False)] and run.models == ["mock-1"]
    (noted,) = run.steps
    assert (
        noted.items()
        >= {
            "kind": "llm",
            "name": "chat.completions.create",
            "model": "m",
            "inputs": ASKED,
            "outputs": {"message": {"role": "assistant", "content": text}},
            "error": None,
            "tokens_in": 10,
            "tokens_out": 5,
        }.items()
    )
    assert noted["started_at"] and noted["latency_s"] > 0
    assert run.totals() == Usage(calls=1, tokens_in=10, tokens_out=5, cost_usd=None)


def test_calls_in_threads_of_an_item_count_and_those_that_are_nobodys_are_unknown(endpoint: Endpoint) -> None:
    asking, lasting = client(endpoint), ThreadPoolExecutor(1)

    def ask() -> str:
        return asking.chat.completions.create(**ASKED).choices[0].message.content or ""

    assert ask() == lasting.submit(ask).result()  # outside of an item; its thread is there from now on
    kept, budget = list[CallRow](), Budget(calls=5)
    with recording(replace(recorder(kept), budget=budget)) as run:
        with ThreadPoolExecutor(2) as pool:
            assert len({*pool.map(lambda _: ask(), range(2))}) == 1
        (thread := Thread(target=ask)).start()
        thread.join()
        lasting.submit(ask).result()
        assert asyncio.run(asyncio.to_thread(ask))
        with pytest.raises(CallError, match="budget is spent"), ThreadPoolExecutor() as pool:
            pool.submit(ask).result()
    assert len(kept) == budget.spent_calls == run.totals().calls == 5
    assert endpoint.calls == 7

    asked, answers = SimpleQueue[Any](), SimpleQueue[str]()
    Thread(target=lambda: answers.put(asked.get() or ask()), daemon=True).start()
    with recording(recorder(kept)) as one, recording(recorder(kept)) as other:
        asked.put(None)
        answers.get()
    assert one.totals() == other.totals() == UNRECORDED, "whose it was is not known"
    with recording(recorder(kept)) as later:
        assert later.totals() == NO_USAGE


def test_a_call_that_could_not_be_stored_is_not_made(endpoint: Endpoint) -> None:
    """The disk fails while the user's code is at work between its calls."""
    kept, full, budget = list[CallRow](), list[StorageError](), Budget(calls=2)

    def check() -> None:
        for failure in full:
            raise failure

    async_client = wrap(openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=KEY, max_retries=0))
    with recording(Recorder(keep=kept.append, check=check, budget=budget)):
        client(endpoint).chat.completions.create(**ASKED)
        full.append(StorageError("/spool: No space left on device"))
        with pytest.raises(StorageError, match="No space left"):
            client(endpoint).chat.completions.create(**ASKED)
        with pytest.raises(StorageError, match="No space left"):
            asyncio.run(async_client.chat.completions.create(**ASKED))  # type: ignore[arg-type]
    assert endpoint.calls == len(kept) == budget.spent_calls == 1


def test_an_async_client_is_recorded_too(endpoint: Endpoint) -> None:
    kept: list[CallRow] = []
    wrapped = wrap(openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=KEY))

    async def ask() -> None:
        questions = [ASKED | {"seed": n} for n in range(3)]
        with recording(recorder(kept)) as run:
            await asyncio.gather(*(wrapped.chat.completions.create(**question) for question in questions))
        assert {noted["inputs"]["seed"] for noted in run.steps} == {0, 1, 2}
        await wrapped.chat.completions.create(**ASKED)

    asyncio.run(ask())
    assert endpoint.calls == 4
    assert [row.status for row in kept] == ["ok"] * 3, "the last had no run at hand"
    assert len({row.call_key for row in kept}) == 3


@pytest.mark.parametrize(
    ("reply", "kind", "raised"),
    [
        (error(429, "slow down"), "rate_limited", openai.RateLimitError),
        (error(500, "down"), "server_error", openai.InternalServerError),
        (error(401, "wrong key"), "authentication", openai.AuthenticationError),
        (Reply("", cut=True), "connection", openai.APIConnectionError),
    ],
)
def test_a_failure_is_recorded_and_raised_as_it_was(
    endpoint: Endpoint, reply: Reply, kind: str, raised: type[Exception]
) -> None:
    kept: list[CallRow] = []
    endpoint.faults.append(reply)
    with recording(recorder(kept)) as run, pytest.raises(raised):
        client(endpoint).chat.completions.create(**ASKED)
    assert [(row.status, row.error_kind, row.response) for row in kept] == [("failed", kind, None)]
    assert kept[0].error and KEY not in repr(kept)
    assert run.failed == kept and not run.answered
    assert run.steps[0]["error"].startswith(raised.__name__) and run.steps[0]["outputs"] is None


def test_the_key_is_nowhere_and_what_is_sent_besides_is_not_the_request(endpoint: Endpoint) -> None:
    kept: list[CallRow] = []
    with recording(recorder(kept)) as run:
        client(endpoint).chat.completions.create(
            **ASKED, extra_headers={"x-key": KEY}, timeout=9, extra_body={"top_k": 3}, stop=openai.omit
        )
    assert endpoint.keys == [f"bearer {KEY}"]
    assert KEY not in repr(kept) + repr(run)
    assert json.loads(kept[0].request) == ASKED | {"top_k": 3} == endpoint.requests[0]


STREAM = "".join(
    f"data: {json.dumps(chunk)}\n\n"
    for chunk in (
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": {"content": text}}],
        }
        for text in ("hel", "lo")
    )
)


def test_a_stream_goes_on_as_it_did_and_its_tokens_are_not_known(endpoint: Endpoint) -> None:
    kept: list[CallRow] = []
    endpoint.answer = lambda _: Reply(STREAM + "data: [DONE]\n\n", headers={"content-type": "text/event-stream"})
    with recording(recorder(kept)) as run:
        chunks = list(client(endpoint).chat.completions.create(**ASKED, stream=True))
    assert "".join(chunk.choices[0].delta.content for chunk in chunks) == "hello"
    assert [(row.status, row.tokens_in, row.tokens_out, row.response) for row in kept] == [("ok", None, None, None)]
    assert run.totals().tokens_in is None and run.totals().calls == 1
    assert run.steps[0]["outputs"] is None


def test_a_budget_in_usd_counts_streams_by_estimate_and_refuses_models_without_a_price(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, budget = list[CallRow](), Budget(usd=0.01)
    endpoint.answer = lambda _: Reply(STREAM + "data: [DONE]\n\n", headers={"content-type": "text/event-stream"})
    with recording(Recorder(keep=kept.append, budget=budget)):
        with pytest.raises(CallError, match="the price of this call is unknown; wanted prices, or budget_counts_"):
            client(endpoint).chat.completions.create(**ASKED, stream=True)
        monkeypatch.setattr(wrapped, "price_at", lambda *_: Price(1.0, 10.0))
        with pytest.raises(CallError, match="of that estimated from texts"):
            for _ in range(9):
                client(endpoint).chat.completions.create(**ASKED, stream=True, max_tokens=400)
    assert endpoint.calls == len(kept) == 3
    assert {row.cost_usd for row in kept} == {None}
    assert 0.012 < budget.spent_usd == budget.estimated_usd < 0.013


class Grade(BaseModel):
    score: int


def test_a_response_is_recorded(endpoint: Endpoint) -> None:
    kept: list[CallRow] = []
    message = {
        "id": "m-1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hello", "annotations": []}],
    }
    usage = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    usage |= {"input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 1}}
    body = {"id": "r-1", "object": "response", "created_at": 1, "model": "mock-2", "status": "completed"}
    body |= {"output": [message], "usage": usage, "parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    endpoint.answer = lambda _: Reply(body)
    with recording(recorder(kept)) as run:
        assert client(endpoint).responses.create(model="m", input="hi").output_text == "hello"
    (row,) = kept
    assert (row.tokens_in, row.tokens_cached, row.tokens_out, row.tokens_reasoning) == (7, 4, 2, 1)
    assert row.answered_by == "mock-2"
    assert run.steps[0]["outputs"]["output"][0]["content"][0]["text"] == "hello"


def test_a_step_names_the_one_that_it_is_in() -> None:
    with recording(recorder([])) as run:
        with step("chain", "outer", {"x": 1}) as outer, step("tool", "inner", None):
            outer["outputs"] = {"y": {1, 2}}
        with pytest.raises(ZeroDivisionError), step("tool", "broken", None):
            _ = 1 / 0
    assert [noted["name"] for noted in run.steps] == ["outer", "inner", "broken"]
    assert [noted["parent"] for noted in run.steps] == [None, run.steps[0]["id"], None]
    assert run.steps[0]["outputs"] == {"y": [1, 2]}
    assert run.steps[2]["error"] == "ZeroDivisionError: division by zero"


def test_whatever_a_note_holds_can_be_kept_as_json() -> None:
    class Sly:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    cycle: list[Any] = []
    cycle.append(cycle)
    values = [float("nan"), float("inf"), {1: object()}, Sly(), Grade(score=1), Grade, {1, 2}, cycle, b"x", "\ud800"]
    assert to_json(plain(values), mend=True)
    assert plain([float("nan"), Grade(score=1), Grade, Sly()])[1:] == [{"score": 1}, Grade.model_json_schema(), "<Sly>"]


def test_without_a_run_nothing_is_recorded(endpoint: Endpoint) -> None:
    kept: list[CallRow] = []
    wrapped = client(endpoint)
    with recording(recorder(kept)) as run:
        pass
    assert wrapped.chat.completions.create(**ASKED).choices[0].message.content
    assert endpoint.calls == 1
    assert not kept and not run.steps and not run.answered


def test_a_call_is_priced_by_the_client_else_by_a_connection_of_its_address(endpoint: Endpoint) -> None:
    kept: list[CallRow] = []
    prices = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 2.0}
    connections = [EndpointConnection(base_url=f"{endpoint.base_url}/", **prices), LocalConnection()]
    plain_client = client(endpoint)
    own = wrap(openai.OpenAI(base_url=endpoint.base_url, api_key=KEY), prices={"m": (100, 200)})
    with recording(replace(recorder(kept), connections=connections)):
        plain_client.chat.completions.create(**ASKED)
        own.chat.completions.create(**ASKED)
        own.with_options(timeout=5).chat.completions.create(**{**ASKED, "model": "other"})
    assert [row.cost_usd for row in kept] == [20e-6, 2000e-6, 20e-6]
    with pytest.raises(InputError, match=r"wrap: prices: m: got 3, wanted USD per million input and output tokens"):
        wrap(openai.OpenAI(api_key=KEY), prices={"m": 3})  # type: ignore[dict-item]
