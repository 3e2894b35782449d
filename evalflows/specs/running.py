"""Fields of a spec about how it runs: budget, concurrency, failure handling and statistics."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticSerializationError, to_json

from evalflows.specs.gate import Adjustment

ConfidenceLevel = Annotated[float, Field(gt=0.5, lt=1, description="Confidence level of the intervals")]
Adjusted = Annotated[
    Adjustment,
    Field(description="How p-values are adjusted for multiple comparisons; verdicts use the adjusted ones"),
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
