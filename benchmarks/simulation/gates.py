"""Cells for the decisions of gates with one rule and with several."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from benchmarks.simulation.cells import Cell, Figure, difference_text
from benchmarks.simulation.worlds import Draw, NearOne, Normal, Setting, Sizes, Skewed, World, YesNo
from evalflows.analysis.evaluate_rules import conclusion_of, evaluate_rules
from evalflows.analysis.rules import Estimate, Facts, Interval, Rule
from evalflows.stats.arrays import FloatArray
from evalflows.stats.clusters import clustering_of, degrees_of_freedom
from evalflows.stats.means import mean_estimate, skewed_t_interval, skewness_of_mean
from evalflows.stats.paired import effective_counts, paired_difference, paired_differences
from evalflows.stats.proportions import clipped, clopper_pearson_interval, paired_share_interval
from evalflows.store.described import Kind

CONFIDENCE_LEVEL, MIN_EXAMPLES = 0.95, 20
PASSED = Figure(name="PASS", at_most=0.025)
FAILED = Figure(name="FAIL", at_most=0.025)
PASSES, FAILS = Figure(name="PASS"), Figure(name="FAIL")


class Guarded(NamedTuple):
    """A metric with a non-inferiority rule; `loss` and `margin` are losses of its world."""

    world: World
    loss: float
    margin: float
    sizes: Sizes | None = None


RARE = ((30, 0.03), (30, 0.1), (100, 0.03), (200, 0.01))
"""Pairs, and the share of the candidate's values that are 0 instead of near 1."""
GUARDS = ((YesNo(base=0.8, differ=0.2), 0.05), (Normal(), 0.25), (Skewed(), 0.4))
SIZES: tuple[Sizes, Sizes] = ("even", "uneven")


def gate_cells() -> Iterator[Cell]:
    for n in (30, 100, 300):
        for world, margin in (*GUARDS, (YesNo(base=0.95, differ=0.08), 0.05)):
            yield _gate("guard, all of the margin lost", [Guarded(world, margin, margin)], n, (PASSED, FAILED))
    for sizes in SIZES:
        for world, margin in ((YesNo(base=0.8, differ=0.2), 0.05), (Normal(), 0.15)):
            guarded = [Guarded(world, margin, margin, sizes)]
            yield _gate("guard, all of the margin lost", guarded, 100, (PASSED, FAILED))
    for n, share in RARE:
        yield _gate("guard, all of the margin lost", [Guarded(NearOne(), share, share)], n, (PASSED, FAILED))
    yield from _several()
    for n in (30, 100, 300):
        for base in (0.8, 0.95):
            yield _floor(Setting(world=YesNo(base=base, differ=0.05), n=n), f"yes/no, {base:.0%} yes")
    for n, share in RARE:
        yield _floor(Setting(world=NearOne(), n=n, loss=share), f"near 1, {share:.0%} are 0")


def _several() -> Iterator[Cell]:
    at_margin, half, none, thrice = (
        [Guarded(world, part * margin, margin) for world, margin in GUARDS] for part in (1.0, 0.5, 0.0, 3.0)
    )
    wide = [Guarded(world, 0.0, 2 * margin) for world, margin in GUARDS]
    yield _gate("3 guards, all of each margin lost", at_margin, 100, (PASSED, FAILED))
    yield _gate("3 guards, all of one margin lost", [at_margin[0], *none[1:]], 100, (PASSED, FAILED))
    yield _gate("3 guards, half of each margin lost", half, 100, (PASSES, FAILED))
    yield _gate("3 guards of twice the margin, no loss", wide, 300, (PASSES, FAILED))
    yield _gate("3 guards, thrice each margin lost", thrice, 300, (PASSED, FAILS))


def _gate(name: str, guarded: Sequence[Guarded], n: int, figures: tuple[Figure, ...]) -> Cell:
    settings = [Setting(world=metric.world, n=n, sizes=metric.sizes, loss=metric.loss) for metric in guarded]
    margins = [-Setting(world=metric.world, n=n, loss=metric.margin).difference for metric in guarded]

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        streams = [setting.draws(own, runs) for setting, own in zip(settings, rng.spawn(len(settings)), strict=True)]
        for draws in zip(*streams, strict=True):
            yield _decided(
                [
                    ("non_inferiority", margin, estimates(draw, setting.world))
                    for draw, setting, margin in zip(draws, settings, margins, strict=True)
                ]
            )

    return Cell(
        kind="gate",
        method=name,
        world=settings[0].name if len(settings) == 1 else "yes/no, normal, skewed",
        n=f"{n} clusters" if settings[0].sizes else str(n),
        difference=", ".join(difference_text(setting.difference) for setting in settings),
        figures=figures,
        rows=rows,
    )


