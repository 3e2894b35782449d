"""What each mart costs on a million scores: all of it, and one experiment of it, on a warm connection.

Run from the repository's root: `python -m benchmarks.marts`. Wanted: at most 300 ms for one experiment.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from evalflows.store.parquet import Store
from evalflows.store.records import dependent_id, derived_id, to_json
from evalflows.store.schemas import TABLES, schema_of
from evalflows.store.snapshots import freeze, to_examples

EXPERIMENTS, EXAMPLES, LINES, WARM_UP, TIMES, WANTED_MS = 500, 1000, 5, 1, 5, 300
METRICS = ("exact_match", "helpful")
START = datetime(2026, 1, 1, tzinfo=UTC)

rng = np.random.default_rng(7)


def column_table(table: str, columns: dict[str, Any], rows: int) -> pa.Table:
    """Rows of a table; what is one value is the same in each row, and what is not given is null."""
    schema = schema_of(TABLES[table].record)
    full = {
        name: pa.repeat(one, rows) if np.isscalar(one) or isinstance(one, datetime) else pa.array(one)
        for name, one in columns.items()
    }
    return pa.table([full.get(f.name, pa.nulls(rows)).cast(f.type) for f in schema], schema=schema)


def experiment(number: int, snapshot: str) -> tuple[str, pa.Table]:
    """Return an experiment's id and row: LINES systems in turn, each with a new version every ten times."""
    at = START + timedelta(hours=number)
    identity, system = dependent_id("exp", at, str(number)), number % LINES
    columns = {
        "experiment_id": identity,
        "run_group": f"group-{number}",
        "name": f"system-{system}",
        "dataset_name": "items",
        "snapshot_id": snapshot,
        "n_examples": EXAMPLES,
        "repetitions": 1,
        "chunk_size": 100,
        "target": f"system-{system}",
        "target_kind": "python",
        "target_version": f"v{number // (10 * LINES)}",
        "evaluators": "[]",
        "spec": to_json({"metrics": {}}),
        "evalflows_version": "0",
        "state": "completed",
        "started_at": at,
        "ended_at": at,
        "recorded_at": at,
        "cost_usd": 1.0,
        "calls": EXAMPLES,
        "tags": [[]],
    }
    return identity, column_table("experiments", columns, 1)


def answers(identity: str, examples: list[str], runs: list[str]) -> pa.Table:
    columns = {
        "run_id": runs,
        "experiment_id": identity,
        "example_id": examples,
        "repetition": 0,
        "outputs": [to_json({"answer": f"answer {i} {'x' * 200}"}) for i in range(len(runs))],
        "length": rng.integers(10, 500, len(runs)),
        "status": np.where(rng.random(len(runs)) < 0.02, "failed", "ok"),
        "error": None,
        "attempts": 1,
        "latency_s": rng.random(len(runs)),
        "tokens_in": 100,
        "tokens_out": 20,
        "cost_usd": 0.001,
        "calls": 1,
        "calls_cached": 0,
        "recorded_at": START,
    }
    return column_table("outputs", {name: one for name, one in columns.items() if one is not None}, len(runs))


def scores(identity: str, examples: list[str], runs: list[str], hard: Any) -> pa.Table:
    """Two metrics of each run, one in fifty failed; harder examples are right less often."""
    count = len(runs) * len(METRICS)
    failed = rng.random(count) < 0.02
    right = (rng.random(count) > np.tile(hard, len(METRICS))).astype(float)
    columns = {
        "score_id": [derived_id(run, metric) for metric in METRICS for run in runs],
        "subject_kind": "run",
        "subject_id": runs * len(METRICS),
        "experiment_id": identity,
        "run_id": runs * len(METRICS),
        "example_id": examples * len(METRICS),
        "repetition": 0,
        "metric": np.repeat(METRICS, len(runs)),
        "value": pa.array(right, mask=failed),
        "data_type": "BOOLEAN",
        "status": np.where(failed, "failed", "scored"),
        "evaluator": np.repeat(METRICS, len(runs)),
        "evaluator_version": "0123abcd",
        "attempts": 1,
        "judge_model": pa.array(np.repeat(["", "model"], len(runs)), mask=np.repeat([True, False], len(runs))),
        "cost_usd": 0.0001,
        "calls": 1,
        "calls_cached": 0,
        "latency_s": rng.random(count),
        "recorded_at": START,
    }
    return column_table("scores", columns, count)


def fill(store: Store, experiments: int) -> str:
    """Write the experiments as finished runs leave them; return the id of one of them."""
    items = [
        {"id": f"q{i}", "inputs": {"question": f"question {i}"}, "outputs": {"answer": i}} for i in range(EXAMPLES)
    ]
    rows = to_examples(enumerate(items, start=1), "rows")
    snapshot, examples = freeze(store, rows, name="items", source="rows"), [row.example_id for row in rows]
    hard = rng.random(EXAMPLES)
    for number in range(experiments):
        identity, row = experiment(number, snapshot)
        runs = [derived_id(identity, example) for example in examples]
        store.publish("experiments", identity, row)
        store.publish("outputs", identity, answers(identity, examples, runs))
        store.publish("scores", identity, scores(identity, examples, runs, hard))
    return identity


if __name__ == "__main__":
    import sys

    fill(Store(sys.argv[1]), EXPERIMENTS)
