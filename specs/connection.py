"""A connection: where a model is served, and how it may be used. The key itself never stands here."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Connection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, description="The model, where a target or an evaluator names none")
    attempts: int = Field(4, ge=1, description="How often one call is tried before its failure is kept")
    timeout_s: float = Field(120.0, gt=0, description="Seconds that one attempt may take")
    usd_per_million_input_tokens: float | None = Field(None, ge=0, description="Price; without one a cost is unknown")
    usd_per_million_output_tokens: float | None = Field(None, ge=0, description="Price; without one a cost is unknown")


class EndpointConnection(_Connection):
    """Any endpoint that speaks OpenAI's chat completions."""

    kind: Literal["endpoint"] = "endpoint"
    base_url: str = Field(description="Such as https://api.openai.com/v1")
    api_key_env: str | None = Field(None, description="The environment variable that holds the key")
    max_in_flight: int = Field(16, ge=1, description="Most calls under way at once, per process")


class LocalConnection(_Connection):
    """A small model on this machine: no key, no network, no cost."""

    kind: Literal["local"] = "local"
    gguf: str | None = Field(None, description="Path of a GGUF file; without one, the small model that is fetched once")
    context_tokens: int = Field(2048, ge=256, description="Tokens of prompt and answer together")
    max_in_flight: Literal[1] = 1
    usd_per_million_input_tokens: float | None = 0.0
    usd_per_million_output_tokens: float | None = 0.0


ConnectionSpec = Annotated[EndpointConnection | LocalConnection, Field(discriminator="kind")]
