"""Freeze the dataset: check the spec and its gates, store the rows as a snapshot, and validate it before anything is
paid."""

from dataclasses import replace

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.baselines import approval_problem, baseline_name, baseline_row, no_baseline
from evalflows.analysis.differences import timed_metrics
from evalflows.analysis.final_looks import check_looks
from evalflows.analysis.flaky import check_quarantine
from evalflows.analysis.trace_datasets import loaded_dataset
from evalflows.data_checks.checks import check_dataset, without_values
from evalflows.data_checks.suites import load_expectations
from evalflows.engine.anchors import with_frozen_anchors
from evalflows.engine.experiments import Context
from evalflows.engine.preflight import check_spec
from evalflows.engine.prepare import PreparedExperiment, prepare
from evalflows.engine.quick_processes import QuickProcesses, pays
from evalflows.engine.run_context import RunContext
from evalflows.reports.checks import checks_page, failed, first_of
from evalflows.specs import hints
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import TRIAL, metric_of
from evalflows.specs.target import RecordedTarget, TargetSpec
from evalflows.store.final_examples import copies_text, final_inputs, keep_copies, near_copies, refuse_final
from evalflows.store.queries.lookup import find_experiments, newest_complete
from evalflows.store.records import FINAL, CheckRow, ExperimentRow
from evalflows.store.store import Store
from evalflows.tasks.start import flow_run_id


@task(cache_policy=NO_CACHE, persist_result=False)
def freeze_dataset(spec: ExperimentSpec, final: bool = False) -> Context:
    """Check the spec and freeze its dataset, unless that was done before the flow was called."""
    return RunContext.handed(spec) or check_and_freeze(spec, final=final)


def check_and_freeze(spec: ExperimentSpec, *, final: bool = False) -> Context:
    """Check the whole spec, resolve its references, and freeze its dataset. Raise InputError, with nothing written.

    `final` says that its final examples may be selected. In the spec of the returned run the dataset is a snapshot,
    windows of production have ends, expectations are a list, prompts are texts, other experiments are ids, and shared
    connections are included.
    """
    store = Store()
    loaded = loaded_dataset(store, spec.dataset, final=final)
    final_ones = final_inputs(store, loaded)
    refuse_final(loaded, final_ones)
    if loaded.n_left_out:
        print_note(f"{loaded.n_left_out} examples of the split {FINAL} are left out: only a release gate runs them")
    if loaded.n_drafts:
        drafts = f"{loaded.n_drafts} draft{'s' * (loaded.n_drafts != 1)} left out, which nobody has accepted"
        print_note(f"{drafts}: accept, edit or reject them on the page Review of {hints.dashboard().code}")
    expectations = load_expectations(spec.dataset.expectations)
    targets = [_resolved(target, store) for target in spec.targets]
    spec = spec.model_copy(update={"targets": targets})
    if spec.gates:
        from evalflows.analysis.production_baseline import with_fixed_windows  # late: most runs have no gates

        spec = with_fixed_windows(spec)
    prepared = prepare(spec)
    processes = None
    if pays(prepared, len(loaded.selected) * spec.repetitions * len(spec.targets)):
        processes = QuickProcesses(prepared.spec.task_runner.processes)  # they import what they need meanwhile
    try:
        check_spec(prepared, loaded.selected, store)
        check_quarantine(prepared, loaded.examples)
        prepared = with_frozen_anchors(store, prepared)
        snapshot = loaded.keep(store)
        if copies := near_copies(loaded.selected, final_ones):
            print_note(copies_text(copies))
            keep_copies(store, snapshot, copies)
        dataset = DatasetSpec(  # splits and sample are kept for information
            name=loaded.name,
            snapshot=snapshot,
            splits=spec.dataset.splits or ([FINAL] if loaded.has_final else None),
            sample=spec.dataset.sample,
            seed=spec.dataset.seed,
            drafts=spec.dataset.drafts,
        ).model_copy(update={"expectations": expectations or None})
    except BaseException:
        if processes is not None:
            processes.end()
        raise
    return RunContext(replace(prepared, spec=prepared.spec.model_copy(update={"dataset": dataset})), processes)


def _resolved(target: TargetSpec, store: Store) -> TargetSpec:
    if not isinstance(target, RecordedTarget) or target.experiment is None:
        return target
    (identity,) = find_experiments(store, target.experiment, just_one=True)
    return target.model_copy(update={"experiment": identity})


