"""Seconds of every command, page, tool, view and Python result, on a store of 500 answers and on one of 50,000.

Run from the repository's root: `python -m benchmarks.doors [FOLDER]`, about eight minutes; stores that are in FOLDER
are used again, on copies. It prints the table of docs/explanation/benchmarks.md. Commands are processes, all others are
called in this one, twice, and the second time counts. Wanted: at most ten times as long for the large store.
`tests/real_size/` asks the same doors, and that every door there is has its line here.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
from starlette.testclient import TestClient

from benchmarks.arguments import new_parser
from benchmarks.own_server import own_server
from benchmarks.real_size import LARGE, SMALL, TARGETS, Made, make
from evalflows import (
    BatchEvaluationResult,
    ComparativeResult,
    ExperimentResult,
    dataset_from_traces,
    decide_again,
    decide_on,
    diff,
)
from evalflows.cli.mcp import help_of
from evalflows.dashboard.app import application
from evalflows.mcp_server import ReadingTools
from evalflows.specs.experiment import load_experiment
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.store.views import view_files

Door = Callable[[], object]

WHERE = "inputs->>'question' like '%river%'"
SQL = "select metric, target, count(*), avg(value), max(length(outputs::varchar)) from item_scores group by all"

SMALLEST = (SMALL,), 1
"""Examples of each store, and how many doors of each kind are asked."""

MAKE_THE_STORE = "makes the store"
JUDGED_ONCE = "needs answers that were judged again"
NOT_ASKED = {
    **dict.fromkeys(("run", "gate", "compare", "traces add", "evaluate-traces", "labels import"), MAKE_THE_STORE),
    **dict.fromkeys(("up", "deploy", "status", "down", "alerts automate"), "asks Prefect's server only"),
    "dashboard": "serves the pages",
    "mcp": "serves the tools",
    "receive": "benchmarks.receiver",
    "export postgres": "needs a server; in tests/real_size/",
    **dict.fromkeys(("init", "decide", "verify"), "reads no store"),
    "try": "needs a target with a prompt",
    "cancel": "needs a run that waits for batches",
    "dataset generate": "calls a model",
    "judge": JUDGED_ONCE,
    **dict.fromkeys(("modes show", "modes close", "modes examples"), "needs answers with a failure mode"),
}
"""The commands without a door, and why."""

PAGES_NOT_ASKED = {"/modes/{mode}": "needs answers with a failure mode", "/two-judges": JUDGED_ONCE}

NAMES_NOT_ASKED = {
    **dict.fromkeys(
        ("aevaluate", "aevaluate_comparative", "compare", "evaluate", "evaluate_comparative", "evaluate_traces"),
        MAKE_THE_STORE,
    ),
    **dict.fromkeys(("gate", "run", "run_batched_evaluation"), MAKE_THE_STORE),
    **dict.fromkeys(("EvaluatorInputs", "ItemOutcome", "Progress", "TraceDataset", "DiffResult"), "a record"),
    "decide": "reads no store",
    **dict.fromkeys(("JudgedAgain", "judge_again"), JUDGED_ONCE),
    "drift_of": "reads no store",
    **dict.fromkeys(("approve", "backtest_gate", "plan", "robustness", "sentences_of"), "a command does the same"),
}
"""The names of `evalflows` without a door, and why."""


def commands(made: Made, folder: Path) -> dict[str, Sequence[str]]:
    """Return the arguments of each command, those that write last. Their names begin with the command's."""
    first, second, *_ = made.experiments
    out = folder / "out"
    out.mkdir(exist_ok=True)
    given = [
        ("sql", "select target, metric, mean, scored, missing from results"),
        ("sql, grouped", SQL),
        ("sql, all rows", "from item_scores", "--format", "csv"),
        ("ls",),
        ("show", second),
        ("show, --all", second, "--all"),
        ("diff", first, second),
        ("diff, --where", first, second, "--where", WHERE),
        ("diff, --slices", first, second, "--slices"),
        ("flaky", second),
        ("best", *made.experiments, "--metric", "edit_similarity"),
        ("report", second, "-o", f"{out}/report.html"),
        ("report, .md", second, "--format", "md"),
        ("report, .json", second, "--format", "json"),
        ("report, .xml", made.decision, "--format", "junit"),
        ("report, .png", second, "-o", f"{out}/report.png"),
        ("report, of a comparison", made.comparison, "-o", f"{out}/pairs.html"),
        ("plan", "support.yaml"),
        ("explain", made.decision),
        ("explain, --again", made.decision, "--again"),
        ("backtest", "support.yaml", "--replicates", "20"),
        ("robustness", second),
        ("calibrate", second, "ranked.csv"),
        ("evaluators",),
        ("labels next", second, "edit_similarity"),
        ("labels agreement", second, "exact_match"),
        ("labels anchors", second, "exact_match"),
        ("labels judges",),
        ("labels ls",),
        ("modes find", second),
        ("traces ls",),
        ("traces ls, --where", "--where", "tokens_in > 10"),
        ("traces show", made.trace),
        ("windows", "production"),
        ("alerts ls",),
        ("alerts show", made.incident),
        ("dataset ls",),
        ("dataset show", "rows"),
        ("check", second),
        ("export csv", f"{out}/csv"),
        ("export parquet", f"{out}/parquet"),
        ("export duckdb", f"{out}/views.duckdb"),
        ("export duckdb, --copy", f"{out}/copy.duckdb", "--copy"),
        ("export preferences", made.comparison),
        ("doctor",),
        ("schema",),
        ("connections",),
        ("baseline approve", first),
        ("baseline ls",),
        ("alerts ack", made.incident, "--by", "ann"),
        ("dataset add", "rows.jsonl", "--name", "other"),
        ("dataset diff", "rows", "other"),
        ("dataset export", "rows", f"{out}/rows.jsonl", "--replace"),
        ("dataset from-traces", "--name", "asked", "--limit", "1000"),
        ("dataset delete", "other"),
        ("resume", made.comparison),
        ("retain", "retain.yaml"),
        ("forget", "--example", "q0", "--yes"),
        ("compact",),
    ]
    return {name: [*name.partition(",")[0].split(), *arguments] for name, *arguments in given}


