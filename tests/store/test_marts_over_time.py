"""Metrics and examples over all experiments, costs, failures and the health of judges, on hand-made rows."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from full_store import START, Filler, Make, freeze_questions

from evalflows.store.records import to_json
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.sql import ask_arrow
from evalflows.store.store import Store

STATUSES = ("failed", "not_attempted", "not_applicable", "sampled_out")


def begin(filler: Filler, identity: str, snapshot: str, day: int, **fields: Any) -> None:
    at = START + timedelta(days=day)
    given = {"name": "bot", "target": "bot", "dataset_name": "questions", "state": "completed", "run_group": identity}
    filler.experiment(identity, snapshot, 3, 1, **{**given, "started_at": at, "recorded_at": at, **fields})


def judge(filler: Filler, identity: str, results: list[Any], metric: str = "exact", **fields: Any) -> None:
    """Score the examples q0, q1, …, with a number, a label or a status each."""
    found = []
    for place, result in enumerate(results):
        kind = "status" if result in STATUSES else "label" if isinstance(result, str) else "value"
        given = {"status": "scored", "data_type": "CATEGORICAL" if kind == "label" else "BOOLEAN"}
        found.append(filler.score(identity, f"q{place}", 0, metric, **{**given, kind: result, **fields}))
    filler.store.append("judgements", identity, f"{metric}-{fields.get('evaluator_version')}", found)


def history(store: Store, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
    query = f"select {columns} from metric_history where {where} order by started_at, evaluator_version"
    return [tuple(row.values()) for row in ask_arrow(store, query, []).to_pylist()]


def examples(store: Store, where: str = "metric = 'exact'") -> dict[str, dict[str, Any]]:
    rows = ask_arrow(store, f"from example_history where {where}", []).to_pylist()
    return {row["example_id"]: row for row in rows}


def test_a_metric_s_points_follow_each_other_and_say_what_changed(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    begin(filler, "exp-1", snapshot, 0, target_version="a", git_commit="c1", git_branch="main", git_dirty=False)
    begin(filler, "exp-2", snapshot, 1, target_version="b")
    begin(filler, "exp-3", snapshot, 2, target_version="b")
    begin(filler, "exp-4", "another", 3, target_version="c")
    begin(filler, "exp-5", snapshot, 4, target_version="c", name="another")
    for identity, version, results in (
        ("exp-1", "v1", [1, 1, 0]),
        ("exp-2", "v1", [1, 1, "failed"]),
        ("exp-3", "v2", [0, 0, 1]),
        ("exp-4", "v3", ["failed"] * 3),
        ("exp-5", "v3", [1, 1, 1]),
    ):
        judge(filler, identity, results, evaluator_version=version)
    columns = "experiment_id, n, mean, previous_mean, version_changed, snapshot_changed, missing, mean_reason"
    found = history(store, columns)
    third = pytest.approx(1 / 3)
    assert found == [
        ("exp-1", 1, pytest.approx(2 / 3), None, None, None, 0, None),
        ("exp-2", 2, 1.0, pytest.approx(2 / 3), "target", False, 1, None),
        ("exp-3", 3, third, 1.0, "evaluator", False, 0, None),
        ("exp-4", 4, None, third, "evaluator and target", True, 3, "all_missing"),
        ("exp-5", 1, 1.0, None, None, None, 0, None),
    ]
    assert history(store, "git_commit, git_branch, git_dirty", "experiment_id = 'exp-1'") == [("c1", "main", False)]


def test_two_evaluators_of_a_metric_are_two_lines(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    for day, identity in enumerate(("exp-1", "exp-2")):
        begin(filler, identity, snapshot, day)
        judge(filler, identity, [1, 1, 1], evaluator="strict", evaluator_version="s")
        judge(filler, identity, [0, 0, 0], evaluator="kind", evaluator_version="k")
    found = history(store, "experiment_id, evaluator, n, mean, previous_mean, version_changed")
    assert found == [
        ("exp-1", "kind", 1, 0.0, None, None),
        ("exp-1", "strict", 1, 1.0, None, None),
        ("exp-2", "kind", 2, 0.0, 0.0, None),
        ("exp-2", "strict", 2, 1.0, 1.0, None),
    ]


def test_pass_at_k_summary_metrics_and_labels_have_points(store: Store, filler: Filler, make: Make) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    begin(filler, "exp-1", snapshot, 0)
    judge(filler, "exp-1", [1, 0, 1], evaluator_version="v1")
    judge(filler, "exp-1", ["good", "bad", "good"], "tone")
    whole = {"subject_kind": "experiment", "subject_id": "exp-1", "experiment_id": "exp-1", "evaluator_version": "s"}
    summary = make("judgements", judgement_id="s", metric="recall", status="scored", value=0.5, **whole)
    store.append("judgements", "exp-1", "summary", [summary])
    of = {"experiment_id": "exp-1", "evaluator_version": "v1", "slice": None}
    estimate = make("estimates", estimate_id="e", metric="exact pass@2", mean=0.9, ci_low=0.7, ci_high=1.0, **of)
    store.append("estimates", "exp-1", "p", [estimate])
    found = {row[0]: row[1:] for row in history(store, "metric, mean, ci_low, higher_is_better, mean_reason")}
    assert found["exact pass@2"] == (0.9, 0.7, True, None)
    assert found["recall"] == (0.5, None, True, None)
    assert found["tone"] == (None, None, True, "has_labels")


VALUES = np.array([[0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1]], dtype=float)
"""Five systems, three examples; all get the last one right."""


def test_an_example_tells_systems_apart_by_its_item_rest_correlation(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    for day, values in enumerate(VALUES):
        begin(filler, f"exp-{day}", snapshot, day, target_version=f"v{day}")
        judge(filler, f"exp-{day}", values.tolist())
        judge(filler, f"exp-{day}", [day % 2] * 3, "perfect")
        if day < 3:
            judge(filler, f"exp-{day}", values.tolist(), "of three")
    found = examples(store)
    rest = (VALUES.sum(axis=1) - VALUES[:, 0]) / 2
    expected = float(np.corrcoef(VALUES[:, 0], rest)[0, 1])
    low, high = (math.tanh(math.atanh(expected) + side * 1.959963984540054 / math.sqrt(5 - 3)) for side in (-1, 1))
    first = found["q0"]
    assert first["item_rest_correlation"] == pytest.approx(expected)
    assert (first["correlation_low"], first["correlation_high"]) == (pytest.approx(low), pytest.approx(high))
    assert (first["mean"], first["n_experiments"], first["n_targets"]) == (pytest.approx(0.6), 5, 5)
    assert first["correlation_reason"] is None and first["saturated"] == "no"
    last = found["q2"]
    assert (last["item_rest_correlation"], last["correlation_reason"]) == (None, "no_variance")
    assert last["saturated"] == "right"
    assert (last["noisy"], last["flip_share"], last["flip_reason"]) == (None, None, "no_unchanged_versions")
    perfect = examples(store, "metric = 'perfect'")["q0"]
    assert perfect["item_rest_correlation"] == pytest.approx(1)
    if perfect["item_rest_correlation"] == 1:
        assert (perfect["correlation_low"], perfect["correlation_reason"]) == (None, "no_interval")
    few = examples(store, "metric = 'of three'")["q0"]
    assert (few["item_rest_correlation"], few["correlation_reason"]) == (None, "fewer_than_4_experiments")


def test_an_example_flips_if_the_same_versions_differ(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    for day, (version, results) in enumerate(
        (("a", [1, 0, 1]), ("b", [0, 0, 1]), ("a", [1, 1, "failed"]), ("a", [0, 0, 1]), ("b", [0, 0, 0]))
    ):
        begin(filler, f"exp-{day}", snapshot, day, target_version=version)
        judge(filler, f"exp-{day}", results)
        if version == "b":
            judge(filler, f"exp-{day}", [day, day, day], "judged anew", evaluator_version=f"v{day}")
            judge(filler, f"exp-{day}", ["good", "bad" if day == 1 else "good"], "tone")
    found = {name: (row["unchanged_pairs"], row["flips"], row["noisy"]) for name, row in examples(store).items()}
    assert found == {"q0": (3, 1, True), "q1": (3, 2, True), "q2": (2, 1, True)}
    assert examples(store)["q2"]["missing"] == 1
    assert examples(store, "metric = 'judged anew'")["q0"]["unchanged_pairs"] == 0
    tone = examples(store, "metric = 'tone'")
    assert [(row["flips"], row["mean"], row["mean_reason"]) for row in (tone["q0"], tone["q1"])] == [
        (0, None, "has_labels"),
        (1, None, "has_labels"),
    ]
    assert (tone["q1"]["last_label"], tone["q1"]["saturated_reason"]) == ("good", "has_labels")


def test_only_experiments_with_the_example_as_it_is_now_count(store: Store, filler: Filler) -> None:
    old, _ = freeze_questions(store, "questions", 3)
    changed = [
        {"id": f"q{i}", "inputs": {"question": i or "new"}, "outputs": {"answer": i}, "split": "test"} for i in range(3)
    ]
    new = freeze(store, to_examples(enumerate(changed, start=1), "rows"), name="questions", source="rows")
    for day, snapshot in enumerate((old, new)):
        begin(filler, f"exp-{day}", snapshot, day, target_version=f"v{day}")
        judge(filler, f"exp-{day}", [1, 1, 1])
    assert {name: row["n_experiments"] for name, row in examples(store).items()} == {"q0": 1, "q1": 2, "q2": 2}
    assert examples(store)["q0"]["saturated_reason"] == "fewer_than_2_targets"


SATURATED = {
    "right": (1, "right", None),
    "wrong": (0, "wrong", None),
    "errors": (0, "right", None),  # of which fewer are better
    "half": (0.5, "no", None),
    "stars": (5, None, "not_from_0_to_1"),
}


def test_an_example_that_all_systems_get_right_or_wrong_is_saturated(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    spec = to_json({"metrics": {"errors": {"higher_is_better": False}}})
    for day in range(2):
        begin(filler, f"exp-{day}", snapshot, day, target_version=f"v{day}", spec=spec)
        for metric, (value, *_) in SATURATED.items():
            judge(filler, f"exp-{day}", [value], metric)
    for metric, (_, saturated, reason) in SATURATED.items():
        row = examples(store, f"metric = '{metric}'")["q0"]
        assert (row["saturated"], row["saturated_reason"]) == (saturated, reason), metric


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
    pair = {"left_run_id": "a", "right_run_id": "b", "example_id": "q0", "repetition": 0, "experiment_id": "cmp-1"}
    pair |= {"subject_kind": "pair", "judgement_id": "j", "metric": "better"}
    lost = make("judgements", **pair, status="failed", error="no", error_kind="limit")
    store.append("judgements", "cmp-1", "p", [lost])
    query = "select source, example_id, repetition, metric, status, kind, error from failures order by all"
    assert found(store, query) == [
        ("evaluator", "q1", 1, "judge", "failed", "no_output", "no output to judge: boom"),
        ("pairwise", "q0", 0, "better", "failed", "limit", "no"),
        ("target", "q1", 1, None, "failed", "timeout", "boom"),
        ("target", "q2", 0, None, "not_attempted", "not_attempted", "budget"),
        ("target", "q2", 1, None, "not_attempted", "not_attempted", "the budget is spent"),
    ]
    assert found(store, "select count(*), count(distinct failure_id) from failures") == [(5, 5)]


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
    columns = f"judge_model, judged, failed, not_attempted, {figures}, {reasons}"
    unknown = (None, "no_controls", "not_pairwise", "no_labels", "no_repeats", 0.75)
    wanted = [("large", 1, 1, 1, 0.5, None, None, None, None, *unknown)]
    assert found(store, f"select {columns} from judge_health") == wanted


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
    of = {"experiment_id": "cmp-1", "metric": "better", "evaluator": "judge", "evaluator_version": "v1"}
    of |= {"subject_kind": "pair", "judge_model": "large", "status": "scored"}
    verdicts = [make("judgements", judgement_id=f"j{i}", agreement=0.5, **of) for i in range(2)]
    store.append("judgements", "cmp-1", "p", verdicts)
    store.append("comparison_sets", "cmp-1", "p", [make("comparison_sets", comparison_id="cmp-1")])
    checked = {"batch_id": "cmp-1", "subject_kind": "judge", "subject_id": "better"}
    checks = [
        make("checks", check_id=name, name=name, passed=passed, **checked)
        for name, passed in (("flip_share", False), ("position_preference", True), ("self_consistency", None))
    ]
    longer = '{"share": 0.67, "low": 0.63, "high": 0.71}'
    checks.append(make("checks", check_id="l", name="length_preference", passed=None, observed=longer, **checked))
    store.append("checks", "cmp-1", "p", checks)
    columns = "kind, biases, biases_found, biases_absent, biases_unknown, biases_reason, repeat_agreement"
    assert found(store, f"select {columns} from judge_health") == [
        ("pair", ["flip_share", "length_preference"], 2, 1, 1, None, 0.5)
    ]
