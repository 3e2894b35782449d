"""Cells for means and paired differences: coverage of intervals, false positives and power of tests."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.simulation.cells import (
    APPROXIMATE,
    EXACT,
    POWER,
    WIDTH,
    Cell,
    Figure,
    coverage_and_width,
    coverage_figure,
    difference_text,
)
from benchmarks.simulation.worlds import (
    FivePoint,
    Lopsided,
    Normal,
    Repeated,
    Setting,
    Sizes,
    Skewed,
    World,
    YesNo,
    with_loss,
)
from evalflows.stats.means import mean_estimate
from evalflows.stats.paired import paired_difference

YES_NO: tuple[tuple[float, float], ...] = (
    *((0.5, 0.05), (0.5, 0.2), (0.5, 0.4)),
    *((0.8, 0.05), (0.8, 0.2), (0.8, 0.4)),
    (0.95, 0.05),  # without a true difference, at most 10 % of pairs can differ
)
CONTINUOUS: tuple[World, ...] = (Normal(), Skewed(), FivePoint())
SIZES: tuple[Sizes, Sizes] = ("even", "uneven")


def both(world: World, n: int, sizes: Sizes | None = None) -> list[Setting]:
    """Return the setting without a true difference, and the one with a loss."""
    return [Setting(world=world, n=n, sizes=sizes), with_loss(world, n, sizes)]


def paired_cells() -> Iterator[Cell]:
    for n in (30, 100, 300, 1000):
        for base, differ in YES_NO if n < 1000 else YES_NO[4:5]:  # more examples add nothing to the results for 300
            for setting in both(YesNo(base=base, differ=differ), n):
                yield _paired(setting, EXACT)
        for world in (*CONTINUOUS, Lopsided(), Repeated()) if n < 1000 else (Skewed(), Lopsided()):
            for setting in both(world, n):
                yield _paired(setting, APPROXIMATE)
    for n in (30, 100):
        for sizes in SIZES:
            for world in (YesNo(base=0.8, differ=0.2), YesNo(base=0.95, differ=0.05), *CONTINUOUS):
                for setting in both(world, n, sizes):
                    yield _paired(setting, APPROXIMATE)


def mean_cells() -> Iterator[Cell]:
    for n in (30, 100, 300):
        for base in (0.5, 0.8, 0.95):
            yield _mean(Setting(world=YesNo(base=base, differ=0.05), n=n), "wilson")
        for world in (*CONTINUOUS, Repeated()):
            yield _mean(Setting(world=world, n=n), "skew-corrected t")
    for n in (30, 100):
        for sizes in SIZES:
            for base in (0.5, 0.8, 0.95):
                setting = both(YesNo(base=base, differ=0.05), n, sizes)[0]
                yield _mean(setting, "cluster-robust wilson")
            for world in CONTINUOUS:
                yield _mean(both(world, n, sizes)[0], "cluster-robust skew-corrected t")


def _paired(setting: Setting, test: Figure) -> Cell:
    world, truth = setting.world, setting.difference

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for draw in setting.draws(rng, runs):
            estimate = paired_difference(*draw, binary=world.binary, bounds=world.bounds)
            yield *coverage_and_width(estimate.low, estimate.high, truth), significant(estimate.p_value)

    figures = (coverage_figure(setting.n), WIDTH, POWER if setting.loss else test)
    return Cell(
        kind="paired",
        method="auto",
        world=setting.name,
        n=_n_text(setting),
        difference=difference_text(setting.difference),
        figures=figures,
        rows=rows,
    )


def _mean(setting: Setting, method: str) -> Cell:
    world = setting.world

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for draw in setting.draws(rng, runs):
            estimate = mean_estimate(draw.baseline, draw.clusters, binary=world.binary, bounds=world.bounds)
            yield coverage_and_width(estimate.low, estimate.high, setting.means[1])

    return Cell(
        kind="means",
        method=method,
        world=re.sub(r", \d+% differ", "", setting.name),  # does not apply to one side
        n=_n_text(setting),
        difference="",
        figures=(coverage_figure(setting.n), WIDTH),
        rows=rows,
    )


def _n_text(setting: Setting) -> str:
    return f"{setting.n} clusters" if setting.sizes else str(setting.n)


def significant(p_value: float | None) -> float:
    return float(p_value is not None and p_value <= 0.05)
