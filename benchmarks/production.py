"""Trace evaluations: 100,000 made traces over 30 days, each judged once, in memory that does not grow with them.

Run from the repository's root: `python -m benchmarks.production [SEEDS]`. For each seed, 3,300 traces a day are
written, some spans of the day before arrive late and some arrive twice, and a start of the evaluation follows each day,
in one process for all starts. Then one start judges 100,000 traces at once, in a process of its own. Printed are
the judgements, how many traces had none or several, the largest resident memory of both, and its ratio; and traces per
second beside a bare loop that reads the same rows from Parquet and calls the same evaluators.
"""

import os
import random
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.arguments import new_parser
from benchmarks.own_server import own_server
from evalflows.store import Store, connect
from evalflows.store.observations import day_of, split_attributes, write_observations
from evalflows.store.trace_records import ObservationRow

DAYS, A_DAY, AT_ONCE = 30, 3_300, 100_000
SMALLEST = 2, 50
"""Days, and traces a day. Nothing is judged at once."""
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

JUDGES = """
def answered(output):
    return len(output) > 0

def brief(output):
    return len(output) < 60
"""

STARTS = """
import resource, sys, time
from evalflows import evaluate_traces
from evalflows.specs.traces import TraceEvaluationSpec
spec = TraceEvaluationSpec(name="production", evaluators=["judges:answered", "judges:brief"], settle_s=0)
for line in sys.stdin:
    began = time.perf_counter()
    evaluate_traces(spec)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(time.perf_counter() - began, peak, flush=True)
"""

BARE = """
import json, sys, time
import pyarrow.dataset as ds
import judges
began = time.perf_counter()
rows = ds.dataset(sys.argv[1] + "/observations", format="parquet")
for batch in rows.to_batches(columns=["parent_id", "attributes"]):
    for parent, attributes in zip(*(column.to_pylist() for column in batch.columns)):
        if parent is None:
            output = json.loads(attributes)["output.value"]
            judges.answered(output), judges.brief(output)
print(time.perf_counter() - began)
"""


def made(draw: random.Random, numbers: Sequence[int], began: datetime) -> Iterator[ObservationRow]:
    """Traces of a root and a model call, spread over a day."""
    for number in numbers:
        trace = f"{number:032x}"
        at = began + timedelta(seconds=draw.uniform(0, 86_000))
        output = " ".join(["word"] * draw.randint(5, 20))
        yield _span(trace, "root", None, at, {"input.value": f"question {number}", "output.value": output})
        call = {"openinference.span.kind": "LLM", "llm.token_count.prompt": 50, "llm.token_count.completion": 20}
        yield _span(trace, "call", "root", at + timedelta(seconds=0.1), call)


def _span(trace: str, span: str, parent: str | None, at: datetime, attributes: dict[str, object]) -> ObservationRow:
    short, contents = split_attributes(attributes)
    return ObservationRow(
        trace_id=trace,
        span_id=f"{trace[:12]}{span}",
        parent_id=parent and f"{trace[:12]}{parent}",
        day=day_of(at),
        source="otlp",
        name="user-query" if parent is None else "call",
        started_at=at,
        ended_at=at + timedelta(seconds=1),
        attributes=short,
        contents=contents,
    )


class Starts:
    """A process that judges what is new whenever it is told to."""

    def __init__(self, folder: Path) -> None:
        settings = {"EVALFLOWS_STORE": str(folder / "store"), "EVALFLOWS_SPOOL": str(folder / "spool")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", STARTS],
            env=os.environ | settings | {"PYTHONPATH": f"{folder}:{Path.cwd()}"},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self) -> tuple[float, float]:
        """Seconds of a start, and the process's largest resident memory so far, in megabytes."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        seconds, megabytes = map(float, line.split())
        return seconds, megabytes

    def end(self) -> None:
        self._process.communicate()


def month(seed: int, folder: Path, days: int, a_day: int) -> str:
    """The days of one seed: what was judged, and the memory of the process that did."""
    draw, store, late = random.Random(seed), Store(folder / "store"), list[ObservationRow]()
    starts = Starts(folder)
    for day in range(days):
        rows = list(made(draw, range(day * a_day, (day + 1) * a_day), BEGAN + timedelta(days=day)))
        held = [row for row in rows if row.parent_id and draw.random() < 0.01]
        kept = {id(row) for row in held}
        twice = [row for row in rows if draw.random() < 0.01]
        write_observations(store, [*(row for row in rows if id(row) not in kept), *late])
        write_observations(store, twice)
        late = held
        _, megabytes = starts.start()
    starts.end()
    return f"{judged(folder)}, {megabytes:.0f} MB"


def judged(folder: Path) -> str:
    with connect(folder / "store") as catalog:
        query = """
            select count(*), count(*) filter (scores < 2), count(*) filter (scores > 2), sum(scores) from (
                select count(s.score_id) as scores from (select distinct trace_id from observations) t
                left join scores s on s.subject_id = t.trace_id group by t.trace_id
            )"""
        traces, fewer, more, scores = catalog.execute(query).fetchall()[0]
    return f"{traces} traces, {scores} judgements, {fewer} traces with too few, {more} with too many"


def at_once(count: int, folder: Path) -> tuple[float, float]:
    """One start over all of these traces."""
    draw, store = random.Random(count), Store(folder / "store")
    for first in range(0, count, 10_000):
        day = BEGAN + timedelta(days=first // 10_000)
        write_observations(store, made(draw, range(first, min(first + 10_000, count)), day))
    starts = Starts(folder)
    found = starts.start()
    starts.end()
    print(f"{count} traces at once: {judged(folder)}, {found[0]:.1f} s, {found[1]:.0f} MB")
    return found


def bare(folder: Path) -> float:
    settings = {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", BARE, str(folder / "store")]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure_months(folder: Path, seeds: int, days: int, a_day: int) -> None:
    for seed in range(seeds):
        began = time.perf_counter()
        judged_month = month(seed, with_judges(folder / f"seed-{seed}"), days, a_day)
        print(f"seed {seed}: {judged_month}, {time.perf_counter() - began:.0f} s", flush=True)


def measure_at_once(folder: Path) -> None:
    few, many = (with_judges(folder / name) for name in ("few", "many"))
    (_, megabytes_of_few), (seconds, megabytes) = at_once(AT_ONCE // 10, few), at_once(AT_ONCE, many)
    print(f"memory of {AT_ONCE} traces over that of {AT_ONCE // 10}: {megabytes / megabytes_of_few:.2f}")
    print(f"{AT_ONCE / seconds:.0f} traces per second; a bare loop takes {bare(many) / seconds:.3f} of the time")


def with_judges(folder: Path) -> Path:
    folder.mkdir()
    (folder / "judges.py").write_text(JUDGES)
    return folder


def parse_arguments() -> Namespace:
    parser = new_parser("production", __doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    with own_server() as folder:
        if arguments.smallest:
            measure_months(folder, 1, *SMALLEST)
            print(f"a bare loop takes {bare(folder / 'seed-0'):.3f} s")
        else:
            measure_months(folder, arguments.seeds, DAYS, A_DAY)
            measure_at_once(folder)


if __name__ == "__main__":
    main()
