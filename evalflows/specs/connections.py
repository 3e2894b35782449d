"""Connections: where models are called, and under which limits."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from evalflows.specs.addresses import check_address, check_headers, secret_in
from evalflows.specs.model import SpecModel

AnswerForm = Literal["json_schema", "tool_call", "text"]
"""How structured output is requested: by a JSON schema, as tool arguments if the provider supports no schemas, or as
tags at the end of the text if it supports no tools either."""


Mode = Literal["direct", "batch"]
"""How calls are made: each at once, or together by the provider's batch interface."""


class BatchSpec(SpecModel):
    """How a provider's batch interface is used. Defaults are OpenAI's limits and price."""

    rows: int = Field(50_000, ge=1, description="Maximum number of calls in a batch")
    mb: float = Field(200.0, gt=0, description="Maximum size of a batch's file, in megabytes")
    price: float = Field(
        0.5, ge=0, le=1, description="The price of a call in a batch, as a share of the price of a direct call"
    )
    attempts: int = Field(
        3, ge=1, description="Maximum number of batches to which an expired or unprocessed call is submitted"
    )
    then: Literal["fail", "direct"] = Field(
        "fail", description="Whether a call that no batch has answered fails, or is made directly"
    )
    poll_s: float = Field(
        10.0, gt=0, description="Seconds until a batch is first polled; the interval grows to at most 300"
    )


class _Connection(SpecModel):
    model: str | None = Field(None, description="The model to use if a target or an evaluator does not name one")
    embedding_model: str | None = Field(None, description="The embedding model to use if none is named")
    attempts: int = Field(4, ge=1, description="Maximum number of attempts per call")
    timeout_s: float = Field(120.0, gt=0, description="Total timeout of one attempt, in seconds")
    max_wait_s: float = Field(
        600.0, ge=0, description="Longest wait before another attempt that a provider may request, in seconds"
    )
    max_response_mb: float = Field(64.0, gt=0, description="Maximum size of a decompressed response, in megabytes")
    answer_form: AnswerForm = Field(
        "json_schema",
        description="How structured output is requested: by a JSON schema; as a tool_call if the provider supports no "
        "schemas; or as tags at the end of the text if it supports neither",
    )
    usd_per_million_input_tokens: float | None = Field(
        None, ge=0, description="Your own price; default: from the price list"
    )
    usd_per_million_output_tokens: float | None = Field(
        None, ge=0, description="Your own price; default: from the price list"
    )
    usd_per_million_cached_tokens: float | None = Field(
        None,
        ge=0,
        description="Your own price of input tokens that the provider had cached; default: as for other input",
    )

    @model_validator(mode="after")
    def _both_prices(self) -> Self:
        if self.usd_per_million_cached_tokens is not None and self.usd_per_million_input_tokens is None:
            raise ValueError("usd_per_million_cached_tokens: wanted only with usd_per_million_input_tokens")
        if (self.usd_per_million_input_tokens is None) != (self.usd_per_million_output_tokens is None):
            raise ValueError("got one of usd_per_million_input_tokens and usd_per_million_output_tokens, wanted both")
        return self


class HashableHeaders(dict[str, str]):
    """The HTTP headers of a connection, which is a key of what this process shares."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class RemoteConnection(_Connection):
    """A connection over HTTP: with an address, a key and limits."""

    api: ClassVar[str] = "the endpoint"
    """Whose protocol it is, in messages."""
    lacks: ClassVar[frozenset[str]] = frozenset()
    """OpenAI's parameters that the protocol has nothing for."""

    base_url: str = Field(
        description="The base URL, such as https://api.openai.com/v1; a query, such as ?api-version=…, is sent with "
        "each call"
    )
    headers: Annotated[dict[str, str], AfterValidator(HashableHeaders)] = Field(
        default_factory=HashableHeaders,
        description="Further HTTP headers; ${NAME} in a value is an environment variable",
    )
    api_key_env: str | None = Field(None, description="The environment variable that holds the key")
    api_key_block: str | None = Field(None, description="The Prefect Secret block that holds the key")
    max_in_flight: int = Field(
        64, ge=1, description="Maximum number of concurrent calls, per process; the actual number adapts below that"
    )
    requests_per_minute: float | None = Field(None, gt=0, description="Maximum number of calls per minute, per process")
    tokens_per_minute: float | None = Field(
        None, gt=0, description="Maximum number of input and output tokens per minute, per process"
    )
    provider_limit: str | None = Field(
        None,
        description="The name of a Prefect global concurrency limit: maximum number of concurrent calls over all "
        "processes and flow runs",
    )
    connect_timeout_s: float = Field(10.0, gt=0, description="Timeout for connecting, in seconds")
    read_timeout_s: float | None = Field(
        None, gt=0, description="Timeout for the next piece of a response, in seconds; default: timeout_s"
    )
    mode: Mode = Field("direct", description="How calls are made: direct, or batch, by the provider's batch interface")
    batch: BatchSpec = Field(BatchSpec.model_construct(), description="How the provider's batch interface is used")
    """Constructed, since a validator for its defaults would take a twentieth of the time to load the specs."""
    price_list: str | None = Field(
        None,
        description="The provider in the price list whose prices apply, such as openai; default: inferred from "
        "base_url",
    )

    @model_validator(mode="after")
    def _no_secret_in_the_address(self) -> Self:
        if secret := secret_in(self.base_url):
            raise ValueError(f"base_url: got {secret} in it, wanted the key in api_key_env or api_key_block")
        check_address(self.base_url, "base_url")
        check_headers(self.headers)
        return self

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.api_key_env and self.api_key_block:
            raise ValueError("got api_key_env and api_key_block, wanted one of them")
        return self

    def refusal(self, parameters: Mapping[str, Any]) -> str | None:
        """Return what the protocol does not have of a request's parameters; None if it has all."""
        lacking = [name for name, value in parameters.items() if name in self.lacks and value is not None]
        return f"`{lacking[0]}` is not supported by {self.api}" if lacking else None


