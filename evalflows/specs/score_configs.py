"""Score configs: which values a score may have."""

import math
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from evalflows.specs.errors import short


class CategorySpec(BaseModel, extra="forbid", frozen=True):
    """An allowed label. A plain string is short for `label`."""

    label: str = Field(min_length=1)
    value: float | None = Field(None, description="The number for this label in other systems; never averaged")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"label": value} if isinstance(value, str) else value


class ScoreConfigSpec(BaseModel, extra="forbid", frozen=True):
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
