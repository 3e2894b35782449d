"""Benchmark: times of whole processes, as ratios to `python -c "import prefect, pandas"`, and their peak memory.

Run from the repository's root: `python -m benchmarks.startup [calls] [--peers PYTHON]`. Each figure is the median of
five, and processes take turns; goals are of processor times, which say more on a machine with other work. It fails if
one is missed by more than a fifth. A Prefect server runs already, as in daily use; the store is the kept one of the
tests. PYTHON has benchmarks/peers.txt. The last lines are runs of 2,000 model calls against the tests' endpoint; with
`calls`: only those.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.arguments import new_parser
from benchmarks.calls import endpoint
from benchmarks.peers import OFFLINE, processor_seconds

sys.path.append("tests/support")
from prefect_server import prefect_server

TIMES, CALLS, ROWS, MEGABYTE = 5, 2_000, 10, 1 << 20
SMALLEST = 1, 4, ("import evalflows", "evalflows show")
"""Times, calls, and which processes."""

METRICS = ("first", "second", "third", "fourth", "fifth")
KEPT = Path("tests/store/kept")
BASE = ("-c", "import prefect, pandas")
COMMAND = ("-m", "evalflows.cli.main")
WANTED = {
    "import evalflows": (("-c", "import evalflows"), 0.05),
    "from evalflows import evaluate": (("-c", "from evalflows import evaluate"), 0.05),
    "evalflows --help": ((*COMMAND, "--help"), 0.2),
    "evalflows ls": ((*COMMAND, "ls"), 0.2),
    "evalflows sql": ((*COMMAND, "sql", "select count(*) from scores"), 0.2),
    "evalflows show": ((*COMMAND, "show", "kept"), 0.35),
    "evalflows explain": ((*COMMAND, "explain", "release"), 0.35),
    "evalflows diff": ((*COMMAND, "diff", "kept-long", "kept-brief"), 0.35),
    "evalflows decide, 2,000 rows": ((*COMMAND, "decide", "old.csv", "new.csv", "--metric", "first=0.05"), 0.35),
    "evalflows plan, 10 rows": ((*COMMAND, "plan", "small.yaml"), 1.1),
    "evalflows plan, 300 rows": ((*COMMAND, "plan", "plan.yaml"), 1.2),
    "evalflows run, 10 recorded rows": ((*COMMAND, "run", "small.yaml"), 1.2),
    "100 rows, two rules": (("rows.py", "1"), 1.05),
    "five further runs of 100 rows": (("rows.py", "6"), 1.35),
}
"""Arguments of Python, and the highest ratio wanted; of further runs, 0.06 each more than the first."""
LEEWAY = 1.2
"""The part of a goal above which it is missed so far that the benchmark fails."""

ROWS_PROGRAM = """
import sys
from evalflows import evaluate

def is_exact(outputs, reference_outputs):
    return outputs["output"] == reference_outputs["output"]

def has_it(outputs, reference_outputs):
    return reference_outputs["output"] in outputs["output"]

rows = [{"inputs": {"question": f"{n}?"}, "outputs": f"{n}", "metadata": {"said": f"{n}"}} for n in range(100)]
for _ in range(int(sys.argv[1])):
    evaluate({"kind": "recorded", "column": "said"}, rows, [is_exact, has_it], experiment_prefix="rows")
"""


def measured(arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> tuple[float, float, float]:
    """Return the seconds that a process takes, those of the CPU, and its peak memory in megabytes.

    A process begins with the memory of this one, so a peak below that is not seen.
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    error = process.stderr.read().decode() if process.stderr else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {process.returncode}: {error[-500:]}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, peak / MEGABYTE


