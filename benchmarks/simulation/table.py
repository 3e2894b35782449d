"""Tables of the results: one column per seed, their mean, and whether the bounds are held."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from benchmarks.simulation.cells import TOLERANCE, Cell, Figure, Held

Rows = Sequence[Sequence[str]]

SHOWN_AS = {
    "auto": "automatic",
    "guard, all of the margin lost": "non-inferiority rule, loss equal to the margin",
    "3 guards, all of each margin lost": "3 non-inferiority rules, each loss equal to its margin",
    "3 guards, all of one margin lost": "3 non-inferiority rules, one loss equal to its margin",
    "3 guards, half of each margin lost": "3 non-inferiority rules, each loss half of its margin",
    "3 guards of twice the margin, no loss": "3 non-inferiority rules, doubled margins, no loss",
    "3 guards, thrice each margin lost": "3 non-inferiority rules, each loss three times its margin",
    "sure floor, which is the true mean": "confident threshold equal to the true mean",
    "guard at every look": "non-inferiority rule at every analysis, loss equal to the margin",
    "yes/no, a judge that says yes in 9 of 10, whatever it sees": "yes/no, an uninformative judge, 90% yes",
    "yes/no, a good judge that leans slightly": "yes/no, a good judge with a slight bias",
    "five points, a judge kind to what is bad": "five points, a judge lenient towards bad answers",
}
"""How tables show methods and worlds. The keys cannot be reworded: cells use them to seed their draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The estimates of one figure of a cell."""

    cell: Cell
    figure: Figure
    by_seed: Sequence[float]
    runs: int  # per seed

    @property
    def mean(self) -> float:
        """The mean over the seeds that have the figure; nan if none has."""
        known = [value for value in self.by_seed if not math.isnan(value)]
        return math.fsum(known) / len(known) if known else math.nan

    @property
    def held(self) -> Held | None:
        """Whether the bounds are held; None without bounds, or without the figure."""
        if not self.figure.is_bounded or math.isnan(self.mean):
            return None
        return self.figure.held(self.mean, self.runs * len(self.by_seed))

    def row(self) -> list[str]:
        cell, figure = self.cell, self.figure
        method, world = (SHOWN_AS.get(text, text) for text in (cell.method, cell.world))
        setting = [method, world, cell.n, cell.difference, figure.name, target(figure)]
        return [*setting, *(shown(figure, value) for value in (*self.by_seed, self.mean)), self.held or ""]


def measures(cell: Cell, by_seed: Sequence[Sequence[float]], runs: int) -> list[Measure]:
    """Return the figures from the estimates of each seed."""
    figures = by_seed
    if cell.combined is not None:
        overall = [math.fsum(column) / len(column) for column in zip(*by_seed, strict=True)]
        figures = [cell.combined(estimates, overall) for estimates in by_seed]
    return [
        Measure(
            cell=cell,
            figure=figure,
            by_seed=[estimates[place] for estimates in figures],
            runs=cell.runs_made(runs),
        )
        for place, figure in enumerate(cell.figures)
    ]


def target(figure: Figure) -> str:
    """Return the bounds, those of a share in per cent; empty without bounds."""
    unit = 100 if figure.is_share else 1
    low, high = (None if end is None else f"{unit * end:g}" for end in (figure.at_least, figure.at_most))
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"≥ {low}" if low is not None else f"≤ {high}" if high is not None else ""


def shown(figure: Figure, value: float) -> str:
    """Return a share in per cent, and another mean with three digits."""
    if math.isnan(value):
        return "none"
    return f"{100 * value:.2f}" if figure.is_share else f"{value:.1f}" if value >= 100 else f"{value:.3g}"


def header(seeds: Sequence[int]) -> list[str]:
    setting = ["method", "world", "n", "true difference", "figure", "target"]
    return [*setting, *(f"seed {seed}" for seed in seeds), "mean", "held"]


SUMMARY = ["kind", "figure", "target", "cells", "held", "within error", "cautious", "NOT HELD", "worst"]


def summary(estimates: Sequence[Measure]) -> list[list[str]]:
    """Return one row per kind, figure and target: how many cells hold it, and the worst of their means."""
    groups: dict[tuple[str, str, str], list[Measure]] = {}
    for measure in estimates:
        if measure.held:
            key = measure.cell.kind, measure.figure.name, target(measure.figure)
            groups.setdefault(key, []).append(measure)
    rows = []
    for key, group in groups.items():
        counts = [sum(measure.held == status for measure in group) for status in get_args(Held)]
        worst = max(group, key=lambda measure: measure.figure.excess(measure.mean))
        rows.append([*key, str(len(group)), *(str(count or "") for count in counts), shown(worst.figure, worst.mean)])
    return rows


def not_held(estimates: Sequence[Measure]) -> list[Measure]:
    return [measure for measure in estimates if measure.held == "NOT HELD"]


def in_columns(rows: Rows) -> Iterator[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def plain(estimates: Sequence[Measure], seeds: Sequence[int]) -> Iterator[str]:
    yield from in_columns([header(seeds), *(measure.row() for measure in estimates)])
    yield ""
    yield from in_columns([SUMMARY, *summary(estimates)])
    bounded = [measure for measure in estimates if measure.figure.is_bounded]
    yield ""
    yield f"{len(not_held(estimates))} of {len(bounded)} bounds are not held, tolerance {TOLERANCE:g} standard errors"
