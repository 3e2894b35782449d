"""How fast the dashboard answers, at the server: its pages on a store of 30 experiments, then on one of 2,000
experiments and 10 million scores.

Run from the repository's root: `python -m benchmarks.pages [STORE]`, about three minutes, of which most make the large
store; one that is kept at STORE is used again, and nothing else is measured. Wanted: every page of 30 experiments in
less than 300 ms, and the list of 2,000 in less than 500 ms.
"""

import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from starlette.testclient import TestClient

from benchmarks.arguments import new_parser
from benchmarks.sealed_scores import hex_ids, rng, scores
from evalflows.dashboard.app import application
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store import packing
from evalflows.store.layout import Layout
from evalflows.store.records import (
    DecisionRow,
    EstimateRow,
    ExampleRow,
    ExperimentRow,
    SnapshotRow,
    VerdictRow,
    derived_id,
    new_id,
    to_json,
)
from evalflows.store.schemas import TABLES, schema_of, to_arrow
from evalflows.store.store import Store, is_store

TARGETS = ("prompt-a", "prompt-b")
METRICS = ("exact_match", "contains", "helpful", "concise", "latency", "cost", "tokens", "length")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_MS = 10_000
"""A page that takes longer is asked for twice."""

WANTED_MS, WANTED_OF_FEW_MS = 500, 300
"""Of the list of experiments, and of every page of FEW. The other figures say how size slows a page down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The lines of experiments in a store, the runs of each, of all targets, the examples of a run, and how often a
    page is asked for again."""

    lines: int
    runs: int
    examples: int = 1000
    warm: int = 9


FEW, MANY = Size(lines=1, runs=15), Size(lines=40, runs=25)
SMALLEST = Size(lines=1, runs=1, examples=5, warm=1)


def spec(name: str) -> str:
    given = {
        "name": name,
        "dataset": {"rows": [{"id": "q", "inputs": "q?"}]},
        "targets": [{"kind": "python", "name": target, "function": "app:answer"} for target in TARGETS],
    }
    return ExperimentSpec.model_validate(given).model_dump_json()


def experiment(line: int, group: str, target: str, at: datetime, n_examples: int) -> ExperimentRow:
    name = f"line-{line:02}"
    return ExperimentRow(
        experiment_id=new_id("exp", at),
        run_group=group,
        name=f"{name}-{target}",
        tags=["nightly", f"team-{line % 5}"],
        dataset_name=f"questions-{line % 4}",
        snapshot_id="snap-0",
        n_examples=n_examples,
        repetitions=1,
        chunk_size=50,
        target=target,
        target_kind="python",
        target_version="v1",
        evaluators=to_json([{"name": metric, "version": "0123abcd"} for metric in METRICS[:4]]),
        spec=spec(name),
        git_commit=f"{line:07x}",
        evalflows_version="0",
        state="completed",
        calls=n_examples,
        calls_cached=0,
        cost_usd=1.25,
        started_at=at,
        ended_at=at + timedelta(minutes=5),
    )


def estimates(identity: str, n_examples: int) -> list[EstimateRow]:
    means = rng.random(len(METRICS))
    return [
        EstimateRow(
            estimate_id=derived_id(identity, metric),
            experiment_id=identity,
            metric=metric,
            evaluator_version="0123abcd" if metric in METRICS[:4] else "measured",
            mean=mean,
            ci_low=mean - 0.03,
            ci_high=mean + 0.03,
            confidence_level=0.95,
            method="wilson",
            n_examples=n_examples,
        )
        for metric, mean in zip(METRICS, means, strict=True)
    ]


