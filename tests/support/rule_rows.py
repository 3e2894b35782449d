"""The rows of an experiment, to compare with those of another."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from user_places import without_places

from evalflows.engine.chunks import rounds_of
from evalflows.engine.order import waves_of
from evalflows.specs import ExperimentSpec
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store
from evalflows.tasks.snapshot import check_and_freeze
from evalflows.tasks.start import start_experiments
from evalflows.tasks.work_through import execute_rounds, judge

OF_THE_RUN = (
    "judgement_id",
    "subject_id",
    "experiment_id",
    "run_id",
    "recorded_at",
    "started_at",
    "round_at",
    "latency_s",
)


def comparable(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return rows without what differs between runs, in a fixed order."""
    kept = [{k: v for k, v in asdict(row).items() if k not in OF_THE_RUN and v is not None} for row in rows]
    for row in kept:
        row["evaluator_version"] = "" if "evaluator_version" in row else None
        row["error_trace"] = "error_trace" in row
        row["error"] = without_places(row["error"]) if "error" in row else None
    return sorted(kept, key=lambda row: json.dumps(row, sort_keys=True))


def stored(experiment: ExperimentRow) -> dict[str, list[Any]]:
    return {table: Store().read(table, experiment.experiment_id) for table in ("outputs", "judgements")}


def run_without_flow(spec: ExperimentSpec) -> ExperimentRow:
    """Answer and judge the examples, and return the first experiment."""
    run = check_and_freeze(spec)
    try:
        experiments = start_experiments.fn(run)
        for wave in waves_of(rounds_of(experiments), spec.batch):
            for rounds in wave:
                execute_rounds.fn(run, rounds)
                for chunk in rounds.chunks:
                    judge.fn(run, chunk)
        return experiments[0]
    finally:
        run.end_processes()