def _floor(setting: Setting, world: str) -> Cell:
    mean_of = share_with_bounds if setting.world.binary else _mean_near_one

    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        for draw in setting.draws(rng, runs):
            values = draw.candidate if setting.loss else draw.baseline
            yield _decided([("confident_threshold", setting.means[0], mean_of(values))])

    return Cell(
        kind="gate",
        method="sure floor, which is the true mean",
        world=world,
        n=str(setting.n),
        difference="none",
        figures=(PASSED, FAILED),
        rows=rows,
    )


IntervalAt = Callable[[float], Interval | None]


def _decided(rules: Sequence[tuple[Kind, float, Estimate]]) -> tuple[float, float]:
    """Return whether the gate passes, and whether it fails, as 0.0 or 1.0."""
    evaluated = [
        (Rule(kind=kind, metric=f"m{place}", bound=bound), estimate)
        for place, (kind, bound, estimate) in enumerate(rules)
    ]
    results = evaluate_rules(
        evaluated, {}, confidence_level=CONFIDENCE_LEVEL, min_examples=MIN_EXAMPLES, adjustment="holm"
    )
    conclusion = conclusion_of(results)
    return float(conclusion == "PASS"), float(conclusion == "FAIL")


def estimates(draw: Draw, world: World) -> Estimate:
    """Return the estimate of a gate's difference, without checking the examples again at every level."""
    estimate = paired_difference(*draw, binary=world.binary, bounds=world.bounds)
    if world.binary and draw.clusters is None:
        interval_at = _of_shares(draw)
    elif estimate.standard_error is None or (not world.binary and world.bounds):
        interval_at = _recomputed(draw, world)
    else:
        interval_at = _by_t(draw, world, estimate.standard_error)
    return _estimate(estimate.difference, interval_at, estimate.n_clusters or estimate.n_pairs, estimate.p_value)


def _of_shares(draw: Draw) -> IntervalAt:
    differences = draw.candidate - draw.baseline
    gained, lost = int(np.sum(differences > 0)), int(np.sum(differences < 0))
    return lambda confidence_level: _share_interval(gained, lost, differences.size, confidence_level)


@lru_cache(maxsize=2**18)
def _share_interval(gained: int, lost: int, n: int, confidence_level: float) -> Interval:
    """Cached, because the same few counts and levels recur."""
    return paired_share_interval(gained, lost, n, confidence_level=confidence_level)


def _recomputed(draw: Draw, world: World) -> IntervalAt:
    sides = draw.candidate[None], draw.baseline[None]
    known = paired_differences(*sides, draw.clusters, binary=world.binary, bounds=world.bounds)

    def interval_at(confidence_level: float) -> Interval | None:
        (low,), (high,) = (end.tolist() for end in known.interval_at(confidence_level))
        return None if math.isinf(low) else (low, high)

    return interval_at


def _by_t(draw: Draw, world: World, error: float) -> IntervalAt:
    low, high = (0.0, 1.0) if world.binary else world.bounds or (-math.inf, math.inf)
    differences = draw.candidate - draw.baseline
    clustering = clustering_of(draw.clusters, differences.size)
    if world.binary:
        (counts,) = effective_counts(differences[None], clustering)
        return lambda confidence_level: clipped(counts.interval(confidence_level), low - high, high - low)
    df, skewness = (
        degrees_of_freedom(differences, clustering),
        skewness_of_mean(differences, clustering, np.array(error)),
    )

    def interval_at(confidence_level: float) -> Interval:
        ends = skewed_t_interval(
            differences.mean(), np.array(error), skewness, df=df, confidence_level=confidence_level
        )
        return clipped((float(ends[0]), float(ends[1])), low - high, high - low)

    return interval_at


def share_with_bounds(values: FloatArray) -> Estimate:
    yes = int(values.sum())

    def interval_at(confidence_level: float) -> Interval | None:
        return clopper_pearson_interval(yes, values.size, confidence_level=confidence_level)

    return _estimate(mean_estimate(values, binary=True).mean, interval_at, values.size, None)


def _mean_near_one(values: FloatArray) -> Estimate:
    def interval_at(confidence_level: float) -> Interval | None:
        estimate = mean_estimate(values, bounds=NearOne().bounds, confidence_level=confidence_level)
        return None if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)

    return _estimate(float(values.mean()), interval_at, values.size, None)


@dataclass(frozen=True)
class _Simulated:
    facts: Facts
    at: IntervalAt

    def interval_at(self, confidence_level: float) -> Interval | None:
        return self.at(confidence_level)

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        return self.at(confidence_level)

    def interval_of_size(self, n: int, confidence_level: float) -> Interval | None:
        return None


def _estimate(value: float | None, interval_at: IntervalAt, n: int, p_value: float | None) -> Estimate:
    facts = Facts(
        value=value,
        worst_case_values=None if value is None else (value, value),
        n=n,
        noun="pairs",
        n_missing=0,
        higher_is_better=True,
        p_value=p_value,
    )
    return _Simulated(facts, interval_at)
