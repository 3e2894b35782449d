"""What the rows of experiments and comparisons record about their start: the flow run, the code, the spec."""

from datetime import datetime
from importlib.metadata import version
from typing import Any

from prefect.context import FlowRunContext

from evalflows.execution.git_revision import revision
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.records import ComparisonSetRow, ExperimentRow, after, dependent_id, new_id, to_json


def flow_run_id() -> str | None:
    """Return the id of the current flow run; None outside of one."""
    context = FlowRunContext.get()
    return str(context.flow_run.id) if context and context.flow_run else None


def id_of_start(kind: str) -> str:
    """Return an id for the experiment or comparison to start: stable if the flow run is re-run, new outside a flow."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.created is None:
        return new_id(kind)
    return dependent_id(kind, context.flow_run.created, "flow_run", str(context.flow_run.id))


def start_columns(
    spec: ExperimentSpec | ComparisonSpec,
    before: ExperimentRow | ComparisonSetRow | None,
    newest: datetime | None,
) -> dict[str, Any]:
    """Return the columns that experiments and comparisons share; a resumed one keeps its start time.

    `newest` is when the newest one of that name was started: a new one starts later, whatever the clock says.
    """
    code, recorded_at = revision(), after(before.recorded_at if before else newest)
    return {
        "run_key": spec.run_key,
        "description": spec.description or None,
        "metadata": to_json(spec.model_dump(mode="json")["metadata"]) if spec.metadata else None,
        "tags": spec.tags,
        "spec": spec.model_dump_json(),
        "git_commit": code.commit,
        "git_branch": code.branch,
        "git_dirty": code.dirty,
        "evalflows_version": version("evalflows"),
        "flow_run_id": flow_run_id(),
        "state": "running",
        "budget_usd": spec.budget_usd,
        "max_calls": spec.max_calls,
        "started_at": before.started_at if before else recorded_at,
        "recorded_at": recorded_at,
    }
