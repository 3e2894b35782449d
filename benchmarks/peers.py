"""The same work in LangSmith, Langfuse, pydantic-evals and ours, in one sitting, as ratios.

Run by `make bench-peers`, which makes an environment of their own for the peers; or from the repository's root by
`python -m benchmarks.peers [PYTHON]`, with the Python of an environment that has benchmarks/peers.txt; without it, only
ours is measured.
Each program (benchmarks/peer_programs/) is a process that measures itself, without its imports; ours also without the
start of Prefect's server. The last table has the processor time of whole processes, imports and all, of a small run on
a known dataset. They take turns. No program may connect to another machine.
"""

import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from benchmarks.arguments import new_parser
from benchmarks.calls import LATENCY_S, endpoint
from benchmarks.own_server import own_server

PROGRAMS = Path(__file__).parent / "peer_programs"
TURNS, ITEMS, CALLS, FEW_ITEMS = 3, 5_000, 1_000, 100
SMALLEST = 1, 4
"""Turns, and calls. Nothing else is measured."""
STORED = {
    "evalflows": "stores dataset, answers, scores and statistics, and resumes",
    "langsmith": "stores nothing without its server; evaluators are not traced",
    "langfuse": "stores nothing without its server; tracing is off",
    "pydantic_evals": "stores nothing; the report stays in memory",
}
OFFLINE = {
    "LANGSMITH_TRACING": "false",
    "LANGFUSE_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "DO_NOT_TRACK": "1",
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
}


def seconds(name: str, python: str, environment: Mapping[str, str], *arguments: str) -> float:
    """Return what a program says it took. Raise RuntimeError with the end of its log if it failed."""
    command = [python, str(PROGRAMS / f"with_{name}.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def processor_seconds(name: str, python: str, environment: Mapping[str, str], *arguments: str) -> float:
    """Return the processor time of a whole program, with that of the processes that it has waited for."""
    before = os.times()
    seconds(name, python, environment, *arguments)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def measure(
    title: str,
    pythons: Mapping[str, str],
    turns: int,
    environment: Mapping[str, str],
    *arguments: str,
    measured: Callable[..., float] = seconds,
) -> None:
    """Print each program's median, and its ratio to ours."""
    taken: dict[str, list[float]] = {name: [] for name in pythons}
    for _ in range(turns):
        for name, times in taken.items():
            times.append(measured(name, pythons[name], environment, *arguments))
    print(title)
    ours = median(taken["evalflows"])
    for name, times in taken.items():
        print(f"  {name:<15}{median(times):8.2f} s   {median(times) / ours:6.2f} of ours   {STORED[name]}", flush=True)


def parse_arguments() -> Namespace:
    parser = new_parser("peers", __doc__)
    parser.add_argument("python", nargs="?", help="the Python of an environment that has the peers")
    return parser.parse_args()


def main() -> None:
    given = parse_arguments()
    turns, n_calls = SMALLEST if given.smallest else (TURNS, CALLS)
    pythons = {name: given.python for name in STORED if given.python} | {"evalflows": sys.executable}
    with own_server(), endpoint() as base_url:
        environment = os.environ | OFFLINE | {"PYTHONPATH": str(Path.cwd())}
        calls = f"{n_calls:,} calls of {LATENCY_S:g} s, at most 50 at once ({n_calls * LATENCY_S / 50:.1f} s), one rule"
        measure(calls, pythons, turns, environment, "calls", str(n_calls), base_url)
        if given.smallest:
            return
        measure(f"{ITEMS:,} recorded items, two rules", pythons, turns, environment, "rules", str(ITEMS))
        whole = f"{FEW_ITEMS} recorded items, two rules, whole processes: processor time"
        alone = environment | {"WHOLE": "1"}
        measure(whole, pythons, turns, alone, "rules", str(FEW_ITEMS), measured=processor_seconds)


if __name__ == "__main__":
    main()
