"""Cells for figures of a whole experiment, such as macro F1: coverage, and paired differences of two systems."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from benchmarks.simulation.cells import Cell, Figure, coverage_and_width
from evalflows.stats.arrays import FloatArray
from evalflows.stats.classification import Classification, ClassificationFigure
from evalflows.stats.regression import Regression
from evalflows.stats.resampling import Resampled, Statistic, figure_difference, figure_interval, resampled

RESAMPLES = 400
"""Fewer than in use, where they make no difference: only their variance counts."""
THINNING = 32
"""One of so many runs is made."""
CLUSTER = 5
"""Answers of a cluster, half of whose variance is common, or of which each copies one answer with probability 0.5."""
IN_COMMON = 0.5
SIZES = ((50, 1), (200, 1), (1000, 1), (200, CLUSTER), (1000, CLUSTER))
"""Answers, and how many of them are in a cluster."""

COVERED = 0.93

F1, MACRO_F1 = ClassificationFigure("f1", 1), ClassificationFigure("f1", "macro")
MCC, QUADRATIC = ClassificationFigure("mcc"), ClassificationFigure("kappa", "quadratic")


class FigureWorld(Protocol):
    """Answers of two systems to the same examples. The first is as good as the second, or worse."""

    name: str
    figures: Sequence[tuple[str, tuple[float, float]]]  # their names and bounds

    def draw(self, rng: np.random.Generator, n: int, size: int) -> tuple[Statistic, Statistic]: ...

    @property
    def truths(self) -> FloatArray:
        """The true figures, shape (2, figures)."""


@dataclass(frozen=True)
class Labels:
    """Labels with the given shares. The second system's answer copies the first's with probability `copied`."""

    name: str
    asked: Sequence[ClassificationFigure]
    shares: Sequence[float]
    first: FloatArray  # shares of answers by expected label
    second: FloatArray
    copied: float

    @property
    def figures(self) -> Sequence[tuple[str, tuple[float, float]]]:
        names = {F1: "F1", MACRO_F1: "macro F1", MCC: "MCC", QUADRATIC: "quadratic kappa"}
        return [(names[figure], figure.bounds) for figure in self.asked]

    @cached_property
    def joint(self) -> FloatArray:
        """Probabilities of what is expected and of both answers, by places in a flattened cube."""
        k = len(self.shares)
        both = (1 - self.copied) * self.first[:, :, None] * self.second[:, None, :]
        both[:, np.arange(k), np.arange(k)] += self.copied * self.first
        return np.asarray(np.asarray(self.shares)[:, None, None] * both).ravel()

    def draw(self, rng: np.random.Generator, n: int, size: int) -> tuple[Statistic, Statistic]:
        places = rng.choice(self.joint.size, n, p=self.joint)
        if size > 1:
            copied = rng.choice(self.joint.size, n // size, p=self.joint).repeat(size)
            places = np.where(rng.random(n) < IN_COMMON, copied, places)
        return self._statistics(places)

    def _statistics(self, places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> tuple[Statistic, Statistic]:
        k = len(self.shares)
        expected, first, second = places // k**2, places // k % k, places % k
        return (Classification(expected, first, k, self.asked), Classification(expected, second, k, self.asked))

    @cached_property
    def truths(self) -> FloatArray:
        statistics = self._statistics(np.arange(self.joint.size))
        return np.array([statistic(self.joint[None])[0] for statistic in statistics])


@dataclass(frozen=True)
class Numbers:
    """Numbers of which each system's answer is a function, with errors; a part of them is common to both systems."""

    name: str
    figures: Sequence[tuple[str, tuple[float, float]]]
    statistic: Callable[[np.random.Generator, FloatArray, FloatArray, float], Statistic]
    truth: Callable[[float], float]
    first: float  # quality
    second: float
    correlation: float  # of the errors

    def draw(self, rng: np.random.Generator, n: int, size: int) -> tuple[Statistic, Statistic]:
        example, common, *own = rng.standard_normal((4, n))
        if size > 1:
            shared = rng.standard_normal((4, n // size)).repeat(size, axis=1)
            example, common, *own = math.sqrt(IN_COMMON) * shared + math.sqrt(1 - IN_COMMON) * np.array(
                [example, common, *own]
            )
        errors = [math.sqrt(self.correlation) * common + math.sqrt(1 - self.correlation) * one for one in own]
        first, second = (
            self.statistic(rng, example, error, quality)
            for error, quality in zip(errors, (self.first, self.second), strict=True)
        )
        return first, second

    @property
    def truths(self) -> FloatArray:
        return np.array([[self.truth(quality)] for quality in (self.first, self.second)])


def _spearman(rng: np.random.Generator, example: FloatArray, error: FloatArray, quality: float) -> Statistic:
    return Regression(example, quality * example + math.sqrt(1 - quality**2) * error, ["spearman"])


def _bleu(rng: np.random.Generator, example: FloatArray, error: FloatArray, quality: float) -> Statistic:
    """Like BLEU: the geometric mean of the shares of right n-grams, times a penalty for short answers."""
    wanted = np.maximum(4, np.round(20 * np.exp(0.5 * example)))
    length = np.maximum(4, np.round(wanted * np.exp(0.2 * rng.standard_normal(len(example)))))
    right = 1 / (1 + np.exp(-quality - 0.8 * error))
    totals = [length - shorter for shorter in range(4)]
    counts = [rng.binomial(total.astype(int), right ** (1 + 0.8 * order)) for order, total in enumerate(totals)]
    columns = np.column_stack([*counts, *totals, length, wanted]).astype(np.float64)

    def score(weights: FloatArray) -> FloatArray:
        sums = weights @ columns
        with np.errstate(divide="ignore"):
            mean = np.exp(np.log(sums[:, :4] / sums[:, 4:8]).mean(axis=1))
        return np.asarray(mean * np.exp(np.minimum(0, 1 - sums[:, 9] / sums[:, 8])))[:, None]

    return score


def _true_spearman(quality: float) -> float:
    return 6 / math.pi * math.asin(quality / 2)


TRUE_BLEU = {0.6: 0.40062, 0.85: 0.46284, 1.1: 0.52506}
"""By quality, from 10 million answers; standard error below 0.0001."""


def _binary(recall: float, precision: float, share: float) -> FloatArray:
    false = share * recall * (1 - precision) / precision / (1 - share)
    return np.array([[1 - false, false], [1 - recall, recall]])


def _right(right: float, shares: Sequence[float]) -> FloatArray:
    """Answers that are right in a share; the others as the labels are distributed."""
    others = np.where(np.eye(len(shares)) > 0, 0.0, np.asarray(shares))
    return (1 - right) * others / others.sum(axis=1, keepdims=True) + right * np.eye(len(shares))


FIVE = (0.4, 0.25, 0.2, 0.1, 0.05)


def _worlds(*, with_loss: bool) -> Iterator[FigureWorld]:
    """Yield each world: with equal systems, or with a first that is worse."""
    for share in (0.05, 0.3):
        same, worse, better = (_binary(*quality, share) for quality in ((0.8, 0.8), (0.7, 0.75), (0.9, 0.9)))
        sides = (worse, better) if with_loss else (same, same)
        yield Labels(f"{share:.0%} positives", (F1, MCC), (1 - share, share), *sides, 0.5 if with_loss else 0.7)
    for right, worse_right in ((0.8, 0.7), (0.95, 0.9)):
        sides = (_right(worse_right if with_loss else right, FIVE), _right(0.9 if right < 0.9 else 0.98, FIVE))
        name = f"5 labels, {right:.0%} right"
        same = _right(right, FIVE)
        yield Labels(name, (MACRO_F1, MCC, QUADRATIC), FIVE, *(sides if with_loss else (same, same)), 0.5)
    yield Numbers(
        "like BLEU",
        [("score", (0.0, 1.0))],
        _bleu,
        TRUE_BLEU.__getitem__,
        *((0.6, 1.1) if with_loss else (0.85, 0.85)),
        0.6,
    )
    yield Numbers(
        "normal",
        [("Spearman", (-1.0, 1.0))],
        _spearman,
        _true_spearman,
        *((0.6, 0.8) if with_loss else (0.7, 0.7)),
        0.5,
    )


def figure_cells() -> Iterator[Cell]:
    equal, unequal = (list(_worlds(with_loss=with_loss)) for with_loss in (False, True))
    for n, size in SIZES:
        yield from (_interval(world, n, size) for world in equal)
        yield from (_difference(world, n, size, with_loss=False) for world in equal)
        yield from (_difference(world, n, size, with_loss=True) for world in unequal)


def _is_hard(world: FigureWorld, name: str, n: int) -> bool:
    """Whether a loss has no target: rare errors weigh so much that 50 answers hold few or none of them."""
    return name == "quadratic kappa" and n == 50 and "95%" in world.name


def _text(n: int, size: int) -> str:
    return f"{n // size} clusters of {size}" if size > 1 else str(n)


def _interval(world: FigureWorld, n: int, size: int) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        units = np.arange(n) // size
        for _ in range(runs):
            row: list[float] = []
            found = resampled(world.draw(rng, n, size)[0], units, n_resamples=RESAMPLES)
            for figure, (_, bounds), truth in zip(found, world.figures, world.truths[0].tolist(), strict=True):
                estimate = figure_interval(figure, bounds=bounds)
                covers, width = coverage_and_width(estimate.low, estimate.high, truth)
                row += [math.nan if estimate.low is None else covers, width, float(estimate.low is None)]
            yield row

    figures: list[Figure] = []
    for name, _ in world.figures:
        figures.append(Figure(name=f"coverage of {name}", at_least=COVERED))
        figures += [Figure(name=f"mean width of {name}", is_share=False), Figure(name=f"no interval of {name}")]
    return Cell(
        kind="figures",
        method="jackknife and bootstrap",
        world=world.name,
        n=_text(n, size),
        difference="",
        figures=tuple(figures),
        rows=rows,
        thinning=THINNING,
    )


def _difference(world: FigureWorld, n: int, size: int, *, with_loss: bool) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        units, truths = np.arange(n) // size, (world.truths[0] - world.truths[1]).tolist()
        for _ in range(runs):
            sides: list[list[Resampled]] = [
                resampled(statistic, units, n_resamples=RESAMPLES) for statistic in world.draw(rng, n, size)
            ]
            row: list[float] = []
            for candidate, baseline, (_, bounds), truth in zip(*sides, world.figures, truths, strict=True):
                estimate = figure_difference(candidate, baseline, bounds=bounds)
                if with_loss:
                    row.append(math.nan if estimate.low is None else float(estimate.low > truth))
                else:
                    row.append(math.nan if estimate.p_value is None else float(estimate.p_value <= 0.05))
            yield row

    figures = [
        Figure(
            name=f"{'PASS' if with_loss else 'false positives'} of {name}",
            at_most=None if with_loss and _is_hard(world, name, n) else 0.025 if with_loss else 0.055,
        )
        for name, _ in world.figures
    ]
    return Cell(
        kind="figures",
        method="paired difference, loss equal to the margin" if with_loss else "paired difference",
        world=world.name,
        n=_text(n, size),
        difference="loss" if with_loss else "none",
        figures=tuple(figures),
        rows=rows,
        thinning=THINNING,
    )
