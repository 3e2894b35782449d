"""Fields of a spec about how it runs: connections, engine, budget, concurrency, failure handling, statistics and
score configs.
"""

import math
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticSerializationError, to_json

from evalflows.specs.errors import InputError, short
from evalflows.specs.files import check_address, check_headers, secret_in
from evalflows.specs.gate import Adjustment
from evalflows.specs.permitted import own_settings, restricted_folder

AnswerForm = Literal["json_schema", "tool_call", "text"]
"""How structured output is requested: by a JSON schema, as tool arguments if the provider supports no schemas, or as
tags at the end of the text if it supports no tools either."""


class _Connection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, description="The model to use if a target or an evaluator does not name one")
    embedding_model: str | None = Field(None, description="The embedding model to use if none is named")
    attempts: int = Field(4, ge=1, description="Maximum number of attempts per call")
    timeout_s: float = Field(120.0, gt=0, description="Total timeout of one attempt, in seconds")
    max_wait_s: float = Field(
        600.0, ge=0, description="Longest wait before another attempt that a provider may ask for, in seconds"
    )
    max_response_mb: float = Field(64.0, gt=0, description="Largest response that is read, unpacked, in megabytes")
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

    @model_validator(mode="after")
    def _both_prices(self) -> Self:
        if (self.usd_per_million_input_tokens is None) != (self.usd_per_million_output_tokens is None):
            raise ValueError("got one of usd_per_million_input_tokens and usd_per_million_output_tokens, wanted both")
        return self


class HashableHeaders(dict[str, str]):
    """The HTTP headers of a connection, which is a key of what this process shares."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class EndpointConnection(_Connection):
    """Any endpoint with OpenAI's chat completions API."""

    kind: Literal["endpoint"] = "endpoint"
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
    price_list: str | None = Field(
        None,
        description="The provider in the price list whose prices apply, such as openai; default: inferred from "
        "base_url",
    )

    @model_validator(mode="after")
    def _no_secret_in_the_address(self) -> "EndpointConnection":
        if part := secret_in(self.base_url):
            raise ValueError(f"base_url: got {part} in it, wanted the key in api_key_env or api_key_block")
        check_address(self.base_url, "base_url")
        check_headers(self.headers)
        return self

    @model_validator(mode="after")
    def _one_key(self) -> "EndpointConnection":
        if self.api_key_env and self.api_key_block:
            raise ValueError("got api_key_env and api_key_block, wanted one of them")
        return self


class LocalConnection(_Connection):
    """A small model on this machine: no API key, no network, no cost."""

    kind: Literal["local"] = "local"
    gguf: str | None = Field(None, description="Path of a GGUF file; default: a small model that is downloaded once")
    context_tokens: int = Field(2048, ge=256, description="Context size: tokens of prompt and answer together")
    max_in_flight: Literal[1] = 1
    usd_per_million_input_tokens: float | None = 0.0
    usd_per_million_output_tokens: float | None = 0.0


ConnectionSpec = Annotated[EndpointConnection | LocalConnection, Field(discriminator="kind")]


class CategorySpec(BaseModel):
    """An allowed label. A plain string is short for `label`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str = Field(min_length=1)
    value: float | None = Field(None, description="The number for this label in other systems; never averaged")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"label": value} if isinstance(value, str) else value


class ScoreConfigSpec(BaseModel):
    """The allowed values of a score. An invalid score becomes a failed row."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


Engine = Literal["threads", "processes", "dask", "ray"]

PACKAGES = {"dask": "prefect_dask", "ray": "prefect_ray"}

SETTING = "allowed_clusters"
"""The list in `[tool.evalflows]` of the folder's pyproject.toml: addresses that a deployment's run may name."""


