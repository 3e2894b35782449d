"""What each mart costs on a million scores: all of it, and one experiment of it, on a warm connection.

Run from the repository's root: `python -m benchmarks.marts`. The store is packed, as `evalflows compact` does it;
some marts are read before that, too, from a file for each experiment. Wanted: at most 300 ms.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from evalflows.store import packing
from evalflows.store.records import dependent_id, derived_id, to_json
from evalflows.store.schemas import TABLES, schema_of
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.store.views import is_mart, view_files

EXPERIMENTS, EXAMPLES, LINES, WARM_UP, TIMES, WANTED_MS = 500, 1000, 5, 1, 5, 300
METRICS = ("exact_match", "helpful")
NEW = (
    *("experiment_pairs", "changes", "metric_history", "cost_and_latency", "failures", "judge_health"),
    *("example_history", "metric_summary", "results"),
)
"""Marts that are also read whole."""
BEFORE = ("item_scores", "results", "failures", "metric_summary")
"""Marts that are also read before the store is packed."""

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
        "judgement_id": [derived_id(run, metric) for metric in METRICS for run in runs],
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
    return column_table("judgements", columns, count)


def fill(store: Store, experiments: int) -> tuple[str, str]:
    """Write the experiments as finished runs leave them; return the ids of the last one, and of the one before it."""
    items = [
        {"id": f"q{i}", "inputs": {"question": f"question {i}"}, "outputs": {"answer": i}} for i in range(EXAMPLES)
    ]
    rows = to_examples(enumerate(items, start=1), "rows")
    snapshot, examples = freeze(store, rows, name="items", source="rows"), [row.example_id for row in rows]
    hard, owners = rng.random(EXAMPLES), []
    for number in range(experiments):
        identity, row = experiment(number, snapshot)
        runs = [derived_id(identity, example) for example in examples]
        owners.append(identity)
        store.publish("experiments", identity, row)
        store.publish("outputs", identity, answers(identity, examples, runs))
        store.publish("judgements", identity, scores(identity, examples, runs, hard))
    return owners[-1], owners[-1 - LINES]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def warm_ms(catalog: duckdb.DuckDBPyConnection, query: str) -> float:
    """The median of the query's times, all of its rows fetched as Arrow, after WARM_UP times."""
    times = [seconds(lambda: catalog.sql(query).to_arrow_table()) for _ in range(WARM_UP + TIMES)]
    return 1000 * median(times[WARM_UP:])


def part_of(mart: str, identity: str, before: str) -> tuple[str, str]:
    """What people ask of a mart at once: one experiment, one line, one example; and the condition that says so."""
    return {
        "experiment_pairs": ("one candidate", f"candidate_experiment_id = '{identity}'"),
        "changes": ("one pair", f"candidate_experiment_id = '{identity}' and baseline_experiment_id = '{before}'"),
        "metric_history": ("one line", "experiment = 'system-0' and metric = 'helpful'"),
        "example_history": ("one example", "example_id = 'q5'"),
        "judge_health": ("one judge", "evaluator_version = '0123abcd'"),
        "datasets": ("one dataset", "name = 'items'"),
    }.get(mart, ("one experiment", f"experiment_id = '{identity}'"))


def show(what: str, ms: float) -> None:
    print(f"{what:<58} {ms:8.0f} ms   {'ok' if ms <= WANTED_MS else f'MORE THAN {WANTED_MS}'}", flush=True)


def measure(root: Path) -> None:
    store = Store(root)
    identity, before = fill(store, EXPERIMENTS)
    print(f"{EXPERIMENTS} experiments x {EXAMPLES} examples x {len(METRICS)} metrics; medians of {TIMES} warm queries")
    print("each experiment in files of its own:")
    measure_marts(root, BEFORE, identity, before)
    packing.SETTLED_S = 0.0  # the files were written just now
    print(f"packed, which took {seconds(lambda: packing.pack(store)):.1f} s:")
    measure_marts(root, [path.stem for path in view_files() if is_mart(path)], identity, before)


def measure_marts(root: Path, marts: Sequence[str], identity: str, before: str) -> None:
    with connect(root) as catalog:
        show("changes_between, one pair", warm_ms(catalog, f"from changes_between('{identity}', '{before}')"))
        for mart in marts:
            columns = {name for name, *_ in catalog.execute(f"describe {mart}").fetchall()}
            name, condition = part_of(mart, identity, before)
            if condition.partition(" ")[0] in columns:
                show(f"{mart}, {name}", warm_ms(catalog, f"from {mart} where {condition}"))
            show(f"{mart}, count(*)", warm_ms(catalog, f"select count(*) from {mart}"))
            if mart in NEW:
                show(f"{mart}, all rows", warm_ms(catalog, f"from {mart}"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as folder:
        measure(Path(folder) / "store")
