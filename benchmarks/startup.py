"""Benchmark: times of whole processes, as ratios to `python -c "import prefect, pandas"`, and their peak memory.

Run from the repository's root: `python -m benchmarks.startup [calls]`. Each figure is the least of five. A Prefect
server runs already, as in daily use; the store is the kept one of the tests. On a machine with other work, the ratio of
CPU times says more. The last lines are runs of 2,000 model calls against the tests' endpoint; with `calls`: only those.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.arguments import new_parser
from benchmarks.calls import endpoint

sys.path.append("tests/support")
from prefect_server import prefect_server

TIMES, CALLS, ROWS, MEGABYTE = 5, 2_000, 10, 1 << 20
SMALLEST = 1, 4, ("import evalflows", "evalflows show")
"""Times, calls, and which processes."""

KEPT = Path("tests/store/kept")
BASE = ("-c", "import prefect, pandas")
WANTED = {
    "import evalflows": (("-c", "import evalflows"), 0.19),
    "evalflows --help": (("-m", "evalflows.cli.main", "--help"), 0.33),
    "evalflows --version": (("-m", "evalflows.cli.main", "--version"), 0.33),
    "evalflows ls": (("-m", "evalflows.cli.main", "ls"), 0.33),
    "evalflows show": (("-m", "evalflows.cli.main", "show", "kept"), 0.33),
    "evalflows sql": (("-m", "evalflows.cli.main", "sql", "select count(*) from scores"), 0.33),
    "evalflows explain": (("-m", "evalflows.cli.main", "explain", "release"), 0.33),
    "evalflows run, 10 recorded rows": (("-m", "evalflows.cli.main", "run", "small.yaml"), 1.4),
    "the README's program": (("program.py",), 1.9),
}
"""Arguments of Python, and the highest ratio wanted: the goals are 0.4, 0.7, 3 and 4 s, where the base takes 2.1 s."""


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


def best(
    arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str], times: int
) -> tuple[float, float, float]:
    """Return the least of each figure, of several processes."""
    seconds, cpu, peak = zip(*(measured(arguments, folder, environment) for _ in range(times)), strict=True)
    return min(seconds), min(cpu), min(peak)


def write_files(folder: Path, base_url: str, n_calls: int) -> None:
    """Write the store, the spec of the small run, that of the calls, and the README's program."""
    newest = max(KEPT.glob("format_*.zip"), key=lambda path: int(path.stem.partition("_")[2]))
    with zipfile.ZipFile(newest) as archive:
        archive.extractall(folder / "store")
    rows = [_row(number) for number in range(ROWS)]
    small = {
        "name": "small",
        "dataset": {"rows": rows},
        "targets": [{"kind": "recorded", "column": "said"}],
        "evaluators": ["contains", {"use": "length_between", "args": {"most": 50}}],
    }
    (folder / "small.yaml").write_text(json.dumps(small))
    calls = {
        "name": "calls",
        "dataset": {"rows": [{"inputs": {"question": f"What is {number} + 1?"}} for number in range(n_calls)]},
        "targets": [{"kind": "chat", "connection": "mock"}],
        "connections": {"mock": {"kind": "endpoint", "base_url": base_url, "model": "mock", "max_in_flight": 50}},
        "evaluators": ["json_valid"],
        "use_cache": False,
    }
    (folder / "calls.yaml").write_text(json.dumps(calls))
    program = re.search(r"```python\n(.*?)```", Path("README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    (folder / "program.py").write_text(program[1] if program else "")


def _row(number: int) -> dict[str, object]:
    answer = str(number + 1)
    said = {"said": f"It is {answer}."}
    return {"inputs": {"question": f"{number} + 1?"}, "reference_outputs": {"answer": answer}, "metadata": said}


def print_startup(folder: Path, environment: Mapping[str, str], times: int, names: Iterable[str]) -> None:
    for name in ("the README's program", "evalflows run, 10 recorded rows"):
        if name in names:
            measured(WANTED[name][0], folder, environment)  # the first run checks the new dataset
    base = best(BASE, folder, environment, times)
    print(f"{'import prefect, pandas':<34}{base[0]:6.2f} s, CPU {base[1]:.2f} s, {base[2]:.0f} MB", flush=True)
    for name in names:
        arguments, wanted = WANTED[name]
        seconds, cpu, peak = best(arguments, folder, environment, times)
        ratios = f"ratio {seconds / base[0]:.2f}, of CPU times {cpu / base[1]:.2f} (target: {wanted})"
        print(f"{name:<34}{seconds:6.2f} s, {ratios}, {peak:.0f} MB", flush=True)


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
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    times, n_calls, names = SMALLEST if arguments.smallest else (TIMES, CALLS, tuple(WANTED))
    with tempfile.TemporaryDirectory() as place, endpoint() as base_url:
        folder = Path(place)
        (folder / "prefect").mkdir()
        own = {"EVALFLOWS_STORE": f"{place}/store", "EVALFLOWS_SPOOL": f"{place}/spool", "PYTHONPATH": str(Path.cwd())}
        with server_of(folder / "prefect") as server:
            environment = os.environ | server | own
            write_files(folder, base_url, n_calls)
            if arguments.what != "calls":
                print_startup(folder, environment, times, names)
            for what in ("new",) if arguments.smallest else ("new", "known"):
                seconds, _, peak = measured(("-m", "evalflows.cli.main", "run", "calls.yaml"), folder, environment)
                print(
                    f"{n_calls:,} model calls, {what} dataset: {seconds:.1f} s, {peak:.0f} MB (target: 250)", flush=True
                )


if __name__ == "__main__":
    main()