def addresses(made: Made) -> dict[str, str]:
    """Return an address of each page, by its pattern in the dashboard's table or, of variants, by its name."""
    first, second, *_ = made.experiments
    compared = f"baseline={first}&candidate={second}"
    left, right = made.pair
    found = {
        "/experiments/{id}": f"/experiments/{second}",
        "/experiments/{experiment}/example": f"/experiments/{second}/example?id=q1",
        "/datasets/{name:path}": "/datasets/rows",
        "/dataset-example": "/dataset-example?dataset=rows&id=q1",
        "/compare": f"/compare?{compared}",
        "/compare/example": f"/compare/example?{compared}&id=q1",
        "/compare/slices": f"/compare/slices?{compared}",
        "/over-time": "/over-time?dataset=rows",
        "/pairwise/{id}": f"/pairwise/{made.comparison}",
        "/pairwise/{id}/pair": f"/pairwise/{made.comparison}/pair?metric=later&left={left}&right={right}",
        "/decisions/{id}": f"/decisions/{made.decision}",
        "/judges/{evaluator:path}": "/judges/exact_match",
        "/production/evaluations/{name:path}": "/production/evaluations/production",
        "/production/incidents/{id}": f"/production/incidents/{made.incident}",
        "/production/traces/{id}": f"/production/traces/{made.trace}",
        "/review-drafts": "/review-drafts?dataset=rows",
        "/review": f"/review?subject={second}&metric=exact_match",
        "/review/{subject}": f"/review/{second}?metric=exact_match&by=ann&reference=yes",
    }
    lists = ("home", "experiments", "datasets", "pairwise", "decisions", "judges", "modes", "modes-map", "production")
    found |= {f"/{name}": f"/{name}" for name in (*lists, "production/traces")}
    found |= {"review of traces": "/review/traces?metric=helpful&by=ann&kind=yes_no"}
    reports = {"experiment": f"/experiments/{second}", "comparison": f"/pairwise/{made.comparison}"}
    reports |= {"decision": f"/decisions/{made.decision}", "incident": f"/production/incidents/{made.incident}"}
    return found | {f"{name} as one file": f"{address}?file=1" for name, address in reports.items()}


def pages(store: Store, made: Made) -> dict[str, Door]:
    """Return the pages, each as a dashboard shows it that has kept none."""

    def asked(address: str) -> str:
        answer = TestClient(application(store), base_url="http://127.0.0.1").get(address)
        if answer.status_code != 200:
            raise RuntimeError(f"{address}: {answer.status_code}: {answer.text[-300:]}")
        return answer.text

    return {name: partial(asked, address) for name, address in addresses(made).items()}


def tools(store: Store, made: Made) -> dict[str, Door]:
    """Return the tools that read, by their names."""
    reading = ReadingTools(store, help_of)
    first, second, *_ = made.experiments
    given: Mapping[str, Mapping[str, Any]] = {
        "results": {"experiment": second},
        "diff": {"baseline": first, "candidate": second},
        "best": {"experiments": made.experiments, "metric": "edit_similarity"},
        "worst": {"experiment": second, "metric": "edit_similarity", "against": first},
        "example": {"experiment": second, "example_id": "q1", "against": first},
        "fields": {"experiment": second},
        "decision": {"decision": made.decision},
        "traces": {"where": "tokens_in > 10"},
        "sql": {"query": SQL},
        "tables": {"name": "results"},
    }
    return {tool.__name__: partial(tool, **given.get(tool.__name__, {})) for tool in reading.all}