@task(cache_policy=NO_CACHE, persist_result=False)
def check_gates(spec: ExperimentSpec) -> Context:
    """Check the spec and its gates, and freeze its dataset, unless that was done before the flow was called.

    Raise InputError, before anything is paid, for a spec without gates, a baseline that is not approved, a rule that
    compares latency with an approved baseline, or a baseline judged by other evaluators than the candidate will be if
    the gate has no `recalibrate`; and for a window of production without enough scores by the same evaluators.
    """
    if run := RunContext.handed(spec):
        return run
    if not spec.gates:
        raise InputError(
            f"spec {spec.name!r}: got no gates, wanted at least one: {{name: release, non_inferiority: …}}"
        )
    if spec.is_trial:
        raise InputError(f"spec {spec.name!r}: got the tag {TRIAL!r}, wanted a run that a gate may decide on")
    run = check_and_freeze(spec, final=True)
    try:
        _check_gates(run)
    except BaseException:
        run.end_processes()
        raise
    return run


def _check_gates(run: Context) -> None:
    from evalflows.analysis.production_baseline import check_production

    store, prepared, spec = run.store, run.prepared, run.prepared.spec
    is_look = check_looks(store, spec)
    for gate in spec.gates:
        if gate.compares and gate.production is not None:
            check_production(store, prepared, gate, gate.production)
        elif gate.compares and spec.baseline_target(gate) is None:
            baseline = baseline_row(store, spec, gate, [])
            if baseline and (why := approval_problem(store, gate, baseline_name(spec, gate), baseline.experiment_id)):
                raise InputError(f"gate {gate.name!r}: {why}")
            if baseline is not None or not is_look:  # how else would a baseline get answers to the final examples?
                _check_baseline(store, prepared, gate, baseline)


def _check_baseline(store: Store, prepared: PreparedExperiment, gate: GateSpec, baseline: ExperimentRow | None) -> None:
    from evalflows.analysis.recalibration import metrics_to_recalibrate

    spec = prepared.spec
    if baseline is None:
        newest = newest_complete(store, spec.name) if gate.baseline is None else None
        raise InputError(f"gate {gate.name!r}: {no_baseline(spec, gate, newest)}")
    compared = {metric_of(name) for name in (*gate.non_inferiority, *gate.superiority)}
    if timed := sorted(timed_metrics(spec).keys() & compared):
        raise InputError(
            f"gate {gate.name!r}: {timed[0]} cannot be compared with an approved baseline, which answered at another "
            "time; wanted the baseline as a target of this spec too, so that both answer side by side"
        )
    if gate.recalibrate is None:
        for reason in metrics_to_recalibrate(prepared, gate, baseline).values():
            raise InputError(
                f"gate {gate.name!r}: {reason}; wanted the same evaluator, or `recalibrate: {{sample: 100}}`, "
                f"so that the new judge also scores some of the baseline's answers"
            )


@task(cache_policy=NO_CACHE, persist_result=False)
def recalibrations(run: Context) -> list[ExperimentSpec]:
    """Return the specs to run first, so that gates can compare with baselines scored by other judges."""
    from evalflows.analysis.recalibration import recalibrations_of

    return recalibrations_of(run.store, run.prepared)


@task(cache_policy=NO_CACHE, persist_result=False)
def validate_snapshot(run: Context) -> str:
    """Check the snapshot, publish the checks and an artifact of them, and return the batch of the checks.

    A snapshot never changes, so each suite runs on it once. Raise InputError if a critical check failed.
    """
    spec, store = run.prepared.spec, run.store
    snapshot = spec.dataset.snapshot or ""
    batch = check_dataset(store, spec.dataset, flow_run_id())
    rows: list[CheckRow] = sorted(store.read("checks", batch), key=lambda row: (row.passed is True, row.name))
    markdown = checks_page("Snapshot", snapshot, rows, without_values)
    create_markdown_artifact(key="dataset-checks", markdown=markdown, description="Dataset checks")
    if errors := failed(rows):
        where = f"dataset {spec.dataset.name or snapshot!r}"
        whole = f"{where}: {first_of([check.message for check in errors])}"
        raise InputError(f"{where}: {first_of([*map(without_values, errors)])}", whole=whole)
    return batch
