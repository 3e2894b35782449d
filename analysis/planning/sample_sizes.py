"""Sample sizes to detect a difference, by repetitions, and the minimum detectable effect of the present dataset."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evalflows.analysis.planning.target_calls import PlannedCalls, calls_at, usd_at
from evalflows.analysis.planning.variance import Spread
from evalflows.stats import detectable_effect, needed_examples
from evalflows.stats.differences.power import plan_sizes

REPETITIONS = (1, 2, 3, 5)
"""The numbers of repetitions that are compared."""

Purpose = Literal["difference", "non_inferiority", "superiority"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The effect to detect in a metric."""

    purpose: Purpose
    size: float  # the difference to detect
    said: float  # as given by the command or the gate
    gate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One design: the number of examples, and of repetitions by every target."""

    repetitions: int
    examples: int
    clusters: int | None
    calls: int
    usd: float | None
    is_cheapest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The designs that detect an effect."""

    wanted: Wanted
    ways: tuple[Size, ...]
    reason: str | None = None  # why there is none

    @property
    def cheapest(self) -> Size | None:
        return next((way for way in self.ways if way.is_cheapest), None)

    def at(self, repetitions: int) -> Size | None:
        return next((way for way in self.ways if way.repetitions == repetitions), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The current dataset and design."""

    n_examples: int
    n_clusters: int | None  # None where there are no clusters
    repetitions: int
    confidence_level: float
    power: float
    share: float = 1.0  # of the examples that is judged

    @property
    def cluster_size(self) -> float:
        return self.n_examples / self.n_clusters if self.n_clusters else 1.0

    def units(self, spread: Spread) -> float:
        whole = self.n_clusters if spread.unit == "cluster" and self.n_clusters else self.n_examples
        return whole * (self.share if whole == self.n_examples else 1.0)


def sizes_of(spread: Spread, wanted: Wanted, present: Present, lines: Sequence[PlannedCalls]) -> Sizes:
    """The designs that detect an effect, the cheapest one marked."""
    repetitions = sorted({*REPETITIONS, present.repetitions}) if spread.is_split else [present.repetitions]
    try:
        planned = plan_sizes(
            wanted.size,
            spread.parts,
            repetitions=repetitions,
            confidence_level=present.confidence_level,
            power=present.power,
        )
    except ValueError as error:
        return Sizes(wanted=wanted, ways=(), reason=str(error))
    ways = [
        _way(
            max(one.examples, _fewest(spread, wanted, present, one.repetitions)),
            one.repetitions,
            spread,
            present,
            lines,
        )
        for one in planned
    ]
    cheapest = min(ways, key=_cost)
    return Sizes(wanted=wanted, ways=tuple(replace(way, is_cheapest=way is cheapest) for way in ways))


def _way(units: int, repetitions: int, spread: Spread, present: Present, lines: Sequence[PlannedCalls]) -> Size:
    of_clusters = spread.unit == "cluster"
    clusters = math.ceil(units / present.share) if of_clusters else None
    examples = math.ceil(units / present.share * (present.cluster_size if of_clusters else 1.0))
    return Size(
        repetitions=repetitions,
        examples=examples,
        clusters=clusters,
        calls=calls_at(lines, examples, repetitions),
        usd=usd_at(lines, examples, repetitions),
    )


def _cost(way: Size) -> tuple[float, float, int]:
    """Sort key: money if known, then calls, then runs."""
    return way.usd or 0.0, way.calls, way.examples * way.repetitions


def _fewest(spread: Spread, wanted: Wanted, present: Present, repetitions: int) -> int:
    """The lower bound on examples for a yes/no metric answered once: a difference d means that at least a share d of
    pairs differ, so the variance is at least d - d^2. A guessed variance keeps this bound with repetitions too.
    """
    if not _has_floor(spread, repetitions) or wanted.purpose == "non_inferiority" or wanted.size >= 1:
        return 0
    sd = math.sqrt(wanted.size - wanted.size**2)
    return needed_examples(wanted.size, sd=sd, confidence_level=present.confidence_level, power=present.power)


def _has_floor(spread: Spread, repetitions: int) -> bool:
    return spread.is_yes_no and spread.unit == "example" and (repetitions == 1 or spread.source == "guess")


def minimum_detectable(spread: Spread, present: Present) -> float | None:
    """The smallest true difference that the present dataset detects at that power; None for too few units."""
    units, variance = present.units(spread), spread.variance_at(present.repetitions)
    if units < 2:
        return None
    ratio = detectable_effect(1.0, df=units - 1, confidence_level=present.confidence_level, power=present.power)
    size = ratio * math.sqrt(variance / units)
    if _has_floor(spread, present.repetitions) and size - size**2 > variance:
        return ratio**2 / (units + ratio**2)  # where d = ratio * sqrt((d - d^2) / n)
    return size
