"""Costs, failures and the health of judges, on hand-made rows."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from datetime import timedelta
from typing import Any

import pytest
from full_store import START, Filler, Make, freeze_questions

from evalflows.store.catalog import ask_arrow
from evalflows.store.parquet import Store
from evalflows.store.records import to_json

NO_CALLS = {"calls": 0, "calls_cached": 0}


def found(store: Store, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in ask_arrow(store, query, []).to_pylist()]


def fill(store: Store, filler: Filler, state: str = "completed", **fields: Any) -> str:
    """Three questions in two repetitions: q0 is answered, q1 failed once, q2 was not attempted."""
    snapshot, _ = freeze_questions(store, "questions", 3)
    at = {"started_at": START, "recorded_at": START}
    filler.experiment("exp-1", snapshot, 3, 2, **{"state": state, "target": "bot", **at, **fields})
    costs: dict[str, Any] = {"cost_usd": 0.5, "calls": 2, "calls_cached": 1, "tokens_in": 10, "tokens_out": 5}
    failed: dict[str, Any] = {"status": "failed", "error": "boom", "error_kind": "timeout", "outputs": None}
    outputs = [
        filler.output("exp-1", "q0", 0, latency_s=1.0, **costs),
        filler.output("exp-1", "q0", 1, latency_s=2.0, **costs),
        filler.output("exp-1", "q1", 0, latency_s=4.0, **costs),
        filler.output("exp-1", "q1", 1, **failed, latency_s=None, cost_usd=None, calls=None, calls_cached=None),
        filler.output(
            "exp-1", "q2", 0, status="not_attempted", error="budget", latency_s=None, calls=0, calls_cached=0
        ),
    ]
    store.append("outputs", "exp-1", "p", outputs)
    return snapshot


def test_costs_are_those_of_the_target_each_evaluator_and_each_model(store: Store, filler: Filler, make: Make) -> None:
    fill(store, filler, calls=9, calls_cached=3, cost_usd=2.0, tokens_in=30, tokens_out=15)
    judged = {"evaluator_version": "v1", "status": "scored", "value": 1.0, "latency_s": 0.5, "calls_cached": 0}
    filler.scores("exp-1", *(filler.score("exp-1", "q0", repetition, "judge", **judged) for repetition in range(2)))
    called = {"experiment_id": "exp-1", "status": "ok", "latency_s": 3.0, "tokens_in": 7, "tokens_out": 2}
    calls = [
        make("calls", call_id="a", model="large", evaluator=None, cost_usd=0.5, **called),
        make("calls", call_id="b", model="small", evaluator=None, cost_usd=None, **called),
        make("calls", call_id="c", model="large", evaluator="judge", cost_usd=0.25, **called),
    ]
    store.append("calls", "exp-1", "p", calls)
    columns = "source, model, n, calls, calls_cached, cost_usd, cost_known_usd, unpriced, cost_reason, latency_p50_s"
    rows = found(store, f"select {columns} from cost_and_latency order by source, model")
    assert rows == [
        ("all", "all", None, 9, 3, 2.0, 2.0, 0, None, None),
        ("judge", "all", 2, 2, 0, 0.5, 0.5, 0, None, 0.5),
        ("judge", "large", 1, 1, None, 0.25, 0.25, 0, None, 3.0),
        ("target", "all", 4, None, None, None, 1.5, 1, "unpriced", 2.0),
        ("target", "large", 1, 1, None, 0.5, 0.5, 0, None, 3.0),
        ("target", "small", 1, 1, None, None, None, 1, "unpriced", 3.0),
    ]
    latencies = "latency_mean_s, latency_p95_s, latency_p99_s, latency_reason"
    ((mean, p95, p99, why),) = found(
        store, f"select {latencies} from cost_and_latency where source = 'target' and model = 'all'"
    )
    assert (mean, p95, p99, why) == (pytest.approx(7 / 3), pytest.approx(3.8), pytest.approx(3.96), None)


def test_each_failure_is_a_row_also_of_runs_that_have_none(store: Store, filler: Filler, make: Make) -> None:
    fill(store, filler, state="incomplete", reason="the budget is spent")
    given = {"evaluator_version": "v1", "status": "failed"}
    judged = filler.score("exp-1", "q1", 1, "judge", **given, error="no output to judge: boom", error_kind="no_output")
    filler.scores("exp-1", judged, filler.score("exp-1", "q0", 0, "judge", evaluator_version="v1", status="scored"))
    pair = {"left_run_id": "a", "right_run_id": "b", "example_id": "q0", "repetition": 0, "comparison_id": "cmp-1"}
    lost = make(
        "comparisons", judgement_id="j", metric="better", status="failed", error="no", error_kind="limit", **pair
    )
    store.append("comparisons", "cmp-1", "p", [lost])
    query = "select source, example_id, repetition, metric, status, kind, error from failures order by all"
    assert found(store, query) == [
        ("evaluator", "q1", 1, "judge", "failed", "no_output", "no output to judge: boom"),
        ("pairwise", "q0", 0, "better", "failed", "limit", "no"),
        ("target", "q1", 1, None, "failed", "timeout", "boom"),
        ("target", "q2", 0, None, "not_attempted", "not_attempted", "budget"),
        ("target", "q2", 1, None, "not_attempted", "not_attempted", "the budget is spent"),
    ]
    keys = found(store, "select count(*), count(distinct failure_id) from failures")
    assert keys == [(5, 5)]


def test_a_judge_s_health_names_what_is_not_known(store: Store, filler: Filler) -> None:
    fill(store, filler)
    judged = {"evaluator": "judge", "evaluator_version": "v1", "judge_model": "large"}
    unanswered = {**judged, "judge_model": None, "status": "failed", "error_kind": "no_output"}
    filler.scores(
        "exp-1",
        filler.score("exp-1", "q0", 0, "right", **judged, status="scored", value=1.0),
        filler.score("exp-1", "q0", 1, "right", **judged, status="failed", error="?", error_kind="parse"),
        filler.score("exp-1", "q1", 1, "right", **unanswered),
        filler.score("exp-1", "q0", 0, "exact", evaluator_version="rule", status="scored", value=1.0),
    )
    figures = "failure_share, controls_passed, biases_found, people_agreement, mean_spread"
    reasons = "failure_share_reason, controls_reason, biases_reason, people_reason, repeats_reason, cost_usd"
    assert found(store, f"select judge_model, judged, failed, not_attempted, {figures} from judge_health") == [
        ("large", 1, 1, 1, 0.5, None, None, None, None)
    ]
    assert found(store, f"select {reasons} from judge_health") == [
        (None, "no_controls", "not_pairwise", "no_labels", "no_repeats", 0.75)
    ]


def test_a_judge_s_controls_people_and_spread(store: Store, filler: Filler, make: Make) -> None:
    evaluators = to_json([{"name": "judge", "version": "v1"}])
    fill(store, filler, evaluators=evaluators, ended_at=START + timedelta(hours=1))
    judged = {"evaluator": "judge", "evaluator_version": "v1", "judge_model": "large", "status": "scored"}
    rows = [
        filler.score("exp-1", "q0", i, "right", **judged, value=1.0, repeats=3, spread=0.1 + i / 10) for i in (0, 1)
    ]
    filler.scores("exp-1", *rows)
    for minute, passed in ((10, True), (20, False), (90, True)):  # the last one belongs to another experiment
        result = {"observed": to_json({"difference": 0.25, "low": -0.1, "high": 0.6}), "passed": passed}
        of = {"batch_id": f"b{minute}", "subject_kind": "judge", "subject_id": "judge", "name": "controls"}
        at = START + timedelta(minutes=minute)
        check = make("checks", check_id=f"c{minute}", n_checked=12, recorded_at=at, **result, **of)
        store.publish("checks", f"b{minute}", [check])
    said = {"subject_kind": "run", "metric": "right", "experiment_id": "exp-1", "source": "file", "batch_id": "l"}
    labels = [
        make("labels", label_id=f"l{i}", subject_id=row.run_id, value=value, labeller="ann", **said)
        for i, (row, value) in enumerate(zip(rows, (1.0, 0.0), strict=True))
    ]
    store.append("labels", "l", "p", labels)
    figures = "controls_passed, controls_difference, n_controls, people_agreement, n_labels, n_repeated"
    assert found(store, f"select {figures} from judge_health") == [(False, 0.25, 12, 0.5, 2, 2)]
    assert found(store, "select mean_spread from judge_health") == [(pytest.approx(0.15),)]


def test_a_pairwise_judge_has_the_biases_of_its_comparisons(store: Store, make: Make) -> None:
    of = {"comparison_id": "cmp-1", "metric": "better", "evaluator": "judge", "evaluator_version": "v1"}
    verdicts = [
        make("comparisons", judgement_id=f"j{i}", judge_model="large", status="scored", agreement=0.5, **of)
        for i in range(2)
    ]
    store.append("comparisons", "cmp-1", "p", verdicts)
    store.append("comparison_sets", "cmp-1", "p", [make("comparison_sets", comparison_id="cmp-1")])
    checked = {"batch_id": "cmp-1", "subject_kind": "judge", "subject_id": "better"}
    checks = [
        make("checks", check_id=name, name=name, passed=passed, **checked)
        for name, passed in (("flip_share", False), ("position_preference", True), ("self_consistency", None))
    ]
    store.append("checks", "cmp-1", "p", checks)
    columns = "kind, biases, biases_found, biases_absent, biases_unknown, biases_reason, repeat_agreement"
    assert found(store, f"select {columns} from judge_health") == [("pair", ["flip_share"], 1, 1, 1, None, 0.5)]
