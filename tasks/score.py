"""Scores computed from all answers and judgements of an experiment: composites, how robust a ranking is to their
weights, run-level metrics, robustness, and judges against human labels."""

from collections.abc import Iterable, Sequence
from functools import partial

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.judge_exclusions import exclusions_in
from evalflows.analysis.robustness import composite_runs, criteria, pareto_check, robustness_batch, weights_check
from evalflows.engine.composites import ScoresByRun, composite_rows
from evalflows.engine.experiments import Context, Experiment, experiment_of
from evalflows.engine.judgement import judge_with
from evalflows.engine.panels import Seats, panel_rows, seats_of
from evalflows.engine.resampling import resample_rows
from evalflows.engine.results import judgement_columns, one_row, run_scores
from evalflows.engine.running import RunnableEvaluator
from evalflows.engine.spec_evaluators import composite_version
from evalflows.engine.views import evaluations_view, example_view, run_view
from evalflows.evaluators.views import ItemResult, offer_experiment
from evalflows.llm import loop
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.grouping import grouped
from evalflows.specs.metrics import WEIGHT_CHANGE, CompositeSpec
from evalflows.store.described import from_described
from evalflows.store.queries.lookup import find_experiments, run_groups
from evalflows.store.queries.people_checks import people_alphas
from evalflows.store.records import ExperimentRow, JudgementRow, OutputRow, ResampleRow, derived_id
from evalflows.store.row_specs import experiment_spec
from evalflows.store.spool import Spool
from evalflows.store.store import Store
from evalflows.tasks.limits import within_provider_limits
from evalflows.tasks.progress import enter_stage


@task(cache_policy=NO_CACHE, persist_result=False)
def combine_scores(run: Context, rows: list[ExperimentRow], *, whole: bool = True) -> None:
    """Add composites to the experiments that are not finished, and with `whole` the scores of run-level evaluators.

    Both are recomputed from the stored rows on every call, so a resumed experiment gets newer ones.
    """
    for row in rows:
        if row.state == "running":
            experiment = experiment_of(run, row.experiment_id)
            _combine(experiment, experiment.summary_evaluators if whole else ())


def _combine(experiment: Experiment, judges: Sequence[RunnableEvaluator]) -> None:
    if not experiment.spec.composites and not judges:
        return
    enter_stage(experiment.run, "combining scores")
    identity = experiment.row.experiment_id
    outputs: list[OutputRow] = experiment.store.read("outputs", identity, texts=bool(judges))
    judgements: Sequence[JudgementRow] = experiment.store.read("judgements", identity)
    of_run = grouped((score.run_id or "", score) for score in judgements)
    names = {composite.name for composite in experiment.spec.composites}
    for run, scores in of_run.items():  # drop composites of an earlier attempt
        of_run[run] = [score for score in scores if score.evaluator not in names]
    composites = list[JudgementRow]()
    for composite in experiment.spec.composites:  # panels come first: other composites may be made of them
        columns = partial(run_scores, version=composite_version(composite, experiment.spec))
        if composite.panel:
            rows = panel_rows(composite, _seats(experiment, composite), outputs, of_run, columns)
        else:
            rows = composite_rows(composite, experiment.spec, outputs, of_run, columns)
        composites += rows
        for score in rows:
            of_run[score.run_id or ""].append(score)
    experiment.store.append("judgements", identity, "composites", composites)
    with (
        within_provider_limits(experiment.judging_on if judges else [], 1, 1),
        Spool(experiment.store, identity, "summary") as spool,
    ):
        for evaluator, spec in zip(judges, experiment.spec.summary_evaluators, strict=bool(judges)):
            work = partial(_summarise, experiment, evaluator, spec, spool)
            results = _results(experiment, outputs, of_run)
            # A sync evaluator blocks on its model calls, so it must not run on the loop that makes them.
            loop.run(experiment.judging.run(work, [results], is_async=evaluator.bound.is_async))


def _seats(experiment: Experiment, panel: CompositeSpec) -> Seats:
    """Return who of a panel counts: judges that failed validation do not, nor those whose fallback judged mostly."""
    store, row = experiment.store, experiment.row
    versions = {judge.name: judge.version for judge in from_described(row.evaluators)}
    found = exclusions_in(store, row, {metric: metric for metric in panel.panel})
    left_out = {metric: f"{exclusion.text}: {exclusion.message}" for metric, exclusion in found.items()}
    return seats_of(panel, versions, left_out, people_alphas(store))


