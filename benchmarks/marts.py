"""What each mart costs on a million scores: all of it, and one experiment of it, on a warm connection.

Run from the repository's root: `python -m benchmarks.marts`. The store is packed, as `evalflows compact` does it;
some marts are read before that, too, from a file for each experiment. Wanted: at most 300 ms.
"""

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.arguments import new_parser
from evalflows.store import packing
from evalflows.store.records import dependent_id, derived_id, to_json
from evalflows.store.schemas import TABLES, schema_of
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.store.views import is_mart, view_files

LINES, WANTED_MS = 5, 300
METRICS = ("exact_match", "helpful")
NEW = (
    *("experiment_pairs", "changes", "metric_history", "cost_and_latency", "failures", "judge_health"),
    *("example_history", "metric_summary", "results"),
)
"""Marts that are also read whole."""
BEFORE = ("item_scores", "results", "failures", "metric_summary")
"""Marts that are also read before the store is packed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is in the store, and how often and how many marts are read."""

    experiments: int = 500
    examples: int = 1000
    warm_up: int = 1
    times: int = 5
    marts: int | None = None


SMALLEST = Size(experiments=10, examples=10, warm_up=0, times=1, marts=2)

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


def experiment(number: int, snapshot: str, n_examples: int) -> tuple[str, pa.Table]:
    """Return an experiment's id and row: LINES systems in turn, each with a new version every ten times."""
    at = START + timedelta(hours=number)
    identity, system = dependent_id("exp", at, str(number)), number % LINES
    columns = {
        "experiment_id": identity,
        "run_group": f"group-{number}",
        "name": f"system-{system}",
        "dataset_name": "items",
        "snapshot_id": snapshot,
        "n_examples": n_examples,
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
        "calls": n_examples,
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


def fill(store: Store, size: Size) -> tuple[str, str]:
    """Write the experiments as finished runs leave them; return the ids of the last one, and of the one before it."""
    items = [
        {"id": f"q{i}", "inputs": {"question": f"question {i}"}, "outputs": {"answer": i}} for i in range(size.examples)
    ]
    rows = to_examples(enumerate(items, start=1), "rows")
    snapshot, examples = freeze(store, rows, name="items", source="rows"), [row.example_id for row in rows]
    hard, owners = rng.random(size.examples), []
    for number in range(size.experiments):
        identity, row = experiment(number, snapshot, size.examples)
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


def warm_ms(catalog: duckdb.DuckDBPyConnection, query: str, size: Size) -> float:
    """Return the median of the query's times, all of its rows fetched as Arrow, after those that warm it up."""
    times = [seconds(lambda: catalog.sql(query).to_arrow_table()) for _ in range(size.warm_up + size.times)]
    return 1000 * median(times[size.warm_up :])


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


def measure(root: Path, size: Size) -> None:
    store = Store(root)
    identity, before = fill(store, size)
    filled = f"{size.experiments} experiments x {size.examples} examples x {len(METRICS)} metrics"
    print(f"{filled}; medians of {size.times} warm queries")
    print("each experiment in files of its own:")
    measure_marts(root, BEFORE[: size.marts], identity, before, size)
    packing.SETTLED_S = 0.0  # the files were written just now
    print(f"packed, which took {seconds(lambda: packing.pack(store)):.1f} s:")
    marts = [path.stem for path in view_files() if is_mart(path)]
    measure_marts(root, marts[: size.marts], identity, before, size)


def measure_marts(root: Path, marts: Sequence[str], identity: str, before: str, size: Size) -> None:
    with connect(root) as catalog:

        def show_query(what: str, query: str) -> None:
            show(what, warm_ms(catalog, query, size))

        show_query("changes_between, one pair", f"from changes_between('{identity}', '{before}')")
        for mart in marts:
            columns = {name for name, *_ in catalog.execute(f"describe {mart}").fetchall()}
            name, condition = part_of(mart, identity, before)
            if condition.partition(" ")[0] in columns:
                show_query(f"{mart}, {name}", f"from {mart} where {condition}")
            show_query(f"{mart}, count(*)", f"select count(*) from {mart}")
            if mart in NEW:
                show_query(f"{mart}, all rows", f"from {mart}")


def parse_arguments() -> Namespace:
    return new_parser("marts", __doc__).parse_args()


def main() -> None:
    size = SMALLEST if parse_arguments().smallest else Size()
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as folder:
        measure(Path(folder) / "store", size)


if __name__ == "__main__":
    main()
