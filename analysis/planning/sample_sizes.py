"""Sample sizes that detect a difference, by repetitions, and the minimum detectable effect of the current design."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evalflows.analysis.planning.target_calls import PlannedCalls, calls_at, usd_at
from evalflows.analysis.planning.variance import VarianceEstimate
from evalflows.stats import detectable_effect, needed_examples
from evalflows.stats.differences.power import plan_sizes

REPETITIONS = (1, 2, 3, 5)
"""The numbers of repetitions that are compared."""

Purpose = Literal["difference", "non_inferiority", "superiority"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEffect:
    """The effect to detect in a metric."""

    purpose: Purpose
    size: float  # the difference to detect
    declared: float  # as the command or the gate gives it
    gate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A number of examples and of repetitions per target, with its cost."""

    repetitions: int
    examples: int
    clusters: int | None
    calls: int
    usd: float | None
    is_cheapest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSizes:
    """The designs that detect an effect, by repetitions."""

    effect: TargetEffect
    designs: tuple[Design, ...]
    reason: str | None = None  # why there are no designs

    @property
    def cheapest(self) -> Design | None:
        return next((design for design in self.designs if design.is_cheapest), None)

    def at(self, repetitions: int) -> Design | None:
        return next((design for design in self.designs if design.repetitions == repetitions), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentDesign:
    """The current dataset and design."""

    n_examples: int
    n_clusters: int | None  # None without clusters
    repetitions: int
    confidence_level: float
    power: float
    judged_share: float = 1.0  # of the examples

    @property
    def cluster_size(self) -> float:
        return self.n_examples / self.n_clusters if self.n_clusters else 1.0

    def units(self, estimate: VarianceEstimate) -> float:
        """The number of judged examples, or of clusters, as the estimate counts them."""
        n_all = self.n_clusters if estimate.unit == "cluster" and self.n_clusters else self.n_examples
        return n_all * (self.judged_share if n_all == self.n_examples else 1.0)


def sample_sizes_of(
    estimate: VarianceEstimate, effect: TargetEffect, current: CurrentDesign, lines: Sequence[PlannedCalls]
) -> SampleSizes:
    """The designs that detect an effect; the cheapest one is marked."""
    repetitions = sorted({*REPETITIONS, current.repetitions}) if estimate.is_split else [current.repetitions]
    try:
        planned = plan_sizes(
            effect.size,
            estimate.parts,
            repetitions=repetitions,
            confidence_level=current.confidence_level,
            power=current.power,
        )
    except ValueError as error:
        return SampleSizes(effect=effect, designs=(), reason=str(error))
    designs = []
    for size in planned:
        units = max(size.examples, _min_units(estimate, effect, current, size.repetitions))
        designs.append(_design(units, size.repetitions, estimate, current, lines))
    cheapest = min(designs, key=_cost)
    return SampleSizes(
        effect=effect, designs=tuple(replace(design, is_cheapest=design is cheapest) for design in designs)
    )


def _design(
    units: int, repetitions: int, estimate: VarianceEstimate, current: CurrentDesign, lines: Sequence[PlannedCalls]
) -> Design:
    of_clusters = estimate.unit == "cluster"
    clusters = math.ceil(units / current.judged_share) if of_clusters else None
    examples = math.ceil(units / current.judged_share * (current.cluster_size if of_clusters else 1.0))
    return Design(
        repetitions=repetitions,
        examples=examples,
        clusters=clusters,
        calls=calls_at(lines, examples, repetitions),
        usd=usd_at(lines, examples, repetitions),
    )


def _cost(design: Design) -> tuple[float, float, int]:
    """Sort key: the cost in USD if known, then calls, then runs."""
    return design.usd or 0.0, design.calls, design.examples * design.repetitions


def _min_units(estimate: VarianceEstimate, effect: TargetEffect, current: CurrentDesign, repetitions: int) -> int:
    """The least number of examples for a yes/no metric with one answer per example; 0 for other metrics.

    A difference d means that at least a share d of pairs differ, so the variance is at least d - d^2. For a guessed
    variance, the bound holds with repetitions too.
    """
    if not _has_lower_bound(estimate, repetitions) or effect.purpose == "non_inferiority" or effect.size >= 1:
        return 0
    sd = math.sqrt(effect.size - effect.size**2)
    return needed_examples(effect.size, sd=sd, confidence_level=current.confidence_level, power=current.power)


def _has_lower_bound(estimate: VarianceEstimate, repetitions: int) -> bool:
    return estimate.is_yes_no and estimate.unit == "example" and (repetitions == 1 or estimate.source == "guess")


def minimum_detectable(estimate: VarianceEstimate, current: CurrentDesign) -> float | None:
    """The smallest true difference that the current design detects at its power; None with fewer than 2 units."""
    units, variance = current.units(estimate), estimate.variance_at(current.repetitions)
    if units < 2:
        return None
    ratio = detectable_effect(1.0, df=units - 1, confidence_level=current.confidence_level, power=current.power)
    size = ratio * math.sqrt(variance / units)
    if _has_lower_bound(estimate, current.repetitions) and size - size**2 > variance:
        return ratio**2 / (units + ratio**2)  # where d = ratio * sqrt((d - d^2) / n)
    return size
