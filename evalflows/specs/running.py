"""Settings of every kind of run: its connections, its budget, and how it recovers from failures."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticSerializationError, to_json

from evalflows.specs.connections import Connections
from evalflows.specs.gate import Adjustment
from evalflows.specs.task_runner import TaskRunner, TaskRunnerSpec


class RunSettings(BaseModel):
    """Settings of every kind of run. A spec names it before its own fields' base, so that forms show those first."""

    connections: Connections
    budget_usd: float | None = Field(
        None, ge=0, description="Budget for model calls of the whole run, in USD; once spent, the run ends incomplete"
    )
    budget_counts_unknown: bool = Field(
        True,
        description="Whether budget_usd refuses model calls whose cost can be neither known nor estimated; if false, "
        "they are made, and not counted",
    )
    max_calls: int | None = Field(None, ge=0, description="Maximum number of paid model calls of the whole run")
    chunk_retries: int = Field(2, ge=0, le=10, description="How often Prefect retries a chunk with transient failures")
    chunk_retry_delay_s: float = Field(
        2.0, ge=0, description="Delay before the first retry, in seconds; doubles with each retry"
    )
    breaker_window: int = Field(
        20, ge=2, description="Circuit breaker: pause if more than half of this many latest items failed"
    )
    breaker_pause_s: float = Field(
        10.0, gt=0, description="Seconds that the circuit breaker waits before it tries one item"
    )
    use_cache: bool = Field(
        True,
        description="Reuse identical model calls of other runs from the ledger; if false, make and pay for every call",
    )
    task_runner: TaskRunner = TaskRunnerSpec()


class ComparedRunSettings(RunSettings):
    """Settings of runs whose systems are compared by tests, and which a key continues."""

    confidence_level: float = Field(0.95, gt=0.5, lt=1, description="Confidence level of the intervals")
    adjustment: Adjustment = Field(
        "holm", description="How p-values are adjusted for multiple comparisons; verdicts use the adjusted ones"
    )
    chunk_size: int | None = Field(
        None, ge=1, description="Items per Prefect task run; default: chosen by the number of items"
    )
    run_key: str | None = Field(
        None, min_length=1, description="Runs with the same key are one run: starting it again resumes it"
    )


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