def verdicts(group: str, baseline: str, candidate: str, n_pairs: int) -> list[VerdictRow]:
    counts = {"candidate_scored": n_pairs, "candidate_missing": 0, "baseline_scored": n_pairs, "baseline_missing": 0}
    return [
        VerdictRow(
            verdict_id=derived_id(group, metric),
            run_group=group,
            metric=metric,
            candidate_experiment_id=candidate,
            baseline_experiment_id=baseline,
            difference=0.01,
            ci_low=-0.02,
            ci_high=0.04,
            confidence_level=0.95,
            p_value=0.4,
            p_adjusted=0.8,
            method="bca",
            n_pairs=n_pairs,
            conclusion="not_enough_evidence",
            reason_code="no_significant_difference",
            **counts,
        )
        for metric in METRICS
    ]


def decision(candidate: str, baseline: str, at: datetime) -> DecisionRow:
    return DecisionRow(
        decision_id=new_id("dec", at),
        gate="release",
        candidate_experiment_id=candidate,
        baseline_experiment_id=baseline,
        conclusion="PASS",
        summary="no worse",
        reasons="[]",
        policy="{}",
        confidence_level=0.95,
        evalflows_version="0",
        decided_at=at,
    )


def outputs(identity: str, examples: list[str], runs: pa.Array) -> pa.Table:
    rows = len(examples)
    columns = {"experiment_id": pa.repeat(identity, rows), "example_id": pa.array(examples), "run_id": runs}
    columns |= {"repetition": pa.repeat(0, rows), "status": pa.repeat("ok", rows), "attempts": pa.repeat(1, rows)}
    columns |= {"outputs": pa.repeat('{"answer":"The capital of France is Paris."}', rows)}
    columns |= {"latency_s": pa.array(rng.random(rows)), "cost_usd": pa.repeat(0.001, rows)}
    columns |= {"calls": pa.repeat(1, rows), "recorded_at": pa.repeat(BEGAN, rows)}
    schema = schema_of(TABLES["outputs"].record)
    return pa.table([columns.get(f.name, pa.nulls(rows)).cast(f.type) for f in schema], schema=schema)


def scored(identity: str, examples: list[str], runs: pa.Array) -> pa.Table:
    """Five scores of each run."""
    rows = 5 * len(examples)
    table, run_ids = scores(identity, rows), runs.take(np.repeat(np.arange(len(examples)), 5))
    repeated = {"example_id": pa.array(np.repeat(examples, 5)), "run_id": run_ids, "repetition": pa.repeat(0, rows)}
    for name, column in repeated.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), column.cast(table.schema.field(place).type))
    return table


def make_store(root: Path, size: Size) -> None:
    store, examples = Store(root), [f"q{number:04}" for number in range(size.examples)]
    store.publish("snapshots", "snap-0", [SnapshotRow(snapshot_id="snap-0", n_examples=size.examples, splits="{}")])
    rows = [
        ExampleRow(snapshot_id="snap-0", example_id=one, position=place, inputs='{"question":"What is it?"}')
        for place, one in enumerate(examples)
    ]
    store.publish("examples", "snap-0", to_arrow("examples", rows))
    for line, run in ((line, run) for run in range(size.runs) for line in range(size.lines)):
        at = BEGAN + timedelta(days=run, minutes=line)
        group = new_id("group", at)
        fill_group(store, [experiment(line, group, target, at, len(examples)) for target in TARGETS], examples)
    packing.SETTLED_S = 0.0  # the files were written just now
    print(packing.pack(store), flush=True)  # as `evalflows compact` does, and runs from time to time


def fill_group(store: Store, rows: list[ExperimentRow], examples: list[str]) -> None:
    """Two experiments, the verdicts of the second against the first, and a gate's decision."""
    group = rows[0].run_group
    for row in rows:
        identity, runs = row.experiment_id, hex_ids(len(examples))
        store.publish("judgements", identity, scored(identity, examples, runs))
        store.publish("outputs", identity, outputs(identity, examples, runs))
        store.publish("estimates", identity, estimates(identity, len(examples)))
        store.publish("experiments", identity, [row])
    baseline, candidate = (row.experiment_id for row in rows)
    store.publish("verdicts", group, verdicts(group, baseline, candidate, len(examples)))
    made = decision(candidate, baseline, rows[1].started_at)
    store.publish("decisions", made.decision_id, [made])


