"""Thousands of calls, of which many fail once and again: the answers come out as if none had failed."""

import asyncio
import hashlib
import json
import random
from collections import Counter
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, completion, error, serving

from llm import faults, limiter, loop
from llm.complete import Completer
from llm.connect import completer
from llm.ledger import Ledger
from llm.recorder import Recorder, recording
from specs import Completion, EndpointConnection
from store import Store
from store.records import CallRow

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
MOST = 64
SHARE = 0.3
TIMEOUT_S = 2.0
SEED = 11

QUICK: tuple[Reply, ...] = (
    error(429, "slow down", headers={"retry-after-ms": "5"}),
    error(429, "slow down"),
    error(500, "down"),
    Reply("", cut=True),
    Reply('{"choices": [{"mess'),
    Reply({"id": "1", "object": "chat.completion", "created": 1, "model": "mock-1", "choices": []}),
    completion('{"score": 12', finish_reason="length"),
)
SLOW = completion('{"score": 1}')
SLOW.drip_s = 0.1
"""A byte every tenth of a second: each read is quick, and the whole takes ten times as long as it may."""


def score_of(question: str) -> int:
    return int(hashlib.sha256(question.encode()).hexdigest()[:8], 16)


class Faulty:
    """Answers every question by its number, and some of them by two faults first."""

    def __init__(self, faulty: dict[str, tuple[Reply, Reply]]) -> None:
        self.faulty, self.seen = faulty, Counter[str]()

    def __call__(self, request: Request) -> Reply:
        question = request["messages"][0]["content"]
        self.seen[question] += 1
        if question in self.faulty and self.seen[question] <= 2:
            return self.faulty[question][self.seen[question] - 1]
        return completion(json.dumps({"score": score_of(question)}))


def drawn(questions: list[str]) -> dict[str, tuple[Reply, Reply]]:
    """Two faults for SHARE of the questions, drawn by their text from the first four fifths, the kinds in turn.

    A slow one, which takes as long as the time-out is, comes for every 25th question as its first fault.
    """
    early = questions[: len(questions) * 4 // 5]
    chance = random.Random(SEED)
    keys = {question: hashlib.sha256(f"{SEED} {question}".encode()).digest() for question in early}
    chosen = sorted(early, key=lambda question: keys[question])[: int(SHARE * len(questions))]
    return {
        question: (SLOW if turn % 25 == 0 else QUICK[turn % len(QUICK)], chance.choice(QUICK))
        for turn, question in enumerate(chosen)
    }


def connection(endpoint: Endpoint, **changes: Any) -> EndpointConnection:
    fields = {
        "base_url": endpoint.base_url,
        "model": "m",
        "attempts": 4,
        "max_in_flight": MOST,
        "timeout_s": TIMEOUT_S,
        "read_timeout_s": TIMEOUT_S / 2,
    }
    return EndpointConnection.model_validate(fields | changes)


def answers(complete: Completer, questions: list[str], kept: list[CallRow]) -> list[Completion]:
    """The answers to all questions, asked at once."""
    recorder = Recorder(keep=kept.append, experiment_id="exp-1", subject_id="run-1")

    async def all_at_once() -> list[Completion]:
        with recording(recorder):
            return await asyncio.gather(*(complete(question, schema=SCHEMA) for question in questions))

    return loop.run(all_at_once())


def hold(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What must be true of `n` questions, of which SHARE meet two faults each.

    The faulty ones are among the first four fifths of the questions in the order of asking, so that the last fifth of
    first attempts, and all third ones, are clean: the limiter can find its width again.
    """
    monkeypatch.setattr(faults, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(limiter, "FIRST_HOLD_S", 0.01)
    questions = [f"question {i}" for i in range(n)]
    with serving(Endpoint(answer=Faulty({}))) as sound:
        wanted = [answer.parsed for answer in answers(completion_of(sound), questions, [])]
    kept: list[CallRow] = []
    faulty = drawn(questions)
    with serving(Endpoint(answer=Faulty(faulty))) as endpoint:
        complete = completion_of(endpoint)
        assert [answer.parsed for answer in answers(complete, questions, kept)] == wanted
        assert complete.endpoint.limiter.width == MOST
        calls = endpoint.calls
        again = answers(complete, questions, kept)
        Store().publish("calls", "exp-1", kept)
        later = answers(completion_of(endpoint), questions, kept)
    assert endpoint.calls == calls == n + 2 * len(faulty), "the second and third time nobody was asked"
    assert all(answer.cached for answer in [*again, *later])
    assert [answer.parsed for answer in again] == [answer.parsed for answer in later] == wanted
    assert len(faulty) == SHARE * n
    attempts = {json.loads(row.request)["messages"][0]["content"]: row.attempts for row in kept}
    assert attempts == {question: 3 if question in faulty else 1 for question in questions}
    assert len(kept) == n and {row.status for row in kept} == {"ok"}
    good = Counter(request["messages"][0]["content"] for request, reply in endpoint.sent if is_whole(request, reply))
    assert good == Counter(questions), "one whole answer each"


def completion_of(endpoint: Endpoint) -> Completer:
    return completer("mock", connection(endpoint), Ledger(Store(), "exp-1"))


def is_whole(request: Request, reply: Reply) -> bool:
    """Whether it is the answer to the question, and not one of the faults."""
    return reply is not SLOW and reply not in QUICK


def test_three_hundred_calls_through_faults_come_out_as_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    hold(300, monkeypatch)


def test_two_thousand_calls_through_faults_come_out_as_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    hold(2000, monkeypatch)
