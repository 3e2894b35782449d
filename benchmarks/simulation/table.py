"""What was measured, as a table: a column a seed, and beside it whether it is as wanted."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from benchmarks.simulation.cells import TOLERANCE, Cell, Figure, Held

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure of a cell."""

    cell: Cell
    figure: Figure
    by_seed: Sequence[float]
    runs: int  # of each seed

    @property
    def mean(self) -> float:
        return math.fsum(self.by_seed) / len(self.by_seed)

    @property
    def held(self) -> Held | None:
        """None where nothing is wanted of it."""
        return self.figure.held(self.mean, self.runs * len(self.by_seed)) if self.figure.is_bounded else None

    def row(self) -> list[str]:
        cell, figure = self.cell, self.figure
        where = [cell.method, cell.world, cell.n, cell.difference, figure.name, wanted(figure)]
        return [*where, *(shown(figure, one) for one in (*self.by_seed, self.mean)), self.held or ""]


def measures(cell: Cell, by_seed: Sequence[Sequence[float]], runs: int) -> list[Measure]:
    return [
        Measure(cell=cell, figure=figure, by_seed=[found[place] for found in by_seed], runs=runs)
        for place, figure in enumerate(cell.figures)
    ]


def wanted(figure: Figure) -> str:
    low, high = figure.at_least, figure.at_most
    if low is not None and high is not None:
        return f"{100 * low:g} to {100 * high:g}"
    return f"≥ {100 * low:g}" if low is not None else f"≤ {100 * high:g}" if high is not None else ""


def shown(figure: Figure, value: float) -> str:
    """A share in per cent; other means with three digits."""
    if math.isnan(value):
        return "none"
    return f"{100 * value:.2f}" if figure.is_share else f"{value:.1f}" if value >= 100 else f"{value:.3g}"


def header(seeds: Sequence[int]) -> list[str]:
    asked = ["method", "world", "n", "true difference", "figure", "wanted"]
    return [*asked, *(f"seed {seed}" for seed in seeds), "mean", ""]


SUMMARY = ["kind", "figure", "wanted", "cells", "held", "within error", "cautious", "NOT HELD", "the worst"]


def summary(estimates: Sequence[Measure]) -> list[list[str]]:
    """A row for each thing that is wanted: how many cells hold it, and what the worst of them gave."""
    groups: dict[tuple[str, str, str], list[Measure]] = {}
    for one in estimates:
        if one.held:
            groups.setdefault((one.cell.kind, one.figure.name, wanted(one.figure)), []).append(one)
    rows = []
    for names, found in groups.items():
        counts = [sum(one.held == way for one in found) for way in get_args(Held)]
        worst = max(found, key=lambda one: one.figure.closeness(one.mean))
        rows.append([*names, str(len(found)), *(str(count or "") for count in counts), shown(worst.figure, worst.mean)])
    return rows


def not_held(estimates: Sequence[Measure]) -> list[Measure]:
    return [one for one in estimates if one.held == "NOT HELD"]


def in_columns(rows: Rows) -> Iterator[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def in_markdown(rows: Rows) -> Iterator[str]:
    for place, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if not place:
            yield "|" + "---|" * len(row)


def plain(estimates: Sequence[Measure], seeds: Sequence[int]) -> Iterator[str]:
    yield from in_columns([header(seeds), *(one.row() for one in estimates)])
    yield ""
    yield from in_columns([SUMMARY, *summary(estimates)])
    bounded = [one for one in estimates if one.figure.is_bounded]
    yield ""
    yield f"{len(not_held(estimates))} of {len(bounded)} bounds are not held, tolerance {TOLERANCE:g} standard errors"
