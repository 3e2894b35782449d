"""Worlds that draw simulated examples with known true means."""

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
"""A typical loss in standard errors; tests detect it in about two of three runs."""
ICC = 0.3
"""The intraclass correlation of values and of differences."""
EVEN_SIZE, LARGEST_SIZE = 10, 20
"""Examples per cluster: always the first number, or uniform from 1 to the second."""
AT_ONCE = 250
"""Runs drawn together."""


class World(Protocol):
    """A joint distribution of both sides' values. A loss, at least 0, worsens the candidate, on the world's scale."""

    @property
    def name(self) -> str: ...

    @property
    def binary(self) -> bool: ...

    @property
    def bounds(self) -> tuple[float, float] | None: ...

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        """Return the values of candidate and baseline, each of that shape."""

    def means(self, loss: float) -> tuple[float, float]:
        """Return the true means of candidate and baseline."""

    def typical_loss(self, n: float) -> float:
        """Return a loss that tests with n examples detect in some runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNo:
    """Yes/no values: `base` is the baseline's share of yes, `differ` the share of pairs that differ."""

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

    def typical_loss(self, n: float) -> float:
        return min(SOME_ERRORS * math.sqrt(self.differ / n), 0.9 * self.differ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Normal values with standard deviation 1, which is also that of their differences."""

    name: str = "normal"
    binary: bool = False
    bounds: tuple[float, float] | None = None

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        shared, own, other = rng.standard_normal((3, *shape)) * math.sqrt(0.5)
        return shared + own - loss, shared + other

    def means(self, loss: float) -> tuple[float, float]:
        return -loss, 0.0

    def typical_loss(self, n: float) -> float:
        return SOME_ERRORS / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skewed:
    """Log-normal values with log-sd 1, clipped to their bounds. The loss is on the log scale."""

    name: str = "skewed"
    binary: bool = False
    bounds: tuple[float, float] | None = (0.0, 10.0)

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        candidate, baseline = Normal().pairs(rng, shape, loss)
        return np.minimum(np.exp(candidate), 10.0), np.minimum(np.exp(baseline), 10.0)

    def means(self, loss: float) -> tuple[float, float]:
        return _clipped_mean(-loss), _clipped_mean(0.0)

    def typical_loss(self, n: float) -> float:
        return SOME_ERRORS / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lopsided:
    """Differences that are skewed even without a loss: a candidate with a long tail, a normal baseline."""

    name: str = "skewed differences"
    binary: bool = False
    bounds: tuple[float, float] | None = None

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        candidate, baseline = Normal().pairs(rng, shape, 0.0)
        return np.minimum(np.exp(candidate), 10.0), _clipped_mean(0.0) + loss + baseline / 2

    def means(self, loss: float) -> tuple[float, float]:
        return _clipped_mean(0.0), _clipped_mean(0.0) + loss

    def typical_loss(self, n: float) -> float:
        return SOME_ERRORS * 1.4 / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class FivePoint:
    """Grades from 1 to 5, mostly 4 and 5. The loss is on the scale of the underlying normal values."""

    name: str = "five points"
    binary: bool = False
    bounds: tuple[float, float] | None = (1.0, 5.0)

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        candidate, baseline = Normal().pairs(rng, shape, loss)
        return _grades(candidate), _grades(baseline)

    def means(self, loss: float) -> tuple[float, float]:
        candidate, baseline = (5 - sum(NormalDist(-shift).cdf(cut) for cut in _CUTS) for shift in (loss, 0.0))
        return candidate, baseline

    def typical_loss(self, n: float) -> float:
        return SOME_ERRORS / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """The mean of three yes/no repetitions per example, where examples are hard or easy for both sides.

    The probability of yes of an example is Beta(2, 1); the candidate's is smaller by the factor 1 - loss.
    """

    name: str = "yes/no, 3 repetitions averaged"
    binary: bool = False
    bounds: tuple[float, float] | None = (0.0, 1.0)

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        probability = rng.beta(2.0, 1.0, shape)
        return rng.binomial(3, probability * (1 - loss)) / 3, rng.binomial(3, probability) / 3

    def means(self, loss: float) -> tuple[float, float]:
        return (1 - loss) * 2 / 3, 2 / 3

    def typical_loss(self, n: float) -> float:
        return SOME_ERRORS / 3 / (2 / 3) / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearOne:
    """Values evenly spread over 0.9 to 1; of the candidate's, the share `loss` is 0 instead."""

    name: str = "near 1, rarely 0"
    binary: bool = False
    bounds: tuple[float, float] | None = (0.0, 1.0)

    def pairs(self, rng: np.random.Generator, shape: tuple[int, ...], loss: float) -> Pair:
        candidate, baseline = 0.9 + 0.1 * rng.random((2, *shape))
        return np.where(rng.random(shape) < loss, 0.0, candidate), baseline

    def means(self, loss: float) -> tuple[float, float]:
        return 0.95 * (1 - loss), 0.95

    def typical_loss(self, n: float) -> float:
        return min(0.5, 5 / n)


class Draw(NamedTuple):
    """The data of one run."""

    candidate: FloatArray  # shape (n,)
    baseline: FloatArray
    clusters: list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A world, the sample size, and the true loss."""

    world: World
    n: int  # examples, or clusters if there are any
    sizes: Sizes | None = None  # of clusters; None without clusters
    loss: float = 0.0

    @property
    def name(self) -> str:
        return self.world.name if self.sizes is None else f"{self.world.name}, {self.sizes} clusters"

    @property
    def means(self) -> tuple[float, float]:
        return self.world.means(self.loss)

    @property
    def difference(self) -> float:
        """The true mean of the candidate minus that of the baseline."""
        candidate, baseline = self.means
        return candidate - baseline

    def effective_size(self) -> float:
        """Return the number of independent examples with the same standard error, by the design effect."""
        per_cluster = EVEN_SIZE / (1 + (EVEN_SIZE - 1) * ICC)
        return self.n if self.sizes is None else self.n * per_cluster

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
            yield Draw(*self._correlated(rng, shared, own), clusters.tolist())

    def _correlated(self, rng: np.random.Generator, shared: Pair, own: Pair) -> Pair:
        """Add cluster and own parts of normal values; otherwise copy the cluster's draw with probability sqrt(ICC)."""
        if isinstance(self.world, Normal):
            common, rest = math.sqrt(ICC), math.sqrt(1 - ICC)
            kept = -self.loss * (1 - common - rest)
            return common * shared[0] + rest * own[0] + kept, common * shared[1] + rest * own[1]
        copied = rng.random(own[0].size) < math.sqrt(ICC)
        return np.where(copied, shared[0], own[0]), np.where(copied, shared[1], own[1])


def with_loss(world: World, n: int, sizes: Sizes | None = None) -> Setting:
    """Return the setting with a loss that tests detect in some runs."""
    loss = world.typical_loss(Setting(world=world, n=n, sizes=sizes).effective_size())
    return Setting(world=world, n=n, sizes=sizes, loss=loss)


def _grades(numbers: FloatArray) -> FloatArray:
    return 1 + np.searchsorted(_CUTS, numbers).astype(np.float64)


def _clipped_mean(log_mean: float) -> float:
    """Return the mean of a log-normal value with log-sd 1, clipped at 10."""
    below, top = NormalDist(log_mean), math.log(10.0)
    return math.exp(log_mean + 0.5) * below.cdf(top - 1) + 10.0 * (1 - below.cdf(top))


_CUTS = [NormalDist().inv_cdf(share) for share in (0.05, 0.15, 0.35, 0.70)]
