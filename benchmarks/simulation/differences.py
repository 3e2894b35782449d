"""Differences and means: do their intervals cover, and do their tests err no more often than they say?"""

import re
from collections.abc import Callable, Iterator, Sequence

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
from stats import mean_estimate, paired_difference
from stats.paired import Method
from stats.unpaired import UnpairedMethod, unpaired_difference

RESAMPLES = 1000
KIND_OF = {"auto": "paired", "wilcoxon": "ranks", "permutation": "resampling", "bootstrap": "resampling"}
YES_NO: tuple[tuple[float, float], ...] = (
    *((0.5, 0.05), (0.5, 0.2), (0.5, 0.4)),
    *((0.8, 0.05), (0.8, 0.2), (0.8, 0.4)),
    (0.95, 0.05),  # the sides cannot differ in more than 10 % without a difference
)
CONTINUOUS: tuple[World, ...] = (Normal(), Skewed(), FivePoint())
SIZES: tuple[Sizes, Sizes] = ("even", "uneven")
MIDDLING: World = YesNo(base=0.8, differ=0.2)


def both(world: World, n: int, sizes: Sizes | None = None) -> list[Setting]:
    """Without a difference, and with one."""
    return [Setting(world=world, n=n, sizes=sizes), with_loss(world, n, sizes)]


def paired_cells() -> Iterator[Cell]:
    for n in (30, 100, 300, 1000):
        for base, differ in YES_NO if n < 1000 else YES_NO[4:5]:  # what is said of 300 is said of more
            for setting in both(YesNo(base=base, differ=differ), n):
                yield _paired(setting, "auto", EXACT)
        for world in (*CONTINUOUS, Lopsided(), Repeated()) if n < 1000 else (Skewed(), Lopsided()):
            for setting in both(world, n):
                yield _paired(setting, "auto", OTHER)
    for n in (30, 100):
        for sizes in SIZES:
            for world in (MIDDLING, YesNo(base=0.95, differ=0.05), *CONTINUOUS):
                for setting in both(world, n, sizes):
                    yield _paired(setting, "auto", OTHER)


def rank_cells() -> Iterator[Cell]:
    for n in (30, 100):
        exact = EXACT if n <= 50 else OTHER
        for setting in both(Normal(), n):
            yield _paired(setting, "wilcoxon", exact)
        for world in (Skewed(), FivePoint())[: 2 if n == 30 else 1]:  # numbers that are tied take long
            yield _paired(Setting(world=world, n=n), "wilcoxon", exact)
    yield _paired(Setting(world=Normal(), n=300), "wilcoxon", OTHER)


def resampling_cells() -> Iterator[Cell]:
    for n in (30, 100):
        for world in (MIDDLING, Normal(), Skewed()):
            for setting in both(world, n):
                yield _paired(setting, "permutation", EXACT)
    yield from (_paired(setting, "permutation", EXACT) for setting in both(Normal(), 30, "even"))
    for n in (30, 100, 300):
        for world in (MIDDLING, Normal(), Skewed(), Lopsided()):
            for setting in both(world, n):
                yield _paired(setting, "bootstrap", OTHER)
    yield from (_paired(setting, "bootstrap", OTHER) for setting in both(Normal(), 100, "uneven"))


def unpaired_cells() -> Iterator[Cell]:
    for n in (30, 100, 300):
        for base in (0.5, 0.8, 0.95):
            for setting in both(YesNo(base=base, differ=min(0.4, 2 * (1 - base))), n):
                yield _unpaired(setting, "auto", EXACT)
        for world in (*CONTINUOUS, Lopsided()):
            for setting in both(world, n):
                yield _unpaired(setting, "auto", OTHER)
    for n in (30, 100):
        for sizes in SIZES:
            for world in (MIDDLING, Normal()):
                for setting in both(world, n, sizes):
                    yield _unpaired(setting, "auto", OTHER)
    yield _unpaired(Setting(world=Normal(), n=20), "mann-whitney", EXACT)
    for world in (Normal(), FivePoint()):
        yield _unpaired(Setting(world=world, n=100), "mann-whitney", OTHER)


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


def _cell(
    kind: str, method: str, setting: Setting, test: Figure, rows: Callable[..., Iterator[Sequence[float]]]
) -> Cell:
    figures = (covers(setting.n), WIDTH, POWER if setting.loss else test)
    n = f"{setting.n} clusters" if setting.sizes else str(setting.n)
    return Cell(
        kind=kind,
        method=method,
        world=setting.name,
        n=n,
        difference=told(setting.difference),
        figures=figures,
        rows=rows,
    )


def _paired(setting: Setting, method: Method, test: Figure) -> Cell:
    world, truth = setting.world, setting.difference

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for place, draw in enumerate(setting.draws(rng, runs)):
            found = paired_difference(
                *draw, binary=world.binary, method=method, bounds=world.bounds, resamples=RESAMPLES, seed=place
            )
            yield *holds(found.low, found.high, truth), significant(found.p_value)

    shown = {"auto": "auto", "bootstrap": "BCa bootstrap"}.get(method, method)
    return _cell(KIND_OF[method], shown, setting, test, rows)


def _unpaired(setting: Setting, method: UnpairedMethod, test: Figure) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        first, second = rng.spawn(2)
        for one, other in zip(setting.draws(first, runs), setting.draws(second, runs), strict=True):
            others = None if other.clusters is None else [cluster + setting.n for cluster in other.clusters]
            found = unpaired_difference(
                one.candidate, other.baseline, one.clusters, others, binary=setting.world.binary, method=method
            )
            yield *holds(found.low, found.high, setting.difference), significant(found.p_value)

    return _cell("unpaired", method, setting, test, rows)


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
        n=f"{setting.n} clusters" if setting.sizes else str(setting.n),
        difference="",
        figures=(covers(setting.n), WIDTH),
        rows=rows,
    )


def significant(p_value: float | None) -> float:
    return float(p_value is not None and p_value <= 0.05)
