"""Pairwise comparison: resolve its spec, record votes, compute win rates and ratings and whether it may stop early,
finish and publish."""

from collections.abc import Sequence
from typing import NamedTuple

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.judge_biases import agreements, as_check
from evalflows.analysis.judge_drift import publish_drift
from evalflows.analysis.judge_exclusions import exclusions_in
from evalflows.analysis.preferences import Preferences, preferences_in, slices
from evalflows.analysis.win_rates import Look, Slices, WinRateEstimates, estimate_win_rates, look_at
from evalflows.engine.anchors import with_frozen_anchors
from evalflows.engine.pair_trials import pairs_of
from evalflows.engine.pairs import Context, compared_examples, experiments_of
from evalflows.engine.preflight import check_engine, check_pairwise
from evalflows.engine.prepare import PreparedComparison, prepare
from evalflows.engine.run_context import RunContext
from evalflows.engine.votes import judgements_of, read_votes, voted_examples
from evalflows.reports.comparison import comparison_report
from evalflows.reports.formats import escaped
from evalflows.reports.markdown_pages import comparison_page
from evalflows.specs.comparison import ComparisonSpec, VotesSpec
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.database import keep_catalog
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.progress import item_metrics, judged_examples
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.queries.spending import spent_by_group
from evalflows.store.records import EXCLUDED, ComparisonSetRow, ExampleRow, ExperimentRow
from evalflows.store.row_specs import comparison_spec
from evalflows.store.store import Store
from evalflows.tasks.announce import links_to_dashboard
from evalflows.tasks.progress import enter_stage
from evalflows.tasks.start import flow_run_id

_SHARED_FIELDS = (
    *("confidence_level", "connections", "chunk_retries", "chunk_retry_delay_s", "breaker_window", "breaker_pause_s"),
    *("task_runner", "budget_counts_unknown", "mode", "batch_wait_s"),
)
"""Fields that the comparison takes over from the experiment's spec."""


@task(cache_policy=NO_CACHE, persist_result=False)
def publish_comparison(run: Context, row: ComparisonSetRow) -> str:
    """Publish the report as the markdown artifact `comparison`, and return the comparison's id."""
    store = run.store
    page = comparison_page(comparison_report(store, row.comparison_id), links_to_dashboard(store).page)
    create_markdown_artifact(key="comparison", markdown=page, description=f"Comparison {escaped(row.name)}")
    keep_catalog(store.layout)
    return row.comparison_id


@task(cache_policy=NO_CACHE, persist_result=False)
def record_votes(run: Context, row: ComparisonSetRow) -> int:
    """Write a row for each vote, and return their number; 0 for a finished comparison, and for one without votes."""
    votes = comparison_spec(row).votes
    if votes is None or row.state != "running":
        return 0
    rows = list(judgements_of(read_votes(votes), row))
    run.store.append("judgements", row.comparison_id, "votes", rows)
    return len(rows)


@task(cache_policy=NO_CACHE, persist_result=False)
def resolve_comparison(spec: ComparisonSpec) -> Context:
    """Check and resolve the spec, unless that was done before the flow was called."""
    return RunContext.handed(spec) or check_and_resolve(spec)


def check_and_resolve(spec: ComparisonSpec) -> Context:
    """Check a comparison's spec and resolve its references. Raise InputError, with nothing written.

    In the spec of the returned run experiments are ids, prompts are texts, and shared connections are included.
    """
    if spec.votes is not None:
        return _resolve_votes(spec, spec.votes)
    store = Store()
    rows = experiments_of(store, _identities(store, spec))
    resolved = {
        "name": spec.name or " vs ".join(row.name for row in rows),
        "experiments": [row.experiment_id for row in rows],
        "baseline": _baseline(store, spec, rows),
    }
    prepared = prepare(spec.model_copy(update=resolved))
    _check(store, prepared, rows)
    return RunContext(with_frozen_anchors(store, prepared))


def _resolve_votes(spec: ComparisonSpec, given: VotesSpec) -> Context:
    systems = read_votes(given).systems
    named = [
        *(("experiments", name) for name in spec.experiments),
        *([("baseline", spec.baseline)] * bool(spec.baseline)),
    ]
    for field, name in named:
        if name not in systems:
            known = f"{', '.join(systems[:10])}{', …' if len(systems) > 10 else ''}"
            raise InputError(f"{field}: got {name!r}, wanted a system of {given.path}: {known}")
    if spec.experiments and set(spec.experiments) != set(systems):
        raise InputError(f"experiments: got {len(spec.experiments)} with votes, which name {len(systems)} themselves")
    changes = {"name": spec.title, "experiments": systems, "baseline": spec.baseline or systems[0]}
    return RunContext(prepare(spec.model_copy(update=changes)))


def comparison_of(spec: ExperimentSpec, experiments: Sequence[ExperimentRow]) -> ComparisonSpec:
    """Return the comparison of its own experiments that an experiment's spec asks for; a re-run gives the same one."""
    if spec.compare is None:
        raise ValueError("compare: got a spec without it")
    base = next(row for row in experiments if row.target == (spec.baseline or experiments[0].target))
    spent = spent_by_group(Store(), base.run_group)
    return ComparisonSpec(
        name=spec.name,
        description=spec.description,
        metadata=spec.metadata,
        tags=spec.tags,
        experiments=[row.experiment_id for row in experiments],
        baseline=base.experiment_id,
        run_key=base.run_group,
        use_cache=spec.use_cache,
        budget_usd=None if spec.budget_usd is None else max(0.0, spec.budget_usd - spent.usd),  # the rest of the budget
        max_calls=None if spec.max_calls is None else max(0, spec.max_calls - spent.calls),
        **{name: getattr(spec, name) for name in _SHARED_FIELDS},
        **spec.compare.model_dump(),
    )


