"""The whole line, from a spec to sealed rows."""

import json
from datetime import date
from typing import Any

import pytest
from endpoint import Endpoint, completion, error, serving

from evalflows import evaluate, run
from evalflows.specs import ExperimentSpec, InputError
from evalflows.store import Store, connect
from evalflows.store.database import catalog_path

pytestmark = pytest.mark.usefixtures("prefect_api")

ROWS = [{"inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(6)]


def chat_spec(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    """Two questions to the endpoint, judged by a model and by a rule."""
    fields: dict[str, Any] = {
        "name": "chat",
        "dataset": {"rows": ROWS},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": [{"use": "judges:says_correct", "connection": "mock"}, "contains"],
        "connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1}},
        "chunk_retry_delay_s": 0.05,
    }
    return ExperimentSpec.model_validate(fields | changes)


def one(query: str, *parameters: object) -> Any:
    with connect() as catalog:
        rows = catalog.execute(query, list(parameters)).fetchall()
    assert len(rows) == 1, rows
    return rows[0]


def statuses(table: str) -> dict[str, int]:
    with connect() as catalog:
        return dict(catalog.execute(f"select status, count(*) from {table} group by all").fetchall())


@pytest.mark.slow
def test_every_answer_is_judged_and_sealed_and_a_second_run_finds_its_calls_in_the_ledger() -> None:
    with serving(Endpoint()) as endpoint:
        spec = chat_spec(endpoint, metadata={"since": date(2026, 1, 2)})
        (first,) = run(spec)
        assert endpoint.calls == 12
        assert statuses("outputs") == {"ok": 6}
        assert statuses("scores") == {"scored": 12}
        assert all(Store().is_sealed(table, first) for table in ("outputs", "judgements", "calls", "experiments"))
        assert catalog_path(Store().layout).exists(), "for other programs"
        query = (
            "select state, calls, calls_cached, tokens_in, tokens_out, cost_usd, metadata ->> 'since' from experiments"
        )
        assert one(query) == ("completed", 12, 0, 120, 60, None, "2026-01-02")  # no price, hence no cost
        (second,) = run(spec)
    assert first < second, "ids sort by time"
    assert one("select count(*), count(distinct run_group) from experiments") == (2, 2)
    assert one("select count(*) from snapshots") == (1,)
    assert endpoint.calls == 12
    assert one("select calls, calls_cached, cost_usd from experiments where experiment_id = ?", second) == (0, 12, 0.0)


@pytest.mark.slow
def test_a_fresh_run_pays_anew_but_not_twice() -> None:
    with serving(Endpoint()) as endpoint:
        run(chat_spec(endpoint))
        fresh = chat_spec(endpoint, use_cache=False, run_key="fresh")
        assert run(fresh) == run(fresh), "the same run key is one experiment"
    assert endpoint.calls == 24
    assert one("select count(*) from experiments") == (2,)


def test_a_run_key_does_not_continue_what_was_made_from_something_else() -> None:
    with serving(Endpoint()) as endpoint:
        run(chat_spec(endpoint, run_key="nightly"))
        calls = endpoint.calls
        other = [{"kind": "chat", "connection": "mock", "user": "{question}?"}]
        changed = chat_spec(endpoint, run_key="nightly", targets=other)
        with pytest.raises(
            InputError, match=r"the target has changed since: its settings; wanted a run_key other than 'nightly'"
        ):
            run(changed)
    assert endpoint.calls == calls


@pytest.mark.slow
def test_what_failed_for_now_is_asked_again_and_nothing_else() -> None:
    failing = {"target": iter([error(500, "down"), error(429, "slow down")]), "judge": iter([error(503, "down")] * 2)}

    def answer(request: dict[str, Any]) -> Any:
        return next(failing["judge" if "CORRECT" in json.dumps(request) else "target"], completion("CORRECT"))

    with serving(Endpoint(answer=answer)) as endpoint:
        run(chat_spec(endpoint))
    assert endpoint.calls == 12 + 4, "only the rows that failed, once more"
    assert statuses("outputs") == {"ok": 6}
    assert statuses("scores") == {"scored": 12}


@pytest.mark.slow
def test_what_still_fails_at_the_end_is_a_row_and_a_resume_asks_again_what_may_pass() -> None:
    broken = True
    too_long = error(400, "too long", code="context_length_exceeded")

    def answer(request: dict[str, Any]) -> Any:
        if "q4" in json.dumps(request):
            return too_long
        return error(500, "down for good") if broken and "q3" in json.dumps(request) else completion("CORRECT")

    with serving(Endpoint(answer=answer)) as endpoint:
        spec = chat_spec(endpoint, run_key="k")
        (identity,) = run(spec)
        assert statuses("outputs") == {"ok": 4, "failed": 2}
        with connect() as catalog:
            query = "select error, error_kind, attempts from outputs where status = 'failed' order by example_id"
            failed = catalog.execute(query).fetchall()
        assert sorted(failed)[1] == ("HTTP 500: down for good", "server_error", 1)
        assert sorted(failed)[0][1] == "context_too_long"
        query = "select distinct value, error_kind from scores where metric = 'contains' and status = 'failed'"
        assert one(query) == (None, "no_output")
        assert one("select scored, missing from metric_summary where metric = 'says_correct'") == (4, 2)
        broken, calls = False, endpoint.calls
        assert run(spec) == [identity]
    assert endpoint.calls == calls + 2, "one answer and one judgement"
    assert statuses("outputs") == {"ok": 5, "failed": 1}
    assert statuses("scores") == {"scored": 10, "failed": 2}
    assert Store().is_sealed("judgements", identity)


@pytest.mark.slow
def test_metrics_of_one_evaluator_have_a_row_each_and_composites_see_those_of_others_in_every_repetition() -> None:
    seen: list[str] = []

    def target(question: str) -> Any:
        seen.append(question)
        return object() if question == "q0" else question.upper()  # which JSON cannot hold

    def two(outputs: dict[str, Any]) -> dict[str, Any]:
        if outputs["output"] == "Q3":
            raise ValueError("not this one")
        return {"results": [{"key": "a", "score": 1}, {"key": "b", "score": 0.5}]}

    def both(scores: Any) -> float:
        return float(scores["exact_match"].value + scores["contains"].value) / 2

    result = evaluate(target, ROWS, [two, both, "exact_match", "contains"], num_repetitions=2)
    assert sorted(seen) == sorted(2 * [f"q{i}" for i in range(6)])
    assert one("select count(distinct (example_id, repetition)), count(distinct run_id) from outputs") == (12, 12)
    assert one("select any_value(error_kind), count(*) from outputs where status = 'failed'") == ("bad_return", 2)
    assert sorted(map(str, result.scores("a"))) == sorted(map(str, 2 * [None, 1.0, 1.0, None, 1.0, 1.0]))
    assert {*result.scores("both")} == {None, 1.0}
    with connect() as catalog:
        query = "select metric, scored, missing from metric_summary where metric in ('a', 'b', 'both') order by 1"
        assert catalog.execute(query).fetchall() == [("a", 8, 4), ("b", 8, 4), ("both", 10, 2)]


@pytest.mark.slow
def test_async_targets_and_evaluators_run_at_once_up_to_the_limit() -> None:
    import asyncio

    now, peak = 0, 0

    async def target(question: str) -> str:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0.02)
        now -= 1
        return question.upper()

    async def polite(outputs: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        return "yes" if outputs["output"] != "Q0" else "no"

    result = evaluate(target, ROWS, [polite], max_concurrency=3)
    assert peak == 3
    assert result.scores("polite") == ["no"] + ["yes"] * 5
    with connect() as catalog:
        assert catalog.execute("select label, n from label_shares order by n").fetchall() == [("no", 1), ("yes", 5)]


@pytest.mark.slow
def test_a_fault_of_ours_leaves_a_resumable_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    import evalflows.engine.run_columns

    original = evalflows.engine.run_columns.to_json

    def broken(value: Any, **options: bool) -> str:
        if value == {"output": "Q3"}:
            raise MemoryError("no more")
        return original(value, **options)

    with monkeypatch.context() as patch:
        patch.setattr(evalflows.engine.run_columns, "to_json", broken)
        with pytest.raises(MemoryError):
            evaluate(upper, ROWS, ["exact_match"], run_key="k", experiment_prefix="x")
    state, reason = one("select state, reason from experiments")
    assert state == "incomplete" and reason.startswith("not done: ")
    result = evaluate(upper, ROWS, ["exact_match"], run_key="k", experiment_prefix="x")
    assert result.scores("exact_match") == [1.0] * 6
    assert one("select state, reason from experiments") == ("completed", None)


def upper(question: str) -> str:
    return question.upper()
