"""Answers compared by the vectors of an embedding endpoint."""

import pytest
from catalog_rows import one, rows
from endpoint import Endpoint, Reply, Request, error, serving
from failing_service import PRICES, ROWS, WINDOW, WORKERS, N, complete, connection, incomplete, spec

pytestmark = pytest.mark.usefixtures("prefect_api", "short_pauses")


def by_text(request: Request) -> Reply:
    """The embedding of a text: counts of its letters."""
    vector = [float(request["input"].count(letter)) for letter in "Qx0123456789"]
    usage = {"prompt_tokens": 5, "total_tokens": 5}
    return Reply({"data": [{"index": 0, "embedding": vector}], "model": "embed-1", "usage": usage})


def test_semantic_similarity_uses_the_endpoints_embeddings() -> None:
    similar = {"use": "semantic_similarity", "connection": "judge"}
    twice = [row | {"outputs": {"answer": f"Q{i} x"} if i % 2 else row["outputs"]} for i, row in enumerate(ROWS)]
    with serving(Endpoint(answer=by_text)) as endpoint:
        connections = {"judge": connection(endpoint, embedding_model="e", **PRICES)}
        complete(spec(connections, evaluators=[similar], dataset={"rows": twice}, budget_usd=1.0))
        assert endpoint.calls == N + N // 2 and endpoint.repeated() == 0, "each text once"
    found = dict(rows("select example_id, value from scores where metric = 'semantic_similarity'"))
    assert all(found[f"q{i}"] == pytest.approx(1.0) for i in range(0, N, 2))
    assert found["q1"] == pytest.approx((2 / 3) ** 0.5) and all(0 < value < 1 for i, value in found.items() if odd(i))
    assert one(
        """select any_value(judge_model), count(distinct judge_model), sum(calls), sum(tokens_out)
           from scores where metric = 'semantic_similarity'"""
    ) == ("embed-1", 1, N + N // 2, None)
    assert one("select cost_usd, calls from experiments") == (pytest.approx(1.5 * N * 5e-6), N + N // 2)
    assert rows("select distinct kind, evaluator from calls") == [("embedding", "semantic_similarity")]


def odd(example_id: str) -> bool:
    return int(example_id[1:]) % 2 == 1


@pytest.mark.slow
def test_failed_embeddings_leave_judgements_missing_until_a_resume() -> None:
    broken = True

    def answer(request: Request) -> Reply:
        return error(500, "down") if broken else by_text(request)

    similar = {"use": "semantic_similarity", "connection": "judge"}
    with serving(Endpoint(answer=answer)) as endpoint:
        asked = spec({"judge": connection(endpoint, embedding_model="e")}, evaluators=[similar])
        assert "by semantic_similarity" in incomplete(asked)
        assert endpoint.calls <= 2 * (WINDOW // 2 + WORKERS)
        broken = False
        complete(asked)
    assert rows(
        "select status, round(value, 9), count(*) from scores where metric = 'semantic_similarity' group by all"
    ) == [("scored", 1.0, N)]