def write_files(folder: Path, base_url: str, n_calls: int) -> None:
    """Write the store, the spec of the small run, that of the calls, and the README's program."""
    newest = max(KEPT.glob("format_*.zip"), key=lambda path: int(path.stem.partition("_")[2]))
    with zipfile.ZipFile(newest) as archive:
        archive.extractall(folder / "store")
    for name, n_rows in (("small", ROWS), ("plan", 300)):
        spec = {
            "name": name,
            "dataset": {"rows": [_row(number) for number in range(n_rows)]},
            "targets": [{"kind": "recorded", "column": "said"}],
            "evaluators": ["contains", {"use": "length_between", "args": {"most": 50}}],
        }
        (folder / f"{name}.yaml").write_text(json.dumps(spec))
    for seed, name in enumerate(("old", "new")):
        drawn = random.Random(seed)
        scores = [",".join([str(n), *(f"{drawn.random():.3f}" for _ in METRICS)]) for n in range(2_000)]
        (folder / f"{name}.csv").write_text("\n".join([",".join(["id", *METRICS]), *scores]))
    (folder / "rows.py").write_text(ROWS_PROGRAM)
    calls = {
        "name": "calls",
        "dataset": {"rows": [{"inputs": {"question": f"What is {number} + 1?"}} for number in range(n_calls)]},
        "targets": [{"kind": "chat", "connection": "mock"}],
        "connections": {"mock": {"kind": "endpoint", "base_url": base_url, "model": "mock", "max_in_flight": 50}},
        "evaluators": ["json_valid"],
        "use_cache": False,
    }
    (folder / "calls.yaml").write_text(json.dumps(calls))


def _row(number: int) -> dict[str, object]:
    answer = str(number + 1)
    said = {"said": f"It is {answer}."}
    return {"inputs": {"question": f"{number} + 1?"}, "reference_outputs": {"answer": answer}, "metadata": said}


def print_startup(
    folder: Path, environment: Mapping[str, str], times: int, names: Iterable[str], peers: str | None
) -> list[str]:
    """Print the medians of each process. Return those that miss their goal by more than a fifth."""
    programs = {"import prefect, pandas": BASE} | {name: WANTED[name][0] for name in names}
    for name in names:
        measured(WANTED[name][0], folder, environment)  # a first one checks datasets, and makes views that are kept
    taken = {name: [] for name in programs}
    for _ in range(times):
        for name, arguments in programs.items():
            taken[name].append(measured(arguments, folder, environment))
    medians = {name: [median(figures) for figures in zip(*rows, strict=True)] for name, rows in taken.items()}
    _, base, _ = medians["import prefect, pandas"]
    missed = []
    for name, (seconds, cpu, peak) in medians.items():
        goal = WANTED[name][1] if name in WANTED else 1.0
        missed += [name] * (cpu / base > goal * LEEWAY)
        print(f"{name:<34}{seconds:6.2f} s, CPU {cpu:5.2f} s, ratio {cpu / base:.2f} (goal: {goal}), {peak:.0f} MB")
    for name in ("langsmith", "langfuse", "pydantic_evals") if peers else ():
        cpu = median(processor_seconds(name, str(peers), environment | OFFLINE, "rules", "100") for _ in range(times))
        print(f"{'100 rows, two rules: ' + name:<34}CPU {cpu:5.2f} s, ratio {cpu / base:.2f}", flush=True)
    return missed


@contextmanager
def server_of(folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield the environment that leads to a Prefect server: a new one, if the environment names none."""
    if "PREFECT_API_URL" in os.environ:
        yield {}
    else:
        with prefect_server(folder) as environment:
            yield environment


def parse_arguments() -> Namespace:
    parser = new_parser("startup", __doc__)
    parser.add_argument("what", nargs="?", choices=["calls"], help="measure only runs of model calls")
    parser.add_argument("--peers", metavar="PYTHON", help="the Python of an environment that has benchmarks/peers.txt")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    times, n_calls, names = SMALLEST if arguments.smallest else (TIMES, CALLS, tuple(WANTED))
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as place, endpoint() as base_url:
        folder = Path(place)
        (folder / "prefect").mkdir()
        own = {"EVALFLOWS_STORE": f"{place}/store", "EVALFLOWS_SPOOL": f"{place}/spool", "PYTHONPATH": str(Path.cwd())}
        with server_of(folder / "prefect") as server:
            environment = os.environ | server | own
            environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process would compile our modules again
            write_files(folder, base_url, n_calls)
            if arguments.what != "calls":
                missed = print_startup(folder, environment, times, names, arguments.peers)
            for what in ("new",) if arguments.smallest else ("new", "known"):
                seconds, _, peak = measured(("-m", "evalflows.cli.main", "run", "calls.yaml"), folder, environment)
                print(
                    f"{n_calls:,} model calls, {what} dataset: {seconds:.1f} s, {peak:.0f} MB (target: 250)", flush=True
                )
    if missed and not arguments.smallest:
        sys.exit(f"missed by more than a fifth: {', '.join(missed)}")


if __name__ == "__main__":
    main()
