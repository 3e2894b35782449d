"""Cells for win rates at equal length, of judges with a planted preference for longer answers."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulation.cells import Cell, Figure
from evalflows.stats.arrays import FloatArray
from evalflows.stats.length_control import LengthControlled, length_controlled_rates

Shape = Literal["difference", "ratio"]
"""What the judge's preference depends on: tanh of the difference in length, or of the ratio's logarithm."""

OF_ANSWERS = 0.7
"""The standard deviation of the quality of a system's answers, in log-odds; that between systems is 0.8."""

BIAS = Figure(name="bias towards the longer", at_most=0.02)
NO_RATE = Figure(name="without a rate")
ERROR = Figure(name="mean absolute error")
RANK, PLAIN_RANK = Figure(name="rank correlation", is_share=False), Figure(name="of the plain rate", is_share=False)


class Panel(NamedTuple):
    """Systems that answer the same examples, all compared with the first one, or every two."""

    systems: int
    examples: int
    preference: float = 0.0  # for length, in log-odds
    name: str = ""
    shape: Shape = "difference"
    verbosity: float = 0.4  # standard deviation of the systems' mean log length
    correlation: float = 0.0  # of the systems' quality with their verbosity
    deserved: float = 0.0  # correlation of an answer's quality with its length, within a system
    position: float = 0.0  # log-odds of being shown first, in a drawn order
    every_pair: bool = False

    @property
    def pairs(self) -> list[tuple[int, int]]:
        every = combinations(range(self.systems), 2) if self.every_pair else ((0, k) for k in range(1, self.systems))
        return [(candidate, baseline) for baseline, candidate in every]


class Judged(NamedTuple):
    """Verdicts, shape (pairs, examples), and the true rates without the preference for length, shape (pairs,)."""

    points: FloatArray
    longer_by: FloatArray
    order: FloatArray
    truth: FloatArray


def length_control_cells() -> Iterator[Cell]:
    for examples in (48, 100, 300):
        for preference in (0.0, 0.5, 1.0, 2.0):
            yield _cell(Panel(20, examples, preference))
    yield _cell(Panel(20, 300, 1.0, "preference for the ratio", shape="ratio"))
    yield _cell(Panel(20, 100, 1.0, "verbose systems are better", correlation=0.7))
    yield _cell(Panel(20, 100, 1.0, "verbose systems are worse", correlation=-0.7))
    for preference in (0.0, 1.0):
        yield _cell(Panel(20, 100, preference, "lengths twice as different", verbosity=0.8))
    yield _cell(Panel(20, 100, 1.0, "position bias", position=0.8))
    yield _cell(Panel(5, 100, 1.0, "every pair", every_pair=True))
    yield _cell(Panel(20, 300, 0.0, "longer answers are better", deserved=0.5))
    for examples in (48, 100, 300):
        for preference in (0.0, 1.0):
            yield _cell(Panel(2, examples, preference))


def _cell(panel: Panel) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for _ in range(math.ceil(runs / max(2, len(panel.pairs)))):  # a comparison has a rate for each pair
            judged = _judged(rng, panel)
            yield _figures(_rates(panel, judged), judged, ranked=panel.systems >= 20)

    return Cell(
        kind="length_control",
        method="one regression of all pairs",
        world=f"{panel.systems} systems" + (f", {panel.name}" if panel.name else ""),
        n=str(panel.examples),
        difference=f"preference {panel.preference:g}",
        figures=_bounded(panel),
        rows=rows,
    )


def _bounded(panel: Panel) -> tuple[Figure, ...]:
    """Return the figures; that for answers that deserve their length has no bounds: the method assumes otherwise."""
    compared = "error minus that of the plain rate"
    at_most = 0.005 if not panel.preference else 0.0 if panel.preference >= 1 else None
    figures = (
        Figure(name="coverage", at_least=0.94 if panel.examples >= 100 else 0.92),
        BIAS,
        ERROR,
        Figure(name=compared, at_most=at_most if panel.systems > 2 or panel.preference else None),
        NO_RATE,
    )
    if panel.deserved:
        figures = tuple(Figure(name=figure.name) for figure in figures)
    return (*figures, RANK, PLAIN_RANK) if panel.systems >= 20 else figures


