"""Endpoints as they are: answers in other forms are read, errors of every shape have their kind and their message."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import openai
import pytest
from endpoint import Endpoint, Reply, Request, completion, error, serving

from evalflows.llm import attempts, limiter, loop
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.llm.wrapped import wrap
from evalflows.specs import CallError, EndpointConnection
from evalflows.specs.errors import ErrorKind
from evalflows.specs.target import ChatTarget
from evalflows.store import Store
from evalflows.store.records import CallRow
from evalflows.targets import chat

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
SEED = 7


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(limiter, "FIRST_HOLD_S", 0.01)


def says(content: Any, **message: Any) -> Reply:
    return completion(content, **message)


def raw(reply: Reply, before: str) -> Reply:
    return Reply(before + json.dumps(reply.body))


def counted(reply: Reply, usage: dict[str, Any]) -> Reply:
    return Reply(reply.body | {"usage": usage})


def page(status: int, title: str) -> Reply:
    return Reply(f"<html><head><title>{title}</title></head></html>", status, {"content-type": "text/html"})


IN_OTHER_FORMS: tuple[Callable[[str], Reply], ...] = (
    lambda text: says([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": text}]),
    lambda text: says(json.loads(text)),
    lambda text: says(f'<think>Is it {{"score": 0}}?</think>\n\n{text}'),
    lambda text: says(f"Hm.\n</think>\n```json\n{text}\n```"),
    lambda text: says(text, reasoning_content="Hm.", refusal=""),
    lambda text: says(json.dumps(text)),
    lambda text: says(f"Here is the score:\n\n```json\n{text}\n```"),
    lambda text: raw(says(text), "\ufeff"),
    lambda text: raw(says(text), ": PROCESSING\n\n"),
    lambda text: counted(says(text), {"input_tokens": "10", "output_tokens": 5.0}),
)
"""They are read at the first attempt."""

PASSING: tuple[Reply, ...] = (
    Reply({"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "Too Many Requests"}}}),
    Reply({"detail": "Model loading"}),
    error(400, "An error occurred (ThrottlingException): Too many requests, please wait."),
    error(413, "Request too large on tokens per minute (TPM): Limit 6000", code="rate_limit_exceeded"),
    error(400, "Failed to generate JSON.", code="json_validate_failed"),
    error(424, "dependency failed"),
    error(425, "too early"),
    error(498, "capacity exceeded"),
    Reply([{"error": {"code": 429, "details": [{"retryDelay": "0.01s"}], "status": "RESOURCE_EXHAUSTED"}}], 429),
    page(502, "502 Bad Gateway"),
    page(200, "Sign in"),
    says("", finish_reason="error"),
)
"""The second attempt gets the answer."""

FINAL: tuple[tuple[Reply, ErrorKind, str], ...] = (
    (says(None, finish_reason="SAFETY"), "refused", "stopped by the provider's content filter (SAFETY)"),
    (says(None, refusal="I can't help."), "refused", "I can't help."),
    (says(None, reasoning="Hm."), "empty_answer", "the answer has only thinking, no text (finish_reason stop)"),
    (error(403, "Input was flagged"), "refused", "HTTP 403: Input was flagged"),
    (
        error(403, "You have exceeded your monthly quota"),
        "quota_exhausted",
        "HTTP 403: You have exceeded your monthly quota",
    ),
    (error(429, "Insufficient balance"), "quota_exhausted", "HTTP 429: Insufficient balance"),
    (error(400, "Input is too long for the model"), "context_too_long", "HTTP 400: Input is too long for the model"),
    (
        Reply(
            [{"error": {"code": 400, "message": "The input token count exceeds the maximum", "status": "INVALID"}}], 400
        ),
        *("context_too_long", "HTTP 400: The input token count exceeds the maximum"),
    ),
    (
        Reply({"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}, 422),
        *("bad_request", "HTTP 422: body.messages: field required"),
    ),
    (Reply("Bad field", 400, {"content-type": "text/plain"}), "bad_request", "HTTP 400: Bad field"),
    (page(404, "404 Not Found"), "bad_request", "HTTP 404: an HTML page: 404 Not Found"),
    (Reply({"error": "model 'x' not found"}), "bad_request", "HTTP 200 with an error: model 'x' not found"),
    (
        Reply({"choices": None, "base_resp": {"status_code": 1004, "status_msg": "login fail"}}),
        *("authentication", "HTTP 200 with an error: login fail"),
    ),
    (
        error(400, "Unsupported parameter: 'response_format'"),
        "bad_request",
        "HTTP 400: Unsupported parameter: 'response_format'; "
        "wanted `answer_form: tool_call` or `answer_form: text` of the connection",
    ),
    (
        error(400, "response_format.json_schema.strict: Input should be True"),
        "bad_request",
        "HTTP 400: response_format.json_schema.strict: Input should be True; "
        "wanted `answer_form: tool_call` or `answer_form: text` of the connection",
    ),
)
"""No attempt can cure them."""


class Deviating:
    """Answers each question by its number, and in the way that was drawn for it, if one was."""

    def __init__(self, drawn: dict[str, Any]) -> None:
        self.drawn, self.seen = drawn, set[str]()

    def __call__(self, request: Request) -> Reply:
        question = request["messages"][0]["content"]
        text, how = json.dumps({"score": int(question.split()[1])}), self.drawn.get(question)
        is_first = question not in self.seen
        self.seen.add(question)
        if isinstance(how, tuple):
            return how[0]
        if isinstance(how, Reply):
            return how if is_first else says(text)
        return says(text) if how is None else how(text)


def rows_of(drawn: dict[str, Any], questions: list[str]) -> dict[str, tuple[CallRow, Any]]:
    """The row of each question, asked with the others at once, and the score answered or the error raised."""
    kept: list[CallRow] = []

    async def all_at_once(url: str) -> list[Any]:
        connection = EndpointConnection(base_url=url, model="m", attempts=3, max_in_flight=64)
        complete = completer("mock", connection, Ledger(Store(), "exp-1"))
        with recording(Recorder(keep=kept.append, experiment_id="exp-1", subject_id="run-1")):
            return await asyncio.gather(*(complete(one, schema=SCHEMA) for one in questions), return_exceptions=True)

    with serving(Endpoint(answer=Deviating(drawn))) as endpoint:
        found = dict(zip(questions, loop.run(all_at_once(endpoint.base_url)), strict=True))
    rows = {json.loads(row.request)["messages"][0]["content"]: row for row in kept}
    assert len(rows) == len(kept) == len(questions)
    return {one: (rows[one], getattr(found[one], "parsed", found[one])) for one in questions}


@pytest.mark.parametrize("n", [90, pytest.param(2000, marks=pytest.mark.soak)])
def test_each_deviation_has_its_row_and_leaves_the_others_alone(n: int) -> None:
    """Half of the questions meet a deviation, each kind at least once, in an order drawn at random."""
    questions, deviations = [f"question {i}" for i in range(n)], [*IN_OTHER_FORMS, *PASSING, *FINAL]
    chosen = random.Random(SEED).sample(questions, max(n // 2, len(deviations)))
    drawn = {question: deviations[turn % len(deviations)] for turn, question in enumerate(chosen)}
    for question, (row, answer) in rows_of(drawn, questions).items():
        how = drawn.get(question)
        if isinstance(how, tuple):
            _, kind, message = how
            assert (row.status, row.error_kind, row.error, row.attempts) == ("failed", kind, message, 1)
            assert isinstance(answer, CallError) and str(answer) == message and row.response is not None
        else:
            assert (row.status, row.error, answer) == ("ok", None, {"score": int(question.split()[1])}), how
            assert row.attempts == (2 if isinstance(how, Reply) else 1)
            if not isinstance(how, Reply):
                assert (row.tokens_in, row.tokens_out, row.finish_reason) == (10, 5, "stop")


def test_a_chat_target_answers_whole_texts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_KEY", "secret")

    def ask(reply: Reply, **fields: Any) -> Any:
        spec = ChatTarget.model_validate({"kind": "chat", "connection": "mock", "user": "{q}"} | fields)
        endpoint.answer = lambda _: reply
        complete = completer("mock", connection, Ledger(Store(), "exp-1"))
        try:
            return loop.run(chat(spec, complete).call({"inputs": {"q": None}, "metadata": {}}))["output"]  # type: ignore[arg-type]
        except CallError as failed:
            return failed.kind

    with serving(Endpoint()) as endpoint:
        url = f"{endpoint.base_url}?api-version=1"
        connection = EndpointConnection(base_url=url, model="m", headers={"api-key": "${AZURE_KEY}"})
        assert ask(completion(42)) == "42", "not asked for again"
        for text in ("", "half of", None):
            cut = completion(text, finish_reason="length")
            assert (ask(cut), ask(cut, truncated="score")) == ("truncated", text or "")
        assert ask(completion(" \n")) == ask(completion("<think>Hm."), strip_thinking=True) == "empty_answer"
        assert ask(completion("<think>Hm.</think>\nParis"), strip_thinking=True) == "Paris"
        assert ask(completion("<think>Hm.</think>\nParis")) == "<think>Hm.</think>\nParis"
        assert {request["messages"][0]["content"] for request in endpoint.requests} == {""}, "a null is no text"
        assert {headers["api-key"] for headers in endpoint.headers} == {"secret"} and set(endpoint.keys) == {None}
        assert all(path.endswith("/chat/completions?api-version=1") for path in endpoint.paths)


def test_clients_derived_from_a_wrapped_one_and_raw_posts_are_counted() -> None:
    with serving(Endpoint(answer=lambda _: says("hi"))) as endpoint:
        client = wrap(openai.OpenAI(base_url=endpoint.base_url, api_key="x", max_retries=0))
        asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        with recording(Recorder(keep=lambda row: None, experiment_id="exp-1", subject_id="run-1")) as run:
            client.with_options(max_retries=1).chat.completions.create(**asked)
            client.copy().with_options(timeout=9).chat.completions.create(**asked)
            client.chat.completions.with_raw_response.create(**asked)
            client.post("/chat/completions", body=asked, cast_to=object)
            with pytest.raises(ValueError, match="embedding"):
                client.embeddings.create(model="m", input="hello")  # answered as if it was a chat
        assert endpoint.calls == len(run.answered) + len(run.failed) == 5
        assert [call.row.tokens_in for call in run.answered] == [10, 10, None, 10]