def addresses(store: Store) -> Iterator[tuple[str, str]]:
    """Yield what to ask for, and its address."""
    ((newest, group),) = store.query(
        "select max(experiment_id), max_by(run_group, experiment_id) from source.experiments"
    )
    both = store.query("select experiment_id from source.experiments where run_group = ? order by 1", [group])
    baseline, candidate = (identity for (identity,) in both)
    ((decision,),) = store.query("select max(decision_id) from source.decisions")
    ((example,),) = store.query("select quantile_disc(example_id, 0.5) from source.examples")
    yield "home", "/home"
    yield "experiments", "/experiments"
    yield "experiments: one metric", "/experiments?metric=helpful"
    yield "experiments: filtered", "/experiments?tag=team-1&q=line&conclusion=PASS&page=2"
    yield "experiment", f"/experiments/{newest}"
    yield "example", f"/experiments/{newest}/example?id={example}"
    yield "over time", "/over-time?name=line-00-prompt-b&target=prompt-b&metric=helpful"
    yield "compare", f"/compare?baseline={baseline}&candidate={candidate}"
    yield "decisions", "/decisions"
    yield "decision", f"/decisions/{decision}"
    yield "judges", "/judges"
    for section in ("review", "compare", "pairwise", "datasets", "modes", "production"):
        yield f"{section}: first page", f"/{section}"


def measure(root: Path, warm: int, *, is_small: bool = False) -> None:
    """Print what each page takes the first time, made again (at another address, as pages are kept), and kept."""
    store = Store(root)
    with TestClient(application(store), base_url="http://localhost") as client:
        for what, address in addresses(store):
            times: list[float] = []
            busy: list[float] = []
            while len(times) <= warm and (len(times) < 2 or sum(times) < PATIENCE_MS):
                began, used = time.perf_counter(), time.process_time()
                answer = client.get(f"{address}{'&' if '?' in address else '?'}made={len(times)}")
                times.append(1000 * (time.perf_counter() - began))
                busy.append(1000 * (time.process_time() - used))
                assert answer.status_code == 200, f"{address}: {answer.status_code}"
            again, cpu = median(times[1:]), median(busy[1:])
            began = time.perf_counter()
            client.get(f"{address}{'&' if '?' in address else '?'}made={len(times) - 1}")
            kept = 1000 * (time.perf_counter() - began)
            wanted = WANTED_OF_FEW_MS if is_small else WANTED_MS if what.startswith("experiments") else None
            verdict = "" if wanted is None else "ok" if again < wanted else f"MORE THAN {wanted} ms"
            size = len(answer.content) / 1000
            figures = f"cold {times[0]:7.0f} ms   warm {again:6.0f} ms (CPU {cpu:6.0f} ms)   kept {kept:4.0f} ms"
            print(f"{what:<26} {figures}   {size:5.0f} kB  {verdict}", flush=True)


def measure_many(root: Path, size: Size) -> None:
    """Measure the large store, which is made if there is none."""
    if not is_store(Layout.at(root)):
        began = time.perf_counter()
        make_store(root, size)
        count = len(TARGETS) * size.lines * size.runs
        print(f"set-up: {count:,} experiments in {time.perf_counter() - began:.0f} s", flush=True)
    measure(root, size.warm)


def parse_arguments() -> Namespace:
    parser = new_parser("pages", __doc__)
    parser.add_argument("store", nargs="?", type=Path, help="measure only this one, and make it if there is none")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    size = SMALLEST if arguments.smallest else MANY
    if arguments.store:
        measure_many(arguments.store, size)
        return
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as folder:
        if not arguments.smallest:
            make_store(Path(folder) / "few", FEW)
            measure(Path(folder) / "few", FEW.warm, is_small=True)
        measure_many(Path(folder) / "store", size)


if __name__ == "__main__":
    main()