def _figures(found: Sequence[LengthControlled], judged: Judged, *, ranked: bool) -> list[float]:
    numbers = [(each.rate, each.low, each.high) for each in found]
    rates, lows, highs = np.array(numbers, dtype=np.float64).T
    given, longer, plain = ~np.isnan(rates), np.sign(judged.longer_by.mean(axis=1)), judged.points.mean(axis=1)
    truth = judged.truth
    errors = np.abs([rates - truth, plain - truth])[:, given]
    figures = [math.nan] * 4
    if given.any():
        figures = [
            float(np.mean((lows <= truth)[given] & (truth <= highs)[given])),
            float(np.mean(((rates - truth) * longer)[given])),
            float(errors[0].mean()),
            float(errors[0].mean() - errors[1].mean()),
        ]
    ranks = [_rank_correlation(side[given], truth[given]) for side in (rates, plain)] if ranked else []
    return [*figures, float(np.mean(~given)), *ranks]


def _rates(panel: Panel, judged: Judged) -> list[LengthControlled]:
    candidates, baselines = np.array(panel.pairs).T
    examples = np.tile(np.arange(panel.examples), len(panel.pairs)).tolist()
    return length_controlled_rates(
        np.repeat(candidates, panel.examples),
        np.repeat(baselines, panel.examples),
        judged.points.ravel(),
        judged.longer_by.ravel(),
        examples,
        pairs=panel.pairs,
        order=judged.order.ravel(),
    )


def _judged(rng: np.random.Generator, panel: Panel) -> Judged:
    shape = panel.systems, panel.examples
    verbosity, own = rng.standard_normal(panel.systems), rng.standard_normal(shape)
    other = math.sqrt(1 - panel.correlation**2) * rng.standard_normal(panel.systems)
    strength = 0.8 * (panel.correlation * verbosity + other)
    quality = panel.deserved * own + math.sqrt(1 - panel.deserved**2) * rng.standard_normal(shape)
    logs = 6.5 + 0.5 * rng.standard_normal(panel.examples) + panel.verbosity * verbosity[:, None] + 0.35 * own
    candidates, baselines = np.array(panel.pairs).T
    longer_by = np.exp(logs[candidates]) - np.exp(logs[baselines])
    better_by = (strength[:, None] + OF_ANSWERS * quality)[candidates] - (strength[:, None] + OF_ANSWERS * quality)[
        baselines
    ]
    order = rng.choice([-1.0, 1.0], longer_by.shape) if panel.position else np.zeros(longer_by.shape)
    length = (
        np.tanh(longer_by / longer_by.std())
        if panel.shape == "difference"
        else np.tanh(logs[candidates] - logs[baselines])
    )
    chance = _chance(better_by + panel.preference * length + panel.position * order)
    points = (rng.random(chance.shape) < chance).astype(np.float64)
    return Judged(points, longer_by, order, _true_rates(panel, (strength[candidates] - strength[baselines])))


def _true_rates(panel: Panel, stronger_by: FloatArray) -> FloatArray:
    """Return the mean chance over the answers' quality and both orders."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    spread = math.sqrt(2) * OF_ANSWERS * nodes
    sides = [_chance(stronger_by[:, None] + spread + shown * panel.position) for shown in (-1.0, 1.0)]
    return np.asarray((sides[0] + sides[1]) / 2 @ (weights / weights.sum()), dtype=np.float64)


def _chance(log_odds: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-log_odds)), dtype=np.float64)


def _rank_correlation(numbers: FloatArray, truth: FloatArray) -> float:
    """Return Spearman's correlation; nan with fewer than three."""
    if numbers.size < 3:
        return math.nan
    ranks: list[NDArray[np.intp]] = [side.argsort().argsort() for side in (numbers, truth)]
    return float(np.corrcoef(*ranks)[0, 1])
