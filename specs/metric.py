"""Metrics: which way is better, between which bounds, and how several become one."""

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MEASURES = ("latency", "cost", "tokens", "length")
"""Metrics of every run that no evaluator gives: seconds, USD, tokens in and out, characters. Lower is better."""


class MetricSpec(BaseModel):
    """What is declared of a metric. Without it, higher is better, and yes/no lies between 0 and 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    higher_is_better: bool | None = Field(
        None, description="Whether more of it is better; yes where left out, but for latency, cost, tokens and length"
    )
    range: tuple[float, float] | None = Field(
        None, description="Lowest and highest value; a score outside is an error, a measure outside counts as the bound"
    )

    @model_validator(mode="after")
    def _range_is_a_range(self) -> "MetricSpec":
        if self.range is not None and not -math.inf < self.range[0] < self.range[1] < math.inf:
            raise ValueError(f"range: got {list(self.range)}, wanted two numbers, the lower one first")
        return self

    def is_higher_better(self, metric: str) -> bool:
        """Which way the metric of that name is better, said or not."""
        return metric not in MEASURES if self.higher_is_better is None else self.higher_is_better


class CompositeSpec(BaseModel):
    """One number a run out of several metrics: their weighted mean, each scaled to 0 (worst) to 1 (best)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="What the composite is called", min_length=1)
    weights: dict[str, float] = Field(min_length=1, description="Metric: weight; they need not add up to one")
    missing: Literal["fail", "leave_out", "worst"] = Field(
        "fail",
        description="Where a part is missing (failed, or not attempted): the composite is missing too; or the mean of "
        "the other parts; or the part counts as the worst of its range. A part that does not apply is left out",
    )

    @model_validator(mode="after")
    def _weights_weigh(self) -> "CompositeSpec":
        for metric, weight in self.weights.items():
            if not 0 < weight < float("inf"):
                raise ValueError(f"weights: {metric}: got {weight}, wanted more than 0")
        return self
