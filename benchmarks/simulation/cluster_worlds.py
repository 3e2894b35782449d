"""Worlds of yes/no values in clusters of 1 to 500, with a given intraclass correlation."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulation.worlds import SOME_ERRORS
from evalflows.stats.arrays import FloatArray

LARGEST = 500
Counts = NDArray[np.int64]
Mechanism = Literal["beta-binomial", "copied"]


class Clusters(NamedTuple):
    """The clusters of a world: their number, average size, and correlation."""

    count: int
    size: int  # of each, or the mean of geometric sizes
    icc: float  # intraclass correlation of the values, or of the differences
    geometric: bool = False

    def sizes(self, rng: np.random.Generator) -> Counts:
        if not self.geometric:
            return np.full(self.count, self.size)
        return np.minimum(rng.geometric(1 / self.size, self.count), LARGEST)

    @property
    def text(self) -> str:
        return f"{self.count} clusters of {'1 to 500, mean ' if self.geometric else ''}{self.size}"

    def effective(self, share: float) -> float:
        """Return the expected number of rare values over the design effect, where `share` are rare."""
        of_average_value = 2 * self.size - 1 if self.geometric else self.size  # size of the cluster that it is in
        return self.count * self.size * share / (1 + (of_average_value - 1) * self.icc)


class ClusterDraw(NamedTuple):
    """The clusters' counts in one run, each of shape (G,)."""

    sizes: Counts
    first: Counts  # pairs gained, or values of yes
    second: Counts  # pairs lost; 0 for values

    @property
    def clusters(self) -> list[int]:
        return np.repeat(np.arange(self.sizes.size), self.sizes).tolist()

    def values(self, of_first: float, of_second: float, of_rest: float) -> FloatArray:
        """Return one value per example, cluster by cluster."""
        counts = np.column_stack([self.first, self.second, self.sizes - self.first - self.second])
        return np.repeat(np.tile([of_first, of_second, of_rest], self.sizes.size), counts.ravel())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWorld:
    """Three kinds of examples, in clusters.

    Shares of the kinds in a cluster have a Dirichlet distribution ("beta-binomial"), or each example copies a draw of
    its cluster with probability sqrt(icc) ("copied").
    """

    clusters: Clusters
    mechanism: Mechanism
    first: float  # share of all examples
    second: float = 0.0

    def draw(self, rng: np.random.Generator) -> ClusterDraw:
        sizes = self.clusters.sizes(rng)
        first, second = (self._beta_binomial if self.mechanism == "beta-binomial" else self._copied)(rng, sizes)
        return ClusterDraw(sizes, first, second)

    def _beta_binomial(self, rng: np.random.Generator, sizes: Counts) -> tuple[Counts, Counts]:
        strength = 1 / self.clusters.icc - 1
        kinds = strength * np.array([self.first, self.second, 1 - self.first - self.second])
        drawn = rng.standard_gamma(np.maximum(kinds, 1e-300), size=(sizes.size, 3))
        total = drawn.sum(axis=1)
        shares = drawn / np.where(total > 0, total, 1.0)[:, None]
        first = rng.binomial(sizes, shares[:, 0])
        rest = np.clip(shares[:, 1] / np.maximum(1 - shares[:, 0], 1e-300), 0.0, 1.0)
        return first, rng.binomial(sizes - first, rest)

    def _copied(self, rng: np.random.Generator, sizes: Counts) -> tuple[Counts, Counts]:
        copies, shared = rng.binomial(sizes, math.sqrt(self.clusters.icc)), rng.random(sizes.size)
        own = rng.binomial(sizes - copies, self.first)
        other = rng.binomial(sizes - copies - own, self.second / (1 - self.first))
        is_first, is_second = shared < self.first, shared > 1 - self.second
        return own + copies * is_first, other + copies * is_second


def paired_world(clusters: Clusters, mechanism: Mechanism, differ: float, *, with_loss: bool) -> ClusterWorld:
    """Return a world in which the share `differ` of pairs differs, with no loss or one that tests detect in some runs.

    At most 90 % of the pairs that differ are losses more than gains.
    """
    errors = math.sqrt(differ**2 / clusters.effective(differ))
    loss = min(SOME_ERRORS * errors, 0.9 * differ) if with_loss else 0.0
    return ClusterWorld(clusters=clusters, mechanism=mechanism, first=(differ - loss) / 2, second=(differ + loss) / 2)
