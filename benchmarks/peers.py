"""The same work in LangSmith, Langfuse, pydantic-evals and ours, in one sitting, as ratios.

Run by `make bench-peers`, which makes an environment of their own for the peers; or from the repository's root by
`python -m benchmarks.peers PYTHON`, with the Python of an environment that has benchmarks/peers.txt.
Each program (benchmarks/peer_programs/) is a process that measures itself, without its imports; ours also without the
start of Prefect's server. The last table has the processor time of whole processes, imports and all, of a small run on
a known dataset. They take turns. No program may connect to another machine.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.calls import LATENCY_S, endpoint
from benchmarks.own_server import own_server

PROGRAMS = Path(__file__).parent / "peer_programs"
TURNS, ITEMS, CALLS, FEW_ITEMS = 3, 5_000, 1_000, 100
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


def seconds(name: str, python: str, environment: dict[str, str], *arguments: str) -> float:
    """Return what a program says it took. Raise RuntimeError with the end of its log if it failed."""
    command = [sys.executable if name == "evalflows" else python, str(PROGRAMS / f"with_{name}.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def processor_seconds(name: str, python: str, environment: dict[str, str], *arguments: str) -> float:
    """Return the processor time of a whole program, with that of the processes that it has waited for."""
    before = os.times()
    seconds(name, python, environment, *arguments)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def measure(
    title: str, python: str, environment: dict[str, str], *arguments: str, measured: Callable[..., float] = seconds
) -> None:
    """Print each peer's median, and its ratio to ours."""
    taken: dict[str, list[float]] = {name: [] for name in STORED}
    for _ in range(TURNS):
        for name, times in taken.items():
            times.append(measured(name, python, environment, *arguments))
    print(title)
    ours = median(taken["evalflows"])
    for name, times in taken.items():
        print(f"  {name:<15}{median(times):8.2f} s   {median(times) / ours:6.2f} of ours   {STORED[name]}", flush=True)


def main(python: str) -> None:
    with own_server(), endpoint() as base_url:
        environment = os.environ | OFFLINE | {"PYTHONPATH": str(Path.cwd())}
        measure(f"{ITEMS:,} recorded items, two rules", python, environment, "rules", str(ITEMS))
        calls = f"{CALLS:,} calls of {LATENCY_S:g} s, at most 50 at once ({CALLS * LATENCY_S / 50:.1f} s), one rule"
        measure(calls, python, environment, "calls", str(CALLS), base_url)
        whole = f"{FEW_ITEMS} recorded items, two rules, whole processes: processor time"
        measure(whole, python, environment | {"WHOLE": "1"}, "rules", str(FEW_ITEMS), measured=processor_seconds)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.executable)