class TaskRunnerSpec(BaseModel):
    """The engine that runs the chunks of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Engine = Field(
        "threads",
        description="threads of the run's own process, processes beside it for rules over recorded answers or "
        "production, or processes of dask or ray",
    )
    processes: int | None = Field(
        None, ge=1, le=1024, description="Number of processes of a cluster on this machine; default: one per core"
    )
    address: str | None = Field(
        None, min_length=1, description="Address of a running cluster to use instead, such as tcp://host:8786"
    )

    @model_validator(mode="after")
    def _fits(self) -> "TaskRunnerSpec":
        if self.kind == "threads" and (self.processes is not None or self.address is not None):
            raise ValueError("task_runner: got threads with processes or an address, wanted kind dask or ray")
        if self.kind == "processes" and self.address is not None:
            raise ValueError("task_runner: got processes with an address, wanted kind dask or ray")
        if self.processes is not None and self.address is not None:
            raise ValueError("task_runner: got processes and an address, wanted one of them")
        return self

    @property
    def is_elsewhere(self) -> bool:
        """Whether tasks run in other processes than that of the run."""
        return self.kind in PACKAGES

    @property
    def imports_code(self) -> bool:
        """Whether other processes import what chunks call."""
        return self.kind != "threads"


def as_task_runner(value: object) -> object:
    """Return the spec of an engine that may be given by its kind alone."""
    return {"kind": value} if isinstance(value, str) else value


def check_task_runner(spec: TaskRunnerSpec) -> None:
    """Raise InputError if an engine is not installed, or if a deployment's run may not use its cluster."""
    if not spec.is_elsewhere:
        return
    package = PACKAGES[spec.kind]
    if find_spec(package) is None:
        raise InputError(
            f"task_runner: {spec.kind} needs the package {package.replace('_', '-')}: "
            f"pip install 'evalflows[{spec.kind}]'"
        )
    if spec.address is not None and (folder := restricted_folder()) is not None:
        file = folder / "pyproject.toml"
        allowed = own_settings(file).get(SETTING, [])
        if not isinstance(allowed, list) or spec.address not in allowed:
            raise InputError(
                f"task_runner: address: got {spec.address!r}, in a deployment's run wanted one listed under {SETTING} "
                f"of [tool.evalflows] in {file}"
            )


ConfidenceLevel = Annotated[float, Field(gt=0.5, lt=1, description="Confidence level of the intervals")]
Adjusted = Annotated[
    Adjustment,
    Field(description="How p-values are adjusted for multiple comparisons; verdicts use the adjusted ones"),
]
Connections = Annotated[
    dict[str, ConnectionSpec],
    Field(default_factory=dict, description="Connections by name, in addition to openai and local"),
]
ChunkSize = Annotated[
    int | None,
    Field(ge=1, description="Items per Prefect task run; default: chosen by the number of items"),
]
ChunkRetries = Annotated[
    int, Field(ge=0, le=10, description="How often Prefect retries a chunk with transient failures")
]
ChunkRetryDelay = Annotated[
    float, Field(ge=0, description="Delay before the first retry, in seconds; doubles with each retry")
]
BudgetUsd = Annotated[
    float | None,
    Field(ge=0, description="Budget for model calls of the whole run, in USD; once spent, the run ends incomplete"),
]
BudgetCountsUnknown = Annotated[
    bool,
    Field(
        description="Whether budget_usd refuses model calls whose cost can be neither known nor estimated; if false, "
        "they are made, and not counted"
    ),
]
MaxCalls = Annotated[int | None, Field(ge=0, description="Maximum number of paid model calls of the whole run")]
BreakerWindow = Annotated[
    int,
    Field(ge=2, description="Circuit breaker: pause if more than half of this many latest items failed"),
]
BreakerPause = Annotated[
    float, Field(gt=0, description="Seconds that the circuit breaker waits before it tries one item")
]
RunKey = Annotated[
    str | None,
    Field(min_length=1, description="Runs with the same key are one run: starting it again resumes it"),
]
UseCache = Annotated[
    bool,
    Field(
        description="Reuse identical model calls of other runs from the ledger; if false, make and pay for every call"
    ),
]

TaskRunner = Annotated[
    TaskRunnerSpec,
    BeforeValidator(as_task_runner),
    Field(description="The engine that runs the chunks: threads of this process, or processes of dask or ray"),
]


def _is_json(metadata: dict[str, Any]) -> dict[str, Any]:
    try:
        to_json(metadata)
    except PydanticSerializationError as error:
        raise ValueError(f"not JSON: {' '.join(str(error).split())}") from error
    return metadata


Metadata = Annotated[
    dict[str, Any],
    AfterValidator(_is_json),
    Field(default_factory=dict, description="Any further information to store with it"),
]
