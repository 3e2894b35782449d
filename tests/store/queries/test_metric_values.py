"""The values of metrics, example by example: means over repetitions, what is missing, weights, and passed trials."""

import random
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from evalflows.store.queries import values as metric_values_module
from evalflows.store.queries.values import MetricValues, metric_values, trials
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store

OWNER, SNAPSHOT = "exp-1", "snap-1"
NAN = float("nan")

Scored = dict[str, list[Any]]
"""What each example's repetitions got: a number, a bool, a label, a status."""


@pytest.fixture(params=["all at once", "one by one"])
def how_metrics_are_read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "one by one":
        monkeypatch.setattr("evalflows.store.queries.values.VERY_MANY_RUNS", 0)


class Made:
    """An experiment whose examples are in the order e0, e1, …"""

    def __init__(self, store: Store, make: Callable[..., Any], examples: int = 3, repetitions: int = 2) -> None:
        self.store, self._make = store, make
        of = {"experiment_id": OWNER, "snapshot_id": SNAPSHOT, "n_examples": examples, "repetitions": repetitions}
        self.row: ExperimentRow = make("experiments", **of)
        self.add(
            "examples",
            SNAPSHOT,
            [{"snapshot_id": SNAPSHOT, "example_id": f"e{i}", "position": i} for i in range(examples)],
        )

    def add(self, table: str, owner: str, rows: list[dict[str, Any]]) -> None:
        self.store.append(table, owner, "p", [self._make(table, **row) for row in rows])

    def scores(self, scored: Scored, metric: str = "right", version: str = "v1", **fields: Any) -> None:
        """The scores of runs."""
        rows = [
            self._score(example, repetition, one, metric=metric, version=version) | fields
            for example, ones in scored.items()
            for repetition, one in enumerate(ones)
        ]
        self.add("judgements", OWNER, rows)

    def _score(self, example: str, repetition: int, one: Any, *, metric: str, version: str) -> dict[str, Any]:
        run, said = f"{example}-{repetition}", self._said(one)
        of = {"subject_kind": "run", "subject_id": run, "run_id": run, "experiment_id": OWNER, "example_id": example}
        by = {"metric": metric, "evaluator": metric, "evaluator_version": version, "repetition": repetition}
        return {"judgement_id": f"{run}-{metric}-{version}", **of, **by, **said}

    def _said(self, one: Any) -> dict[str, Any]:
        if one in ("failed", "not_attempted", "not_applicable", "sampled_out"):
            return {"status": one}
        if isinstance(one, str):
            return {"status": "scored", "label": one, "data_type": "CATEGORICAL"}
        kind = "BOOLEAN" if isinstance(one, bool) else "NUMERIC"
        return {"status": "scored", "value": float(one), "data_type": kind}

    def values(self, metric: str = "right") -> MetricValues:
        return self.all[metric]

    @property
    def all(self) -> dict[str, MetricValues]:
        return {one.metric: one for one in metric_values(self.store, self.row)}

    def trials(
        self, metric: str = "right", pass_threshold: float = 1.0, higher: bool = True
    ) -> tuple[list[Any], list[Any]]:
        """How many passed, of how many that were scored, by example."""
        found = trials(
            self.store, self.row, self.values(metric), pass_threshold=pass_threshold, higher_is_better=higher
        )
        return found.passed.tolist(), found.scored.tolist()


@pytest.fixture
def made(store: Store, make: Callable[..., Any]) -> Made:
    return Made(store, make)


@pytest.mark.usefixtures("how_metrics_are_read")
def test_an_examples_value_is_the_mean_of_its_repetitions_in_the_snapshots_order(made: Made) -> None:
    made.scores({"e2": [1.0, 2.0], "e0": [0.0, 0.5], "e1": [3.0, 3.0]})
    found = made.values()
    assert found.values.tolist() == [0.25, 3.0, 1.5]
    assert (found.scored, found.n_missing, found.missing.tolist()) == (6, 0, [False] * 3)
    assert (found.evaluator, found.evaluator_version, found.weights.tolist()) == ("right", "v1", [1.0] * 3)
    made.scores({"e0": [0.0, 1.0], "e1": [1.0, "failed"]}, metric="numbers")
    assert not found.are_0_or_1 and made.values("numbers").are_0_or_1


@pytest.mark.usefixtures("how_metrics_are_read")
def test_what_was_lost_is_missing_and_no_zero_and_what_does_not_apply_is_not(made: Made) -> None:
    lost = ("failed", "not_attempted")
    for status in (*lost, "not_applicable", "sampled_out", "a label"):
        made.scores({"e0": [1.0, 1.0], "e1": [1.0, status], "e2": [status, status]}, metric=status)
    made.scores({"e0": [1.0, 1.0], "e1": [1.0]}, metric="too few")
    made.scores({example: ["failed", "failed"] for example in ("e0", "e1", "e2")}, metric="all failed")
    made.scores({"e0": ["good", "bad"], "e1": ["good", "failed"]}, metric="labels")
    found = made.all
    for status in (*lost, "not_applicable", "sampled_out", "a label"):
        one, is_lost = found[status], status in lost
        np.testing.assert_equal(one.values, [1.0, 1.0, NAN])
        assert (one.missing.tolist(), one.scored) == ([False, is_lost, is_lost], 3), status
        assert one.n_missing == 3 * is_lost
    assert found["too few"].missing.tolist() == [False, True, True]
    assert np.isnan(found["all failed"].values).all() and found["all failed"].n_missing == 6
    assert "labels" not in found


