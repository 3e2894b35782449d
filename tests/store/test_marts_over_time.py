"""Metrics and examples over all experiments, on hand-made rows."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from full_store import START, Filler, Make, freeze_questions

from evalflows.store.catalog import ask_arrow
from evalflows.store.parquet import Store
from evalflows.store.records import to_json
from evalflows.store.snapshots import freeze, to_examples

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
    filler.store.append("scores", identity, f"{metric}-{fields.get('evaluator_version')}", found)


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
    found = history(store, "experiment_id, n, mean, previous_mean, version_changed, snapshot_changed, missing, reason")
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
    summary = make("scores", score_id="s", metric="recall", status="scored", value=0.5, **whole)
    store.append("scores", "exp-1", "summary", [summary])
    of = {"experiment_id": "exp-1", "evaluator_version": "v1", "slice": None}
    estimate = make("estimates", estimate_id="e", metric="exact pass@2", mean=0.9, ci_low=0.7, ci_high=1.0, **of)
    store.append("estimates", "exp-1", "p", [estimate])
    found = {row[0]: row[1:] for row in history(store, "metric, mean, ci_low, higher_is_better, reason")}
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
    found = examples(store)
    rest = (VALUES.sum(axis=1) - VALUES[:, 0]) / 2
    expected = float(np.corrcoef(VALUES[:, 0], rest)[0, 1])
    low, high = (math.tanh(math.atanh(expected) + side * 1.959963984540054 / math.sqrt(5 - 3)) for side in (-1, 1))
    first = found["q0"]
    assert first["item_rest_correlation"] == pytest.approx(expected)
    assert (first["correlation_low"], first["correlation_high"]) == (pytest.approx(low), pytest.approx(high))
    assert (first["mean"], first["n_experiments"], first["n_systems"]) == (pytest.approx(0.6), 5, 5)
    assert first["correlation_reason"] is None and first["saturated"] == "no"
    last = found["q2"]
    assert (last["item_rest_correlation"], last["correlation_reason"]) == (None, "no_variance")
    assert last["saturated"] == "right"
    assert (last["noisy"], last["flip_share"], last["flip_reason"]) == (None, None, "no_unchanged_versions")


def test_a_perfect_correlation_has_no_interval(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    for day, value in enumerate((0, 1, 0, 1)):
        begin(filler, f"exp-{day}", snapshot, day, target_version=f"v{day}")
        judge(filler, f"exp-{day}", [value, value, value])
    row = examples(store)["q0"]
    assert row["item_rest_correlation"] == pytest.approx(1)
    if row["item_rest_correlation"] == 1:
        assert (row["correlation_low"], row["correlation_reason"]) == (None, "no_interval")


def test_with_three_experiments_there_is_no_correlation(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    for day, values in enumerate(VALUES[:3]):
        begin(filler, f"exp-{day}", snapshot, day, target_version=f"v{day}")
        judge(filler, f"exp-{day}", values.tolist())
    row = examples(store)["q0"]
    assert (row["item_rest_correlation"], row["correlation_reason"]) == (None, "fewer_than_4_experiments")


def test_an_example_flips_if_the_same_versions_differ(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    for day, (version, results) in enumerate(
        (("a", [1, 0, 1]), ("b", [0, 0, 1]), ("a", [1, 1, "failed"]), ("a", [0, 0, 1]), ("b", [0, 0, 0]))
    ):
        begin(filler, f"exp-{day}", snapshot, day, target_version=version)
        judge(filler, f"exp-{day}", results)
    found = {name: (row["unchanged_pairs"], row["flips"], row["noisy"]) for name, row in examples(store).items()}
    assert found == {"q0": (3, 1, True), "q1": (3, 2, True), "q2": (2, 1, True)}
    assert examples(store)["q2"]["missing"] == 1


def test_a_judge_that_changed_is_no_flip(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    for day, version in enumerate(("v1", "v2")):
        begin(filler, f"exp-{day}", snapshot, day)
        judge(filler, f"exp-{day}", [day, day, day], evaluator_version=version)
    assert examples(store)["q0"]["unchanged_pairs"] == 0


def test_labels_flip_and_have_no_mean(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    for day, results in enumerate((["good", "bad"], ["good", "good"])):
        begin(filler, f"exp-{day}", snapshot, day)
        judge(filler, f"exp-{day}", results, "tone")
    found = examples(store, "metric = 'tone'")
    assert [(row["flips"], row["mean"], row["mean_reason"]) for row in (found["q0"], found["q1"])] == [
        (0, None, "has_labels"),
        (1, None, "has_labels"),
    ]
    assert (found["q1"]["last_label"], found["q1"]["saturated_reason"]) == ("good", "has_labels")


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
    assert examples(store)["q0"]["saturated_reason"] == "fewer_than_2_systems"


@pytest.mark.parametrize(
    ("value", "spec", "saturated", "reason"),
    [
        (1, {}, "right", None),
        (0, {}, "wrong", None),
        (0, {"metrics": {"exact": {"higher_is_better": False}}}, "right", None),
        (0.5, {}, "no", None),
        (5, {}, None, "not_from_0_to_1"),
    ],
)
def test_an_example_that_all_systems_get_right_or_wrong_is_saturated(
    store: Store, filler: Filler, value: float, spec: dict[str, Any], saturated: str | None, reason: str | None
) -> None:
    snapshot, _ = freeze_questions(store, "questions", 3)
    for day in range(2):
        begin(filler, f"exp-{day}", snapshot, day, target_version=f"v{day}", spec=to_json(spec))
        judge(filler, f"exp-{day}", [value])
    row = examples(store)["q0"]
    assert (row["saturated"], row["saturated_reason"]) == (saturated, reason)
