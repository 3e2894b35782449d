"""Thousands of calls, of which many fail once and again: the answers come out as if none had failed."""

import asyncio
import hashlib
import json
from collections import Counter
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, completion, error, serving

from evalflows.llm import attempts, limiter, loop
from evalflows.llm.calls import Completer
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.specs import CallError, Completion, EndpointConnection
from evalflows.specs.errors import ErrorKind
from evalflows.store import Store
from evalflows.store.records import CallRow

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
MOST = 64
SHARE = 0.3
TIMEOUT_S = 10.0
"""Long enough that no call but the slow ones is late where the processor is busy with something else."""
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
NOT_REFUSED = QUICK[2:]
SLOW = completion('{"score": 1}')
SLOW.drip_s = 0.1
"""A byte every tenth of a second: each read is quick, and the whole takes longer than it may."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(limiter, "FIRST_HOLD_S", 0.01)


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


def drawn(questions: list[str], *, some_slow: bool) -> dict[str, tuple[Reply, Reply]]:
    """Two faults for SHARE of the questions, drawn by their text from the first four fifths, the kinds in turn.

    A slow one, which takes as long as the time-out is, comes for every 25th question as its first fault, if at all.
    Its second attempt comes when most of the run is over, and so is not refused.
    """
    early = questions[: len(questions) * 4 // 5]
    keys = {question: hashlib.sha256(f"{SEED} {question}".encode()).digest() for question in early}
    chosen = sorted(early, key=lambda question: keys[question])[: round(SHARE * len(questions))]
    kinds = [(QUICK[turn % len(QUICK)], QUICK[(turn + 3) % len(QUICK)]) for turn in range(len(chosen))]
    if some_slow:
        kinds[::25] = [(SLOW, NOT_REFUSED[turn % len(NOT_REFUSED)]) for turn in range(len(kinds[::25]))]
    return dict(zip(chosen, kinds, strict=True))


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


def completion_of(endpoint: Endpoint) -> Completer:
    return completer("mock", connection(endpoint), Ledger(Store(), "exp-1"))


def answers(complete: Completer, questions: list[str], kept: list[CallRow]) -> list[Completion]:
    """The answers to all questions, asked at once."""
    recorder = Recorder(keep=kept.append, experiment_id="exp-1", subject_id="run-1")

    async def all_at_once() -> list[Completion]:
        with recording(recorder):
            return await asyncio.gather(*(complete(question, schema=SCHEMA) for question in questions))

    return loop.run(all_at_once())


def is_fault(reply: Reply) -> bool:
    return reply is SLOW or reply in QUICK


@pytest.mark.parametrize("n", [150, pytest.param(2000, marks=pytest.mark.soak)])
def test_hundreds_of_calls_through_faults_come_out_as_without_them(n: int) -> None:
    """Three tenths of the questions meet two faults each; of two thousand, some wait for the time-out.

    These are among the first four fifths of the questions in the order of asking, so that the first attempts of the
    last fifth, and all third attempts, are clean: the limiter can find its full width again.
    """
    questions = [f"question {i}" for i in range(n)]
    faulty, kept = drawn(questions, some_slow=n > 1000), list[CallRow]()
    with serving(Endpoint(answer=Faulty({}))) as sound:
        wanted = [answer.parsed for answer in answers(completion_of(sound), questions, [])]
    with serving(Endpoint(answer=Faulty(faulty))) as endpoint:
        complete = completion_of(endpoint)
        assert [answer.parsed for answer in answers(complete, questions, kept)] == wanted
        if n > 1000:  # with fewer, the clean calls at the end may be too few to widen it again
            assert complete.endpoint.limiter.width == MOST
        calls = endpoint.calls
        again = answers(complete, questions, kept)
        Store().publish("calls", "exp-1", kept)
        later = answers(completion_of(endpoint), questions, kept)
    assert endpoint.calls == calls == n + 2 * len(faulty), "the second and the third time nobody was asked"
    assert all(answer.cached for answer in [*again, *later])
    assert [answer.parsed for answer in again] == [answer.parsed for answer in later] == wanted
    assert len(faulty) == SHARE * n and len(kept) == n and {row.status for row in kept} == {"ok"}
    attempts = {json.loads(row.request)["messages"][0]["content"]: row.attempts for row in kept}
    assert attempts == {question: 3 if question in faulty else 1 for question in questions}
    good = Counter(request["messages"][0]["content"] for request, reply in endpoint.sent if not is_fault(reply))
    assert good == Counter(questions), "one whole answer each, and none after it"


FINAL: list[tuple[Reply, ErrorKind]] = [
    (error(401, "no such key:\nask for one"), "authentication"),
    (completion(None, refusal="I will not.\nSorry."), "refused"),
    (completion("half of\n it", finish_reason="content_filter"), "refused"),
    (error(400, "filtered\nout", code="content_filter"), "refused"),
    (error(400, "too\nlong", code="context_length_exceeded"), "context_too_long"),
    (error(400, "This model's maximum context length is 8192 tokens.\nYou sent 9000."), "context_too_long"),
    (error(413, "entity\ntoo large"), "context_too_long"),
    (error(429, "You exceeded your\ncurrent quota", code="insufficient_quota"), "quota_exhausted"),
    (error(402, "payment\nrequired"), "quota_exhausted"),
    (error(404, "no such\nmodel"), "bad_request"),
]


def test_what_no_attempt_can_cure_is_asked_once_and_kept_with_its_kind_in_one_line() -> None:
    kept: list[CallRow] = []
    with serving(Endpoint(answer=lambda request: FINAL[int(request["messages"][0]["content"])][0])) as endpoint:
        complete = completion_of(endpoint)
        for number, (_, kind) in enumerate(FINAL):
            with pytest.raises(CallError) as caught:
                answers(complete, [str(number)], kept)
            row = kept[number]
            assert (caught.value.kind, caught.value.attempts) == (row.error_kind, row.attempts) == (kind, 1)
            assert (row.status, row.reusable) == ("failed", False)
            assert str(caught.value) == row.error and row.error
            assert len(row.error.splitlines()) == 1
        assert endpoint.calls == len(FINAL)
