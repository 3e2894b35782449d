"""A gate: what must hold of a candidate before it may be released."""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Adjustment = Literal["holm", "benjamini_hochberg", "none"]
"""What is done about looking at many metrics: Holm keeps the chance of one false finding low, Benjamini and Hochberg
the share of false ones among the findings."""


Number = Annotated[float, Field(strict=True)]
"""No yes, which would count as 1."""


def _any_rise(value: object) -> object:
    named = [value] if isinstance(value, str) else value
    if isinstance(named, list) and all(isinstance(one, str) for one in named):
        return dict.fromkeys(named, 0.0)
    return value


class BridgeSpec(BaseModel):
    """How answers that an older judge judged are made comparable: the newer judge judges a sample of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sample: int = Field(100, ge=20, description="Of how many of the baseline's answers the newer judge is asked")
    seed: int = Field(0, ge=0, lt=1 << 32, description="Another seed draws another sample")


class GateSpec(BaseModel):
    """PASS where every rule surely holds, FAIL where one surely does not, else NOT ENOUGH EVIDENCE."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("release", min_length=1, description="What the gate is called")
    guards: dict[str, Number] = Field(
        default_factory=dict,
        description="Metric: margin. It must not fall by more than that (or rise, where less is better)",
    )
    goals: Annotated[dict[str, Number], BeforeValidator(_any_rise)] = Field(
        default_factory=dict,
        description="Metric: by how much it must rise at least (or fall, where less is better); a list asks for any",
    )
    floors: dict[str, Number] = Field(
        default_factory=dict,
        description="Metric: what its mean must reach (or not exceed, where less is better)",
    )
    sure_floors: dict[str, Number] = Field(
        default_factory=dict,
        description="Metric: what even the lower end of its mean's interval must reach (or the upper not exceed)",
    )
    candidate: str | None = Field(
        None, description="The target that may be released; each that is not the baseline where left out"
    )
    baseline: str | None = Field(
        None,
        description="What to compare with: one of the targets, or an approved baseline by its name. Where left out: "
        "the spec's baseline if it has several targets, else what is approved under the experiment's name",
    )
    adjustment: Adjustment = Field(
        "holm", description="How the rules that can fail it are adjusted for being several; to pass, all must hold"
    )
    fewest: int = Field(20, ge=2, description="Of fewer examples (or clusters, where there are any) nothing is decided")
    bridge: BridgeSpec | None = Field(
        None, description="Where the baseline was judged by another judge: judge a sample of it anew, and correct"
    )
    batch: int | None = Field(
        None, ge=10, description="Look after every so many examples, by intervals that allow it, and stop when decided"
    )

    @model_validator(mode="after")
    def _rules_are_rules(self) -> "GateSpec":
        if not (self.guards or self.goals or self.floors or self.sure_floors):
            raise ValueError(f"gate {self.name!r}: got no rule, wanted some of guards, goals, floors, sure_floors")
        for kind in ("guards", "goals", "floors", "sure_floors"):
            for metric, bound in getattr(self, kind).items():
                if not math.isfinite(bound):
                    raise ValueError(f"{kind}: {metric}: got {bound}, wanted a number")
        for metric, margin in self.guards.items():
            if margin <= 0:
                raise ValueError(
                    f"guards: {metric}: got {margin:g}, wanted a margin above 0: without one, only a sure rise would "
                    "pass, which is a goal"
                )
        for metric, rise in self.goals.items():
            if rise < 0:
                raise ValueError(f"goals: {metric}: got {rise:g}, wanted 0 or more; what may fall is a guard")
        return self

    @property
    def compares(self) -> bool:
        """Whether it needs a baseline."""
        return bool(self.guards or self.goals)

    @property
    def metrics(self) -> list[str]:
        """All that it rests on."""
        return list(dict.fromkeys([*self.guards, *self.goals, *self.floors, *self.sure_floors]))
