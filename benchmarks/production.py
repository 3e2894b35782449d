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
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from evalflows.store import Store, connect
from evalflows.store.observations import day_of, split_attributes, write_observations
from evalflows.store.trace_records import ObservationRow

DAYS, A_DAY, AT_ONCE = 30, 3_300, 100_000
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


def month(seed: int, folder: Path) -> str:
    """Thirty days of one seed: what was judged, and the memory of the process that did."""
    draw, store, late = random.Random(seed), Store(folder / "store"), list[ObservationRow]()
    starts = Starts(folder)
    for day in range(DAYS):
        rows = list(made(draw, range(day * A_DAY, (day + 1) * A_DAY), BEGAN + timedelta(days=day)))
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


def main(seeds: int) -> None:
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "judges.py").write_text(JUDGES)
            began = time.perf_counter()
            print(f"seed {seed}: {month(seed, Path(name))}, {time.perf_counter() - began:.0f} s", flush=True)
    found = {}
    for count in (AT_ONCE // 10, AT_ONCE):
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "judges.py").write_text(JUDGES)
            found[count] = (*at_once(count, Path(name)), bare(Path(name)))
    (_, few, _), (seconds, many, loop) = found[AT_ONCE // 10], found[AT_ONCE]
    print(f"memory of {AT_ONCE} traces over that of {AT_ONCE // 10}: {many / few:.2f}")
    print(f"{AT_ONCE / seconds:.0f} traces per second; a bare loop takes {loop / seconds:.3f} of the time")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