async def _summarise(
    experiment: Experiment,
    evaluator: RunnableEvaluator,
    spec: EvaluatorSpec,
    spool: Spool,
    results: list[ItemResult],
) -> None:
    """Call a run-level evaluator on all answers. Its rows have the experiment as their subject."""
    identity = experiment.row.experiment_id
    available = offer_experiment(results)
    version = evaluator.version
    by = partial(judgement_columns, evaluator=evaluator.bound.name, declared_version=evaluator.spec.version)
    judged = await judge_with(evaluator, available, spool=spool, experiment_id=identity, subject_id=identity)
    for result in judged:
        judgement = one_row(
            {
                **by([result], version=version),
                "judgement_id": [derived_id(identity, None, result.metric, version)],
                "subject_kind": ["experiment"],
                "subject_id": [identity],
                "experiment_id": [identity],
            }
        )
        spool.add("judgements", judgement)
    for row in resample_rows(evaluator, spec, identity, experiment.examples, results, judged):
        spool.add("resamples" if isinstance(row, ResampleRow) else "classified", row)


def _results(experiment: Experiment, outputs: Iterable[OutputRow], of_run: ScoresByRun) -> list[ItemResult]:
    """Return every run as run-level evaluators see it, by repetition and in the order of the dataset."""
    by_run = {(output.repetition, output.example_id): output for output in outputs}
    results = []
    for repetition in range(experiment.row.repetitions):
        for example in sorted(experiment.examples, key=lambda example: example.position):
            if output := by_run.get((repetition, example.example_id)):
                item = example_view(example)
                run = run_view(output, item.inputs)
                scores = evaluations_view(of_run[output.run_id])
                results.append(ItemResult(item=item, output=run.outputs, evaluations=scores, run=run))
    return results


@task(cache_policy=NO_CACHE, persist_result=False)
def validate_judge(experiment: str, metric: str, people_metric: str | None, confidence_level: float) -> str:
    """Publish a check for each judge of a metric, of an experiment, comparison or trace evaluation, and return the
    batch of the checks.

    With a panel, its judges are checked by the same labels, and labels of one of its judges are by default those of the
    panel. The checks are recomputed from the stored labels. Raise InputError for an unknown experiment or metric, and
    if there are no labels.
    """
    from evalflows.analysis.labels import label_check, people_batch  # late: pandas is slow to import
    from evalflows.store.queries.labels import judged_and_labelled, judged_in, panels_beside

    store = Store()
    panels = panels_beside(store, experiment)
    of_member = next((panel for panel, members in panels.items() if metric in members), metric)
    people_metric = people_metric or of_member
    labelled = judged_and_labelled(store, experiment, metric, people_metric)
    batch = people_batch(labelled.subject_id, metric, people_metric)
    judges = [labelled]
    if labelled.subjects != "pairs":
        judges += [
            judged_in(store, labelled.subject_id, labelled.subjects, judge, people_metric)
            for judge in panels.get(metric, ())
        ]
    store.publish(
        "checks",
        batch,
        [
            label_check(batch, judged, str(version), confidence_level)
            for judged in judges
            for version in judged.judgements.evaluator_version.unique()
        ],
    )
    return batch


@task(cache_policy=NO_CACHE, persist_result=False)
def composite_robustness(
    experiment: str, composites: Sequence[str] = (), change: float = WEIGHT_CHANGE, over: Sequence[str] = ()
) -> str:
    """Publish how other weights would change the ranking of a run group, and its Pareto front. Return the run group.

    `experiment` names a run group or one of its experiments. `composites` defaults to all of the spec's composites;
    `over` names the metrics of the front. Earlier results of the same run group are replaced. Raise InputError for an
    unknown experiment, composite or metric, and for a run group with one target.
    """
    store = Store()
    rows = _rows(store, experiment)
    spec = experiment_spec(rows[0])
    if not 0 < change < 1:
        raise InputError(f"change: got {change:g}, wanted more than 0 and less than 1, such as 0.2 for 20 %")
    batch = robustness_batch(rows[0].run_group)
    runs = [composite_runs(store, rows, composite) for composite in _chosen(spec, composites)]
    front = criteria(store, rows, spec, over)
    checks = [weights_check(batch, composite, change) for composite in runs]
    checks += [pareto_check(batch, rows, front)] if len(front.metrics) > 1 else []
    if not checks:
        raise InputError(
            f"{spec.name}: has no composite and fewer than two metrics, wanted at least one of `composites`"
        )
    store.publish("checks", batch, checks)
    return rows[0].run_group


def _rows(store: Store, experiment: str) -> list[ExperimentRow]:
    """Return all experiments of the run group that `experiment` refers to."""
    groups = run_groups(store, find_experiments(store, experiment))
    identities = find_experiments(store, groups[0])
    if len(identities) < 2:
        raise InputError(f"experiment {experiment!r}: has one target, wanted two or more in its run group")
    return [store.read("experiments", identity)[0] for identity in identities]


def _chosen(spec: ExperimentSpec, names: Sequence[str]) -> list[CompositeSpec]:
    known = {composite.name: composite for composite in spec.composites if composite.weights}
    for name in names:
        if name not in known:
            wanted = f"one of {', '.join(known)}" if known else "an experiment with `composites`"
            raise InputError(f"composite {name!r}: not in {spec.name!r}, wanted {wanted}")
    return [known[name] for name in names] if names else list(known.values())
