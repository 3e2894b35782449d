"""Metrics: which way is better, between which bounds, and how several become one."""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MEASURES = ("latency", "cost", "tokens", "length")
"""Metrics of every run that no evaluator gives: seconds, USD, tokens in and out, characters. Lower is better."""


def _each_alike(value: object) -> object:
    return dict.fromkeys(value, 1.0) if isinstance(value, list) else value


class MetricSpec(BaseModel):
    """What is declared of a metric. Without it, higher is better, and yes/no lies between 0 and 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    higher_is_better: bool | None = Field(
        None, description="Whether more of it is better; yes where left out, but for latency, cost, tokens and length"
    )
    range: tuple[float, float] | None = Field(
        None, description="Lowest and highest value; a score outside is an error, a measure outside counts as the bound"
    )
    margin: float | None = Field(
        None,
        gt=0,
        description="A difference of less does not matter: a verdict may then be `no worse`, or `equivalent`",
    )
    pass_k: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=list,
        description="For each k: pass@k (one of k repetitions passes) and pass^k (all k do), as metrics",
    )
    passes_from: float = Field(
        1.0, description="The score with which a repetition passes: at least, or at most where less is better"
    )

    @model_validator(mode="after")
    def _range_is_a_range(self) -> "MetricSpec":
        if self.range is not None and not -math.inf < self.range[0] < self.range[1] < math.inf:
            raise ValueError(f"range: got {list(self.range)}, wanted two numbers, the lower one first")
        return self

    def is_higher_better(self, metric: str) -> bool:
        """Which way the metric of that name is better, said or not."""
        return metric not in MEASURES if self.higher_is_better is None else self.higher_is_better

    def or_else(self, declared: "MetricSpec") -> "MetricSpec":
        """This, and what it leaves open as `declared` has it."""
        said = {name: getattr(self, name) for name in self.model_fields_set}
        return declared.model_copy(update={name: value for name, value in said.items() if value is not None})


class CompositeSpec(BaseModel):
    """One number a run out of several metrics, each scaled to 0 (worst) to 1 (best)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="What the composite is called", min_length=1)
    weights: Annotated[dict[str, float], BeforeValidator(_each_alike)] = Field(
        min_length=1, description="Metric: weight; they need not add up to one. A list of metrics weighs them alike"
    )
    how: Literal["weighted_mean", "geometric_mean", "minimum"] = Field(
        "weighted_mean",
        description="How the parts become one: in a geometric mean a part of 0 makes all of it 0; the minimum is the "
        "worst part, whatever the weights",
    )
    function: str | None = Field(
        None,
        description='Your own way instead: "module:name" of a function of the parts (metric: 0 to 1) that gives 0 to 1',
    )
    gates: dict[str, float] = Field(
        default_factory=dict,
        description="Metric: the score that it must reach, in its own unit (or not exceed, where less is better). "
        "Where one does not, the composite is 0",
    )
    missing: Literal["fail", "leave_out", "worst"] = Field(
        "fail",
        description="Where a part is missing (failed, or not attempted): the composite is missing too; or the mean of "
        "the other parts; or the part counts as the worst of its range. A part that does not apply is left out",
    )

    @model_validator(mode="after")
    def _weights_weigh(self) -> "CompositeSpec":
        for metric, weight in self.weights.items():
            if not 0 < weight < math.inf:
                raise ValueError(f"weights: {metric}: got {weight}, wanted more than 0")
        for metric, bound in self.gates.items():
            if not math.isfinite(bound):
                raise ValueError(f"gates: {metric}: got {bound}, wanted a number")
        if self.function is not None and self.how != "weighted_mean":
            raise ValueError(f"how: got {self.how} with a function of your own, wanted one of the two")
        return self

    @property
    def metrics(self) -> frozenset[str]:
        """All that it rests on."""
        return frozenset({*self.weights, *self.gates})
