"""What the store's views cost over a plain Parquet file: a million sealed scores, asked the same two questions.

Run from the repository's root: `python -m benchmarks.sealed_scores`. Wanted: ratios of at most 1.5.
"""

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from statistics import median

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.arguments import new_parser
from evalflows.store.files import ROWS_PER_GROUP
from evalflows.store.records import new_id, now
from evalflows.store.schemas import TABLES, schema_of
from evalflows.store.sql import connect
from evalflows.store.store import Store

EXPERIMENTS, ROWS, PAIRS, OPEN_PARTS, WARM_UP, WANTED = 10, 100_000, 25, 20, 3, 1.5
SMALLEST = 2, 100, 1
"""Experiments, rows of each, and pairs."""

METRICS = ["exact_match", "contains", "helpful", "concise", "latency"]
BY_METRIC = "select experiment_id, metric, avg(value), count(value) from {} group by all"
ONE_EXPERIMENT = "select metric, avg(value), count(value) from {} where experiment_id = '{}' group by all"

rng = np.random.default_rng(7)


def hex_ids(rows: int) -> pa.Array:
    """As many texts of 32 hex digits, like the ids of runs and scores."""
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * 32).buffers()[1]
    return pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(rng.bytes(16 * rows).hex().encode()))


def scores(experiment: str, rows: int) -> pa.Table:
    """The scores of one experiment: each run by all metrics, one in twenty of them failed."""
    runs = rows // len(METRICS)
    failed = rng.random(rows) < 0.05
    texts = {"experiment_id": experiment, "subject_kind": "run", "evaluator": "judge", "evaluator_version": "0123abcd"}
    columns = {name: pa.repeat(text, rows) for name, text in (texts | {"metadata": '{"tier":1}'}).items()}
    columns |= {name: hex_ids(runs).take(np.repeat(np.arange(runs), len(METRICS))) for name in ("run_id", "example_id")}
    columns |= {"judgement_id": hex_ids(rows), "subject_id": columns["run_id"], "metric": pa.array(METRICS * runs)}
    columns |= {"status": pa.array(np.where(failed, "failed", "scored")), "recorded_at": pa.repeat(now(), rows)}
    columns |= {"value": pa.array(rng.random(rows).round(3), mask=failed), "latency_s": pa.array(rng.random(rows))}
    columns |= {name: pa.array(rng.integers(1, 400, rows)) for name in ("attempts", "calls", "calls_cached")}
    schema = schema_of(TABLES["judgements"].record)
    return pa.table([columns.get(f.name, pa.nulls(rows)).cast(f.type) for f in schema], schema=schema)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(what: str, root: Path, plain: Path, n_pairs: int, query: str, *values: str) -> None:
    """Ask the store and the file alternately; print both medians and their ratio."""
    views, file = connect(root), duckdb.connect()
    of_views, of_file = query.format("scores", *values), query.format(f"read_parquet('{plain}')", *values)
    answers = [c.execute(q).fetchall() for c, q in ((views, of_views), (file, of_file))]
    kept, wanted = ({(*row[:-2], row[-1]) for row in rows if row[0] != "running"} for rows in answers)
    assert kept == wanted, f"{what}: the answers differ"
    pairs = [
        (seconds(lambda: views.execute(of_views).fetchall()), seconds(lambda: file.execute(of_file).fetchall()))
        for _ in range(WARM_UP + n_pairs)
    ]
    ours, theirs = (1000 * median(times) for times in zip(*pairs[WARM_UP:], strict=True))
    verdict = "ok" if ours / theirs <= WANTED else f"MORE THAN {WANTED}"
    print(f"{what:<44} store {ours:6.1f} ms   file {theirs:6.1f} ms   ratio {ours / theirs:.2f}  {verdict}")


def publish(root: Path, tables: dict[str, pa.Table]) -> None:
    for owner, table in tables.items():
        Store(root).publish("judgements", owner, table)


def measure(root: Path, plain: Path, experiments: int, rows: int, n_pairs: int) -> None:
    tables = {owner: scores(owner, rows) for owner in (new_id("exp") for _ in range(experiments))}
    print(f"{experiments} experiments, {experiments * rows:,} scores; medians of {n_pairs} pairs after {WARM_UP}")
    print(f"set-up: new store {seconds(lambda: Store(root)):.3f} s")
    print(f"set-up: publish all {seconds(lambda: publish(root, tables)):.3f} s")
    pq.write_table(pa.concat_tables(tables.values()), plain, compression="zstd", row_group_size=ROWS_PER_GROUP)
    print(f"set-up: connect with all views {median(seconds(lambda: connect(root)) for _ in range(n_pairs)):.3f} s")
    for state in ("sealed", f"sealed, {OPEN_PARTS} open parts"):
        compare(f"{state}: mean and count by metric", root, plain, n_pairs, BY_METRIC)
        compare(f"{state}: one experiment", root, plain, n_pairs, ONE_EXPERIMENT, list(tables)[experiments // 2])
        for part in range(OPEN_PARTS):  # a running experiment, for the second round
            Store(root).append("judgements", "running", f"part-{part}", scores("running", len(METRICS)))


def parse_arguments() -> Namespace:
    return new_parser("sealed_scores", __doc__).parse_args()


def main() -> None:
    size = SMALLEST if parse_arguments().smallest else (EXPERIMENTS, ROWS, PAIRS)
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as folder:
        measure(Path(folder) / "store", Path(folder) / "scores.parquet", *size)


if __name__ == "__main__":
    main()
