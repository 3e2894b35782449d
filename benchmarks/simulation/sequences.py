"""Cells for sequential analyses, and for prediction-powered means from few labels and many judge scores."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.simulation.cells import (
    POWER,
    WIDTH,
    Cell,
    Figure,
    Rows,
    coverage_and_width,
    coverage_figure,
    difference_text,
)
from benchmarks.simulation.worlds import FivePoint, Normal, Setting, Skewed, World, YesNo
from evalflows.stats.arrays import FloatArray
from evalflows.stats.judge_error import prediction_powered_mean
from evalflows.stats.means import mean_estimate
from evalflows.stats.paired import paired_difference
from evalflows.stats.sequential import confidence_sequence

BATCH, MAX_N = 20, 400
ANALYSES = tuple(range(BATCH, MAX_N + 1, BATCH))
FALSE = Figure(name="false positives at any analysis", at_most=0.05)
NAIVE = Figure(name="false positives with a t-test at each analysis")
SIMULTANEOUS = Figure(name="simultaneous coverage", at_least=0.95)
USED = Figure(name="mean sample size", is_share=False)
PASSES = Figure(name="PASS at any analysis", at_most=0.025)

YES = 0.7
"""The true share of yes."""
UNLABELLED = 1000
"""The number of items with a judge score but no label."""


def sequential_cells() -> Iterator[Cell]:
    worlds: tuple[tuple[World, bool], ...] = (
        *((YesNo(base=0.8, differ=differ), True) for differ in (0.05, 0.2, 0.4)),
        (FivePoint(), True),
        *((world, False) for world in (Normal(), Skewed(), YesNo(base=0.8, differ=0.2))),
    )
    for world, bounded in worlds:
        yield _sequence(Setting(world=world, n=MAX_N), bounded=bounded)
    for world, bounded in (worlds[1], worlds[3], *worlds[4:]):
        yield _sequence(Setting(world=world, n=MAX_N, loss=1.6 * world.typical_loss(MAX_N)), bounded=bounded)
    yield _passing(Setting(world=YesNo(base=0.8, differ=0.2), n=MAX_N, loss=0.05))


def _difference_bounds(world: World) -> tuple[float, float]:
    low, high = world.bounds or (0.0, 1.0)
    return low - high, high - low


def last_interval(setting: Setting, differences: FloatArray, *, bounded: bool) -> tuple[float, float] | None:
    """Return the interval after all differences. It is within all earlier ones, so it covers only if they all do."""
    sequence = confidence_sequence(differences, bounds=_difference_bounds(setting.world) if bounded else None)
    low, high = sequence.low[-1], sequence.high[-1]
    return None if low is None or high is None else (low, high)


def first_rejection(setting: Setting, differences: FloatArray, *, bounded: bool) -> int | None:
    """Return the number of differences at the first analysis that excludes 0, by bisection; None if none does."""

    def excludes_0(n: int) -> bool:
        interval = last_interval(setting, differences[:n], bounded=bounded)
        return interval is not None and not interval[0] <= 0 <= interval[1]

    place = bisect_left(ANALYSES, True, key=excludes_0)
    return ANALYSES[place] if place < len(ANALYSES) else None


def _sequence(setting: Setting, *, bounded: bool) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for draw in setting.draws(rng, runs):
            differences = draw.candidate - draw.baseline
            low, high = last_interval(setting, differences, bounded=bounded) or (None, None)
            covered, _ = coverage_and_width(low, high, setting.difference)
            when = None if covered and not setting.loss else first_rejection(setting, differences, bounded=bounded)
            row = [float(when is not None), covered, float(when or MAX_N)]
            yield row if setting.loss else [*row, _naive(draw.candidate, draw.baseline)]

    return Cell(
        kind="sequential",
        method="confidence sequence" + (", bounds known" if bounded else ", no bounds"),
        world=setting.name,
        n=f"up to {MAX_N} by {BATCH}",
        difference=difference_text(setting.difference),
        figures=(POWER, SIMULTANEOUS, USED) if setting.loss else (FALSE, SIMULTANEOUS, USED, NAIVE),
        rows=rows,
    )


def _naive(candidate: FloatArray, baseline: FloatArray) -> float:
    """Return whether an unadjusted paired t-test is significant at any analysis."""
    p_values = (paired_difference(candidate[:n], baseline[:n]).p_value for n in ANALYSES)
    return float(any(p is not None and p <= 0.05 for p in p_values))


def _passing(setting: Setting) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for draw in setting.draws(rng, runs):
            interval = last_interval(setting, draw.candidate - draw.baseline, bounded=True)
            yield [float(interval is not None and interval[0] > setting.difference)]

    return Cell(
        kind="sequential",
        method="guard at every look",
        world=setting.name,
        n=f"up to {MAX_N} by {BATCH}",
        difference=difference_text(setting.difference),
        figures=(PASSES,),
        rows=rows,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A simulated judge of yes/no labels."""

    name: str
    sensitivity: float  # the probability of yes if the label is yes
    false_alarms: float  # the probability of yes if the label is no
    is_biased: bool  # too much for the interval of its mean score to cover

    def labelled(self, rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        """Return the labels of n items, and the judge's scores."""
        labels = rng.random(n) < YES
        judged = rng.random(n) < np.where(labels, self.sensitivity, self.false_alarms)
        return labels.astype(np.float64), judged.astype(np.float64)


JUDGES = (
    Judge(name="a lenient judge", sensitivity=0.97, false_alarms=0.5, is_biased=True),
    Judge(name="a harsh judge", sensitivity=0.8, false_alarms=0.05, is_biased=True),
    Judge(name="a judge that says yes in 9 of 10, whatever it sees", sensitivity=0.9, false_alarms=0.9, is_biased=True),
    Judge(name="a good judge that leans slightly", sensitivity=0.97, false_alarms=0.02, is_biased=False),
)


def prediction_powered_cells() -> Iterator[Cell]:
    for n in (30, 100, 300):
        for judge in JUDGES:
            yield _powered(judge, n)
        yield _powered_numbers(n)


def _powered(judge: Judge, n: int) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for _ in range(runs):
            labels, judged = judge.labelled(rng, n + UNLABELLED)
            estimate = prediction_powered_mean(labels[:n], judged[:n], judged[n:], bounds=(0.0, 1.0))
            labels_only = mean_estimate(labels[:n], binary=True)
            judge_only = mean_estimate(judged, binary=True)
            yield [
                *coverage_and_width(estimate.low, estimate.high, YES),
                coverage_and_width(labels_only.low, labels_only.high, YES)[1],
                coverage_and_width(judge_only.low, judge_only.high, YES)[0],
            ]

    return _powered_cell(f"yes/no, {judge.name}", n, rows, is_biased=judge.is_biased)


def _powered_numbers(n: int) -> Cell:
    """Grades from 1 to 5; the judge scores labels of 3 and below half a grade higher."""
    world, truth = FivePoint(), FivePoint().means(0.0)[1]

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for _ in range(runs):
            scores, labels = world.pairs(rng, (n + UNLABELLED,), 0.0)
            judged = (scores + labels) / 2 + 0.5 * (labels <= 3)
            estimate = prediction_powered_mean(labels[:n], judged[:n], judged[n:], bounds=(1.0, 5.0))
            labels_only, judge_only = mean_estimate(labels[:n], bounds=(1.0, 5.0)), mean_estimate(judged)
            yield [
                *coverage_and_width(estimate.low, estimate.high, truth),
                coverage_and_width(labels_only.low, labels_only.high, truth)[1],
                coverage_and_width(judge_only.low, judge_only.high, truth)[0],
            ]

    return _powered_cell("five points, a judge kind to what is bad", n, rows, is_biased=True)


def _powered_cell(world: str, n: int, rows: Rows, *, is_biased: bool) -> Cell:
    judge_coverage = Figure(name="coverage of the judge's mean", at_most=0.5 if is_biased else None)
    return Cell(
        kind="prediction_powered",
        method="prediction-powered mean",
        world=world,
        n=f"{n} labels of {n + UNLABELLED:,}",
        difference="",
        figures=(coverage_figure(n), WIDTH, Figure(name="mean width from labels only", is_share=False), judge_coverage),
        rows=rows,
    )
