"""Embeddings from an endpoint: in order, exact, each text paid once."""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, error, serving

from evalflows.llm import attempts, loop
from evalflows.llm.budget import Budget
from evalflows.llm.connect import embedder
from evalflows.llm.ledger import Ledger
from evalflows.llm.recorder import Recorder, recording
from evalflows.specs import CallError, EndpointConnection
from evalflows.specs.errors import ErrorKind
from evalflows.store import Store
from evalflows.store.records import CallRow

SIZE = 8


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)


def vector_of(text: str) -> list[float]:
    """Numbers derived from a text, most of which do not fit 32 bits exactly."""
    return [((hash_of(text) >> 8 * place) % 251 - 125) / 125.3 for place in range(SIZE)]


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode().ljust(SIZE, b".")[:SIZE], "little") * 2654435761 % 2**64


def embedding(vector: Any, tokens: int = 7) -> Reply:
    """An answer in OpenAI's format: usage has no completion_tokens."""
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Reply({"object": "list", "data": data, "model": "embed-1", "usage": usage})


def by_text(request: Request) -> Reply:
    return embedding(vector_of(request["input"]), tokens=len(request["input"]))


def as_32_bit(vector: Sequence[float]) -> list[float]:
    return list(struct.unpack(f"{len(vector)}f", struct.pack(f"{len(vector)}f", *vector)))


def embed(
    endpoint: Endpoint,
    texts: Sequence[str],
    kept: list[CallRow] | None = None,
    *,
    budget: Budget | None = None,
    model: str | None = None,
    recorder: Recorder | None = None,
    **fields: Any,
) -> list[list[float]]:
    """Return the vectors of some texts, for a new experiment."""
    given = {"base_url": endpoint.base_url, "embedding_model": "e", "attempts": 3} | fields
    asks = embedder("mock", EndpointConnection.model_validate(given), Ledger(Store(), "exp-1"), budget=budget)

    async def all_of_them() -> list[list[float]]:
        with recording(recorder or Recorder(keep=([] if kept is None else kept).append, experiment_id="exp-1")):
            return await asks(texts, **({"model": model} if model else {}))

    return loop.run(all_of_them())


def failure(answer: Callable[[Request], Reply], **fields: Any) -> tuple[CallError, CallRow, int]:
    """Return the error of a text without a vector, its row, and the number of requests."""
    kept: list[CallRow] = []
    with serving(Endpoint(answer=answer)) as endpoint, pytest.raises(CallError) as caught:
        embed(endpoint, ["hello"], kept, **fields)
    (row,) = kept
    assert (row.error, row.error_kind, row.status) == (str(caught.value), caught.value.kind, "failed")
    return caught.value, row, endpoint.calls


def test_vectors_come_in_the_order_of_the_texts() -> None:
    texts = [f"text {i}" for i in range(40)]
    with serving(Endpoint(latency_s=0.002, answer=by_text)) as endpoint:
        vectors = embed(endpoint, texts)
    assert vectors == [as_32_bit(vector_of(text)) for text in texts]
    assert sorted(request["input"] for request in endpoint.requests) == sorted(texts)
    assert all(request == {"model": "e", "input": request["input"]} for request in endpoint.requests)


def test_no_texts_are_no_calls() -> None:
    with serving(Endpoint(answer=by_text)) as endpoint:
        assert embed(endpoint, []) == []
        assert endpoint.calls == 0


def test_a_vector_is_kept_as_32_bits_and_is_the_same_ever_after() -> None:
    kept: list[CallRow] = []
    odd = [1 / 3, -1e-30, 1e30, 0.1, 3, 0, -0.0, 1.401298464324817e-45]
    with serving(Endpoint(answer=lambda _: embedding(odd))) as endpoint:
        (first,) = embed(endpoint, ["hello"], kept)
        Store().publish("calls", "exp-1", kept)
        (again,) = embed(endpoint, ["hello"])
        assert endpoint.calls == 1
    assert first == again == as_32_bit(odd)
    assert len(json.loads(kept[0].response or "")["vector"]) == 44, "32 bytes in base64"


def test_each_text_is_paid_once() -> None:
    kept: list[CallRow] = []
    with serving(Endpoint(latency_s=0.01, answer=by_text)) as endpoint:
        a, b, c = embed(endpoint, ["same", "same", "other"], kept)
        assert (a, endpoint.calls, len(kept)) == (b, 2, 2) and a != c
        Store().publish("calls", "exp-1", kept)
        assert embed(endpoint, ["other", "same", "third"])[:2] == [c, a]
        assert endpoint.calls == 3


def test_another_model_is_asked_anew() -> None:
    kept: list[CallRow] = []
    with serving(Endpoint(answer=by_text)) as endpoint:
        embed(endpoint, ["hello"], kept)
        Store().publish("calls", "exp-1", kept)
        embed(endpoint, ["hello"], kept, model="e2")
    assert [request["model"] for request in endpoint.requests] == ["e", "e2"]
    assert [row.model for row in kept] == ["e", "e2"]


def test_a_vector_is_no_answer_to_a_chat() -> None:
    kept: list[CallRow] = []
    with serving(Endpoint(answer=by_text)) as endpoint:
        embed(endpoint, ["hello"], kept)
    (row,) = kept
    assert (row.kind, row.connection, row.answered_by) == ("embedding", "mock", "embed-1")
    assert row.base_url == endpoint.base_url
    assert (row.status, row.reusable, row.finish_reason, row.attempts) == ("ok", True, None, 1)


