"""The engine that runs the chunks of a run."""

from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from evalflows.specs.errors import InputError
from evalflows.specs.permitted import own_settings, restricted_folder

Engine = Literal["threads", "processes", "dask", "ray"]

PACKAGES = {"dask": "prefect_dask", "ray": "prefect_ray"}

SETTING = "allowed_clusters"
"""The list in `[tool.evalflows]` of the folder's pyproject.toml: addresses that a deployment's run may name."""


class TaskRunnerSpec(BaseModel, extra="forbid", frozen=True):
    """The engine that runs the chunks of a run."""

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


TaskRunner = Annotated[
    TaskRunnerSpec,
    BeforeValidator(as_task_runner),
    Field(description="The engine that runs the chunks: threads of this process, or processes of dask or ray"),
]
