"""Embeddings from an endpoint: in order, exact, each text paid once."""

import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, serving

from evalflows.llm import attempts, loop
from evalflows.llm.budget import Budget
from evalflows.llm.connect import embedder
from evalflows.llm.ledger import Ledger, Recorder, recording
from evalflows.specs import CallError, EndpointConnection
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


NO_VECTORS = [
    *(Reply({"data": []}), Reply({"data": [1]}), Reply({"data": [{}]}), Reply({}), Reply([1]), Reply("not JSON")),
    *(embedding([]), embedding(None), embedding("AACAPw=="), embedding([1.0, None]), embedding([True, False])),
    *(Reply(f'{{"data": [{{"embedding": [{number}]}}]}}') for number in ("NaN", "1e999", "1e39", "1" + "0" * 400)),
]


def test_an_answer_without_a_vector_of_numbers_is_tried_again_and_is_a_bad_one() -> None:
    kept: list[CallRow] = []
    with serving(Endpoint(answer=lambda request: NO_VECTORS[int(request["input"])])) as endpoint:
        for number in range(len(NO_VECTORS)):
            with pytest.raises(CallError) as caught:
                embed(endpoint, [str(number)], kept, attempts=2)
            row = kept[number]
            assert (caught.value.kind, caught.value.attempts, row.attempts) == ("bad_answer", 2, 2), number
            assert (row.error, row.error_kind, row.status) == (str(caught.value), "bad_answer", "failed")
            assert len(str(caught.value).splitlines()) == 1 and not row.reusable
        assert endpoint.calls == 2 * len(NO_VECTORS)


def test_a_connection_that_names_no_model_says_so() -> None:
    with (
        serving(Endpoint(answer=by_text)) as endpoint,
        pytest.raises(CallError, match="no embedding_model, wanted one"),
    ):
        embed(endpoint, ["hello"], embedding_model=None)
    assert endpoint.calls == 0
