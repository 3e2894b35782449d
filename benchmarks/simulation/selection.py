"""Cells for the best of many variants: the winner's figures, naive and corrected, and the set that holds the best."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.simulation.cells import Cell, Figure, difference_text
from evalflows.stats.arrays import FloatArray
from evalflows.stats.selection import select_best

BEST = 1
"""The variant with the true gain, if there is one; the baseline is 0."""
GAIN = 0.05
FAILING = 0.4
"""How many of the wrong answers of every second variant, the best one not among them, fail; and a tenth as many of the
right answers of the best."""
COVERAGE = Figure(name="coverage of the mean", at_least=0.93)
OF_GAIN = Figure(name="coverage of the gain", at_least=0.93)
HOLDS = Figure(name="set holds the best", at_least=0.95)
SIZE = Figure(name="share in the set")
NAIVE = Figure(name="naive gain too high by", is_share=False)
CORRECTED = Figure(name="corrected gain too high by", is_share=False)


def selection_cells() -> Iterator[Cell]:
    for yes_no in (True, False):
        for n in (100, 300):
            for variants in (20, 40):
                for gain in (0.0, GAIN):
                    yield _search(n, variants, gain, yes_no=yes_no)
    for n in (100, 300):
        for variants in (3, 8):
            yield _with_failures(n, variants)


def _search(n: int, variants: int, gain: float, *, yes_no: bool) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        truth = gain * (np.arange(variants) == BEST)
        for seed in range(runs):
            values, mean = _values(rng, n, variants, gain, yes_no=yes_no)
            found = select_best(values, baseline=0, seed=seed)
            own = truth[found.winner]
            low, high = found.mean.low, found.mean.high
            covers = float(low is not None and high is not None and low <= mean + own <= high)
            share = len(found.contenders) / variants  # without a gain all are best, each held as often
            row = [covers, math.nan, float(BEST in found.contenders) if gain else share, share]
            if (of := found.gain) is None or of.low is None or of.high is None or of.corrected is None:
                yield [*row, math.nan, math.nan]
            else:
                row[1] = float(of.low <= own <= of.high)
                yield [*row, of.naive - own, of.corrected - own]

    return Cell(
        kind="selection",
        method=f"best of {variants}",
        world="yes/no, 70% yes" if yes_no else "normal",
        n=str(n),
        difference=difference_text(gain) + (" of one" if gain else ""),
        figures=(COVERAGE, OF_GAIN, HOLDS, SIZE, NAIVE, CORRECTED),
        rows=rows,
        thinning=20,
    )


def _with_failures(n: int, variants: int) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for seed in range(runs):
            values, _ = _values(rng, n, variants, GAIN, yes_no=True)
            failing = np.where(values == 0, FAILING * (np.arange(variants) % 2 == 0), 0.0)
            failing[:, BEST] = FAILING / 10 * values[:, BEST]
            missing = rng.random(values.shape) < failing
            worst, best_case = (np.where(missing, end, values) for end in (0.0, 1.0))
            found = select_best(worst, best_case, baseline=0, seed=seed)
            yield [float(BEST in found.contenders), len(found.contenders) / variants]

    return Cell(
        kind="selection",
        method=f"best of {variants}",
        world=f"yes/no, 70% yes, {FAILING:.0%} of wrong ones fail",
        n=str(n),
        difference=f"{difference_text(GAIN)} of one",
        figures=(HOLDS, SIZE),
        rows=rows,
        thinning=20,
    )


def _values(rng: np.random.Generator, n: int, variants: int, gain: float, *, yes_no: bool) -> tuple[FloatArray, float]:
    """Return each example's values, shape (n, variants), which share its difficulty, and the true mean of all variants
    but the best."""
    if not yes_no:
        values = 0.7 + 0.2 * rng.standard_normal((n, 1)) + 0.2 * rng.standard_normal((n, variants))
        values[:, BEST] += gain
        return values, 0.7
    rates = np.repeat(rng.beta(1.4, 0.6, (n, 1)), variants, axis=1)
    rates[:, BEST] += gain / 0.3 * (1 - rates[:, BEST])  # of all wrong answers, so many become right
    return (rng.random((n, variants)) < rates).astype(np.float64), 0.7
