"""An evaluator: a function that judges, or several that judge one after the other."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

CASCADE = "cascade"
"""What an evaluator uses that is made of tiers."""

Rate = Annotated[float, Field(gt=0, le=1)]


def as_key(value: object) -> str:
    """A value of an example as a key of `sample_rates`: a text or a date as it is, else as JSON has it, 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_json = value is None or isinstance(value, int | float | list | dict)
    return json.dumps(value, sort_keys=True) if is_json else str(value)


def _keyed(rates: object) -> object:
    """YAML reads the keys `1`, `true` and `null` as what they are in the examples too."""
    return {as_key(key): rate for key, rate in rates.items()} if isinstance(rates, dict) else rates


class FallbackSpec(BaseModel):
    """Which function judges, with which settings. A bare string is short for `use`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    use: str = Field(description='The short name of one of ours, or "module:name"')
    name: str = Field("", description="What its score is called; the function's own name where left out")
    args: dict[str, Any] = Field(default_factory=dict, description="Settings, passed by name")
    connection: str | None = Field(None, description="The connection that `complete` uses")
    model: str | None = Field(None, description="The model that `complete` asks; the connection's own where left out")
    version: str | None = Field(None, description="A version of your own, kept beside the hash of the source")
    timeout_s: float | None = Field(
        None,
        gt=0,
        description="Seconds that one judgement may take, without the model calls that it asks for by `complete`. A "
        "plain function runs in a process of its own then, which is ended",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"use": value} if isinstance(value, str) else value

    @property
    def metric(self) -> str:
        """The name of the score, unless the function returns a name itself."""
        return self.name or self.use.rpartition(":")[2].rpartition(".")[2]


class TierSpec(FallbackSpec):
    """One tier of a cascade: an evaluator, and which of its scores are final.

    Where nothing is said, every score is; what it does not apply to is always left to the next tier.
    """

    decides: list[float | str] = Field(
        default_factory=list, description="The scores that are final: numbers, labels; true is 1 and false is 0"
    )
    decides_from: float | None = Field(None, description="Scores of at least this are final")
    decides_to: float | None = Field(None, description="Scores of at most this are final")

    @model_validator(mode="after")
    def _leaves_something_open(self) -> "TierSpec":
        high, low = self.decides_from, self.decides_to
        if high is not None and low is not None and high <= low:
            raise ValueError(f"decides_from: got {high:g} with decides_to {low:g}, which is every score")
        return self

    def is_final(self, value: float | None, label: str | None) -> bool:
        """Whether a score is what this tier decides."""
        if not self.decides and self.decides_from is None and self.decides_to is None:
            return value is not None or label is not None
        if value is None:
            return label in self.decides
        high = self.decides_from is not None and value >= self.decides_from
        low = self.decides_to is not None and value <= self.decides_to
        return high or low or value in self.decides or (label is not None and label in self.decides)


class EvaluatorSpec(FallbackSpec):
    """An evaluator of an experiment."""

    tiers: list[TierSpec] = Field(
        default_factory=list,
        description="With `use: cascade`: evaluators in their order, the cheapest first. Each judges what those before "
        "it left open; `decided_by` says whose score it is",
    )
    sample_rate: Rate | None = Field(
        None, description="The share of the examples that is judged, drawn by their ids; all where left out"
    )
    sample_seed: int = Field(0, description="Another seed draws others; the same one the same, for every evaluator")
    sample_by: str | None = Field(
        None, description="A field of the examples, such as metadata.risk, for each of whose values there may be a rate"
    )
    sample_rates: Annotated[dict[str, Rate], BeforeValidator(_keyed)] = Field(
        default_factory=dict, description="Value of that field: rate; the others have sample_rate. Means weigh them"
    )

    controls: int | None = Field(
        None,
        ge=2,
        description="Try a judge of correctness on so many right and so many wrong answers: the references, and those "
        "of other examples. What an unfit judge says decides nothing",
    )
    fallback: FallbackSpec | None = Field(
        None,
        description="The evaluator that judges where this one is down; its scores bear this one's name, and say in "
        "`decided_by` who gave them",
    )

    @model_validator(mode="after")
    def _hangs_together(self) -> "EvaluatorSpec":
        if (self.use == CASCADE) != bool(self.tiers):
            got = f"use: {self.use}" + (" with tiers" if self.tiers else " without")
            raise ValueError(f"tiers: got {got}, wanted use: {CASCADE} and tiers, or neither")
        own = {"args", "connection", "model", "timeout_s", "fallback"}
        if self.tiers and (given := sorted(name for name in own if getattr(self, name))):
            raise ValueError(
                f"tiers: got {given[0]} beside them; a tier takes use, name, args, connection, model, timeout_s"
            )
        if self.sample_rates and not self.sample_by:
            raise ValueError("sample_rates: wanted sample_by, the field that they are of")
        if self.sample_by and not self.sample_rates:
            raise ValueError("sample_by: wanted sample_rates, its values with a rate each")
        return self

    @property
    def is_sampled(self) -> bool:
        return self.sample_rate is not None or bool(self.sample_rates)
