"""Cells for rare worst values in a declared range: losses that rules pass, and what the allowance for them costs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import NormalDist

import numpy as np

from benchmarks.simulation.cells import Cell, Figure, Rows, difference_text
from evalflows.stats.paired import PairedDifferences, paired_differences

SIZES, BASES, SPREADS = (20, 30, 60, 100, 200, 500), (0.75, 0.95), (0.01, 0.03, 0.05, 0.1, 0.2, 0.3)
SHARES = (0.0, 0.005, 0.01, 0.03, 0.05)
"""Of the candidate's values that are 0; without any, it loses SHIFT everywhere."""

SHIFT = 0.02
CONFIDENCE_LEVEL, RANGE = 0.95, (0.0, 1.0)
AT_ONCE = 500
"""Runs drawn together."""

PASSED = Figure(name="PASS", at_most=0.025)
PASSES, BY_T = Figure(name="PASS"), Figure(name="PASS by t")
WIDER = Figure(name="width over that of t", is_share=False)
FOUND, FINDS = Figure(name="better", at_least=0.9), Figure(name="better")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Pairs of normal scores around a base, cut to 0 to 1; a share of the candidate's is 0 instead."""

    n: int
    base: float
    spread: float  # standard deviation of each side
    share: float = 0.0  # of zeros
    gain: float = 0.0  # of the others

    @property
    def name(self) -> str:
        zeros = f", {self.share:g} are 0" if self.share else ""
        return f"scores around {self.base:g}, sd {self.spread:.2g}{zeros}"

    @property
    def difference(self) -> float:
        """The true mean of the candidate minus that of the baseline."""
        mean, shifted = (_cut_mean(self.base + gain, self.spread) for gain in (0.0, self.gain))
        return (1 - self.share) * shifted - mean

    def differences(self, rng: np.random.Generator, runs: int) -> Iterator[tuple[PairedDifferences, PairedDifferences]]:
        """Yield blocks of runs: as they are tested, and without the allowance for rare values."""
        for start in range(0, runs, AT_ONCE):
            shape = (min(AT_ONCE, runs - start), self.n)
            baseline, candidate = rng.normal(self.base, self.spread, (2, *shape))
            candidate = np.where(rng.random(shape) < self.share, 0.0, candidate + self.gain).clip(*RANGE)
            known = paired_differences(candidate, baseline.clip(*RANGE), bounds=RANGE)
            yield known, replace(known, rare_values=False)


def rare_loss_cells() -> Iterator[Cell]:
    for n, base, spread, share in product(SIZES, BASES, SPREADS, SHARES):
        lost = Scores(n=n, base=base, spread=spread, share=share, gain=0.0 if share else -SHIFT)
        yield _margin("non-inferiority rule, loss equal to the margin", lost, -lost.difference, (PASSED, BY_T, WIDER))
    for n, sd, margin in ((100, 0.05, 0.04), (100, 0.1, 0.05), (100, 0.2, 0.08), (400, 0.1, 0.02), (400, 0.2, 0.04)):
        equal = Scores(n=n, base=0.5, spread=sd / math.sqrt(2))
        yield _margin(f"non-inferiority rule of {margin:g}, no loss", equal, margin, (PASSES, BY_T, WIDER))
    for n, sd, gain in ((100, 0.05, 0.01), (100, 0.05, 0.02), (100, 0.2, 0.05), (400, 0.2, 0.02), (400, 0.2, 0.03)):
        gained = Scores(n=n, base=0.75, spread=sd / math.sqrt(2), gain=gain)
        yield _superiority(gained, FOUND if gain >= 3.5 * sd / math.sqrt(n) else FINDS)


def _margin(method: str, scores: Scores, margin: float, figures: tuple[Figure, ...]) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for differences in scores.differences(rng, runs):
            (low, high), by_t = (one.interval_at(CONFIDENCE_LEVEL) for one in differences)
            ratio = (high - low) / np.maximum(by_t[1] - by_t[0], 1e-9)
            yield from np.column_stack([low > -margin, by_t[0] > -margin, ratio]).tolist()

    return _cell(method, scores, figures, rows)


def _superiority(scores: Scores, figure: Figure) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for known, _ in scores.differences(rng, runs):
            is_above = known.tested_interval_at(CONFIDENCE_LEVEL)[0] > 0
            yield from np.column_stack([is_above & (known.p_value <= 1 - CONFIDENCE_LEVEL)]).astype(float).tolist()

    return _cell("superiority rule", scores, (figure,), rows)


def _cell(method: str, scores: Scores, figures: tuple[Figure, ...], rows: Rows) -> Cell:
    return Cell(
        kind="rare_losses",
        method=method,
        world=scores.name,
        n=str(scores.n),
        difference=difference_text(scores.difference),
        figures=figures,
        rows=rows,
    )


def _cut_mean(mean: float, spread: float) -> float:
    """Return the mean of a normal value that is cut to the range."""
    standard, (low, high) = NormalDist(), ((end - mean) / spread for end in RANGE)
    within = standard.cdf(high) - standard.cdf(low)
    return mean * within + spread * (standard.pdf(low) - standard.pdf(high)) + 1 - standard.cdf(high)
