"""Conclude a run: validate what came out, test the differences, decide the gates, and publish the results."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.settings import get_current_settings

from evalflows.analysis.baselines import baseline_row
from evalflows.analysis.differences import ExperimentPair, MetricReader, publish_differences
from evalflows.analysis.final_looks import at_level_of_look
from evalflows.analysis.judge_drift import publish_drift
from evalflows.dashboard.links import Links
from evalflows.data_checks.checks import check_results as checks_of_results
from evalflows.data_checks.checks import without_values
from evalflows.engine.experiments import Context
from evalflows.reports.checks import checks_page, failed, first_of
from evalflows.reports.decisions import decisions_of
from evalflows.reports.experiment_report import experiments_report
from evalflows.reports.formats import code, escaped
from evalflows.reports.markdown_pages import results_page
from evalflows.reports.results import results_of
from evalflows.specs.errors import IncompleteError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.specs.quarantine import refuse_expired
from evalflows.store.database import keep_catalog, shared
from evalflows.store.packing import pack_many
from evalflows.store.queries.values import are_many
from evalflows.store.records import ExperimentRow, now
from evalflows.store.row_specs import experiment_spec
from evalflows.store.store import Store
from evalflows.tasks.announce import links_to_dashboard
from evalflows.tasks.progress import enter_stage
from evalflows.tasks.score import combine_scores
from evalflows.tasks.start import flow_run_id

if TYPE_CHECKING:
    from evalflows.analysis.gate_evaluation import GateEvaluation


@task(cache_policy=NO_CACHE, persist_result=False)
def check_results(run: Context, rows: list[ExperimentRow]) -> None:
    """Check the results of those experiments that are complete, and publish the checks and an artifact of them.

    Raise IncompleteError if an expectation of severity error does not hold.
    """
    store = run.store
    ended: list[ExperimentRow] = [store.read("experiments", row.experiment_id)[0] for row in rows]
    complete = [row for row in ended if row.state == "completed"]
    checks = checks_of_results(store, complete, flow_run_id())
    pages = [checks_page("Experiment", identity, of_one, without_values) for identity, of_one in checks.items()]
    create_markdown_artifact(key="result-checks", markdown="\n\n".join(pages), description="Checks of the results")
    for row in complete:
        if errors := failed(checks[row.experiment_id]):
            where = f"experiment {row.name!r} ({row.experiment_id})"
            whole = f"{where}: {first_of([check.message for check in errors])}"
            raise IncompleteError(f"{where}: {first_of([*map(without_values, errors)])}", [*checks], whole=whole)


@task(cache_policy=NO_CACHE, persist_result=False)
def decide(run: Context, rows: list[ExperimentRow], reader: MetricReader) -> list[str]:
    """Publish the decision of every gate on every candidate of a run group, and return the decision ids.

    The same evidence gives the same decision id, stored once. Decisions on other evidence are kept.
    """
    from evalflows.analysis.gate_evaluation import keep_decision  # late: most runs have no gates

    enter_stage(run, "deciding")
    store = run.store
    refuse_expired(run.prepared.spec.quarantine, now().date())
    evaluations = _evaluations(store, run.prepared.spec, rows, reader)
    return [keep_decision(store, evaluation, flow_run_id()).decision_id for evaluation in evaluations]


@task(cache_policy=NO_CACHE, persist_result=False)
def rejudgements(run: Context, rows: list[ExperimentRow], reader: MetricReader) -> list[ExperimentSpec]:
    """Return the specs to run before gates decide, where a judge has drifted since it judged the baseline."""
    from evalflows.analysis.recalibration import rejudgements_of

    evaluations = _evaluations(run.store, run.prepared.spec, rows, reader)
    return rejudgements_of(run.store, ((evaluation.gate, evaluation.pair) for evaluation in evaluations))


@task(cache_policy=NO_CACHE, persist_result=False)
def latest_decisions(spec: ExperimentSpec, experiments: list[str]) -> list[str]:
    """Return the ids of the latest decision of each gate on each candidate among these experiments."""
    store = Store()
    rows = [store.read("experiments", identity)[0] for identity in experiments]
    latest = {(row.gate, row.candidate_experiment_id): row.decision_id for row in decisions_of(store, experiments)}
    return [latest[gate.name, row.experiment_id] for gate, row in _candidates(spec, rows)]


def _evaluations(
    store: Store, spec: ExperimentSpec, started: list[ExperimentRow], reader: MetricReader
) -> "Iterator[GateEvaluation]":
    from evalflows.analysis.gate_evaluation import GateEvaluation

    rows = [store.read("experiments", row.experiment_id)[0] for row in started]  # as they are stored now
    for gate, candidate in _candidates(spec, rows):
        baseline = baseline_row(store, spec, gate, rows)
        at_level = at_level_of_look(store, spec, candidate.run_group)
        pair = ExperimentPair(reader=reader, spec=at_level, candidate=candidate, baseline=baseline)
        yield GateEvaluation(gate=gate, pair=pair)


def _candidates(spec: ExperimentSpec, rows: list[ExperimentRow]) -> Iterator[tuple[GateSpec, ExperimentRow]]:
    """Yield each gate with each candidate experiment that it decides on."""
    by_target = {row.target: row for row in rows}
    for gate in spec.gates:
        yield from ((gate, by_target[name]) for name in spec.candidates(gate) if name in by_target)


@task(cache_policy=NO_CACHE, persist_result=False)
def why_gates_stop(run: Context, rows: list[ExperimentRow]) -> str | None:
    """Return why the run can stop early, once every gate has decided by interim analyses; otherwise None."""
    combine_scores.fn(run, rows, whole=False)
    evaluations = list(_evaluations(run.store, run.prepared.spec, rows, MetricReader(run.store)))
    if any(gate.interim_analyses is None or gate.conclusion == "NOT ENOUGH EVIDENCE" for gate in evaluations):
        return None
    done = max(gate.interim_analyses.n_done for gate in evaluations if gate.interim_analyses is not None)
    return f"stopped after {done} of {rows[0].n_examples} examples: the gates had decided"


@task(cache_policy=NO_CACHE, persist_result=False)
def compute_differences(run: Context, rows: list[ExperimentRow]) -> MetricReader:
    """Publish the estimates of each experiment and the verdicts on each candidate, and return what has read them.

    All experiments share their examples. The results are recomputed from the stored rows on every call.
    """
    enter_stage(run, "computing differences")
    store, spec = run.store, experiment_spec(rows[0])
    reader = MetricReader(store, keeps_values=len(rows) > 1 or bool(spec.gates))
    with shared.little_memory(is_needed=any(are_many(row.n_examples * row.repetitions) for row in rows)):
        publish_differences(store, reader, rows, spec)
    if any(judge.anchors for judge in spec.evaluators):
        publish_drift(store, rows[0].run_group, flow_run_id=flow_run_id())
    return reader


@task(cache_policy=NO_CACHE, persist_result=False)
def publish_results(run: Context, rows: list[ExperimentRow]) -> None:
    """Publish the results as the markdown artifact `result`.

    Pack a store of many files, and write the catalog that other programs open.
    """
    store = run.store
    identities, dashboard = [row.experiment_id for row in rows], links_to_dashboard(store)
    with store.reading(once=True):
        given = (results_of(store, identities), decisions_of(store, identities))
        report = experiments_report(store, identities, *given, with_worst=False, with_fields=False)
    page = dashboard.experiment(rows[-1].experiment_id)
    text = results_page(rows[0].run_group, report, _links(rows, dashboard), page, quotes_data=False)
    create_markdown_artifact(key="result", markdown=text, description=f"Results of {escaped(rows[0].name)}")
    pack_many(store)
    keep_catalog(store.layout)


def _links(rows: Sequence[ExperimentRow], dashboard: Links) -> list[str]:
    context, ui = FlowRunContext.get(), get_current_settings().ui_url
    links = [f"experiment {_linked(row, dashboard)} ({escaped(row.target)})" for row in rows]
    links.append(f"snapshot {code(rows[0].snapshot_id)} of {escaped(rows[0].dataset_name or 'unnamed rows')}")
    if ui and context and context.flow_run:
        links.append(f"[this run]({ui}/runs/flow-run/{context.flow_run.id})")
    return links


def _linked(row: ExperimentRow, dashboard: Links) -> str:
    address = dashboard.experiment(row.experiment_id)
    return code(row.experiment_id) if address is None else f"[{code(row.experiment_id)}]({address})"
