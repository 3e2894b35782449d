"""A target: the system under test, inputs -> outputs."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Target(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field("target", description="What this variant is called in results", min_length=1)


class ChatTarget(_Target):
    """One chat completion for each example."""

    kind: Literal["chat"]
    connection: str = Field("openai", description="The connection's name")
    model: str | None = Field(None, description="The model; the connection's own where left out")
    system: str | None = Field(None, description="System message; {field} is filled from the inputs")
    user: str | None = Field(None, description="User message; left out, the only field of the inputs is sent as it is")
    temperature: float | None = Field(None, ge=0)
    max_tokens: int | None = Field(None, ge=1, description="Most tokens of an answer")
    seed: int | None = None
    extra: dict[str, Any] = Field(default_factory=dict, description="Further parameters of the request, as they are")

    @model_validator(mode="after")
    def _extra_is_extra(self) -> "ChatTarget":
        taken = self.extra.keys() & {"model", "messages", "temperature", "max_tokens", "seed", "schema", "repeat"}
        if taken:
            raise ValueError(f"extra: got {min(taken)!r}, wanted only what has no field of its own")
        return self


class PythonTarget(_Target):
    """A function of the user's, plain or async."""

    kind: Literal["python"]
    function: str = Field(description='Where it is: "module:name"')


class RecordedTarget(_Target):
    """Answers that were given before, from a JSONL file of {"id" or "inputs", "outputs"}."""

    kind: Literal["recorded"]
    path: str = Field(description="The JSONL file")


TargetSpec = Annotated[ChatTarget | PythonTarget | RecordedTarget, Field(discriminator="kind")]
