"""Starting experiments, or going on with those that were started."""

import json
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext

from evaluators.call import Level
from specs.errors import UNREACHABLE, InputError
from specs.evaluator import EvaluatorSpec
from specs.experiment import ExperimentSpec
from specs.target import TargetSpec
from store.parquet import Store
from store.progress import open_work
from store.records import ExperimentRow, dependent_id, new_id, now, to_json
from store.repository import revision
from store.schemas import EXPERIMENT_TABLES
from store.spool import recover
from tasks.chunk import chunk_size
from tasks.experiment import forget
from tasks.provider_limit import limit_name, limit_size
from tasks.resolve import bind_evaluator, composite_version, evaluator_version, target_version

SAME = ("snapshot_id", "repetitions", "target_version", "evaluators")
"""What must not differ between the parts of one experiment."""

SAMPLE = {"sample_rate", "sample_seed", "sample_by", "sample_rates"}
"""What says which examples an evaluator judges: it is no part of its version, but of an experiment."""

ORDER_SEED = 0
"""Of the order in which examples run, where a gate looks after each batch: what comes first must be a fair sample."""

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@task(cache_policy=NO_CACHE, persist_result=False)
def start_experiments(spec: ExperimentSpec, resume: str | None = None) -> list[ExperimentRow]:
    """One experiment a target, begun or gone on with; one with nothing left to do is as it was.

    Gone on with are those of the run group `resume`, of the same run key, or of this very flow run, run again.

    Raises InputError where such an experiment was made from something else than this spec, and for a limit that
    Prefect does not know.
    """
    for connection in spec.connections.values():
        if name := limit_name(connection):
            limit_size(name)
    store, group = Store(), resume or run_group(spec)
    if resume and not store.query("select 1 from source.experiments where run_group = ? limit 1", [resume]):
        raise InputError(f"resume: got {resume!r}, wanted the run group of experiments in {store.layout.root}")
    rows = [_row(store, spec, target, group) for target in spec.targets]
    return [_begin(store, row) for row in rows]


def run_group(spec: ExperimentSpec) -> str:
    """The id that the experiments of one start share. A run key gives it twice, and a flow run run again."""
    if spec.run_key is not None:
        return dependent_id("group", NO_TIME, "run_key", spec.run_key)
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.created is None:
        return new_id("group")
    return dependent_id("group", context.flow_run.created, "flow_run", str(context.flow_run.id))


def experiment_id(group: str, target: str) -> str:
    """The id of the experiment that a target becomes."""
    return dependent_id("exp", group, group, target)


def _row(store: Store, spec: ExperimentSpec, target: TargetSpec, group: str) -> ExperimentRow:
    """The row of a running experiment; what is there of it from before, it keeps."""
    identity = experiment_id(group, target.name)
    existing = store.read("experiments", identity)
    before: ExperimentRow | None = existing[0] if existing else None
    n_examples = int(
        store.query("select n_examples from source.snapshots where snapshot_id = ?", [spec.dataset.snapshot])[0][0]
    )
    code, context, of_itself = revision(), FlowRunContext.get(), chunk_size(n_examples, spec.repetitions)
    row = ExperimentRow(
        experiment_id=identity,
        run_group=group,
        run_key=spec.run_key,
        name=spec.experiment_name(target.name),
        description=spec.description or None,
        metadata=to_json(spec.model_dump(mode="json")["metadata"]) if spec.metadata else None,
        tags=spec.tags,
        dataset_name=spec.dataset.name,
        snapshot_id=spec.dataset.snapshot or "",
        n_examples=n_examples,
        repetitions=spec.repetitions,
        chunk_size=before.chunk_size if before else spec.batch or spec.chunk_size or of_itself,
        seed=before.seed if before else None if spec.batch is None else ORDER_SEED,
        target=target.name,
        target_kind=target.kind,
        target_version=target_version(target, spec.connections),
        evaluators=_evaluators(spec),
        spec=spec.model_dump_json(),
        git_commit=code.commit,
        git_branch=code.branch,
        git_dirty=code.dirty,
        evalflows_version=version("evalflows"),
        flow_run_id=str(context.flow_run.id) if context and context.flow_run else None,
        state="running",
        budget_usd=spec.budget_usd,
        max_calls=spec.max_calls,
        started_at=before.started_at if before else now(),
    )
    if before:
        _refuse_another(before, row)
    return row


def described_evaluators(spec: ExperimentSpec) -> dict[str, dict[str, Any]]:
    """How each evaluator and composite of a spec is kept with its experiments, by its name."""
    return {one["name"]: one for one in json.loads(_evaluators(spec))}


def _evaluators(spec: ExperimentSpec) -> str:
    levels: list[tuple[Level, list[EvaluatorSpec]]] = [("item", spec.evaluators), ("run", spec.summary_evaluators)]
    described = [
        {
            "name": evaluator.metric,
            "use": evaluator.use,
            "version": evaluator_version(evaluator, bind_evaluator(evaluator, level), spec.connections, level),
            "declared_version": evaluator.version,
            "level": level,
            **({"sample": evaluator.model_dump(mode="json", include=SAMPLE)} if evaluator.is_sampled else {}),
        }
        for level, evaluators in levels
        for evaluator in evaluators
    ]
    described += [
        {"name": composite.name, "version": composite_version(composite, spec), "level": "composite"}
        for composite in spec.composites
    ]
    return to_json(described)


def _refuse_another(before: ExperimentRow, row: ExperimentRow) -> None:
    for name in SAME:
        old, new = getattr(before, name), getattr(row, name)
        if old == new or (name == "evaluators" and without_places(old) == without_places(new)):
            continue
        if name == "evaluators":  # only those that differ
            old, new = (", ".join(sorted(_labels(a) - _labels(b))) or "fewer" for a, b in ((old, new), (new, old)))
        remedy = f"wanted a run_key other than {row.run_key!r}" if row.run_key else "start another one"
        raise InputError(
            f"experiment {before.name!r} ({before.experiment_id}): began with {name} {old}, got {new}; {remedy}"
        )


def without_places(evaluators: str) -> list[dict[str, object]]:
    """What a row says of its evaluators, but for where functions live that no text can name: in each process elsewhere,
    though their versions are the same."""
    return [
        {name: value for name, value in one.items() if not str(value).startswith("live:")}
        for one in json.loads(evaluators)
    ]


def _labels(evaluators: str) -> set[str]:
    found = json.loads(evaluators)
    return {f"{one['name']}@{one['version']}" + (f" of {one['sample']}" if "sample" in one else "") for one in found}


def _begin(store: Store, row: ExperimentRow) -> ExperimentRow:
    """Open the experiment, with what a dead process has left of it, unless it has nothing left to do."""
    identity = row.experiment_id
    forget(identity, row.run_group)
    recover(store, identity)
    if store.is_sealed("experiments", identity) and not open_work(store, identity, UNREACHABLE):
        (finished,) = store.read("experiments", identity)
        return finished  # type: ignore[no-any-return]
    store.reopen(identity, tuple(reversed(EXPERIMENT_TABLES)))
    store.append("experiments", identity, "start", [row])
    return row
