"""The scale of a metric: its direction, its possible values, and the policy for missing ones."""

from dataclasses import dataclass

import numpy as np

from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import MetricSpec
from evalflows.specs.metric_names import MEASURES
from evalflows.store.queries.metric_values import MetricValues, Values

UNBOUNDED = (-np.inf, np.inf)

MIN_TWO_VALUED = 20
"""Values from which two different numbers without a range count as no and yes, such as 0 and 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The declared direction and range of a metric."""

    declared: MetricSpec
    support: tuple[float, float]  # possible values; infinite if unknown
    bounds: tuple[float, float]  # the range assumed for missing values; for a built-in measure, the declared one
    leaves_out_missing: bool = False  # the policy for pairs with a missing value

    @property
    def is_bounded(self) -> bool:
        return bool(np.isfinite(self.bounds).all())

    @property
    def widest(self) -> float:
        """The largest possible difference."""
        return self.support[1] - self.support[0]

    def yes_no_ends(self, *sides: Values) -> tuple[float, float] | None:
        """The numbers that stand for no and yes, if the values are only these two and, as far as known, its extremes.

        They are the ends of the range. Without a range they are 0 and 1, or any other two numbers of which there are
        at least MIN_TWO_VALUED, and both on one side: few values, or a constant on each side, could also be the only
        ones of several that were drawn.
        """
        known_sides = [side[~np.isnan(side)] for side in sides]
        known = np.concatenate(known_sides)
        ends = (0.0, 1.0) if self.support == UNBOUNDED else self.support
        if np.isin(known, ends).all():
            return ends if np.isfinite(ends).all() else None
        if self.support != UNBOUNDED or known.size < MIN_TWO_VALUED:
            return None
        distinct, varies = np.unique(known).tolist(), any(np.unique(side).size > 1 for side in known_sides)
        return (distinct[0], distinct[1]) if len(distinct) == 2 and varies else None

    @property
    def higher_is_better(self) -> bool:
        return bool(self.declared.higher_is_better)


def scale_of(values: MetricValues, spec: ExperimentSpec) -> Scale:
    """The scale of a metric, from its spec and the kind of its values."""
    declared = spec.direction(values.metric)
    if values.metric in MEASURES:
        support = (0.0, np.inf)  # a measure can exceed its declared range
    elif declared.range is not None:
        support = declared.range
    else:
        composite = values.metric in {composite.name for composite in spec.composites}
        support = (0.0, 1.0) if values.is_yes_no or composite else UNBOUNDED
    bounds = declared.range or support
    has_bounds = bool(np.isfinite(bounds).all())
    policy = declared.missing or ("leave_out" if values.metric in MEASURES and not has_bounds else "worst")
    return Scale(declared=declared, support=support, bounds=bounds, leaves_out_missing=policy == "leave_out")
