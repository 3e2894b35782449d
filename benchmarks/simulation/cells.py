"""What a simulation asks: of one setting some figures, each with what is wanted of it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

TOLERANCE = 3.0
"""By how many of its standard errors the mean over the seeds may miss what is wanted. Where the bound is the
very figure that is true, chance misses it by so many in one of 700 cells."""

Held = Literal["held", "within error", "cautious", "NOT HELD"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A mean over the runs: a share if there is something wanted of it."""

    name: str
    at_least: float | None = None
    at_most: float | None = None
    is_share: bool = True

    @property
    def is_bounded(self) -> bool:
        return self.at_least is not None or self.at_most is not None

    def closeness(self, value: float) -> float:
        """How far a value is on the way out of what is wanted: above 0 it is outside."""
        gaps = [] if self.at_least is None else [self.at_least - value]
        return max(gaps if self.at_most is None else [*gaps, value - self.at_most])

    def held(self, value: float, runs: int, *, tolerance: float = TOLERANCE) -> Held:
        """Whether a share of so many runs is as wanted, or misses it by no more than chance may.

        An error rate with two bounds that is below the lower one is cautious: no danger, but power is lost.
        """
        nearest = min((end for end in (self.at_least, self.at_most) if end is not None), key=lambda e: abs(e - value))
        error = math.sqrt(nearest * (1 - nearest) / runs)
        missed = self.closeness(value)
        if missed <= tolerance * error:
            return "held" if missed <= 0 else "within error"
        return "cautious" if self.at_most is not None and value < self.at_most else "NOT HELD"


WIDTH = Figure(name="mean width", is_share=False)
POWER = Figure(name="power")
EXACT = Figure(name="false positives", at_most=0.055)
OTHER = Figure(name="false positives", at_least=0.04, at_most=0.06)


def covers(n: int) -> Figure:
    return Figure(name="covers", at_least=0.94 if n >= 100 else 0.92)


Rows = Callable[[np.random.Generator, int], Iterator[Sequence[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is asked of one setting."""

    kind: str  # what `--only` takes
    method: str
    world: str
    n: str
    difference: str  # what is true
    figures: tuple[Figure, ...]
    rows: Rows  # of so many runs: a number for each figure; nan where a run has none

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.method}: {self.world}: {self.n}: {self.difference}"

    def estimates(self, seed: int, runs: int) -> list[float]:
        """Each figure. What is drawn depends on the seed and on the cell's name, and on nothing else."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        found = np.array([list(row) for row in self.rows(rng, runs)], dtype=np.float64)
        return [float(np.nanmean(column)) if np.isfinite(column).any() else math.nan for column in found.T]


def told(truth: float) -> str:
    return "none" if not truth else f"{truth:+.3g}"


def holds(low: float | None, high: float | None, truth: float) -> tuple[float, float]:
    """Whether an interval covers the truth, and its width; none covers nothing and has no width."""
    if low is None or high is None:
        return 0.0, math.nan
    return float(low <= truth <= high), high - low
