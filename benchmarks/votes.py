"""A tournament of 8,931 votes on 59 systems, against choix's ratings of the same votes without intervals.

Run from the repository's root: `python -m benchmarks.votes`. Ours is a whole comparison in a new process against a
running Prefect server: the votes stored, 927 win rates with intervals and adjusted verdicts, ratings with intervals and
ranges of ranks, the judge's biases, the report. choix gives the maximum-likelihood ratings alone, in a process that
reads the same file with pandas. They take turns. Printed are both times, their ratio, and the largest resident memory.
"""

import json
import math
import os
import random
import subprocess
import sys
from argparse import Namespace
from itertools import combinations
from pathlib import Path

from benchmarks.arguments import new_parser
from benchmarks.own_server import own_server

SYSTEMS, MET, VOTES, PAIRS = 59, 927, 8931, 3
SMALLEST = 5, 10, 100, 1
"""Systems, pairs of them that met, votes, and pairs of processes."""


OURS = """
from evalflows import compare
from evalflows.reports.comparison import comparison_report
from evalflows.specs.comparison import ComparisonSpec
from evalflows.store import Store
identity = compare(ComparisonSpec.model_validate(dict(votes="votes.jsonl")))
assert len(comparison_report(Store(), identity).ranking) == {systems}
"""

THEIRS = """
import choix, pandas as pd
votes = pd.read_json("votes.jsonl", lines=True)
index = {name: place for place, name in enumerate(sorted({*votes["first"], *votes["second"]}))}
sides = votes["first"].map(index), votes["second"].map(index)
wins = votes.winner == votes["first"]
choix.opt_pairwise(len(index), [(a, b) if won else (b, a) for a, b, won in zip(*sides, wins)])
"""

MEASURED = """
import resource, sys, time
began = time.perf_counter()
exec(sys.argv[1])
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write_votes(path: Path, systems: int, n_met: int, votes: int) -> None:
    """Votes by planted strengths, over so many of all pairs of systems, in drawn orders."""
    draw = random.Random(59)
    strengths = {f"system {number:02}": draw.gauss(0, 0.8) for number in range(systems)}
    met = draw.sample(list(combinations(strengths, 2)), n_met)
    with path.open("w", encoding="utf-8") as file:
        for number in range(votes):
            first, second = draw.sample(met[number] if number < n_met else draw.choice(met), 2)
            chance = 1 / (1 + math.exp(strengths[second] - strengths[first]))
            winner = first if draw.random() < chance else second
            file.write(f"{json.dumps({'prompt': number // 3, 'first': first, 'second': second, 'winner': winner})}\n")


def measured(program: str, folder: Path, store: str) -> tuple[float, float]:
    """Seconds and megabytes of a program in a new process, in a folder."""
    settings = {"EVALFLOWS_STORE": store, "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", MEASURED, program]
    done = subprocess.run(command, cwd=folder, env=os.environ | settings, capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, done.stdout.split()[-2:])
    return seconds, megabytes


def parse_arguments() -> Namespace:
    return new_parser("votes", __doc__).parse_args()


def main() -> None:
    arguments = parse_arguments()
    systems, n_met, votes, pairs = SMALLEST if arguments.smallest else (SYSTEMS, MET, VOTES, PAIRS)
    program = OURS.format(systems=systems)
    with own_server() as folder:
        write_votes(folder / "votes.jsonl", systems, n_met, votes)
        if not arguments.smallest:
            measured(program, folder, str(folder / "first"))  # starts Prefect's server
        print("pair   choix         evalflows       ratio")
        for number in range(pairs):
            theirs = measured(THEIRS, folder, str(folder / "none"))
            ours = measured(program, folder, str(folder / f"store{number}"))
            sides = "   ".join(f"{seconds:5.2f} s {megabytes:4.0f} MB" for seconds, megabytes in (theirs, ours))
            print(f"{number + 1}   {sides}   {ours[0] / theirs[0]:.2f}")


if __name__ == "__main__":
    main()
