"""A connection: where a model is served, and how it may be used. The key itself never stands here."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

AnswerForm = Literal["json_schema", "tool_call", "text"]
"""How an answer of a given shape is asked for: by a JSON schema; as the arguments of a tool, where a provider has no
schemas; as marks at the end of a text, where it has no tools either."""


class _Connection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, description="The model, where a target or an evaluator names none")
    embedding_model: str | None = Field(None, description="The model that makes vectors of texts, where none is named")
    attempts: int = Field(4, ge=1, description="How often one call is tried before its failure is kept")
    timeout_s: float = Field(120.0, gt=0, description="Seconds that one attempt may take as a whole")
    answer_form: AnswerForm = Field(
        "json_schema",
        description="How an answer of a given shape is asked for: by a JSON schema, or, where the provider has none, "
        "as a tool_call, or, where it has neither, as marks at the end of a text",
    )
    usd_per_million_input_tokens: float | None = Field(None, ge=0, description="Your own price; else the price list's")
    usd_per_million_output_tokens: float | None = Field(None, ge=0, description="Your own price; else the price list's")

    @model_validator(mode="after")
    def _both_prices(self) -> Self:
        if (self.usd_per_million_input_tokens is None) != (self.usd_per_million_output_tokens is None):
            raise ValueError("got one of usd_per_million_input_tokens and usd_per_million_output_tokens, wanted both")
        return self


class EndpointConnection(_Connection):
    """Any endpoint that speaks OpenAI's chat completions."""

    kind: Literal["endpoint"] = "endpoint"
    base_url: str = Field(description="Such as https://api.openai.com/v1")
    api_key_env: str | None = Field(None, description="The environment variable that holds the key")
    api_key_block: str | None = Field(None, description="The Prefect Secret block that holds the key")
    max_in_flight: int = Field(
        64, ge=1, description="Most calls under way at once, per process; how many there are is found out, below that"
    )
    requests_per_minute: float | None = Field(None, gt=0, description="Most calls begun in a minute, per process")
    tokens_per_minute: float | None = Field(None, gt=0, description="Most tokens in and out in a minute, per process")
    provider_limit: str | None = Field(
        None,
        description="A global concurrency limit of Prefect, by its name: most calls under way at once over all "
        "processes and runs",
    )
    connect_timeout_s: float = Field(10.0, gt=0, description="Seconds to wait for a connection")
    read_timeout_s: float | None = Field(
        None, gt=0, description="Seconds to wait for the next piece of an answer; as long as the whole where left out"
    )
    price_list: str | None = Field(
        None,
        description="Whose prices hold, where the address does not say: a provider of the price list, such as openai",
    )

    @model_validator(mode="after")
    def _one_key(self) -> "EndpointConnection":
        if self.api_key_env and self.api_key_block:
            raise ValueError("got api_key_env and api_key_block, wanted one of them")
        return self


class LocalConnection(_Connection):
    """A small model on this machine: no key, no network, no cost."""

    kind: Literal["local"] = "local"
    gguf: str | None = Field(None, description="Path of a GGUF file; without one, the small model that is fetched once")
    context_tokens: int = Field(2048, ge=256, description="Tokens of prompt and answer together")
    max_in_flight: Literal[1] = 1
    usd_per_million_input_tokens: float | None = 0.0
    usd_per_million_output_tokens: float | None = 0.0


ConnectionSpec = Annotated[EndpointConnection | LocalConnection, Field(discriminator="kind")]
