"""Metric specs: direction, range, margin, and composites."""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from evalflows.specs.metric_names import MEASURES

MAX_NUMBER = 1e60
"""Largest size of a score or label. The fourth powers of larger ones could overflow, and end every verdict."""


def _equal_weights(value: object) -> object:
    return dict.fromkeys(value, 1.0) if isinstance(value, list) else value


class MetricSpec(BaseModel, extra="forbid", frozen=True):
    """Declared properties of a metric. By default higher is better, and yes/no metrics range from 0 to 1."""

    higher_is_better: bool | None = Field(
        None, description="Whether higher values are better; default: yes, except for latency, cost, tokens and length"
    )
    range: tuple[float, float] | None = Field(
        None, description="Lowest and highest value; a score outside is an error, a built-in measure outside is clipped"
    )
    margin: float | None = Field(
        None,
        gt=0,
        description="Equivalence margin: a smaller difference does not matter, so a verdict may be `no worse` or "
        "`equivalent`",
    )
    rare_losses: bool = Field(
        True,
        description="Whether intervals in the range allow for rare worst values that the sample does not show; if "
        "false, a decision says that it rests on there being none",
    )
    missing: Literal["worst", "leave_out"] | None = Field(
        None,
        description="Pairs with a missing value, if no range bounds the metric: `worst` keeps the verdict open, "
        "`leave_out` leaves them out and says so; default: leave_out for latency, cost, tokens and length, else worst",
    )
    pass_k: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=list,
        description="For each k, add the metrics pass@k (at least one of k repetitions passes) and pass^k (all k pass)",
    )
    pass_threshold: float = Field(
        1.0, description="The score that a repetition needs to pass: at least, or at most if lower is better"
    )

    @model_validator(mode="after")
    def _range_is_valid(self) -> "MetricSpec":
        if self.range is not None and not -math.inf < self.range[0] < self.range[1] < math.inf:
            raise ValueError(f"range: got {list(self.range)}, wanted two numbers, the lower one first")
        return self

    def is_higher_better(self, metric: str) -> bool:
        """Return whether higher is better for the metric of that name, declared or by default."""
        return metric not in MEASURES if self.higher_is_better is None else self.higher_is_better

    def or_else(self, declared: "MetricSpec") -> "MetricSpec":
        """Return this spec, with unset fields taken from `declared`."""
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return declared.model_copy(update={name: value for name, value in own.items() if value is not None})


class CompositeSpec(BaseModel, extra="forbid", frozen=True):
    """Several metrics of a run combined into one number, each scaled to 0 (worst) to 1 (best)."""

    name: str = Field(description="The composite's name", min_length=1)
    weights: Annotated[dict[str, float], BeforeValidator(_equal_weights)] = Field(
        min_length=1,
        description="Metric: weight; weights need not add up to one. A list of metrics gives them equal weights",
    )
    aggregation: Literal["weighted_mean", "geometric_mean", "minimum"] = Field(
        "weighted_mean",
        description="How the parts are combined: a geometric mean is 0 if any part is 0; the minimum is the worst "
        "part, regardless of weights",
    )
    function: str | None = Field(
        None,
        description='Your own aggregation instead: "module:name" of a function that maps the parts {metric: 0 to 1} to '
        "a number from 0 to 1",
    )
    requirements: dict[str, float] = Field(
        default_factory=dict,
        description="Metric: the score that it must reach, in its own unit (or not exceed, if lower is better). If a "
        "requirement is not met, the composite is 0",
    )
    missing: Literal["fail", "leave_out", "worst"] = Field(
        "fail",
        description="If a part is missing (failed, or not attempted): `fail` makes the composite missing too, "
        "`leave_out` combines the other parts, `worst` counts the part as the worst of its range, so that missing "
        "answers count as wrong. A part that does not apply is always left out",
    )

    @model_validator(mode="after")
    def _numbers_are_valid(self) -> "CompositeSpec":
        for metric, weight in self.weights.items():
            if not 0 < weight < math.inf:
                raise ValueError(f"weights: {metric}: got {weight}, wanted more than 0")
        for metric, bound in self.requirements.items():
            if not math.isfinite(bound):
                raise ValueError(f"requirements: {metric}: got {bound}, wanted a number")
        if self.function is not None and self.aggregation != "weighted_mean":
            raise ValueError(f"aggregation: got {self.aggregation} with a function, wanted one of the two")
        return self

    @property
    def metrics(self) -> frozenset[str]:
        """All metrics that the composite needs."""
        return frozenset({*self.weights, *self.requirements})
