"""Rules over recorded answers, against a bare Python loop over the same Parquet file.

Run from the repository's root: `python -m benchmarks.rules`, and `python -m benchmarks.rules memory` for the memory.
Ours is a whole run: the dataset frozen, every answer and every score a row with its status, version and time, sealed
and weighed. The loop reads the file, calls the same functions, and writes one Parquet file of example, metric and
value. They take turns. Processor time (user and system, of all our processes but the server) is printed too, since
other work on the machine adds less to it.
"""

import logging
import random
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.arguments import new_parser
from benchmarks.own_server import own_server
from evalflows.evaluators import named
from evalflows.evaluators.score import normalise

BLOCK = 50_000
"""Rows that are made at a time."""

Rules = dict[str, dict[str, Any]]

CHEAP: Rules = {"exact_match": {}, "contains": {}, "length_between": {"most": 100_000}}
"""About a microsecond each."""
TWO = {name: CHEAP[name] for name in ("exact_match", "contains")}
DEAR: Rules = {
    "numeric_closeness": {},
    "keyword_safety": {"blocked": ["password", "social security number", "kill"]},
    "edit_similarity": {},
}
"""About 60 microseconds each."""
SLOW: Rules = {"benchmarks.rules:counts_words": {}}
"""At least 50 microseconds."""

WORDS = (
    *("the", "total", "of", "your", "order", "comes", "to", "and", "is", "due", "within", "days", "after", "we"),
    *("have", "sent", "it", "by", "mail", "to", "you", "please"),
)


def counts_words(outputs: dict[str, Any]) -> bool:
    """A rule of 50 microseconds or more: it searches the answer for each word, several times."""
    text = outputs["answer"] if "answer" in outputs else outputs["output"]
    until = time.perf_counter() + 50e-6
    while True:
        found = sum(text.count(word) for word in WORDS)
        if time.perf_counter() >= until:
            return found > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rules over so many answers, and what is wanted of them."""

    title: str
    rows: int
    rules: Rules
    pairs: int
    wanted: Callable[[float, float], tuple[str, bool]]
    """Of the seconds of the bare loop and of ours: a sentence, and whether it is as wanted."""
    has_first_run: bool = True
    """Whether a run before the pairs freezes and checks the dataset."""


def at_most(factor: float) -> Callable[[float, float], tuple[str, bool]]:
    return lambda bare, ours: (f"ratio {ours / bare:.2f}, wanted at most {factor}", ours <= factor * bare)


def in_seconds(most: float) -> Callable[[float, float], tuple[str, bool]]:
    return lambda bare, ours: (f"{ours:.1f} s, wanted at most {most:g}", ours <= most)


def per_second(rows: int, least: int) -> Callable[[float, float], tuple[str, bool]]:
    return lambda bare, ours: (f"{rows / ours:,.0f} items/s, wanted at least {least:,}", rows / ours >= least)


CASES = (
    Case(title="two rules", rows=100_000, rules=TWO, pairs=3, wanted=per_second(100_000, 10_000)),
    Case(title="three cheap rules", rows=100_000, rules=CHEAP, pairs=3, wanted=in_seconds(15)),
    Case(title="a rule of 50 microseconds", rows=100_000, rules=SLOW, pairs=3, wanted=at_most(1.3)),
    Case(title="a rule of 50 microseconds", rows=300_000, rules=SLOW, pairs=1, wanted=at_most(1.3)),
    Case(title="three dear rules", rows=100_000, rules=DEAR, pairs=3, wanted=at_most(3)),
)
SMALLEST = (
    Case(title="all rules", rows=200, rules=CHEAP | SLOW | DEAR, pairs=1, wanted=at_most(3), has_first_run=False),
)
MEMORY_ROWS, MEMORY_RATIO, MEMORY_MB = (100_000, 1_000_000), 1.3, 600
SMALLEST_MEMORY_ROWS = 100, 1_000


def write_answers(path: Path, rows: int) -> None:
    """Write questions with references and answers of some sixty words; three in four answers have the right number."""
    draw = random.Random(7)
    schema = pa.schema([(name, pa.string()) for name in ("id", "question", "reference", "said")])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, rows, BLOCK):
            block = [_answer(draw, number) for number in range(start, min(start + BLOCK, rows))]
            writer.write_table(pa.Table.from_pylist(block, schema))


def _answer(draw: random.Random, number: int) -> dict[str, Any]:
    text, reference = (" ".join(draw.choices(WORDS, k=60)) for _ in range(2))
    total = number if draw.random() < 0.75 else number + 1
    question = f"What is the total of order {number}?"
    return {"id": f"q{number}", "question": question, "reference": f"{reference} {number}", "said": f"{text} {total}"}


def bare(path: Path, to: Path, rules: Rules) -> None:
    """The loop that a person would write."""
    functions = [(name, named.load_named(name), settings) for name, settings in rules.items()]
    found: dict[str, list[Any]] = {"id": [], "metric": [], "value": [], "comment": []}
    for row in pq.read_table(path).to_pylist():
        outputs, reference = {"answer": row["said"]}, {"answer": row["reference"]}
        for name, function, settings in functions:
            needs_reference = name not in ("keyword_safety", "length_between", *SLOW)
            asked = {"reference_outputs": reference} if needs_reference else {}
            (score,) = normalise(function(outputs=outputs, **asked, **settings), name.rpartition(":")[2])
            for column, value in zip(found, (row["id"], score.metric, score.value, score.comment), strict=True):
                found[column].append(value)
    pq.write_table(pa.table(found), to, compression="zstd")


def ours(path: Path, rules: Rules) -> None:
    from evalflows import run
    from evalflows.specs import ExperimentSpec

    spec = ExperimentSpec.model_validate(
        {
            "name": "rules",
            "dataset": {
                "path": str(path),
                "columns": {"inputs": ["question"], "reference_outputs": {"answer": "reference"}, "metadata": ["said"]},
            },
            "targets": [{"kind": "recorded", "column": "said"}],
            "task_runner": "processes",
            "evaluators": [{"use": name, "args": settings} for name, settings in rules.items()],
        }
    )
    run(spec)


def check(folder: Path, case: Case) -> None:
    """Both have found the same."""
    from evalflows.store import connect

    with connect(folder / "store") as catalog:
        query = "select metric, avg(value), count(*) from {} where {} group by all order by all"
        theirs = catalog.execute(query.format(f"read_parquet('{folder}/bare.parquet')", "true")).fetchall()
        mine = catalog.execute(query.format("scores", "experiment_id = (select max(experiment_id) from experiments)"))
        assert [(m, round(v, 9), n) for m, v, n in theirs] == [(m, round(v, 9), n) for m, v, n in mine.fetchall()]
    assert sum(n for _, _, n in theirs) == len(case.rules) * case.rows


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds that pass, and those of processor time."""
    began, before = time.perf_counter(), _processor_time()
    work()
    return time.perf_counter() - began, _processor_time() - before