def _identities(store: Store, spec: ComparisonSpec) -> list[str]:
    """Return the ids of the named experiments, each once, in order."""
    identities = [identity for reference in spec.experiments for identity in find_experiments(store, reference)]
    if len(set(identities)) < 2:
        raise InputError(
            f"experiments: got {', '.join(spec.experiments)}, which is one experiment, wanted at least two"
        )
    return list(dict.fromkeys(identities))


def _baseline(store: Store, spec: ComparisonSpec, rows: Sequence[ExperimentRow]) -> str:
    if spec.baseline is None:
        return rows[0].experiment_id
    (identity,) = find_experiments(store, spec.baseline, just_one=True)
    if identity not in [row.experiment_id for row in rows]:
        raise InputError(f"baseline: got {spec.baseline!r}, wanted one of {', '.join(row.name for row in rows)}")
    return identity


def _check(store: Store, prepared: PreparedComparison, rows: Sequence[ExperimentRow]) -> None:
    check_engine(prepared.spec.task_runner, (), prepared.evaluators)
    shared = shared_examples(store, rows)
    names = " and ".join(row.name for row in rows)
    if not shared.examples:
        why = f"{shared.changed} with the same id but different inputs" if shared.changed else "no ids in common"
        raise InputError(f"experiments: {names} share no example ({why})")
    spec, metrics = prepared.spec, item_metrics(store, prepared.spec.experiments)
    check_pairwise(prepared.evaluators, spec.slice_by, spec, shared.examples, metrics)


@task(cache_policy=NO_CACHE, persist_result=False)
def compute_win_rates(run: Context, row: ComparisonSetRow) -> str:
    """Publish the verdicts, ratings and judge biases of a comparison, and return its id.

    The results are recomputed from the stored rows on every call.
    """
    enter_stage(run, "computing win rates")
    store = run.store
    spec, systems = comparison_spec(row), _systems(store, row)
    results, metrics = _estimated(store, row, systems, list(slices(systems.examples, spec.slice_by)))
    agreement = [as_check(row.comparison_id, *pair) for pair in agreements(metrics, spec.confidence_level)]
    store.publish("checks", row.comparison_id, [*agreement, *results.checks])
    store.publish("verdicts", row.comparison_id, results.verdicts)
    store.publish("ratings", row.comparison_id, results.ratings)
    if any(judge.anchors for judge in spec.evaluators):
        publish_drift(store, row.comparison_id, flow_run_id=flow_run_id())
    return row.comparison_id


@task(cache_policy=NO_CACHE, persist_result=False)
def why_comparison_stops(run: Context, row: ComparisonSetRow) -> str | None:
    """Return why a comparison in batches can stop early, once every win rate is decided; otherwise None."""
    systems = _systems(run.store, row)
    if (look := systems.look) is None or look.is_last:
        return None
    overall = [
        verdict for verdict in _estimated(run.store, row, systems, ())[0].verdicts if not verdict.length_controlled
    ]
    decided = [verdict.conclusion in ("better", "worse") for verdict in overall if verdict.reason_code not in EXCLUDED]
    if not decided or not all(decided):
        return None
    return f"stopped after {look.n_seen} of {row.n_shared} examples: every win rate was decided"


class _Systems(NamedTuple):
    """What a comparison compares."""

    names: Sequence[str]
    examples: Sequence[ExampleRow]  # shared by all, in the order of judging
    look: Look | None = None  # what can be looked at so far, if it is judged in batches


def _estimated(
    store: Store, row: ComparisonSetRow, systems: _Systems, by_slice: Slices
) -> tuple[WinRateEstimates, Sequence[Preferences]]:
    """Return the results of a comparison so far and its metrics; of one in batches on what can be looked at."""
    examples, look = systems.examples, systems.look
    if look is None:
        metrics = preferences_in(store, row, examples)
    else:
        seen = frozenset(look.places)
        metrics = [metric.of_examples(seen) for metric in preferences_in(store, row, examples[: look.n_seen])]
    found = exclusions_in(store, row, {metric.metric: metric.evaluator for metric in metrics})
    excluded = {metric: exclusion.reason for metric, exclusion in found.items()}
    spec = comparison_spec(row)
    return estimate_win_rates(row.comparison_id, metrics, spec, by_slice, systems.names, excluded, look), metrics


def _systems(store: Store, row: ComparisonSetRow) -> _Systems:
    spec = comparison_spec(row)
    if row.n_votes is not None:
        votes = store.read("judgements", row.comparison_id) if spec.slice_by else []  # only slices need the prompts
        return _Systems(spec.experiments, voted_examples(votes))
    experiments = experiments_of(store, spec.experiments)
    names, examples = [experiment.name for experiment in experiments], compared_examples(store, spec, experiments)
    if spec.batch is None:
        return _Systems(names, examples)
    n_pairs = len(pairs_of(spec)) * row.repetitions * len(spec.evaluators)
    return _Systems(names, examples, look_at(row, examples, judged_examples(store, row.comparison_id, n_pairs)))
