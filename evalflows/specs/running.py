"""Settings of every kind of run: its connections, its budget, how it recovers from failures, and the engine that runs
its chunks; and lists in specs: one item stands for a list of it, and no two have the same name."""

from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticSerializationError, to_json

from evalflows.specs.connections import Connections, Mode
from evalflows.specs.errors import InputError
from evalflows.specs.gate import Adjustment
from evalflows.specs.model import SpecModel
from evalflows.specs.permitted import own_settings, restricted_folder

Engine = Literal["threads", "processes", "dask", "ray"]

PACKAGES = {"dask": "prefect_dask", "ray": "prefect_ray"}

SETTING = "allowed_clusters"
"""The list in `[tool.evalflows]` of the folder's pyproject.toml: addresses that a deployment's run may name."""


class TaskRunnerSpec(SpecModel):
    """The engine that runs the chunks of a run."""

    kind: Engine = Field(
        "threads",
        description="threads of the run's process, further processes for rules over recorded answers or production, "
        "or processes of dask or ray",
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


TaskRunner = Annotated[
    TaskRunnerSpec,
    BeforeValidator(as_task_runner),
    Field(description="The engine that runs the chunks: threads of this process, or processes of dask or ray"),
]


class RunSettings(SpecModel):
    """Settings of every kind of run. A spec names it before its own fields' base, so that forms show those first."""

    connections: Connections
    budget_usd: float | None = Field(
        None, ge=0, description="Budget for model calls of the whole run, in USD; once spent, the run ends incomplete"
    )
    budget_counts_unknown: bool = Field(
        True,
        description="Whether budget_usd refuses model calls whose cost is unknown and cannot be estimated; if false, "
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
    mode: Mode | None = Field(
        None,
        description="How model calls are made, unless a target or an evaluator sets it: direct, or batch, by the "
        "provider's batch interface within a day; default: the connection's setting",
    )
    batch_wait_s: float | None = Field(
        None,
        ge=0,
        description="Longest wait for open batches, in seconds; after it the run ends, and can be resumed; default: "
        "until they have ended",
    )


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


def _as_list(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


ONE_OR_MORE = BeforeValidator(_as_list)


def check_unique(where: str, names: Iterable[str], two: str = "two") -> None:
    """Raise ValueError, beginning with `where`, if two names are the same; `two` says in words what has them."""
    duplicate = next((name for name, count in Counter(names).items() if count > 1), None)
    if duplicate is not None:
        raise ValueError(f"{where}: {two} are called {duplicate!r}, wanted unique names")
