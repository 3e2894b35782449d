"""Budgets of a run, in calls and in money."""

from pathlib import Path

import pytest
from catalog_rows import one, rows
from endpoint import Endpoint, serving
from failing_service import COST, PRICES, N, Service, chat, complete, connection, incomplete, spec

from evalflows import run
from evalflows.engine.judge_chunk import SMALLEST_BLOCK, block_size
from evalflows.specs import IncompleteError, InputError
from evalflows.store import Store
from evalflows.store.queries.continuing import continuing

pytestmark = pytest.mark.usefixtures("without_prefect", "short_pauses")


@pytest.mark.slow
def test_max_calls_is_never_exceeded_and_can_be_raised() -> None:
    both = chat() | {"evaluators": ["contains", {"use": "judges:says_correct", "connection": "judge"}]}
    with serving(Endpoint(latency_s=0.001, answer=Service())) as endpoint:
        connections = {"judge": connection(endpoint)}
        reason = incomplete(spec(connections, **both, max_calls=30))
        assert endpoint.calls == 30
        assert "(the budget is spent (30 of 30 calls))" in reason
        statuses = rows(
            """select status, error_kind, count(*) from
               (from outputs select status, error_kind union all by name
                from scores select status, error_kind where evaluator = 'says_correct')
               where error_kind is distinct from 'no_output' group by all order by all"""
        )
        assert {(status, kind) for status, kind, _ in statuses} == {("not_attempted", "over_budget"), ("ok", None)} | (
            {("scored", None)} if len(statuses) == 3 else set()
        )
        assert incomplete(spec(connections, **both, max_calls=30)) == reason, "as it was, with nothing paid"
        assert endpoint.calls == 30
        incomplete(spec(connections, **both, max_calls=N + 7))
        assert endpoint.calls == N + 7
        complete(spec(connections, **both, max_calls=2 * N))
    assert endpoint.calls == 2 * N and endpoint.repeated() == 0
    assert one("select calls, max_calls from experiments") == (2 * N, 2 * N)


def test_a_budget_that_runs_out_ends_the_judging_example_by_example() -> None:
    judge = {"use": "judges:says_correct"}
    with serving(Endpoint(latency_s=0.002, answer=Service())) as endpoint:
        connections = {"quick": connection(endpoint), "slow": connection(endpoint, model="other", max_in_flight=1)}
        judges = [{**judge, "name": name, "connection": name} for name in connections]
        reason = incomplete(spec(connections, evaluators=judges, max_calls=N))
    judged = dict(rows("select example_id, count(*) from scores where status = 'scored' group by 1 order by 1"))
    whole = sorted(int(example[1:]) for example, count in judged.items() if count == 2)
    assert 2 * SMALLEST_BLOCK <= len(whole) <= N / 2 and len(judged) <= len(whole) + SMALLEST_BLOCK
    assert whole[: 2 * SMALLEST_BLOCK] == list(range(2 * SMALLEST_BLOCK)), "in the order of the examples"
    assert reason.endswith(f"; {len(whole)} of {N} have all their judgements")
    assert [block_size(20, cost, 0.5) for cost in (0.0, 1e-6, 0.01, 0.4)] == [160, 160, 125, SMALLEST_BLOCK]


@pytest.mark.slow
def test_experiments_of_one_run_share_its_budget() -> None:
    two = [{"kind": "chat", "connection": "judge", "user": f"{name} {{question}}", "name": name} for name in "ab"]
    with serving(Endpoint(latency_s=0.001, answer=Service())) as endpoint:
        asked = spec({"judge": connection(endpoint)}, targets=two, evaluators=["contains"], max_calls=N + 10)
        with pytest.raises(IncompleteError, match=f"the budget is spent .{N + 10} of {N + 10} calls"):
            run(asked)
    assert endpoint.calls == N + 10
    assert one("select sum(calls) from experiments") == (N + 10,)


@pytest.mark.slow
def test_budget_usd_is_never_exceeded() -> None:
    with serving(Endpoint(latency_s=0.001, answer=Service())) as endpoint:
        connections = {"judge": connection(endpoint, **PRICES)}
        asked = chat(max_tokens=5)
        reason = incomplete(spec(connections, **asked, budget_usd=20.5 * COST))
        spent, calls = one("select cost_usd, calls from experiments")
        assert 10 <= calls == endpoint.calls <= 20
        assert spent == pytest.approx(calls * COST) and spent <= 20.5 * COST
        assert f"does not fit the budget ({spent:.4f} of {20.5 * COST:g} USD))" in reason
        assert rows("select error_kind, count(*) from outputs where status <> 'ok' group by 1") == [
            ("over_budget", N + 1 - calls)  # one was the trial of the parameters
        ]
        (experiment,) = one("select experiment_id from experiments")
        hint = continuing(Store(), experiment)
        assert hint is not None
        (proposed,) = [float(part[11:]) for part in hint.arguments if part.startswith("budget_usd=")]
        complete(spec(connections, **asked, budget_usd=proposed))
    assert endpoint.calls == N + 1, "what is proposed suffices, and it is not much more"
    assert proposed < 1.5 * N * COST
    assert one("select cost_usd, budget_usd from experiments") == (
        pytest.approx((N + 1) * COST),
        pytest.approx(proposed),
    )


@pytest.mark.slow
def test_budget_usd_without_prices_is_refused_before_anything_is_written_or_paid(store_root: Path) -> None:
    fallback = {"use": "judges:says_correct", "connection": "judge"}
    with serving(Endpoint(answer=Service())) as endpoint:
        connections = {"judge": connection(endpoint, embedding_model="e")}
        for changes in (
            {},
            chat(),
            chat(model="other"),
            {"evaluators": [{"use": "contains", "fallback": fallback}]},
            {"evaluators": [{"use": "semantic_similarity", "connection": "judge"}]},
        ):
            with pytest.raises(InputError, match="budget_usd cannot be enforced without the price of") as caught:
                run(spec(connections, **changes, budget_usd=1.0))
            assert endpoint.calls == 0 and "\n" not in str(caught.value)
        assert {path.name for path in store_root.rglob("*") if path.is_file()} <= {
            *(".gitignore", "_.parquet", "evalflows.json", "catalog.duckdb", "catalog-unpacked.duckdb")
        }
        with pytest.raises(InputError, match="or budget_counts_unknown: false"):
            run(spec(connections, budget_usd=1.0, max_calls=N))
        complete(spec(connections, budget_usd=1.0, max_calls=N, budget_counts_unknown=False))
        assert endpoint.calls == N
    assert one("select calls, cost_usd from experiments") == (N, None)
