"""Cells for yes/no values in clusters of many sizes, compared with CR2 and with a cluster bootstrap."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.simulation.cells import APPROXIMATE, POWER, Cell, Figure, coverage_and_width, difference_text
from benchmarks.simulation.cluster_worlds import Clusters, ClusterWorld, Counts, Mechanism, paired_world
from benchmarks.simulation.differences import significant
from benchmarks.simulation.references import bootstrap_interval, cr2_interval
from evalflows.stats.means import mean_estimate
from evalflows.stats.paired import paired_difference

ENOUGH = 24
"""Effective number of rare values from which coverage and width have targets; see `stats.rare_values`."""
AS_WELL = 0.005
"""A reference covers as well if its coverage is at most this much below 95 % and below that of the method."""
THINNING = 8
"""One of so many runs is made: clusters of 220 and a bootstrap take long."""
SAFE = Figure(name="false positives", at_most=0.06)
RATIO = Figure(name="width over the best reference's", at_most=1.15, is_share=False)
REFERENCES = Figure(name="coverage of CR2"), Figure(name="coverage of the bootstrap")

BOTH: tuple[Mechanism, Mechanism] = ("beta-binomial", "copied")

PAIRED: tuple[tuple[Clusters, float], ...] = (
    (Clusters(10, 50, 0.01), 0.2),
    (Clusters(10, 500, 0.01), 0.1),
    (Clusters(30, 10, 0.1), 0.2),
    (Clusters(30, 50, 0.1, geometric=True), 0.2),
    (Clusters(48, 220, 0.01), 0.02),
    (Clusters(48, 220, 0.01), 0.2),
    (Clusters(48, 220, 0.1), 0.1),
    (Clusters(100, 2, 0.3), 0.4),
    (Clusters(100, 5, 0.5), 0.2),
    (Clusters(100, 10, 0.01), 0.05),
    (Clusters(100, 10, 0.3), 0.2),
    (Clusters(100, 10, 0.3, geometric=True), 0.4),
)
"""Worlds with the share of pairs that differ; at least ENOUGH do effectively."""

PAIRED_RARE: tuple[tuple[Clusters, float], ...] = (
    (Clusters(30, 10, 0.01), 0.05),
    (Clusters(30, 10, 0.3), 0.05),
    (Clusters(48, 220, 0.3), 0.05),
    (Clusters(30, 50, 0.3, geometric=True), 0.05),
)

SHARES: tuple[tuple[Clusters, float], ...] = (
    (Clusters(10, 50, 0.01), 0.8),
    (Clusters(10, 500, 0.01), 0.9),
    (Clusters(30, 10, 0.1), 0.2),
    (Clusters(30, 10, 0.5), 0.5),
    (Clusters(30, 50, 0.1, geometric=True), 0.5),
    (Clusters(48, 220, 0.01), 0.95),
    (Clusters(48, 220, 0.1), 0.5),
    (Clusters(100, 5, 0.3), 0.2),
    (Clusters(100, 10, 0.01), 0.05),
    (Clusters(100, 10, 0.3, geometric=True), 0.8),
)

SHARES_RARE: tuple[tuple[Clusters, float], ...] = ((Clusters(30, 10, 0.3), 0.95), (Clusters(48, 220, 0.3), 0.95))


def cluster_cells() -> Iterator[Cell]:
    for clusters, differ in (*PAIRED, *PAIRED_RARE):
        for mechanism in BOTH:
            for with_loss in (False, True):
                yield _paired(paired_world(clusters, mechanism, differ, with_loss=with_loss), differ)
    for clusters, share in (*SHARES, *SHARES_RARE):
        for mechanism in BOTH:
            yield _share(ClusterWorld(clusters=clusters, mechanism=mechanism, first=share))


def _paired(world: ClusterWorld, differ: float) -> Cell:
    truth, clusters = world.first - world.second, world.clusters
    is_enough = clusters.effective(differ) >= ENOUGH

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for _ in range(runs):
            draw = world.draw(rng)
            sides = draw.values(1.0, 0.0, 1.0), draw.values(0.0, 1.0, 1.0)
            estimate = paired_difference(*sides, draw.clusters, binary=True)
            references = _references(rng, draw.first - draw.second, draw.sizes, truth)
            found = coverage_and_width(estimate.low, estimate.high, truth)
            yield *found, *references, significant(estimate.p_value)

    test = POWER if truth else APPROXIMATE if is_enough else SAFE
    return Cell(
        kind="clusters",
        method="paired yes/no",
        world=f"{differ:.0%} differ, {world.mechanism}, correlation {clusters.icc:g}",
        n=clusters.text,
        difference=difference_text(truth),
        figures=(*_figures(clusters.count, is_enough), test),
        rows=rows,
        combined=_combined,
        thinning=THINNING,
    )


def _share(world: ClusterWorld) -> Cell:
    truth, clusters = world.first, world.clusters

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for _ in range(runs):
            draw = world.draw(rng)
            estimate = mean_estimate(draw.values(1.0, 0.0, 0.0), draw.clusters, binary=True)
            references = _references(rng, draw.first, draw.sizes, truth)
            yield *coverage_and_width(estimate.low, estimate.high, truth), *references

    return Cell(
        kind="clusters",
        method="share of yes",
        world=f"{truth:.0%} yes, {world.mechanism}, correlation {clusters.icc:g}",
        n=clusters.text,
        difference="",
        figures=_figures(clusters.count, clusters.effective(min(truth, 1 - truth)) >= ENOUGH),
        rows=rows,
        combined=_combined,
        thinning=THINNING,
    )


def _figures(count: int, is_enough: bool) -> tuple[Figure, ...]:
    coverage = Figure(name="coverage", at_least=(0.94 if count >= 30 else 0.92) if is_enough else None)
    return coverage, RATIO if is_enough else Figure(name=RATIO.name, is_share=False), *REFERENCES


def _references(
    rng: np.random.Generator, sums: Counts, sizes: Counts, truth: float
) -> tuple[float, float, float, float]:
    floats = sums.astype(np.float64), sizes.astype(np.float64)
    intervals = cr2_interval(*floats), bootstrap_interval(rng, *floats)
    first, second = (coverage_and_width(*interval, truth) for interval in intervals)
    return *first, *second


def _combined(of_seed: Sequence[float], overall: Sequence[float]) -> list[float]:
    """Return the figures. Values are coverage and width of the method, of CR2, of the bootstrap, and if p is small."""
    coverage, width, of_cr2, cr2_width, of_bootstrap, bootstrap_width, *tests = of_seed
    least = min(0.95, overall[0]) - AS_WELL
    widths = [w for covers, w in ((overall[2], cr2_width), (overall[4], bootstrap_width)) if covers >= least]
    return [coverage, width / min(widths) if widths else math.nan, of_cr2, of_bootstrap, *tests]
