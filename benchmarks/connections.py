"""Latency over connections: two identical HTTP servers should get a verdict in at most 7 % of runs, and one that is
20 % slower should be found.

Run from the repository's root: `python -m benchmarks.connections [RUNS] [EXAMPLES]`; it takes half an hour. The servers
are Python's http.server with its queue of 5 waiting connections, each in a process of its own; an answer takes 140 to
260 ms, of which almost all is sleep; or 50 and 5 ms, of servers that do not know OPTIONS. Each run asks two new
servers, so that all connections are opened again. Different servers are compared in a fifth of the runs.
Answering, pairing and testing are those of a run; only what comes before and after is left out. A verdict is counted
before adjustment: p at most .05, and the interval without 0.
"""

import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.arguments import new_parser
from evalflows.analysis.differences import MetricReader, verdicts_on
from evalflows.engine.answer import answer_rounds, pending_runs
from evalflows.engine.chunks import rounds_of
from evalflows.engine.order import waves_of
from evalflows.specs.experiment import ExperimentSpec
from evalflows.stats.proportions import wilson_interval
from evalflows.store.records import VerdictRow
from evalflows.store.store import Store
from evalflows.tasks.snapshot import check_and_freeze
from evalflows.tasks.start import start_experiments

SECONDS, SLOWER, WANTED = 0.2, 1.2, 0.07
SMALLEST = 1, 4
"""Runs and examples."""

HTTP = {"kind": "http", "answer": "choices.0.message.content"}
CHAT = {"kind": "chat", "connection": "own"}


@contextmanager
def servers(seconds: float, protocol: str, knows_options: bool) -> Iterator[Any]:
    """Yield a function that starts a new server and returns its port."""
    command = [sys.executable, "-m", "benchmarks.slow_server", str(seconds), protocol, str(int(knows_options))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def new_port() -> int:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield new_port
        process.communicate()  # it exits when its stdin closes


def latency_verdict(target: dict[str, Any], ports: tuple[int, int], n: int) -> VerdictRow:
    """Ask both servers all examples, and return the verdict on their latency."""
    addresses = [f"http://127.0.0.1:{port}/v1" for port in ports]
    names = ("first", "second")
    if target["kind"] == "http":
        targets = [{**target, "name": name, "url": url} for name, url in zip(names, addresses, strict=True)]
    else:
        targets = [{**target, "name": name, "connection": name} for name in names]
    connections = [{"kind": "endpoint", "base_url": url, "model": "m"} for url in addresses]
    run = check_and_freeze(
        ExperimentSpec.model_validate(
            {
                "name": "connections",
                "dataset": {"rows": [{"inputs": {"question": str(number)}} for number in range(n)]},
                "targets": targets,
                "connections": dict(zip(names, connections, strict=True)),
                "use_cache": False,
            }
        )
    )
    rows, spec = start_experiments.fn(run), run.prepared.spec
    for wave in waves_of(rounds_of(rows), spec.batch):
        for rounds in wave:
            answer_rounds(run, rounds, pending_runs(run, rounds))
    return next(row for row in verdicts_on(MetricReader(Store()), rows, spec) if row.metric == "latency")


def is_found(verdict: VerdictRow) -> bool:
    is_significant = verdict.p_value is not None and verdict.p_value <= 0.05
    return is_significant and verdict.ci_low is not None and not verdict.ci_low <= 0 <= (verdict.ci_high or 0)


def rate(
    name: str,
    target: dict[str, Any],
    protocol: str,
    runs: int,
    n: int,
    *,
    slower: float = 1.0,
    seconds: float = SECONDS,
    knows_options: bool = True,
) -> None:
    """Print the share of runs with a verdict on latency, and its interval."""
    found, pairs = 0, set()
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(servers(seconds * factor, protocol, knows_options)) for factor in (1.0, slower)
        )
        for done in range(1, runs + 1):
            verdict = latency_verdict(target, (first(), second()), n)
            found += is_found(verdict)
            pairs.add(verdict.n_pairs)
            if done % 20 == 0 or done == runs:
                low, high = wilson_interval(found, done, confidence_level=0.95)
                share = f"{found / done:.3f} [{low:.3f}, {high:.3f}]"
                print(
                    f"{name}: a verdict in {found} of {done}: {share}; {min(pairs)} to {max(pairs)} pairs", flush=True
                )


def parse_arguments() -> Namespace:
    parser = new_parser("connections", __doc__)
    parser.add_argument("runs", nargs="?", type=int, default=200)
    parser.add_argument("examples", nargs="?", type=int, default=60)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    runs, n = SMALLEST if arguments.smallest else (arguments.runs, arguments.examples)
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as folder:
        os.environ |= {"EVALFLOWS_STORE": f"{folder}/store", "EVALFLOWS_SPOOL": f"{folder}/spool"}
        for slower, repeats in ((SLOWER, max(1, runs // 5)), (1.0, runs)):
            what = "identical" if slower == 1.0 else "20 % slower"
            rate(f"{what}, connections kept", HTTP, "HTTP/1.1", repeats, n, slower=slower)
            rate(f"{what}, chat", CHAT, "HTTP/1.1", repeats, n, slower=slower)
            rate(f"{what}, a connection for each answer", HTTP, "HTTP/1.0", repeats, n, slower=slower)
        for seconds in (0.05, 0.005):
            for protocol in ("HTTP/1.1", "HTTP/1.0"):
                name = f"identical, {1000 * seconds:g} ms, {protocol} without OPTIONS"
                rate(name, HTTP, protocol, runs, n, seconds=seconds, knows_options=False)
    print(f"target: identical ones at most {WANTED}")


if __name__ == "__main__":
    main()
