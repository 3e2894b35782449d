"""Simulate coverage and error rates of the statistics, on data with known truth and through the public functions.

Run from the repository's root: `python -m benchmarks.simulate [--runs 4000] [--seeds 0 1 2 3 4] [--only KIND]
[--csv FILE]`. Prints each figure of each cell with one column per seed, its target, and whether that is held. Exits
with 1 if the mean over the seeds misses a target by more than the tolerance. `make simulate` writes the table into
docs/explanation/simulation.csv, beside the page that states what was found.
"""

import argparse
import csv
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

from benchmarks.simulation.catalogue import KINDS, all_cells
from benchmarks.simulation.table import Measure, header, measures, not_held, plain

Part = tuple[int, int, int]
"""The index of a cell, a seed, and the number of runs."""


def cell_estimates(part: Part) -> list[float]:
    place, seed, runs = part
    return all_cells()[place].estimates(seed, runs)


def simulate(places: Sequence[int], seeds: Sequence[int], runs: int, processes: int) -> Iterator[Measure]:
    """Yield every figure of the cells with these indices."""
    parts = [(place, seed, runs) for place, seed in product(places, seeds)]
    with ProcessPoolExecutor(processes) as pool:
        estimates = with_progress(pool.map(cell_estimates, parts), len(parts))
        for place in places:
            yield from measures(all_cells()[place], [next(estimates) for _ in seeds], runs)


def with_progress(estimates: Iterable[list[float]], count: int) -> Iterator[list[float]]:
    """Yield the estimates unchanged, and show progress on a terminal."""
    for number, estimate in enumerate(estimates, 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {count}", end="\n" if number == count else "", file=sys.stderr, flush=True)
        yield estimate


def write_csv(path: Path, estimates: Sequence[Measure], seeds: Sequence[int]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["kind", *header(seeds)])
        rows.writerows([measure.cell.kind, *measure.row()] for measure in estimates)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4000, help="runs per cell and seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", choices=[*KINDS], help="simulate only this kind of cells")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table to this file")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    places = [place for place, cell in enumerate(all_cells()) if arguments.only in (None, cell.kind)]
    estimates = list(simulate(places, arguments.seeds, arguments.runs, arguments.processes))
    print(*plain(estimates, arguments.seeds), sep="\n")
    if arguments.csv:
        write_csv(arguments.csv, estimates, arguments.seeds)
    return int(bool(not_held(estimates)))


if __name__ == "__main__":
    sys.exit(main())
