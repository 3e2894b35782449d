"""The scale of a metric: its direction, its possible values, and the policy for missing ones."""

from dataclasses import dataclass

import numpy as np

from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import MetricSpec
from evalflows.specs.metric_names import MEASURES
from evalflows.store.queries.metric_values import MetricValues

UNBOUNDED = (-np.inf, np.inf)


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
    def allows_yes_no(self) -> bool:
        """Whether 0 and 1 are its extremes, as far as known: numbers that are all 0 or 1 are then tested as yes/no."""
        return self.support in ((0.0, 1.0), UNBOUNDED)

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
