"""Do the statistics do what they say? Data from worlds whose truth is known, through what a user calls.

Run from the repository's root: `python -m benchmarks.simulate [--runs 4000] [--seeds 0 1 2 3 4] [--only NAME]
[--markdown]`. Prints each figure of each cell with a column a seed, what is wanted of it, and whether that is held.
Ends with 1 where something is not, in the mean over the seeds and with the tolerance said. docs/simulation.md is what
`--markdown` prints.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from benchmarks.simulation.catalogue import KINDS, every_cell
from benchmarks.simulation.page import page
from benchmarks.simulation.table import Measure, measures, not_held, plain

Part = tuple[int, int, int]
"""A cell's place among all, a seed, and how many runs."""


def measured(part: Part) -> list[float]:
    place, seed, runs = part
    return every_cell()[place].estimates(seed, runs)


def simulate(places: Sequence[int], seeds: Sequence[int], runs: int, processes: int) -> Iterator[Measure]:
    """Every figure of the cells at those places of all."""
    parts = [(place, seed, runs) for place, seed in product(places, seeds)]
    with ProcessPoolExecutor(processes) as pool:
        found = told_of(pool.map(measured, parts), len(parts))
        for place in places:
            yield from measures(every_cell()[place], [next(found) for _ in seeds], runs)


def told_of(found: Iterable[list[float]], count: int) -> Iterator[list[float]]:
    """The same; on a terminal it is told how far it has come."""
    for number, one in enumerate(found, 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {count}", end="\n" if number == count else "", file=sys.stderr, flush=True)
        yield one


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4000, help="of each cell and seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", choices=[*KINDS], help="one kind of cells")
    parser.add_argument("--markdown", action="store_true", help="print docs/simulation.md")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    return parser.parse_args()


def main() -> int:
    given = asked()
    places = [place for place, cell in enumerate(every_cell()) if given.only in (None, cell.kind)]
    found = list(simulate(places, given.seeds, given.runs, given.processes))
    lines = page(found, given.seeds, given.runs, len(places)) if given.markdown else plain(found, given.seeds)
    print(*lines, sep="\n")
    return int(bool(not_held(found)))


if __name__ == "__main__":
    sys.exit(main())
