"""The path of a call: what is sent, how each fault is handled, what the ledger stores."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from endpoint import Endpoint, Reply, completion, error, serving

from evalflows.llm import attempts, loop
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.specs import CallError, Completion, EndpointConnection
from evalflows.specs.errors import ErrorKind
from evalflows.store import Store
from evalflows.store.records import CallRow

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)


def connection(endpoint: Endpoint, **changes: Any) -> EndpointConnection:
    return EndpointConnection.model_validate({"base_url": endpoint.base_url, "model": "m", "attempts": 3} | changes)


def ask(
    endpoint: Endpoint, *questions: str, kept: list[CallRow] | None = None, fresh: bool = False, **request: Any
) -> list[Completion]:
    """Return the answers to some questions, asked at once by a new experiment."""
    ledger = Ledger(Store(), "exp-1", fresh=fresh)
    complete = completer("mock", connection(endpoint, **request.pop("connection", {})), ledger)
    recorder = Recorder(keep=(kept if kept is not None else []).append, experiment_id="exp-1", subject_id="run-1")

    async def all_at_once() -> list[Completion]:
        with recording(recorder):
            return await asyncio.gather(*(complete(question, **request) for question in questions))

    return loop.run(all_at_once())


def test_a_call_says_what_it_took() -> None:
    kept: list[CallRow] = []
    prices = {"usd_per_million_input_tokens": 2.0, "usd_per_million_output_tokens": 10.0}
    with serving(Endpoint(latency_s=0.02)) as endpoint:
        (answer,) = ask(endpoint, "hello", kept=kept, connection=prices, temperature=0.5, top_k=3)
    assert answer.text.startswith("answer ")
    assert (answer.model, answer.tokens_in, answer.tokens_out, answer.attempts) == ("mock-1", 10, 5, 1)
    assert answer.cost_usd == pytest.approx((10 * 2 + 5 * 10) / 1e6)
    assert answer.latency_s is not None and answer.latency_s >= 0.02
    assert endpoint.requests == [
        {"model": "m", "messages": [{"role": "user", "content": "hello"}], "temperature": 0.5, "top_k": 3}
    ]
    assert [(row.status, row.subject_id, row.reusable, row.cost_usd) for row in kept] == [
        ("ok", "run-1", True, answer.cost_usd)
    ]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (error(429, "slow down", headers={"retry-after-ms": "1"}), "rate_limited"),
        (error(500, "down"), "server_error"),
        (Reply("", cut=True), "connection"),
        (Reply("{not json"), "bad_answer"),
        (Reply({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": []}), "bad_answer"),
    ],
)
def test_a_passing_fault_is_tried_again_in_place(fault: Reply, kind: ErrorKind) -> None:
    kept: list[CallRow] = []
    with serving(Endpoint()) as endpoint:
        unharmed = ask(endpoint, "hello")[0].text
        endpoint.faults.extend([fault, fault])
        (answer,) = ask(endpoint, "hello", kept=kept)
        assert (answer.text, answer.attempts, endpoint.calls) == (unharmed, 3, 4)
        endpoint.faults.extend([fault, fault, fault])
        with pytest.raises(CallError) as raised:
            ask(endpoint, "hello", kept=kept)
    assert (raised.value.kind, raised.value.attempts) == (kind, 3)
    assert [(row.status, row.error_kind, row.reusable) for row in kept] == [("ok", None, True), ("failed", kind, False)]


def test_the_same_question_asked_at_once_is_paid_once() -> None:
    with serving(Endpoint(latency_s=0.02)) as endpoint:
        answers = ask(endpoint, "hello", "hello", "hello", "other")
    assert endpoint.calls == 2
    assert [answer.cached for answer in answers] == [False, True, True, False]
    assert len({answer.text for answer in answers[:3]}) == 1


def test_another_experiment_finds_a_finished_call_and_pays_nothing() -> None:
    kept: list[CallRow] = []
    with serving(Endpoint()) as endpoint:
        (paid,) = ask(endpoint, "hello", kept=kept)
        Store().publish("calls", "exp-0", [as_paid_by(row, "exp-0") for row in kept])
        (found,) = ask(endpoint, "hello")
        assert (found.text, found.cached, found.cost_usd, found.call_id) == (paid.text, True, 0.0, paid.call_id)
        assert endpoint.calls == 1
        assert not ask(endpoint, "hello", fresh=True)[0].cached
        assert endpoint.calls == 2


def test_whatever_decides_the_answer_is_in_the_key() -> None:
    kept: list[CallRow] = []
    changes: list[dict[str, Any]] = [{"repeat": 1}, {"temperature": 1.0}, {"model": "m2"}, {"schema": SCHEMA}]
    with serving(Endpoint(answer=lambda _: completion('{"score": 1}'))) as endpoint:
        ask(endpoint, "hello", kept=kept)
        Store().publish("calls", "exp-0", [as_paid_by(row, "exp-0") for row in kept])
        for change in (*changes, {"seed": 3}):
            assert not ask(endpoint, "hello", **change)[0].cached
        assert endpoint.calls == 6


@pytest.mark.parametrize(("request_", "calls"), [({"max_tokens": 3}, 1), ({"max_completion_tokens": 3}, 1), ({}, 2)])
def test_a_truncated_text_is_served_again_if_the_request_limits_its_length(
    request_: dict[str, Any], calls: int
) -> None:
    kept: list[CallRow] = []
    with serving(Endpoint(answer=lambda _: completion("half an ans", finish_reason="length"))) as endpoint:
        for _ in range(2):
            (answer,) = ask(endpoint, "hello", kept=kept, **request_)
            Store().publish("calls", "exp-0", [as_paid_by(row, "exp-0") for row in kept])
        assert (answer.text, answer.finish_reason) == ("half an ans", "length")
        assert endpoint.calls == calls


def test_a_key_goes_to_the_endpoint_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_KEY", "sk-very-secret")
    kept: list[CallRow] = []
    with serving(Endpoint()) as endpoint:
        ask(endpoint, "hello", kept=kept, connection={"api_key_env": "MOCK_KEY"})
        endpoint.faults.append(error(401, "wrong key"))
        with pytest.raises(CallError) as raised:
            ask(endpoint, "other", kept=kept, connection={"api_key_env": "MOCK_KEY"})
    assert endpoint.keys == ["bearer sk-very-secret"] * 2
    assert "sk-very-secret" not in repr(kept) + str(raised.value)


def as_paid_by(row: CallRow, experiment_id: str) -> CallRow:
    return replace(row, experiment_id=experiment_id)


def test_the_order_of_a_schema_is_part_of_the_question() -> None:
    """A model fills in fields in order: reasoning before the verdict is a different request from reasoning after it."""
    first = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    second = {"type": "object", "properties": dict(reversed(first["properties"].items()))}  # type: ignore[attr-defined]
    with serving(Endpoint(answer=lambda _: completion('{"a": 1, "b": 2}'))) as endpoint:
        for schema in (first, second, first):
            ask(endpoint, "hello", schema=schema)
        assert endpoint.calls == 3  # nothing was kept: each is an experiment of its own
        complete = completer("mock", connection(endpoint), Ledger(Store(), "exp-1"))

        async def all_three() -> list[bool]:
            return [(await complete("hello", schema=schema)).cached for schema in (first, second, first)]

        assert loop.run(all_three()) == [False, False, True]
