"""Metric specs: direction, range, margin, and composites; and score configs: which values a score may have."""

import math
from collections.abc import Collection
from typing import Annotated, Literal, Protocol

from pydantic import BeforeValidator, Field, model_validator

from evalflows.specs.errors import short
from evalflows.specs.evaluator import EvaluatorSpec, PanelCombine, fields_given
from evalflows.specs.metric_names import MEASURES
from evalflows.specs.model import SpecModel

MAX_NUMBER = 1e60
"""Largest size of a score or label. The fourth powers of larger ones could overflow, and end every verdict."""


def _equal_weights(value: object) -> object:
    return dict.fromkeys(value, 1.0) if isinstance(value, list) else value


class MetricSpec(SpecModel):
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
        "false, a decision states the assumption that there are none",
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


WEIGHT_CHANGE = 0.2
"""By how much each weight of a composite is changed by default, relative to it, to see whether its winner stays."""


class CompositeSpec(SpecModel):
    """Several metrics of a run combined into one number, each scaled to 0 (worst) to 1 (best); or the scores of a panel
    of judges, in their own unit."""

    name: str = Field(description="The composite's name", min_length=1)
    weights: Annotated[dict[str, float], BeforeValidator(_equal_weights)] = Field(
        default_factory=dict,
        description="Metric: weight; weights need not add up to one. A list of metrics gives them equal weights",
    )
    panel: list[str] = Field(
        default_factory=list,
        description="Instead of weights: the metrics of judges, whose verdicts become one in their own unit. An "
        "evaluator with `use: panel` becomes this, and an evaluator for each of its judges",
    )
    combine: PanelCombine | None = Field(None, description="How the verdicts of a panel become one")
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
    def _has_weights_or_panel(self) -> "CompositeSpec":
        if bool(self.weights) == bool(self.panel):
            raise ValueError(f"weights: got {'both' if self.panel else 'neither'}, wanted weights or a panel")
        if self.panel and (extra := fields_given(self, {"aggregation", "function", "requirements", "missing"})):
            raise ValueError(f"{extra[0]}: got it with a panel, wanted it with weights only")
        if self.combine and not self.panel:
            raise ValueError(f"combine: got {self.combine} without a panel, wanted aggregation")
        return self

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
        return frozenset({*self.weights, *self.requirements, *self.panel})

    def undone_by(self, excluded: Collection[str]) -> str | None:
        """Return the metric because of which the composite decides nothing, of those that decide nothing.

        A panel leaves such judges out, so it decides nothing only if all of its judges are among them.
        """
        parts = sorted(self.metrics.intersection(excluded))
        return parts[0] if parts and (not self.panel or len(parts) == len(self.panel)) else None


class _WithPanels(Protocol):
    """A spec of which some evaluators may be panels."""

    @property
    def evaluators(self) -> list[EvaluatorSpec]: ...
    @property
    def composites(self) -> list[CompositeSpec]: ...
    @property
    def metrics(self) -> dict[str, MetricSpec]: ...


def expand_panels(spec: _WithPanels) -> None:
    """Replace each panel of a spec that is being made by its judges, as evaluators, and a composite of their metrics.

    What the spec declares of the panel's metric holds for those of its judges too, except pass@k.
    """
    panels = [evaluator for evaluator in spec.evaluators if evaluator.panel]
    if not panels:
        return
    evaluators, composites, metrics = list[EvaluatorSpec](), list[CompositeSpec](), dict(spec.metrics)
    for evaluator in spec.evaluators:
        evaluators += evaluator.members if evaluator.panel else [evaluator]
    for panel in panels:
        names = [member.metric for member in panel.members]
        composites.append(CompositeSpec(name=panel.metric, panel=names, combine=panel.combine))
        if (declared := metrics.get(panel.metric)) is not None:
            metrics = dict.fromkeys(names, declared.model_copy(update={"pass_k": []})) | metrics
    made = {"evaluators": evaluators, "composites": [*composites, *spec.composites], "metrics": metrics}
    vars(spec).update(made)  # the spec is frozen


class CategorySpec(SpecModel):
    """An allowed label. A plain string is short for `label`."""

    label: str = Field(min_length=1)
    value: float | None = Field(None, description="The number for this label in other systems; never averaged")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"label": value} if isinstance(value, str) else value


class ScoreConfigSpec(SpecModel):
    """The allowed values of a score. An invalid score becomes a failed row."""

    name: str | None = Field(None, description="The only metric that may use this config; default: any")
    data_type: Literal["NUMERIC", "BOOLEAN", "CATEGORICAL"] = "NUMERIC"
    min_value: float | None = Field(None, description="Lowest allowed number")
    max_value: float | None = Field(None, description="Highest allowed number")
    categories: list[CategorySpec] = Field(default_factory=list, description="The allowed labels")

    @model_validator(mode="after")
    def _fits_its_type(self) -> "ScoreConfigSpec":
        bounds = [bound for bound in (self.min_value, self.max_value) if bound is not None]
        if bounds and self.data_type != "NUMERIC":
            raise ValueError(f"min_value and max_value: got data_type {self.data_type}, wanted NUMERIC")
        if not all(map(math.isfinite, bounds)) or bounds != sorted(bounds):
            raise ValueError(f"got {self.min_value} to {self.max_value}, wanted two numbers, the lower one first")
        if bool(self.categories) != (self.data_type == "CATEGORICAL"):
            raise ValueError(
                f"categories: got {len(self.categories)} with {self.data_type}, wanted them for CATEGORICAL only"
            )
        labels = [category.label for category in self.categories]
        if duplicate := next((label for label in labels if labels.count(label) > 1), None):
            raise ValueError(f"categories: got {duplicate!r} twice")
        return self

    def check(self, metric: str, value: float | None, label: str | None) -> None:
        """Raise ValueError if the score of a metric is not allowed."""
        if self.name not in (None, metric):
            raise ValueError(f"{metric}: its config is for {self.name!r}, wanted a config for {metric!r}")
        if self.data_type == "CATEGORICAL":
            self._check_label(metric, value, label)
        elif value is None:
            raise ValueError(f"{metric}: got the label {short(label)}, wanted {self._bounds()}")
        elif self.data_type == "BOOLEAN" and value not in (0, 1):
            raise ValueError(f"{metric}: got {value:g}, wanted yes or no")
        elif not self._lowest <= value <= self._highest:
            raise ValueError(f"{metric}: got {value:g}, wanted {self._bounds()}")

    @property
    def _lowest(self) -> float:
        return -math.inf if self.min_value is None else self.min_value

    @property
    def _highest(self) -> float:
        return math.inf if self.max_value is None else self.max_value

    def _bounds(self) -> str:
        return "a number" if self.min_value is self.max_value is None else f"{self._lowest:g} to {self._highest:g}"

    def _check_label(self, metric: str, value: float | None, label: str | None) -> None:
        allowed = [category.label for category in self.categories]
        if label not in allowed:
            got = short(label) if label is not None else f"the number {value:g}"
            raise ValueError(f"{metric}: got {got}, wanted one of {', '.join(allowed)}")
