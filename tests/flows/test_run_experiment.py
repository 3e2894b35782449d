"""The whole line, from a spec to sealed rows."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from endpoint import Endpoint, completion, error, serving
from user_places import without_places

from evalflows import evaluate, run
from evalflows.specs import ExperimentSpec, IncompleteError, InputError
from evalflows.store import Store, connect

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
def test_every_answer_is_judged_and_sealed() -> None:
    with serving(Endpoint()) as endpoint:
        (identity,) = run(chat_spec(endpoint))
    assert endpoint.calls == 12
    assert statuses("outputs") == {"ok": 6}
    assert statuses("scores") == {"scored": 12}
    assert all(Store().is_sealed(table, identity) for table in ("outputs", "scores", "calls", "experiments"))
    assert one("select state, calls, calls_cached, tokens_in, tokens_out, cost_usd from experiments") == (
        *("completed", 12, 0),
        *(120, 60, None),  # no price, hence no cost
    )


@pytest.mark.slow
def test_two_runs_of_one_spec_are_two_experiments() -> None:
    with serving(Endpoint()) as endpoint:
        spec = chat_spec(endpoint)
        first, second = run(spec)[0], run(spec)[0]
    assert first < second, "ids sort by time"
    assert one("select count(*), count(distinct run_group) from experiments") == (2, 2)
    assert one("select count(*) from snapshots") == (1,)
    assert endpoint.calls == 12, "the same calls are found in the ledger"
    assert one("select calls, calls_cached, cost_usd from experiments where experiment_id = ?", second) == (0, 12, 0.0)


@pytest.mark.slow
def test_a_fresh_run_pays_anew_but_not_twice() -> None:
    with serving(Endpoint()) as endpoint:
        run(chat_spec(endpoint))
        run(chat_spec(endpoint, use_cache=False, run_key="fresh"))
        run(chat_spec(endpoint, use_cache=False, run_key="fresh"))
    assert endpoint.calls == 24


@pytest.mark.slow
def test_the_same_run_key_is_one_experiment_and_makes_no_call() -> None:
    with serving(Endpoint()) as endpoint:
        spec = chat_spec(endpoint, run_key="nightly", use_cache=False)
        first = run(spec)
        calls = endpoint.calls
        assert run(spec) == first
    assert endpoint.calls == calls == 12
    assert one("select count(*) from experiments") == (1,)


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
def test_each_target_is_an_experiment_of_one_group() -> None:
    with serving(Endpoint()) as endpoint:
        targets = [
            {"kind": "chat", "connection": "mock", "user": f"{{question}} {n}", "name": n} for n in ("terse", "long")
        ]
        identities = run(chat_spec(endpoint, targets=targets))
    with connect() as catalog:
        rows = catalog.execute("select experiment_id, name, run_group from experiments order by name desc").fetchall()
    assert [(row[0], row[1]) for row in rows] == list(zip(identities, ("chat-terse", "chat-long"), strict=True))
    assert len({row[2] for row in rows}) == 1


def test_repetitions_are_asked_apart() -> None:
    seen: list[int] = []

    def target(question: str) -> str:
        seen.append(1)
        return question.upper()

    result = evaluate(target, ROWS, ["exact_match"], num_repetitions=3)
    assert len(seen) == len(result) == 18
    assert result.scores("exact_match") == [1.0] * 18
    assert one("select count(distinct (example_id, repetition)), count(distinct run_id) from outputs") == (18, 18)


@pytest.mark.slow
def test_a_chunk_is_run_again_for_the_rows_that_failed_for_now() -> None:
    with serving(Endpoint()) as endpoint:
        endpoint.faults.extend([error(500, "down"), error(429, "slow down"), error(503, "down")])
        run(chat_spec(endpoint))
    assert endpoint.calls == 15, "three faults, and only those rows again"
    assert statuses("outputs") == {"ok": 6}
    assert statuses("scores") == {"scored": 12}


@pytest.mark.slow
def test_a_judge_that_fails_for_now_is_asked_again_and_the_target_is_not() -> None:
    failing = iter([True, True])

    def answer(request: dict[str, Any]) -> Any:
        judge = "CORRECT" in json.dumps(request)
        return error(500, "down") if judge and next(failing, False) else completion("CORRECT")

    with serving(Endpoint(answer=answer)) as endpoint:
        run(chat_spec(endpoint))
    assert endpoint.calls == 14
    assert statuses("scores") == {"scored": 12}


@pytest.mark.slow
def test_what_still_fails_at_the_end_is_a_row_and_a_resume_asks_again() -> None:
    broken = True

    def answer(request: dict[str, Any]) -> Any:
        return error(500, "down for good") if broken and "q3" in json.dumps(request) else completion("CORRECT")

    with serving(Endpoint(answer=answer)) as endpoint:
        spec = chat_spec(endpoint, run_key="k")
        (identity,) = run(spec)
        assert statuses("outputs") == {"ok": 5, "failed": 1}
        assert one("select error, error_kind, attempts from outputs where status = 'failed'") == (
            *("HTTP 500: down for good", "server_error", 1),
        )
        assert one("select value, status, error_kind from scores where metric = 'contains' and status = 'failed'") == (
            *(None, "failed", "no_output"),
        )
        assert one("select scored, missing from metric_summary where metric = 'says_correct'") == (5, 1)
        broken, calls = False, endpoint.calls
        assert run(spec) == [identity]
    assert endpoint.calls == calls + 2, "one answer and one judgement"
    assert statuses("outputs") == {"ok": 6}
    assert statuses("scores") == {"scored": 12}
    assert Store().is_sealed("scores", identity)


@pytest.mark.slow
def test_a_final_failure_is_not_tried_again() -> None:
    def answer(request: dict[str, Any]) -> Any:
        return (
            error(400, "too long", code="context_length_exceeded") if "q3" in json.dumps(request) else completion("x")
        )

    with serving(Endpoint(answer=answer)) as endpoint:
        run(chat_spec(endpoint, run_key="k"))
        calls = endpoint.calls
        run(chat_spec(endpoint, run_key="k"))
    assert endpoint.calls == calls == 11
    assert one("select error_kind from outputs where status = 'failed'") == ("context_too_long",)


@pytest.mark.slow
def test_an_evaluator_that_raises_leaves_the_others_unharmed() -> None:
    def raises(outputs: dict[str, Any]) -> bool:
        raise ZeroDivisionError("on purpose")

    def nan(outputs: dict[str, Any]) -> float:
        return float("nan")

    def spoils(inputs: dict[str, Any], outputs: dict[str, Any]) -> bool:
        inputs.clear()
        outputs.clear()
        return True

    result = evaluate(lambda question: question.upper(), ROWS, [raises, nan, spoils, "exact_match"])
    assert result.scores("raises") == result.scores("nan") == [None] * 6
    assert result.scores("spoils") == result.scores("exact_match") == [1.0] * 6
    error, count = one("select any_value(error), count(*) from scores where metric = 'raises'")
    assert (without_places(error), count) == ("ZeroDivisionError: on purpose", 6)
    assert one("select any_value(error_kind), count(value) from scores where metric = 'nan'") == ("bad_return", 0)


@pytest.mark.slow
def test_several_metrics_of_one_evaluator_have_a_row_each_also_where_it_failed() -> None:
    def two(outputs: dict[str, Any]) -> dict[str, Any]:
        if outputs["output"] == "Q3":
            raise ValueError("not this one")
        return {"results": [{"key": "a", "score": 1}, {"key": "b", "score": 0.5}]}

    result = evaluate(lambda question: question.upper(), ROWS, [two])
    assert result.scores("a") == [1.0, 1.0, 1.0, None, 1.0, 1.0]
    assert result.scores("b") == [0.5, 0.5, 0.5, None, 0.5, 0.5]
    with connect() as catalog:
        assert catalog.execute(
            "select metric, scored, missing from metric_summary where evaluator <> 'measured' order by 1"
        ).fetchall() == [
            ("a", 5, 1),
            ("b", 5, 1),
        ]


@pytest.mark.slow
def test_a_composite_sees_the_scores_of_the_others() -> None:
    def both(scores: Any) -> float:
        return float(scores["exact_match"].value + scores["contains"].value) / 2

    result = evaluate(lambda question: question.upper(), ROWS, [both, "exact_match", "contains"])
    assert result.scores("both") == [1.0] * 6


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
def test_a_plain_judge_may_ask_a_model_too() -> None:
    def judge(outputs: dict[str, Any], complete: Any) -> bool:
        return bool(complete(f"CORRECT or INCORRECT: {outputs}").text)

    with serving(Endpoint()) as endpoint:
        connections = {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}}
        from evalflows.specs.reference import refer

        result = evaluate(
            lambda question: question,
            ROWS,
            [{"use": refer(judge), "name": "judge", "connection": "mock"}],
            connections=connections,
        )
    assert result.scores("judge") == [1.0] * 6
    assert endpoint.calls == 6
    assert one("select any_value(judge_model), sum(calls), sum(tokens_in) from scores") == ("mock-1", 6, 60)


@pytest.mark.slow
def test_metadata_may_hold_a_date_as_yaml_reads_it() -> None:
    with serving(Endpoint()) as endpoint:
        run(chat_spec(endpoint, metadata={"since": date(2026, 1, 2)}))
    assert one("select metadata ->> 'since' from experiments") == ("2026-01-02",)


@pytest.mark.slow
def test_outputs_that_json_cannot_hold_are_a_failed_row() -> None:
    result = evaluate(lambda question: {question} if question == "q0" else question, ROWS[:2], ["contains"])
    assert [item.output.status for item in result] == ["failed", "ok"]
    assert one("select error_kind from outputs where status = 'failed'") == ("bad_return",)


@pytest.mark.slow
def test_an_experiment_without_one_answer_is_not_passed_off_as_done() -> None:
    def down(question: str) -> str:
        raise ConnectionError("down")

    with pytest.raises(IncompleteError, match="none of 6 answered: ConnectionError: down"):
        evaluate(down, ROWS, ["contains"])
    assert statuses("outputs") == {"failed": 6}


@pytest.mark.slow
def test_a_fault_of_ours_leaves_a_resumable_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    import evalflows.execution.run_rows

    original = evalflows.execution.run_rows.to_json

    def broken(value: Any, **options: bool) -> str:
        if value == {"output": "Q3"}:
            raise MemoryError("no more")
        return original(value, **options)

    with monkeypatch.context() as patch:
        patch.setattr(evalflows.execution.run_rows, "to_json", broken)
        with pytest.raises(MemoryError):
            evaluate(upper, ROWS, ["exact_match"], run_key="k", experiment_prefix="x")
    state, reason = one("select state, reason from experiments")
    assert state == "incomplete" and reason.startswith("not done: ")
    result = evaluate(upper, ROWS, ["exact_match"], run_key="k", experiment_prefix="x")
    assert result.scores("exact_match") == [1.0] * 6
    assert one("select state, reason from experiments") == ("completed", None)


def upper(question: str) -> str:
    return question.upper()


def test_bad_input_is_told_before_anything_is_written_or_paid(store_root: Path) -> None:
    with serving(Endpoint()) as endpoint:
        for change, message in (
            ({"evaluators": ["exact_mach"]}, "wanted 'module:name' or exact_match"),
            ({"evaluators": ["nowhere:judge"]}, "cannot import 'nowhere'"),
            ({"evaluators": ["judges:nothing"]}, "'judges' has no 'nothing'"),
            ({"evaluators": ["judges:wants_the_moon"]}, "asks for 'moon', wanted any of inputs, outputs"),
            ({"evaluators": [{"use": "judges:says_correct", "connection": "x"}]}, "connection 'x': wanted one of mock"),
            ({"targets": [{"kind": "chat", "connection": "mock", "user": "{query}"}]}, "asks for {query}"),
            ({"targets": [{"kind": "python", "function": "judges:nothing"}]}, "'judges' has no 'nothing'"),
            ({"targets": [{"kind": "recorded", "path": "nowhere.jsonl"}]}, "cannot be read: No such file"),
            ({"dataset": {"path": "nowhere.jsonl"}}, "cannot be read: No such file"),
            ({"dataset": {"name": "nowhere"}}, "not in the store"),
            ({"dataset": {"snapshot": "snap-0"}}, "not in the store"),
            ({"dataset": {"rows": [{"id": 1, "inputs": {}}]}}, "no inputs"),
        ):
            with pytest.raises(InputError) as raised:
                run(chat_spec(endpoint, **change))
            assert message in str(raised.value) and "\n" not in str(raised.value)
    assert endpoint.calls == 0
    assert {path.name for path in store_root.rglob("*") if path.is_file()} <= {"_.parquet", "evalflows.json"}


@pytest.mark.slow
def test_a_run_that_lacks_rows_raises_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    import evalflows.execution.judging

    monkeypatch.setattr(evalflows.execution.judging.Judging, "_pending", lambda *_: [])
    with pytest.raises(IncompleteError, match="not done: 6 of 6 by exact_match"):
        evaluate(upper, ROWS, ["exact_match"])
    assert one("select state from experiments") == ("incomplete",)
