"""How fast the dashboard answers, at the server: its pages on a store of 30 experiments, then on one of 2,000
experiments, 10 million scores and a month of 5,000 traces a day, with `ls` and queries of results.

Run from the repository's root: `python -m benchmarks.pages [FOLDER]`, about ten minutes, of which most make the large
store; one that is kept in FOLDER is used again. Wanted, of processor time: every page of 30 experiments in less than
300 ms, Home, the list, Compare, Over time, `ls` and results of 2,000 in as much, and less than a tenth more for each
thousand experiments. It fails if one is missed by more than a fifth.
"""

import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from starlette.testclient import TestClient

from benchmarks.arguments import new_parser
from benchmarks.own_server import own_server
from benchmarks.production import JUDGES, month
from benchmarks.sealed_scores import hex_ids, rng, scores
from benchmarks.startup import COMMAND, LEEWAY, measured
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

WANTED_MS, WANTED_GROWTH = 300, 0.1
"""Of every page of FEW, and of those of MANY that have a goal; and the part by which a thousand experiments slow these
down. The other figures say how size slows a page down."""

WITH_GOALS = ("home", "experiments", "over time", "compare", "ls", "results, of a name", "results, 50 rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The lines of experiments in a store, the runs of each, of all targets, the examples of a run, the days of traces,
    the traces of each, and how often a page is asked for again."""

    lines: int
    runs: int
    examples: int = 1000
    days: int = 0
    traces: int = 0
    warm: int = 9

    @property
    def experiments(self) -> int:
        return len(TARGETS) * self.lines * self.runs


FEW, MANY = Size(lines=1, runs=15), Size(lines=40, runs=25, days=30, traces=5_000)
SMALLEST = Size(lines=1, runs=1, examples=5, days=1, traces=5, warm=1)


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
        "select max(experiment_id), max_by(run_group, experiment_id) from source.experiments where name like 'line%'"
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


def measure(root: Path, size: Size) -> dict[str, float]:
    """Print what each page takes the first time, made again (at another address, as pages are kept), and kept. Return
    the processor time of each, made again."""
    store, taken = Store(root), dict[str, float]()
    with TestClient(application(store), base_url="http://localhost") as client:
        for what, address in addresses(store):
            asked = f"{address}{'&' if '?' in address else '?'}made="

            def page(number: int, asked: str = asked) -> None:
                answer = client.get(f"{asked}{number}")
                assert answer.status_code == 200, f"{asked}: {answer.status_code}"

            n_made, taken[what] = print_times(what, page, size)
            began = time.perf_counter()
            page(n_made - 1)
            print(f"{'':<26} kept {1000 * (time.perf_counter() - began):4.0f} ms")
    return taken | measure_commands(root, store, size)


def measure_commands(root: Path, store: Store, size: Size) -> dict[str, float]:
    """Print the processor time of commands beyond that of a query that reads no rows, and return it."""
    ((name,),) = store.query("select max(name) from source.experiments where name like 'line%'")
    columns = "select started_at, metric, mean, ci_low, ci_high, conclusion"
    commands = {
        "start of a command": ("sql", "select 1"),
        "ls": ("ls",),
        "results, of a name": ("sql", f"{columns} from results where experiment = '{name}'"),
        "results, 50 rows": ("sql", f"{columns} from results limit 50"),
    }
    environment = os.environ | {"EVALFLOWS_STORE": str(root), "PYTHONPATH": str(Path.cwd())}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    taken: dict[str, list[float]] = {what: [] for what in commands}
    for _ in range(size.warm):
        for what, command in commands.items():
            taken[what].append(1000 * measured((*COMMAND, *command), root, environment)[1])
    start, *others = (median(times) for times in taken.values())
    beyond = dict(zip([*commands][1:], (ms - start for ms in others), strict=True))
    for what, ms in beyond.items():
        print(f"{what:<26} CPU {ms:.0f} ms beyond the {start:.0f} ms of a command's start", flush=True)
    return beyond


def print_times(what: str, make: Callable[[int], object], size: Size) -> tuple[int, float]:
    """Make something several times, and print what it takes. Return how often, and the processor time made again."""
    times, busy = list[float](), list[float]()
    while len(times) <= size.warm and (len(times) < 2 or sum(times) < PATIENCE_MS):
        began, used = time.perf_counter(), time.process_time()
        make(len(times))
        times.append(1000 * (time.perf_counter() - began))
        busy.append(1000 * (time.process_time() - used))
    again, cpu = median(times[1:]), median(busy[1:])
    cold = f"cold {times[0]:7.0f} ms (CPU {busy[0]:6.0f} ms)"
    print(f"{what:<26} {cold}   warm {again:6.0f} ms (CPU {cpu:6.0f} ms)", flush=True)
    return len(times), cpu


def make_many(folder: Path, size: Size) -> None:
    """Make the large store in a folder, unless there is one."""
    if is_store(Layout.at(folder / "store")):
        return
    began = time.perf_counter()
    make_store(folder / "store", size)
    print(f"set-up: {size.experiments:,} experiments in {time.perf_counter() - began:.0f} s", flush=True)
    (folder / "judges.py").write_text(JUDGES)
    with own_server():
        print(month(0, folder, size.days, size.traces), f"in {time.perf_counter() - began:.0f} s", flush=True)


def missed(few: Mapping[str, float], many: Mapping[str, float], thousands: float) -> Iterator[str]:
    """Print how much longer each page takes for a thousand experiments. Yield what misses its goal by too much."""
    yield from (f"{what}: {ms:.0f} ms" for what, ms in few.items() if ms > WANTED_MS * LEEWAY)
    for what, ms in many.items():
        growth = (ms / few[what] - 1) / thousands
        print(f"{what:<36} {few[what]:6.0f} -> {ms:6.0f} ms, {growth:+6.1%} for a thousand experiments")
        if what in WITH_GOALS and ms > WANTED_MS * LEEWAY:
            yield f"{what}: {ms:.0f} ms of many"
        if what in WITH_GOALS and growth > WANTED_GROWTH * LEEWAY:
            yield f"{what}: {growth:+.1%} for a thousand experiments"


def parse_arguments() -> Namespace:
    parser = new_parser("pages", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the large store is kept: made if there is none")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    few, many = (SMALLEST, SMALLEST) if arguments.smallest else (FEW, MANY)
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as name:
        folder = arguments.folder or Path(name)
        make_many(folder, many)
        of_many = of_few = measure(folder / "store", many)
        if few != many:
            make_store(Path(name) / "few", few)
            of_few = measure(Path(name) / "few", few)
    misses = [*missed(of_few, of_many, (many.experiments - few.experiments) / 1000 or 1)]
    if misses and not arguments.smallest:
        sys.exit(f"missed by more than a fifth: {'; '.join(misses)}")


if __name__ == "__main__":
    main()
