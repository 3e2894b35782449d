"""Where simulated examples come from: what is true of them is known, so that what is found can be held against it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple, Protocol

import numpy as np

from evalflows.stats.arrays import FloatArray

Pair = tuple[FloatArray, FloatArray]
Sizes = Literal["even", "uneven"]

SOME_ERRORS = 2.5
"""How many standard errors a loss is of which it is asked how often it is found: some two times in three."""
ALIKE = 0.3
"""The correlation of values, and of differences, of one cluster."""
EVEN_SIZE, LARGEST_SIZE = 10, 20
"""Examples of a cluster: so many, or any number from 1 to the latter, each as likely."""
AT_ONCE = 250
"""Runs drawn together."""


class World(Protocol):
    """What one example gives on both sides. A loss, 0 or more, is how much worse the candidate is, in its own way."""

    @property
    def name(self) -> str: ...

    @property
    def binary(self) -> bool: ...

    @property
    def bounds(self) -> tuple[float, float] | None: ...

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        """What candidate and baseline give of so many examples, each of that shape."""

    def means(self, loss: float) -> tuple[float, float]:
        """The true means of candidate and baseline."""

    def some_loss(self, n: float) -> float:
        """A loss that is found in some of the runs over n examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNo:
    """The baseline says yes in `base` of all cases; the sides differ in `differ` of them."""

    base: float
    differ: float
    binary: bool = True
    bounds: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        return f"yes/no, {self.base:.0%} yes, {self.differ:.0%} differ"

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        drawn, gained, lost = rng.random(shape), (self.differ - loss) / 2, (self.differ + loss) / 2
        baseline = drawn < self.base
        candidate = (drawn < self.base - lost) | (~baseline & (drawn < self.base + gained))
        return candidate.astype(np.float64), baseline.astype(np.float64)

    def means(self, loss: float) -> tuple[float, float]:
        return self.base - loss, self.base

    def some_loss(self, n: float) -> float:
        return min(SOME_ERRORS * math.sqrt(self.differ / n), 0.9 * self.differ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Normal numbers with a standard deviation of 1, as that of their differences is."""

    name: str = "normal"
    binary: bool = False
    bounds: tuple[float, float] | None = None

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        shared, own, other = rng.standard_normal((3, *shape)) * math.sqrt(0.5)
        return shared + own - loss, shared + other

    def means(self, loss: float) -> tuple[float, float]:
        return -loss, 0.0

    def some_loss(self, n: float) -> float:
        return SOME_ERRORS / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skewed:
    """Log-normal numbers, clipped to their range: most are small, few are ten times as large. The loss is of logs."""

    name: str = "skewed"
    binary: bool = False
    bounds: tuple[float, float] | None = (0.0, 10.0)

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        candidate, baseline = Normal().pairs(rng, shape, loss)
        return np.minimum(np.exp(candidate), 10.0), np.minimum(np.exp(baseline), 10.0)

    def means(self, loss: float) -> tuple[float, float]:
        return _clipped_mean(-loss), _clipped_mean(0.0)

    def some_loss(self, n: float) -> float:
        return SOME_ERRORS / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lopsided:
    """Differences that are skewed even without a loss: a candidate with a long tail, a baseline of normal numbers."""

    name: str = "skewed differences"
    binary: bool = False
    bounds: tuple[float, float] | None = None

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        candidate, baseline = Normal().pairs(rng, shape, 0.0)
        return np.minimum(np.exp(candidate), 10.0), _clipped_mean(0.0) + loss + baseline / 2

    def means(self, loss: float) -> tuple[float, float]:
        return _clipped_mean(0.0), _clipped_mean(0.0) + loss

    def some_loss(self, n: float) -> float:
        return SOME_ERRORS * 1.4 / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class FivePoint:
    """Grades from 1 to 5, most of them 4 and 5. The loss is of the normal numbers behind them."""

    name: str = "five points"
    binary: bool = False
    bounds: tuple[float, float] | None = (1.0, 5.0)

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        candidate, baseline = Normal().pairs(rng, shape, loss)
        return _grades(candidate), _grades(baseline)

    def means(self, loss: float) -> tuple[float, float]:
        candidate, baseline = (5 - sum(NormalDist(-one).cdf(cut) for cut in _CUTS) for one in (loss, 0.0))
        return candidate, baseline

    def some_loss(self, n: float) -> float:
        return SOME_ERRORS / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Yes or no, each example asked three times and averaged. Some examples are hard, and hard on both sides.

    An example's chance of yes is Beta(2, 1); the loss is the part of it that the candidate lacks.
    """

    name: str = "yes/no, 3 repetitions averaged"
    binary: bool = False
    bounds: tuple[float, float] | None = (0.0, 1.0)

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        chance = rng.beta(2.0, 1.0, shape)
        return rng.binomial(3, chance * (1 - loss)) / 3, rng.binomial(3, chance) / 3

    def means(self, loss: float) -> tuple[float, float]:
        return (1 - loss) * 2 / 3, 2 / 3

    def some_loss(self, n: float) -> float:
        return SOME_ERRORS / 3 / (2 / 3) / math.sqrt(n)


class Draw(NamedTuple):
    """One run's data."""

    candidate: FloatArray  # shape (n,)
    baseline: FloatArray
    clusters: list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A world, how much of it is seen, and what is true."""

    world: World
    n: int  # examples; clusters where there are any
    sizes: Sizes | None = None  # of clusters; None where every example is alone
    loss: float = 0.0

    @property
    def name(self) -> str:
        return self.world.name if self.sizes is None else f"{self.world.name}, {self.sizes} clusters"

    @property
    def means(self) -> tuple[float, float]:
        return self.world.means(self.loss)

    @property
    def difference(self) -> float:
        """The true one, of candidate and baseline."""
        candidate, baseline = self.means
        return candidate - baseline

    def worth(self) -> float:
        """How many examples that stand alone would say as much."""
        alike = EVEN_SIZE / (1 + (EVEN_SIZE - 1) * ALIKE)
        return self.n if self.sizes is None else self.n * alike

    def draws(self, rng: np.random.Generator, runs: int) -> Iterator[Draw]:
        for start in range(0, runs, AT_ONCE):
            count = min(AT_ONCE, runs - start)
            yield from self._alone(rng, count) if self.sizes is None else self._in_clusters(rng, count)

    def _alone(self, rng: np.random.Generator, runs: int) -> Iterator[Draw]:
        paired = self.world.pairs(rng, (runs, self.n), self.loss)
        return (Draw(candidate, baseline, None) for candidate, baseline in zip(*paired, strict=True))

    def _in_clusters(self, rng: np.random.Generator, runs: int) -> Iterator[Draw]:
        low, high = (EVEN_SIZE, EVEN_SIZE) if self.sizes == "even" else (1, LARGEST_SIZE)
        for _ in range(runs):
            clusters = np.repeat(np.arange(self.n), rng.integers(low, high, self.n, endpoint=True))
            of_clusters = self.world.pairs(rng, (self.n,), self.loss)
            own = self.world.pairs(rng, (clusters.size,), self.loss)
            shared = of_clusters[0][clusters], of_clusters[1][clusters]
            yield Draw(*self._together(rng, shared, own), clusters.tolist())

    def _together(self, rng: np.random.Generator, shared: Pair, own: Pair) -> Pair:
        """Normal numbers are sums of two parts; others are their cluster's with probability sqrt(ALIKE)."""
        if isinstance(self.world, Normal):
            common, rest = math.sqrt(ALIKE), math.sqrt(1 - ALIKE)
            kept = -self.loss * (1 - common - rest)
            return common * shared[0] + rest * own[0] + kept, common * shared[1] + rest * own[1]
        copied = rng.random(own[0].size) < math.sqrt(ALIKE)
        return np.where(copied, shared[0], own[0]), np.where(copied, shared[1], own[1])


def with_loss(world: World, n: int, sizes: Sizes | None = None) -> Setting:
    """The same with a loss that is found in some of the runs."""
    loss = world.some_loss(Setting(world=world, n=n, sizes=sizes).worth())
    return Setting(world=world, n=n, sizes=sizes, loss=loss)


def _grades(numbers: FloatArray) -> FloatArray:
    return 1 + np.searchsorted(_CUTS, numbers).astype(np.float64)


def _clipped_mean(log_mean: float) -> float:
    """The mean of a log-normal number with log-sd 1, clipped at 10."""
    below, top = NormalDist(log_mean), math.log(10.0)
    return math.exp(log_mean + 0.5) * below.cdf(top - 1) + 10.0 * (1 - below.cdf(top))


_CUTS = [NormalDist().inv_cdf(share) for share in (0.05, 0.15, 0.35, 0.70)]
