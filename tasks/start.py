"""Start, resume and describe work that has an owner in the store: experiments and comparisons."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any, Literal, TypeVar

from prefect.context import FlowRunContext

from evalflows.engine.chunks import n_trials
from evalflows.engine.prepare import id_of_run_key, without_live_references
from evalflows.engine.revision import Revision
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import UNREACHABLE
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.erasing import refuse_erased
from evalflows.store.queries.progress import open_work
from evalflows.store.records import ComparisonSetRow, ExperimentRow, after, dependent_id, new_id, to_json
from evalflows.store.row_specs import comparison_spec, experiment_spec
from evalflows.store.schemas import COMPARISON_TABLES, EXPERIMENT_TABLES
from evalflows.store.spool import ENDING_S, recover
from evalflows.store.store import Store

Row = TypeVar("Row", bound=ExperimentRow | ComparisonSetRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an experiment or a comparison is stored as, and what makes it complete."""

    owner: str
    called: str  # in messages
    table: str  # of its own row
    tables: Sequence[str]  # in the order of sealing: that of its own row last
    results: Sequence[str]  # those that have rows once it is complete
    snapshots: Sequence[str]
    answers: int  # that it makes itself
    planned: int  # judgements by each evaluator
    evaluators: Sequence[str]  # names of what judges every subject
    summaries: Sequence[str] = ()  # names of what judges it as a whole


def work_of(row: ExperimentRow | ComparisonSetRow) -> Work:
    """Return the description of an experiment or a comparison."""
    if isinstance(row, ComparisonSetRow):
        return Work(
            owner=row.comparison_id,
            called=f"comparison {row.name!r} ({row.comparison_id})",
            table="comparison_sets",
            tables=COMPARISON_TABLES,
            results=["judgements"],
            snapshots=row.snapshot_ids,
            answers=0,
            planned=n_trials(row),
            evaluators=[one.metric for one in comparison_spec(row).evaluators],  # none of votes, which are whole
        )
    spec, runs = experiment_spec(row), row.n_examples * row.repetitions
    return Work(
        owner=row.experiment_id,
        called=f"experiment {row.name!r} ({row.experiment_id})",
        table="experiments",
        tables=EXPERIMENT_TABLES,
        results=["outputs", *(["judgements"] if json.loads(row.evaluators) else [])],
        snapshots=[row.snapshot_id],
        answers=runs,
        planned=runs,
        evaluators=[*(one.metric for one in spec.evaluators), *(composite.name for composite in spec.composites)],
        summaries=[one.metric for one in spec.summary_evaluators],
    )


def opened(store: Store, row: Row, *, is_same: bool = True) -> Row:
    """Open an experiment or a comparison with the spooled rows of a dead process, and return its row.

    One that is finished, and whose plan `is_same`, stays sealed and is returned as it is. Raise InputError if examples
    of its snapshots were erased.
    """
    work = work_of(row)
    recover(store, work.owner, ENDING_S)
    is_sealed = all(store.is_sealed(table, work.owner) for table in (work.table, *work.results))
    if is_sealed and is_same and not open_work(store, work.owner, UNREACHABLE):
        finished: Row = store.read(work.table, work.owner)[0]
        # A version that went by a clock that was set back sealed experiments as running.
        if finished.state != "running":
            return finished
    for snapshot in work.snapshots:
        refuse_erased(store, snapshot)
    store.reopen(work.owner, tuple(reversed(work.tables)))
    store.append(work.table, work.owner, "start", [row])
    return row


def changed(before: Row, row: Row, columns: Iterable[str]) -> Iterator[str]:
    """Yield those of some columns in which a resumed experiment or comparison differs from its first start."""
    for name in columns:
        old, new = getattr(before, name), getattr(row, name)
        if old != new and not (name == "evaluators" and without_live_references(old) == without_live_references(new)):
            yield name


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


def start_id(spec: ExperimentSpec | ComparisonSpec) -> str:
    """Return the id of the run group, or of the comparison, that a spec starts: the same for a run key, and for a
    re-run flow run.
    """
    kind: Literal["group", "cmp"] = "group" if isinstance(spec, ExperimentSpec) else "cmp"
    return id_of_start(kind) if spec.run_key is None else id_of_run_key(kind, spec.run_key)


def start_columns(
    spec: ExperimentSpec | ComparisonSpec,
    before: ExperimentRow | ComparisonSetRow | None,
    newest: datetime | None,
    checkout: Revision,
) -> dict[str, Any]:
    """Return the columns that experiments and comparisons share; a resumed one keeps its start time.

    `newest` is when the newest one of that name was started: a new one starts later, whatever the clock says.
    `checkout` is the state of the git checkout.
    """
    recorded_at = after(before.recorded_at if before else newest)
    return {
        "run_key": spec.run_key,
        "description": spec.description or None,
        "metadata": to_json(spec.model_dump(mode="json")["metadata"]) if spec.metadata else None,
        "tags": spec.tags,
        "spec": spec.model_dump_json(),
        "git_commit": checkout.commit,
        "git_branch": checkout.branch,
        "git_dirty": checkout.dirty,
        "evalflows_version": version("evalflows"),
        "flow_run_id": flow_run_id(),
        "state": "running",
        "budget_usd": spec.budget_usd,
        "max_calls": spec.max_calls,
        "started_at": before.started_at if before else recorded_at,
        "recorded_at": recorded_at,
    }
