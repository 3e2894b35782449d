"""Differences and means: do their intervals cover, and do their tests err no more often than they say?"""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.simulation.cells import EXACT, OTHER, POWER, WIDTH, Cell, Figure, covers, holds, told
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
from evalflows.stats import mean_estimate, paired_difference

YES_NO: tuple[tuple[float, float], ...] = (
    *((0.5, 0.05), (0.5, 0.2), (0.5, 0.4)),
    *((0.8, 0.05), (0.8, 0.2), (0.8, 0.4)),
    (0.95, 0.05),  # the sides cannot differ in more than 10 % without a difference
)
CONTINUOUS: tuple[World, ...] = (Normal(), Skewed(), FivePoint())
SIZES: tuple[Sizes, Sizes] = ("even", "uneven")


def both(world: World, n: int, sizes: Sizes | None = None) -> list[Setting]:
    """Without a difference, and with one."""
    return [Setting(world=world, n=n, sizes=sizes), with_loss(world, n, sizes)]


def paired_cells() -> Iterator[Cell]:
    for n in (30, 100, 300, 1000):
        for base, differ in YES_NO if n < 1000 else YES_NO[4:5]:  # what is said of 300 is said of more
            for setting in both(YesNo(base=base, differ=differ), n):
                yield _paired(setting, EXACT)
        for world in (*CONTINUOUS, Lopsided(), Repeated()) if n < 1000 else (Skewed(), Lopsided()):
            for setting in both(world, n):
                yield _paired(setting, OTHER)
    for n in (30, 100):
        for sizes in SIZES:
            for world in (YesNo(base=0.8, differ=0.2), YesNo(base=0.95, differ=0.05), *CONTINUOUS):
                for setting in both(world, n, sizes):
                    yield _paired(setting, OTHER)


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
            found = paired_difference(*draw, binary=world.binary, bounds=world.bounds)
            yield *holds(found.low, found.high, truth), significant(found.p_value)

    figures = (covers(setting.n), WIDTH, POWER if setting.loss else test)
    return Cell(
        kind="paired",
        method="auto",
        world=setting.name,
        n=_told_n(setting),
        difference=told(setting.difference),
        figures=figures,
        rows=rows,
    )


def _mean(setting: Setting, method: str) -> Cell:
    world = setting.world

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for draw in setting.draws(rng, runs):
            found = mean_estimate(draw.baseline, draw.clusters, binary=world.binary, bounds=world.bounds)
            yield holds(found.low, found.high, setting.means[1])

    return Cell(
        kind="means",
        method=method,
        world=re.sub(r", \d+% differ", "", setting.name),  # one side has none
        n=_told_n(setting),
        difference="",
        figures=(covers(setting.n), WIDTH),
        rows=rows,
    )


def _told_n(setting: Setting) -> str:
    return f"{setting.n} clusters" if setting.sizes else str(setting.n)


def significant(p_value: float | None) -> float:
    return float(p_value is not None and p_value <= 0.05)