def results(made: Made, folder: Path) -> dict[str, Door]:
    """Return what a program asks of results, by names of `evalflows`."""
    first, second, *_ = made.experiments
    spec = load_experiment(folder / "support.yaml")
    batch = Store().query("select batch_id from source.watermarks order by recorded_at limit 1")[0][0]
    return {
        "ExperimentResult: rows": lambda: [*ExperimentResult(second)],
        "ExperimentResult: to_pandas": lambda: ExperimentResult(second).to_pandas(),
        "ExperimentResult: scores, summary": lambda: (
            ExperimentResult(second).scores("exact_match"),
            ExperimentResult(second).summary,
        ),
        "ExperimentResult: in a notebook": lambda: ExperimentResult(second)._repr_html_(),
        "ExperimentResult: compare": lambda: str(ExperimentResult(second).compare(first)),
        "diff: examples": lambda: diff(first, second).examples(),
        "diff: slices": lambda: diff(first, second).slices(),
        "ComparativeResult: to_pandas": lambda: ComparativeResult(made.comparison).to_pandas(),
        "ComparativeResult: leaderboard": lambda: ComparativeResult(made.comparison).leaderboard(),
        "BatchEvaluationResult": lambda: (
            str(BatchEvaluationResult(batch)),
            BatchEvaluationResult(batch).item_evaluations,
        ),
        "decide_again": lambda: decide_again(made.decision),
        "decide_on": lambda: decide_on(second, first, spec.gates[0]),
        "dataset_from_traces": lambda: dataset_from_traces("from-python", limit=50),
    }


def views(store: Store) -> dict[str, Door]:
    """Return a query of all rows and columns of each view, on a restricted connection."""

    def read(name: str) -> object:
        with connect(store.layout.root, restricted=True) as catalog:
            return digest(catalog, name)

    return {name: partial(read, name) for name in sorted(path.stem for path in view_files())}


def digest(catalog: duckdb.DuckDBPyConnection, view: str) -> tuple[int, int]:
    """Return a view's number of rows and a hash of them, whatever their order.

    Floating-point numbers are rounded: the last digits of a sum depend on the order, which threads change.
    """
    columns = catalog.execute(f"select column_name, column_type from (describe {view})").fetchall()
    values = (f'round("{name}", 6)' if kind in ("DOUBLE", "FLOAT") else f'"{name}"' for name, kind in columns)
    query = f"select count(*), coalesce(sum(hash({', '.join(values)})::hugeint), 0) from {view}"
    ((count, hashed),) = catalog.execute(query).fetchall()
    return count, hashed


def run(folder: Path, *arguments: str) -> str:
    """Run `evalflows` in a process, in the folder of a store. Return its output; raise RuntimeError if it fails."""
    environment = os.environ | {"EVALFLOWS_STORE": str(folder / "store")}
    command = [sys.executable, "-m", "evalflows.cli.main", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def seconds(door: Door) -> float:
    began = time.perf_counter()
    door()
    return time.perf_counter() - began


def second(door: Door) -> float:
    """Return the seconds of the second time, when what a process keeps has been read."""
    door()
    return seconds(door)


def measured(folder: Path, most: int | None) -> dict[str, dict[str, float]]:
    """Return the seconds of the doors of a store, by kind and name, or of the first of each kind. The store is copied
    before."""
    with tempfile.TemporaryDirectory(prefix="evalflows-doors-") as name:
        copy = Path(shutil.copytree(folder, Path(name) / "copy"))
        os.environ["EVALFLOWS_STORE"] = str(copy / "store")
        store, made = Store(copy / "store"), Made.of(copy / "store")
        inside = {
            "pages": pages(store, made),
            "tools": tools(store, made),
            "views, on a restricted connection": views(store),
            "Python": results(made, copy),
        }
        with chdir(copy):
            asked = {
                kind: {name: second(door) for name, door in islice(doors.items(), most)}
                for kind, doors in inside.items()
            }
        given = commands(made, copy)
        if most is None:
            run(copy, *given["robustness"])  # starts Prefect's server
        timed = {name: seconds(partial(run, copy, *one)) for name, one in islice(given.items(), most)}
        return {"commands": timed, **asked}


def parse_arguments() -> Namespace:
    parser = new_parser("doors", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where stores are kept")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    sizes, most = SMALLEST if arguments.smallest else ((SMALL, LARGE), None)
    with own_server() as temporary:
        kept = (arguments.folder or temporary).absolute()
        figures = []
        for examples in sizes:
            folder = kept / f"store-of-{examples}"
            if not folder.exists():
                folder.mkdir(parents=True)
                began = time.perf_counter()
                make(folder, examples, partial(run, folder))
                print(f"{examples} examples: made in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            figures.append(measured(folder, most))
        small, large = figures[0], figures[-1]
        for kind, doors in small.items():
            print(f"\n| {kind} | {sizes[0] * TARGETS} answers | {sizes[-1] * TARGETS:,} answers | ratio |")
            print("|---|---|---|---|")
            for name, least in doors.items():
                print(f"| {name} | {least:.2f} s | {large[kind][name]:.2f} s | {large[kind][name] / least:.1f} |")


if __name__ == "__main__":
    main()
