"""Looking again and again, and few labels with many judgements: what holds there, beside what does not."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.simulation.cells import POWER, WIDTH, Cell, Figure, Rows, covers, holds, told
from benchmarks.simulation.worlds import FivePoint, Normal, Setting, Skewed, World, YesNo
from evalflows.stats import mean_estimate, paired_difference
from evalflows.stats.arrays import FloatArray
from evalflows.stats.differences.sequential import confidence_sequence
from evalflows.stats.rater_agreement.prediction_powered import prediction_powered_mean

BATCH, MOST = 20, 400
LOOKS = tuple(range(BATCH, MOST + 1, BATCH))
FALSE = Figure(name="false positives, at any look", at_most=0.05)
NAIVE = Figure(name="the same by t at every look")
EVERY = Figure(name="covers at all looks", at_least=0.95)
USED = Figure(name="mean examples used", is_share=False)
PASSES = Figure(name="PASS at any look, at a loss of the margin", at_most=0.025)

YES = 0.7
"""The share of yes among the labels of the worlds below."""
REST = 1000
"""Judged, but not labelled."""


def sequential_cells() -> Iterator[Cell]:
    worlds: tuple[tuple[World, bool], ...] = (
        *((YesNo(base=0.8, differ=differ), True) for differ in (0.05, 0.2, 0.4)),
        (FivePoint(), True),
        *((world, False) for world in (Normal(), Skewed(), YesNo(base=0.8, differ=0.2))),
    )
    for world, bounded in worlds:
        yield _sequence(Setting(world=world, n=MOST), bounded=bounded)
    for world, bounded in (worlds[1], worlds[3], *worlds[4:]):
        yield _sequence(Setting(world=world, n=MOST, loss=1.6 * world.some_loss(MOST)), bounded=bounded)
    yield _passing(Setting(world=YesNo(base=0.8, differ=0.2), n=MOST, loss=0.05))


def _reach(world: World) -> tuple[float, float]:
    low, high = world.bounds or (0.0, 1.0)
    return low - high, high - low


def last_interval(setting: Setting, differences: FloatArray, *, bounded: bool) -> tuple[float, float] | None:
    """That after all differences. It lies within those of all looks before, so that it says of each what it told."""
    found = confidence_sequence(differences, bounds=_reach(setting.world) if bounded else None)
    low, high = found.low[-1], found.high[-1]
    return None if low is None or high is None else (low, high)


def first_look(setting: Setting, differences: FloatArray, *, bounded: bool) -> int | None:
    """After how many differences a look first tells that there is one; None if none does. By halving the looks."""

    def tells(n: int) -> bool:
        found = last_interval(setting, differences[:n], bounded=bounded)
        return found is not None and not found[0] <= 0 <= found[1]

    place = bisect_left(LOOKS, True, key=tells)
    return LOOKS[place] if place < len(LOOKS) else None


def _sequence(setting: Setting, *, bounded: bool) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for draw in setting.draws(rng, runs):
            differences = draw.candidate - draw.baseline
            low, high = last_interval(setting, differences, bounded=bounded) or (None, None)
            covered, _ = holds(low, high, setting.difference)
            when = None if covered and not setting.loss else first_look(setting, differences, bounded=bounded)
            row = [float(when is not None), covered, float(when or MOST)]
            yield row if setting.loss else [*row, _naive(draw.candidate, draw.baseline)]

    return Cell(
        kind="sequential",
        method="confidence sequence" + (", bounds known" if bounded else ", no bounds"),
        world=setting.name,
        n=f"up to {MOST} by {BATCH}",
        difference=told(setting.difference),
        figures=(POWER, EVERY, USED) if setting.loss else (FALSE, EVERY, USED, NAIVE),
        rows=rows,
    )


def _naive(candidate: FloatArray, baseline: FloatArray) -> float:
    """Whether a paired t-test at any look finds something."""
    found = (paired_difference(candidate[:n], baseline[:n]).p_value for n in LOOKS)
    return float(any(p is not None and p <= 0.05 for p in found))


def _passing(setting: Setting) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for draw in setting.draws(rng, runs):
            found = last_interval(setting, draw.candidate - draw.baseline, bounded=True)
            yield [float(found is not None and found[0] > setting.difference)]

    return Cell(
        kind="sequential",
        method="guard at every look",
        world=setting.name,
        n=f"up to {MOST} by {BATCH}",
        difference=told(setting.difference),
        figures=(PASSES,),
        rows=rows,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """How a judge answers where people say yes, and where they say no: how often yes, or by how much it is above."""

    name: str
    sensitivity: float
    false_alarms: float
    misses: bool  # whether its bare mean is wrong

    def labelled(self, rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        """The labels of n items, and what the judge says of them."""
        labels = rng.random(n) < YES
        judged = rng.random(n) < np.where(labels, self.sensitivity, self.false_alarms)
        return labels.astype(np.float64), judged.astype(np.float64)


JUDGES = (
    Judge(name="a lenient judge", sensitivity=0.97, false_alarms=0.5, misses=True),
    Judge(name="a harsh judge", sensitivity=0.8, false_alarms=0.05, misses=True),
    Judge(name="a judge that says yes in 9 of 10, whatever it sees", sensitivity=0.9, false_alarms=0.9, misses=True),
    Judge(name="a good judge that leans slightly", sensitivity=0.97, false_alarms=0.02, misses=False),
)


def prediction_powered_cells() -> Iterator[Cell]:
    for n in (30, 100, 300):
        for judge in JUDGES:
            yield _powered(judge, n)
        yield _powered_numbers(n)


def _powered(judge: Judge, n: int) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for _ in range(runs):
            labels, judged = judge.labelled(rng, n + REST)
            found = prediction_powered_mean(labels[:n], judged[:n], judged[n:], bounds=(0.0, 1.0))
            alone = mean_estimate(labels[:n], binary=True)
            bare = mean_estimate(judged, binary=True)
            yield [
                *holds(found.low, found.high, YES),
                holds(alone.low, alone.high, YES)[1],
                holds(bare.low, bare.high, YES)[0],
            ]

    return _powered_cell(f"yes/no, {judge.name}", n, rows, misses=judge.misses)


def _powered_numbers(n: int) -> Cell:
    """Grades from 1 to 5, of which the judge gives a half too much to what deserves 3 and less."""
    world, truth = FivePoint(), FivePoint().means(0.0)[1]

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for _ in range(runs):
            seen, labels = world.pairs(rng, (n + REST,), 0.0)
            judged = (seen + labels) / 2 + 0.5 * (labels <= 3)
            found = prediction_powered_mean(labels[:n], judged[:n], judged[n:], bounds=(1.0, 5.0))
            alone, bare = mean_estimate(labels[:n], bounds=(1.0, 5.0)), mean_estimate(judged)
            yield [
                *holds(found.low, found.high, truth),
                holds(alone.low, alone.high, truth)[1],
                holds(bare.low, bare.high, truth)[0],
            ]

    return _powered_cell("five points, a judge kind to what is bad", n, rows, misses=True)


def _powered_cell(world: str, n: int, rows: Rows, *, misses: bool) -> Cell:
    bare = Figure(name="the bare judge's mean covers", at_most=0.5 if misses else None)
    return Cell(
        kind="prediction_powered",
        method="prediction-powered mean",
        world=world,
        n=f"{n} labels of {n + REST:,}",
        difference="",
        figures=(covers(n), WIDTH, Figure(name="mean width by labels alone", is_share=False), bare),
        rows=rows,
    )