class EndpointConnection(RemoteConnection):
    """Any endpoint with OpenAI's chat completions API."""

    kind: Literal["endpoint"] = "endpoint"


def _with_key(fields: Any, variable: str) -> Any:
    """Return a connection's fields with its provider's variable, unless they say where the key comes from."""
    if not isinstance(fields, Mapping) or "api_key_env" in fields or fields.get("api_key_block"):
        return fields
    return {**fields, "api_key_env": variable}


class AnthropicConnection(RemoteConnection):
    """Anthropic's Messages API, by its SDK."""

    api: ClassVar[str] = "Anthropic's API"
    lacks: ClassVar[frozenset[str]] = frozenset(
        (
            *("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "modalities", "n"),
            *("prediction", "presence_penalty", "prompt_cache_key", "seed", "store", "stream", "top_logprobs"),
            *("verbosity", "web_search_options"),
        )
    )

    kind: Literal["anthropic"] = "anthropic"
    base_url: str = Field("https://api.anthropic.com", description="The base URL, without /v1")
    price_list: str | None = Field("anthropic", description="The provider in the price list whose prices apply")
    prompt_caching: bool = Field(
        True,
        description="Mark a long system prompt, or a long first part of the messages, for the provider's cache: "
        "writing it costs a quarter more than other input, and reading it a tenth",
    )

    @model_validator(mode="before")
    @classmethod
    def _has_a_key(cls, fields: Any) -> Any:
        return _with_key(fields, "ANTHROPIC_API_KEY")

    @field_validator("embedding_model")
    @classmethod
    def _no_embeddings(cls, model: str | None) -> str | None:
        if model is not None:
            raise ValueError(f"got {model!r}, wanted none: {cls.api} has no embeddings")
        return model


class GoogleConnection(RemoteConnection):
    """Google's Gemini API, by its SDK."""

    api: ClassVar[str] = "Google's API"
    lacks: ClassVar[frozenset[str]] = frozenset(
        (
            *("audio", "function_call", "functions", "logit_bias", "logprobs", "modalities", "n", "prediction"),
            *("parallel_tool_calls", "prompt_cache_key", "store", "stream", "top_logprobs", "user", "verbosity"),
            "web_search_options",
        )
    )

    kind: Literal["google"] = "google"
    base_url: str = Field("https://generativelanguage.googleapis.com", description="The base URL, without /v1beta")
    price_list: str | None = Field("google", description="The provider in the price list whose prices apply")

    @model_validator(mode="before")
    @classmethod
    def _has_a_key(cls, fields: Any) -> Any:
        return _with_key(fields, "GEMINI_API_KEY")


class LocalConnection(_Connection):
    """A small model on this machine: no API key, no network, no cost."""

    kind: Literal["local"] = "local"
    gguf: str | None = Field(None, description="Path of a GGUF file; default: a small model that is downloaded once")
    context_tokens: int = Field(2048, ge=256, description="Context size: tokens of prompt and answer together")
    max_in_flight: Literal[1] = 1
    usd_per_million_input_tokens: float | None = 0.0
    usd_per_million_output_tokens: float | None = 0.0


ConnectionSpec = Annotated[
    EndpointConnection | AnthropicConnection | GoogleConnection | LocalConnection, Field(discriminator="kind")
]

Connections = Annotated[
    dict[str, ConnectionSpec],
    Field(default_factory=dict, description="Connections by name, in addition to openai and local"),
]