def _processor_time() -> float:
    """Of this process and of those that it has started and that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def measure(folder: Path, case: Case) -> None:
    """Print the times of a case, of pairs after one of ours that also freezes and checks the dataset."""
    path = folder / f"answers-{case.rows}.parquet"
    if not path.exists():
        write_answers(path, case.rows)
        if case.has_first_run:
            first = timed(lambda: ours(path, case.rules))
            print(f"  the first run, which freezes and checks the dataset: {first[0]:.1f} s", flush=True)
    pairs = []
    for number in range(case.pairs):
        theirs, their_cpu = timed(lambda: bare(path, folder / "bare.parquet", case.rules))
        mine, my_cpu = timed(lambda: ours(path, case.rules))
        pairs.append((theirs, mine))
        seconds = f"bare {theirs:6.2f} s ({their_cpu:6.2f} cpu)   ours {mine:6.2f} s ({my_cpu:6.2f} cpu)"
        print(f"  pair {number + 1}: {seconds}   ratio {mine / theirs:.2f}, cpu {my_cpu / their_cpu:.2f}", flush=True)
    check(folder, case)
    said, is_met = case.wanted(*sorted(pairs, key=lambda pair: pair[1])[len(pairs) // 2])
    print(f"{case.title}, {case.rows:,} answers: {said}  {'ok' if is_met else 'NOT MET'}", flush=True)


def measure_memory(folder: Path, sizes: Sequence[int]) -> None:
    """Print the largest memory of runs in processes of their own."""
    peaks = []
    for rows in sizes:
        write_answers(path := folder / f"memory-{rows}.parquet", rows)
        ran = subprocess.run([sys.executable, "-m", "benchmarks.rules", str(path)], stdout=subprocess.PIPE, check=True)
        peaks.append(int(ran.stdout.split()[-1]))
        print(f"  {rows:,} answers, three cheap rules: at most {peaks[-1]} MB", flush=True)
    is_met = peaks[1] <= MEMORY_RATIO * peaks[0] and peaks[1] <= MEMORY_MB
    said = f"ratio {peaks[1] / peaks[0]:.2f}, wanted at most {MEMORY_RATIO} and {MEMORY_MB} MB"
    print(f"memory: {said}  {'ok' if is_met else 'NOT MET'}")


def parse_arguments() -> Namespace:
    parser = new_parser("rules", __doc__)
    parser.add_argument("what", nargs="?", help="memory, or a file of answers to judge by the cheap rules")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    logging.disable(logging.INFO)
    if arguments.what not in (None, "memory"):
        ours(Path(arguments.what), CHEAP)
        print(getrusage(RUSAGE_SELF).ru_maxrss >> 10)
        return
    with own_server() as folder:
        if arguments.what == "memory":
            measure_memory(folder, SMALLEST_MEMORY_ROWS if arguments.smallest else MEMORY_ROWS)
        else:
            for case in SMALLEST if arguments.smallest else CASES:
                measure(folder, case)


if __name__ == "__main__":
    main()
