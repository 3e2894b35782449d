"""Specs to plan, and a store whose experiments have known variances."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from evalflows.analysis.plan import MetricPlan, Plan, SampleSizes
from evalflows.specs import ExperimentSpec
from evalflows.store.ingest import load_dataset
from evalflows.store.records import CallRow, ExperimentRow, JudgementRow, derived_id, to_json
from evalflows.store.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)
Values = npt.NDArray[np.float64]


def dataset_rows(n: int, cluster: int | None = None) -> list[dict[str, Any]]:
    """n examples; with `cluster`, in clusters of that size."""
    clusters = [{} if cluster is None else {"cluster": f"c{i // cluster}"} for i in range(n)]
    return [
        {"id": f"q{i:05}", "inputs": {"question": f"q{i}?"}, "outputs": {"answer": f"a{i}"}, **clusters[i]}
        for i in range(n)
    ]


def recorded_spec(n: int, cluster: int | None = None, **changes: Any) -> ExperimentSpec:
    """Two recorded targets, scored by a user's function that declares nothing about its scores."""
    fields: dict[str, Any] = {
        "name": "planned",
        "dataset": {"rows": dataset_rows(n, cluster), "name": "questions"},
        "targets": [{"kind": "recorded", "name": name, "column": "reference_outputs"} for name in ("old", "new")],
        "evaluators": [{"use": "judges:longer_than", "name": "quality"}],
    }
    return ExperimentSpec.model_validate(fields | changes)


def store_experiments(
    sides: Mapping[str, Values], spec: ExperimentSpec, *, metric: str = "quality", is_yes_no: bool = False, age: int = 0
) -> None:
    """Store a run group with one experiment per side; its values have shape (examples, repetitions)."""
    store = Store()
    loaded = load_dataset(store, spec.dataset)
    snapshot = loaded.keep(store)
    ids = [example.example_id for example in loaded.selected]
    for name, values in sides.items():
        owner = f"exp-{age}-{name}"
        scores = [
            score_row(owner, ids[place], repetition, metric, float(value), is_yes_no)
            for place, runs in enumerate(values)
            for repetition, value in enumerate(runs)
            if not math.isnan(value)
        ]
        row = experiment_row(owner, name, snapshot, values.shape, spec, START - timedelta(days=age))
        store.publish("judgements", owner, scores)
        store.publish("experiments", owner, [row])


def score_row(owner: str, example: str, repetition: int, metric: str, value: float, is_yes_no: bool) -> JudgementRow:
    run = derived_id(owner, example, repetition)
    return JudgementRow(
        judgement_id=derived_id(run, None, metric, "v1"),
        subject_kind="run",
        subject_id=run,
        experiment_id=owner,
        run_id=run,
        example_id=example,
        repetition=repetition,
        metric=metric,
        value=value,
        data_type="BOOLEAN" if is_yes_no else "NUMERIC",
        status="scored",
        evaluator=metric,
        evaluator_version="v1",
    )


def experiment_row(
    owner: str, name: str, snapshot: str, shape: Sequence[int], spec: ExperimentSpec, at: datetime, **fields: Any
) -> ExperimentRow:
    given: dict[str, Any] = {
        "experiment_id": owner,
        "run_group": f"group of {at:%Y-%m-%d}",
        "name": name,
        "dataset_name": "questions",
        "snapshot_id": snapshot,
        "n_examples": shape[0],
        "repetitions": shape[1],
        "chunk_size": 250,
        "target": name,
        "target_kind": "recorded",
        "target_version": "v1",
        "evaluators": "[]",
        "spec": to_json({"targets": [{"name": target.name} for target in spec.targets]}),
        "evalflows_version": "0",
        "state": "completed",
        "started_at": at,
    }
    return ExperimentRow(**given | fields)


def normal_values(
    n: int, k: int, *, between: float, within: float, seed: int = 0, cluster: int = 1
) -> dict[str, Values]:
    """Two sides whose true differences have the sd `between` across examples, or clusters, and whose repetitions have
    the sd `within`. The difficulty of an example is the same on both sides and cancels."""
    draw = np.random.default_rng(seed).normal
    hard = draw(0, 5, (n, 1))
    differences = np.repeat(draw(0, between, (n // cluster, 1)), cluster, axis=0)
    return {"old": hard + draw(0, within, (n, k)), "new": hard + differences + draw(0, within, (n, k))}


def yes_no_values(n: int, *, gained: float, n_missing: float, seed: int = 0) -> dict[str, Values]:
    """Shares of examples that only the new and only the old side gets right; half of the others are right on both."""
    kinds = np.random.default_rng(seed).random(n)
    both = np.random.default_rng(seed + 1).random(n) < 0.5
    new = np.where(kinds < gained, 1.0, np.where(kinds < gained + n_missing, 0.0, both))
    old = np.where(kinds < gained, 0.0, np.where(kinds < gained + n_missing, 1.0, both))
    return {"old": old[:, None].astype(float), "new": new[:, None].astype(float)}


def metric_of(made: Plan) -> MetricPlan:
    (metric,) = made.metrics
    return metric


def sample_sizes(made: Plan) -> SampleSizes:
    (sizes,) = metric_of(made).sample_sizes
    return sizes


CONNECTIONS = {
    "mine": {
        "kind": "endpoint",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "m",
        "api_key_env": "NO_SUCH_KEY_AT_ALL",
        "usd_per_million_input_tokens": 100,
        "usd_per_million_output_tokens": 1000,
    },
    "free": {"kind": "endpoint", "base_url": "http://127.0.0.1:8/v1", "model": "n"},
}


def chat_spec(n: int = 40, **changes: Any) -> ExperimentSpec:
    """Two chat targets on two connections; the second one has no price."""
    chat = {"kind": "chat", "user": "{question}"}
    targets = [chat | {"name": "old", "connection": "mine", "max_tokens": 20}]
    targets += [chat | {"name": "new", "connection": changes.pop("second", "free")}]
    return recorded_spec(n, **{"targets": targets, "connections": CONNECTIONS, "evaluators": [], **changes})


def call_row(owner: str, **fields: Any) -> CallRow:
    given: dict[str, Any] = {
        "call_id": derived_id(owner, *map(str, fields.values())),
        "call_key": "k",
        "experiment_id": owner,
        "connection": "mine",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "m",
        "request": "{}",
        "status": "ok",
        "reusable": True,
        "tokens_in": 30,
        "tokens_out": 7,
        "cost_usd": 0.01,
        "started_at": START,
    }
    return CallRow(**given | fields)
