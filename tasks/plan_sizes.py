"""How many examples show a difference, with how many repetitions, and how small a one the present dataset shows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stats import detectable_effect, needed_examples
from stats.power import plan_sizes
from tasks.plan_calls import PlannedCalls, calls_at, usd_at
from tasks.plan_spread import Spread

REPETITIONS = (1, 2, 3, 5)
"""Those that are put side by side."""

Purpose = Literal["difference", "guard", "goal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be seen in a metric."""

    purpose: Purpose
    size: float  # the difference that must be told from what is held against it
    said: float  # as the command or the gate has it
    gate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One way to see it: so many examples, each answered so often by every target."""

    repetitions: int
    examples: int
    clusters: int | None
    calls: int
    usd: float | None
    is_cheapest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The ways to see what is wanted of a metric."""

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
    """The dataset as it is, and how it would be looked at."""

    n_examples: int
    n_clusters: int | None  # None where there are no clusters
    repetitions: int
    level: float
    power: float
    share: float = 1.0  # of the examples that is judged

    @property
    def cluster_size(self) -> float:
        return self.n_examples / self.n_clusters if self.n_clusters else 1.0

    def units(self, spread: Spread) -> float:
        whole = self.n_clusters if spread.unit == "cluster" and self.n_clusters else self.n_examples
        return whole * (self.share if whole == self.n_examples else 1.0)


def sizes_of(spread: Spread, wanted: Wanted, present: Present, lines: Sequence[PlannedCalls]) -> Sizes:
    """The ways to see what is wanted, and which of them is the cheapest."""
    repetitions = sorted({*REPETITIONS, present.repetitions}) if spread.is_split else [present.repetitions]
    try:
        planned = plan_sizes(
            wanted.size, spread.parts, repetitions=repetitions, level=present.level, power=present.power
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
    """By money where that is known, then by calls, then by runs."""
    return way.usd or 0.0, way.calls, way.examples * way.repetitions


def _fewest(spread: Spread, wanted: Wanted, present: Present, repetitions: int) -> int:
    """Of yes and no, answered once, a difference d is d of all pairs at least that differ: the variance is no less than
    d - d^2, however little other experiments differed. Where nothing is known, repetitions are not trusted to save it.
    """
    if not _has_floor(spread, repetitions) or wanted.purpose == "guard" or wanted.size >= 1:
        return 0
    sd = math.sqrt(wanted.size - wanted.size**2)
    return needed_examples(wanted.size, sd=sd, level=present.level, power=present.power)


def _has_floor(spread: Spread, repetitions: int) -> bool:
    return spread.is_yes_no and spread.unit == "example" and (repetitions == 1 or spread.source == "guess")


def smallest_seen(spread: Spread, present: Present) -> float | None:
    """The smallest true difference that the present dataset would show with that power; None for too few units."""
    units, variance = present.units(spread), spread.variance_at(present.repetitions)
    if units < 2:
        return None
    ratio = detectable_effect(1.0, df=units - 1, level=present.level, power=present.power)
    size = ratio * math.sqrt(variance / units)
    if _has_floor(spread, present.repetitions) and size - size**2 > variance:
        return ratio**2 / (units + ratio**2)  # where d = ratio * sqrt((d - d^2) / n)
    return size
