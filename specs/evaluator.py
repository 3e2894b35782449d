"""An evaluator: a function that judges."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class FallbackSpec(BaseModel):
    """Which function judges, with which settings. A bare string is short for `use`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    use: str = Field(description='The short name of one of ours, or "module:name"')
    name: str = Field("", description="What its score is called; the function's own name where left out")
    args: dict[str, Any] = Field(default_factory=dict, description="Settings, passed by name")
    connection: str | None = Field(None, description="The connection that `complete` uses")
    model: str | None = Field(None, description="The model that `complete` asks; the connection's own where left out")
    version: str | None = Field(None, description="A version of your own, kept beside the hash of the source")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"use": value} if isinstance(value, str) else value

    @property
    def metric(self) -> str:
        """The name of the score, unless the function returns a name itself."""
        return self.name or self.use.rpartition(":")[2].rpartition(".")[2]


class EvaluatorSpec(FallbackSpec):
    """An evaluator of an experiment."""

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
