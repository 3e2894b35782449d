"""A cell of the simulation: one setting, its figures, and the bounds that the figures should be within."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

TOLERANCE = 3.0
"""How many standard errors the mean over the seeds may be outside its bound. If the true figure is at the bound,
chance exceeds this in one of 700 cells."""

Held = Literal["held", "within error", "cautious", "NOT HELD"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A mean over runs; a share if it has bounds."""

    name: str
    at_least: float | None = None
    at_most: float | None = None
    is_share: bool = True

    @property
    def is_bounded(self) -> bool:
        return self.at_least is not None or self.at_most is not None

    def excess(self, value: float) -> float:
        """Return how far the value is outside its bounds; negative inside them."""
        gaps = [] if self.at_least is None else [self.at_least - value]
        return max(gaps if self.at_most is None else [*gaps, value - self.at_most])

    def held(self, value: float, runs: int, *, tolerance: float = TOLERANCE) -> Held:
        """Return whether a share of so many runs is within its bounds, or outside by no more than chance explains.

        With two bounds, an error rate below the lower one is cautious: it is safe, but costs power. A figure that is no
        share has no tolerance.
        """
        if not self.is_share:
            return "held" if self.excess(value) <= 0 else "NOT HELD"
        nearest = min((end for end in (self.at_least, self.at_most) if end is not None), key=lambda e: abs(e - value))
        error = math.sqrt(nearest * (1 - nearest) / runs)
        excess = self.excess(value)
        if excess <= tolerance * error:
            return "held" if excess <= 0 else "within error"
        return "cautious" if self.at_most is not None and value < self.at_most else "NOT HELD"


WIDTH = Figure(name="mean width", is_share=False)
POWER = Figure(name="power")
EXACT = Figure(name="false positives", at_most=0.055)
APPROXIMATE = Figure(name="false positives", at_least=0.04, at_most=0.06)


def coverage_figure(n: int) -> Figure:
    return Figure(name="coverage", at_least=0.94 if n >= 100 else 0.92)


Rows = Callable[[np.random.Generator, int], Iterator[Sequence[float]]]
Combined = Callable[[Sequence[float], Sequence[float]], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting and its figures.

    The text fields seed the draws (see `estimates`), so changing one changes all figures of the cell. The page shows
    some of them in other words: `simulation.table.SHOWN_AS`.
    """

    kind: str  # choice of `--only`
    method: str
    world: str
    n: str
    difference: str  # the true one
    figures: tuple[Figure, ...]
    rows: Rows  # for a number of runs: values of each run, nan if it has none; one per figure, unless `combined`
    combined: Combined | None = None  # from the means of one seed, and of all seeds, to the figures of the seed
    thinning: int = 1  # one of so many runs is made, because they take long

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.method}: {self.world}: {self.n}: {self.difference}"

    def runs_made(self, runs: int) -> int:
        return max(1, runs // self.thinning)

    def estimates(self, seed: int, runs: int) -> list[float]:
        """Return the mean of each value of `rows`. The draws depend on the seed and the cell's name only."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        values = np.array([list(row) for row in self.rows(rng, self.runs_made(runs))], dtype=np.float64)
        return [float(np.nanmean(column)) if np.isfinite(column).any() else math.nan for column in values.T]


def difference_text(truth: float) -> str:
    return "none" if not truth else f"{truth:+.3g}"


def coverage_and_width(low: float | None, high: float | None, truth: float) -> tuple[float, float]:
    """Return 1.0 if the interval contains the truth, else 0.0, and its width; 0.0 and nan without an interval."""
    if low is None or high is None:
        return 0.0, math.nan
    return float(low <= truth <= high), high - low