def test_weights_are_one_over_the_rate_of_the_example(made: Made) -> None:
    made.scores({"e0": [1.0, 1.0]}, sampling_rate=1.0)
    made.scores({"e1": [1.0, 1.0], "e2": ["sampled_out"] * 2}, sampling_rate=0.25)
    assert made.values().weights.tolist() == [1.0, 4.0, 4.0]


def test_scores_of_turns_and_of_the_whole_experiment_do_not_count(made: Made) -> None:
    made.scores({"e0": [1.0, 1.0]})
    made.scores({"e0": [0.0, 0.0], "e1": [0.0, 0.0]}, version="v1", turn=1, judgement_id="other")
    made.scores({"e0": [0.0]}, subject_kind="experiment", judgement_id="another")
    found = made.values()
    np.testing.assert_equal(found.values, [1.0, NAN, NAN])
    assert found.scored == 2


def test_what_has_one_run_of_each_example_and_two_values_is_binary(store: Store, make: Callable[..., Any]) -> None:
    cases: dict[int, list[tuple[Scored, bool, bool]]] = {
        1: [
            ({"e0": [True], "e1": [False]}, True, True),
            ({"e0": [1.0], "e1": [0.0]}, False, True),
            ({"e0": [True], "e1": [0.5]}, False, True),
            ({"e0": [1.0], "e1": [0.5], "e2": [0.0]}, False, False),
            ({"e0": [True], "e1": ["failed"]}, True, True),
        ],
        2: [({"e0": [True, False]}, True, False), ({"e0": [1.0, 1.0]}, False, False)],
    }
    for repetitions, of in cases.items():
        made = Made(store, make, repetitions=repetitions)
        for number, (scored, *_) in enumerate(of):
            made.scores(scored, metric=f"{repetitions} {number}")
        for number, (scored, yes_no, binary) in enumerate(of):
            found = made.values(f"{repetitions} {number}")
            assert (found.is_yes_no, found.is_binary) == (yes_no, binary), scored


def test_the_only_run_of_an_example_is_read_as_the_mean_of_one(
    store: Store, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    kinds = [True, False, 0.25, "a label", "failed", "not_attempted", "not_applicable", "sampled_out"]
    made = Made(store, make, examples=50, repetitions=1)
    for metric, of in {"any": kinds, "numbers": [0.5, 1.0, "failed"], "labels": ["a", "b"], "none": ["failed"]}.items():
        scored = {f"e{number}": [draw.choice(of)] for number in range(45)}
        made.scores(scored, metric, sampling_rate=draw.choice([None, 0.5]))
    statuses = {f"e{number}": draw.choice(["ok", "failed"]) for number in range(40)}
    answers = [
        {"run_id": f"{e}-0", "experiment_id": OWNER, "example_id": e, "repetition": 0, "status": status, "length": 9}
        for e, status in statuses.items()
    ]
    made.add("outputs", OWNER, answers)
    found = made.all
    monkeypatch.setattr("evalflows.store.queries.values._ONLY_RUN", metric_values_module._MEANS)
    measures = {"answer_length", "cost", "tokens", "latency"}
    assert {"any", "numbers", "none"} | measures == {*found} == {*made.all}
    for metric, means in made.all.items():
        for field in fields(means):
            np.testing.assert_equal(getattr(found[metric], field.name), getattr(means, field.name), err_msg=metric)


@pytest.mark.usefixtures("how_metrics_are_read")
def test_measures_are_metrics_of_every_run(made: Made) -> None:
    answers = [("e0", 0, 1.0), ("e0", 1, 3.0), ("e1", 0, 5.0)]
    of = {"experiment_id": OWNER, "status": "ok"}
    runs = [{"run_id": f"{e}-{r}", "example_id": e, "repetition": r, "latency_s": s, **of} for e, r, s in answers]
    made.add("outputs", OWNER, runs)
    found = made.values("latency")
    np.testing.assert_equal(found.values, [2.0, 5.0, NAN])
    assert (found.evaluator_version, found.missing.tolist()) == ("measured", [False, True, True])
    assert made.trials("latency", pass_threshold=3.0, higher=False) == ([2, 0, 0], [2, 1, 0])


def test_a_try_passes_from_its_bound_on(made: Made) -> None:
    made.scores({"e0": [0.5, 1.0], "e1": [0.75, 0.7499], "e2": [0.0, 0.0]})
    assert made.trials() == ([1, 0, 0], [2, 2, 2])
    assert made.trials(pass_threshold=0.75) == ([1, 1, 0], [2, 2, 2])
    assert made.trials(pass_threshold=0.0) == ([2, 2, 2], [2, 2, 2])
    assert made.trials(pass_threshold=0.75, higher=False) == ([1, 2, 2], [2, 2, 2]), "where less is better"


def test_tries_are_the_numbers_of_one_metric_and_version_of_whole_runs(made: Made) -> None:
    for status in ("failed", "not_applicable", "a label"):
        made.scores({"e0": [1.0, status], "e1": [status, 0.0], "e2": [status, status]}, metric=status)
        assert made.trials(status) == ([1, 0, 0], [1, 1, 0])
    made.scores({"e0": [1.0, 0.0]})
    made.scores({"e0": [1.0, 1.0]}, metric="another")
    made.scores({"e0": [1.0, 1.0]}, turn=1, judgement_id="other")
    assert made.trials() == ([1, 0, 0], [2, 0, 0])