def test_what_it_took_is_recorded() -> None:
    kept: list[CallRow] = []
    recorder = Recorder(keep=kept.append, experiment_id="exp-1", subject_id="run-1", evaluator="similar")
    prices = {"usd_per_million_input_tokens": 2.0, "usd_per_million_output_tokens": 99.0}
    with serving(Endpoint(latency_s=0.01, answer=by_text)) as endpoint:
        embed(endpoint, ["four", "eight888", "four"], recorder=recorder, **prices)
    assert sorted((row.tokens_in, row.tokens_out, row.subject_id, row.evaluator) for row in kept) == [
        (4, None, "run-1", "similar"),
        (8, None, "run-1", "similar"),
    ]
    assert sum(row.cost_usd or 0.0 for row in kept) == pytest.approx(12 * 2 / 1e6)
    assert all((row.latency_s or 0) >= 0.01 for row in kept)
    totals = recorder.totals()
    assert (totals.calls, totals.calls_cached, totals.tokens_out) == (2, 1, None)
    assert totals.cost_usd == pytest.approx(12 * 2 / 1e6)
    assert recorder.models == ["embed-1"]


def test_a_vector_is_priced_by_the_list() -> None:
    kept: list[CallRow] = []
    with serving(Endpoint(answer=lambda _: embedding([0.5], tokens=1_000_000))) as endpoint:
        embed(endpoint, ["hello"], kept, embedding_model="text-embedding-3-small", price_list="openai")
        embed(endpoint, ["hello"], kept, embedding_model="unheard-of", price_list="openai")
    assert [row.cost_usd for row in kept] == [pytest.approx(0.02), None]


def test_a_budget_is_kept() -> None:
    budget = Budget(calls=3)
    with serving(Endpoint(latency_s=0.005, answer=by_text)) as endpoint, pytest.raises(CallError) as caught:
        embed(endpoint, [f"text {i}" for i in range(10)], budget=budget)
    assert caught.value.kind == "over_budget"
    assert not budget._aside, "all have ended when that is told"
    assert endpoint.calls == budget.spent_calls == 3


def test_an_estimate_of_a_vector_has_nothing_that_comes_out() -> None:
    prices = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 1000.0}
    budget = Budget(usd=0.0001)
    with serving(Endpoint(answer=by_text)) as endpoint:
        embed(endpoint, ["hello"], budget=budget, **prices)
    assert budget.spent_usd == pytest.approx(5e-6)


@pytest.mark.parametrize(
    "reply",
    [
        Reply({"data": []}),
        Reply({"data": [1]}),
        Reply({"data": [{}]}),
        Reply({"data": {"embedding": [1.0]}}),
        Reply({}),
        Reply([1]),
        Reply("not JSON"),
        Reply(""),
        embedding([]),
        embedding(None),
        embedding("AACAPw=="),
        embedding([1.0, None]),
        embedding([1.0, "2"]),
        embedding([True, False]),
        embedding([[1.0]]),
        Reply('{"data": [{"embedding": [NaN]}]}'),
        Reply('{"data": [{"embedding": [1e999]}]}'),
        Reply('{"data": [{"embedding": [1e39]}]}'),
        Reply('{"data": [{"embedding": [1' + "0" * 400 + "]}]}"),
    ],
    ids=lambda reply: str(reply.body)[:40],
)
def test_an_answer_without_a_vector_of_numbers_is_tried_again_and_is_a_bad_one(reply: Reply) -> None:
    raised, row, calls = failure(lambda _: reply)
    assert (raised.kind, raised.attempts, row.attempts, calls) == ("bad_answer", 3, 3, 3)
    assert len(str(raised).splitlines()) == 1 and not row.reusable


@pytest.mark.parametrize(
    "fault", [error(429, "slow down", headers={"retry-after-ms": "1"}), error(503, "down"), Reply("", cut=True)]
)
def test_a_fault_that_passes_is_tried_again(fault: Reply) -> None:
    kept: list[CallRow] = []
    with serving(Endpoint(answer=by_text)) as endpoint:
        endpoint.faults.extend([fault, embedding([])])
        assert embed(endpoint, ["hello"], kept) == [as_32_bit(vector_of("hello"))]
    assert [(row.attempts, row.status, row.tokens_in) for row in kept] == [(3, "ok", 7 + 5)]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error(404, "The model `e` does not exist\nor you may not use it", code="model_not_found"), "bad_request"),
        (error(403, "this project may not use the model `e`"), "authentication"),
        (error(400, "This model's maximum context length is 8192 tokens"), "context_too_long"),
        (error(429, "no money", code="insufficient_quota"), "quota_exhausted"),
    ],
)
def test_a_model_that_is_refused_is_asked_once(reply: Reply, kind: ErrorKind) -> None:
    raised, row, calls = failure(lambda _: reply)
    assert (raised.kind, row.attempts, calls) == (kind, 1, 1)
    assert len(str(raised).splitlines()) == 1


def test_a_connection_that_names_no_model_says_so() -> None:
    with (
        serving(Endpoint(answer=by_text)) as endpoint,
        pytest.raises(CallError, match="no embedding_model, wanted one"),
    ):
        embed(endpoint, ["hello"], embedding_model=None)
    assert endpoint.calls == 0
