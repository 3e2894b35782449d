"""A history of experiments, row by row as runs leave them: their scores are given, nothing is run."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.records import BaselineRow, DataType, ExperimentRow, JudgementRow, OutputRow, derived_id
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)
FAILED, ABSTAINED, NOT_DRAWN = -99.0, -98.0, -97.0
"""Instead of a score: its evaluator failed, did not apply to the answer, or judged a sample without it."""


class Past:
    """Experiments exp-000, exp-001, …, a day apart, each later than the one before."""

    def __init__(
        self,
        clusters: Sequence[str] | None = None,
        repetitions: int = 1,
        fields: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """`fields` are further fields of the examples, such as their split."""
        self.store, self.clusters, self.repetitions, self.fields = Store(), clusters, repetitions, fields
        self.rows: list[ExperimentRow] = []

    def spec(self, name: str = "qa", **changes: Any) -> ExperimentSpec:
        fields: dict[str, Any] = {
            "name": name,
            "dataset": {"rows": [{"id": "e0", "inputs": "e0?"}]},
            "targets": [{"kind": "python", "name": "bot", "function": "bot:answer"}],
            "repetitions": self.repetitions,
        }
        return ExperimentSpec.model_validate(fields | changes)

    def experiment(
        self,
        scores: Mapping[str, Any],
        *,
        yes_no: Collection[str] = (),
        target_version: str = "v1",
        judged_by: str = "e1",
        models: Mapping[str, str] | None = None,
        examples: Sequence[str] | None = None,
        spec: ExperimentSpec | None = None,
        **fields: Any,
    ) -> ExperimentRow:
        """Keep one. Scores are arrays of examples, or of examples by repetitions: bool for yes or no, as are those of
        the metrics called `yes_no`; `models` are the judge models of metrics."""
        given = {metric: _by_repetition(values) for metric, values in scores.items()}
        n, repetitions = next(iter(given.values())).shape
        identity, names = f"exp-{len(self.rows):03}", examples or [f"e{place}" for place in range(n)]
        clusters: Sequence[str | None] = self.clusters or [None] * n
        rows = [
            {"id": one, "inputs": f"{one}?"} | ({"cluster": of} if of else {}) | dict(further)
            for one, of, further in zip(names, clusters, self.fields or [{}] * n, strict=True)
        ]
        snapshot = freeze(self.store, to_examples(enumerate(rows), "rows"), name=None, source="rows")
        row = ExperimentRow(
            **{
                "experiment_id": identity,
                "run_group": f"group of {identity}",
                "name": identity,
                "dataset_name": "questions",
                "snapshot_id": snapshot,
                "n_examples": n,
                "repetitions": repetitions,
                "chunk_size": 250,
                "target": "bot",
                "target_kind": "python",
                "target_version": target_version,
                "evaluators": json.dumps([{"name": metric, "version": judged_by} for metric in given]),
                "spec": (spec or self.spec()).model_dump_json(),
                "evalflows_version": "0",
                "state": "completed",
                "started_at": START + timedelta(days=len(self.rows)),
                **fields,
            }
        )
        self.rows.append(row)
        self.store.publish("experiments", identity, [row])
        self.store.publish("outputs", identity, _outputs(identity, names, repetitions))
        made = [
            _score(identity, metric, judged_by, names, values, metric in yes_no, (models or {}).get(metric))
            for metric, values in given.items()
        ]
        self.store.publish("judgements", identity, [one for some in made for one in some])
        return row

    def approve(self, row: ExperimentRow, name: str = "qa") -> None:
        """Approved half a day after it started."""
        made = BaselineRow(
            baseline_id=f"base-{row.experiment_id}", name=name, experiment_id=row.experiment_id, approved_by="me"
        )
        made = replace(made, recorded_at=row.started_at + timedelta(hours=12))
        self.store.publish("baselines", made.baseline_id, [made])


def guard(margin: float = 0.05, **fields: Any) -> GateSpec:
    return GateSpec.model_validate({"non_inferiority": {"right": margin}} | fields)


def passes(rate: float, n: int, seed: int, repetitions: int = 1) -> "np.ndarray[Any, Any]":
    """Yes or no by chance, so often yes."""
    return np.random.default_rng(seed).random((n, repetitions)) < rate


def _by_repetition(values: Any) -> "np.ndarray[Any, Any]":
    array = np.asarray(values)
    return array[:, None] if array.ndim == 1 else array


def _score(
    owner: str, metric: str, version: str, names: Sequence[str], values: Any, is_yes_no: bool, model: str | None
) -> list[JudgementRow]:
    kind: DataType = "BOOLEAN" if is_yes_no or values.dtype == bool else "NUMERIC"
    return [
        JudgementRow(
            judgement_id=derived_id(owner, metric, example, repetition),
            subject_kind="run",
            subject_id=derived_id(owner, example, repetition),
            run_id=derived_id(owner, example, repetition),
            experiment_id=owner,
            example_id=example,
            repetition=repetition,
            metric=metric,
            evaluator=metric,
            evaluator_version=version,
            judge_model=model,
            data_type=kind,
            **_became(float(value)),
        )
        for example, some in zip(names, values, strict=True)
        for repetition, value in enumerate(some)
    ]


def _became(value: float) -> dict[str, Any]:
    if value == ABSTAINED:
        return {"status": "not_applicable"}
    if value == NOT_DRAWN:
        return {"status": "sampled_out", "sampling_rate": 0.5}
    return {"status": "failed", "error": "down"} if value == FAILED else {"status": "scored", "value": value}


def _outputs(owner: str, names: Sequence[str], repetitions: int) -> list[OutputRow]:
    return [
        OutputRow(
            run_id=derived_id(owner, example, repetition),
            experiment_id=owner,
            example_id=example,
            repetition=repetition,
            outputs="{}",
            length=2,
            status="ok",
        )
        for example in names
        for repetition in range(repetitions)
    ]
