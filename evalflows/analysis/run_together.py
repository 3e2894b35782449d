"""Experiments of one run that have the run's baseline: all that a diff says of them is stored. It is light: it loads
neither the specs nor what computes differences.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from evalflows.analysis.changes import ComparedExperiments, ComparedFigures, Note
from evalflows.analysis.comparability import (
    Difference,
    commit_change,
    differences,
    evaluators_of,
    is_plain_change,
    judge_models,
    served_by,
)
from evalflows.analysis.figures import assumed_direction
from evalflows.specs.metric_names import LENGTH, MEASURES, base_metric
from evalflows.store.described import panels_of
from evalflows.store.queries.conclusions import ComparedVerdict, current_verdicts
from evalflows.store.queries.lookup import example_ids_of, experiment_rows
from evalflows.store.records import ExperimentRow, from_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

_COMPUTED = ("quarantine", "summary_evaluators")
"""The fields of a spec by which notes or metrics are computed anew."""

_ESTIMATED = """
select experiment_id, metric, count(*) from estimates where is_one_of(experiment_id, $1) and slice is null group by all
"""

_SAME = """
select bool_and(c.status = 'ok' and b.status = 'ok' and c.outputs::varchar = b.outputs::varchar)
from staging.outputs c join staging.outputs b using (example_id, repetition)
where c.experiment_id = $1 and b.experiment_id = $2 and list_contains($3, example_id)
"""


def stored_figures(store: Store, baseline: str, candidates: Sequence[str]) -> ComparedFigures | None:
    """Return what `figures_between` returns without a condition; None if it would compute anything."""
    old, *new = rows = experiment_rows(store, [baseline, *candidates])
    if len({baseline, *candidates}) < len(rows) or not all(_is_of_run(row, old) for row in new):
        return None
    metrics = _estimated(store, rows)
    shared = {owner: sorted(metrics[owner].keys() & metrics[baseline].keys()) for owner in candidates}
    if any(count > 1 for counts in metrics.values() for count in counts.values()) or not all(shared.values()):
        return None  # several evaluators give a metric, or there is none
    stored = current_verdicts(store, candidates)
    wanted = [
        (owner, baseline, metric)
        for is_measure in (False, True)  # the families, in the order of `verdicts_of`
        for owner in candidates
        for metric in shared[owner]
        if (metric in MEASURES) == is_measure
    ]
    if not all(key in stored for key in wanted):
        return None
    known = [(row, _differences(store, row, old)) for row in new]
    if any(one.what == "provider" and one.metric for _, found in known for one in found):
        return None  # whether only the judge differs is computed
    verdicts, examples = [stored[key] for key in wanted], example_ids_of(store, old.snapshot_id)
    return ComparedFigures(
        compared=ComparedExperiments(baseline_experiment_id=baseline, candidate_experiment_ids=list(candidates)),
        verdicts=verdicts,
        notes=[
            *(note for row, found in known for note in notes_on(row, old, found)),
            *notes_of_verdicts(store, new, verdicts, dict.fromkeys(candidates, examples)),
        ],
        n_compared=dict.fromkeys(candidates, len(examples)),
    )


def _is_of_run(candidate: ExperimentRow, baseline: ExperimentRow) -> bool:
    """Return whether two experiments are of one run and the same evaluators, so that composites are comparable too."""
    sides = [(row.run_group, row.snapshot_id, _versions(row)) for row in (candidate, baseline)]
    return sides[0] == sides[1] and not any(from_json(candidate.spec).get(name) for name in _COMPUTED)


def _versions(row: ExperimentRow) -> Mapping[str, str]:
    return {name: evaluator.version for name, evaluator in evaluators_of(row).items()}


def _estimated(store: Store, rows: Sequence[ExperimentRow]) -> Mapping[str, Mapping[str, int]]:
    """Return by how many evaluators each metric of each experiment is given, without the judges of panels."""
    experiments = [row.experiment_id for row in rows]
    panels = {name for row in rows for members in panels_of(row.spec).values() for name in members}
    found: dict[str, dict[str, int]] = {owner: {} for owner in experiments}
    with store.reading(only={"experiment_id": experiments}):
        for owner, metric, count in ask(store, (_ESTIMATED, [experiments]))[0]:
            if base_metric(metric) not in panels:
                found[owner][metric] = count
    return found


def _differences(store: Store, candidate: ExperimentRow, baseline: ExperimentRow) -> list[Difference]:
    """Return the unintended differences of two experiments of one run, in which no judge drifts."""
    judges = judge_models(store, candidate), judge_models(store, baseline)
    served = served_by(store, candidate), served_by(store, baseline)
    return differences(candidate, baseline, None, (), judges, served)


def notes_on(candidate: ExperimentRow, baseline: ExperimentRow, known: Sequence[Difference]) -> Iterator[Note]:
    """Yield a note on each known difference, and on the commits."""
    owner = candidate.experiment_id
    yield from (Note(candidate_experiment_id=owner, **asdict(difference)) for difference in known)
    commits = commit_change(candidate, baseline)
    if commits and is_plain_change(candidate, baseline):
        text = f"git commit {commits}"
        yield Note(candidate_experiment_id=owner, what="commit", metric=None, text=text, refuses=False)


def notes_of_verdicts(
    store: Store,
    candidates: Sequence[ExperimentRow],
    verdicts: Sequence[ComparedVerdict],
    shared: Mapping[str, Sequence[str]],
) -> Iterator[Note]:
    """Yield a note on each candidate that answered all shared examples as the baseline did, and on each metric whose
    direction is assumed."""
    yield from _same_answers(store, verdicts, shared)
    declared = {row.experiment_id: from_json(row.spec).get("metrics") or {} for row in candidates}
    for row in verdicts:
        owner = row.candidate_experiment_id or ""
        of_metric = declared[owner].get(row.metric) or {}
        is_declared = any(of_metric.get(name) is not None for name in ("higher_is_better", "range"))
        text = assumed_direction(row.metric, is_declared, (row.candidate_mean, row.baseline_mean))
        if text and row.slice is None:
            yield Note(candidate_experiment_id=owner, what="direction", metric=row.metric, text=text, refuses=False)


def have_same_answers(store: Store, candidate: str, baseline: str, examples: Sequence[str]) -> bool:
    """Return whether two experiments, given by id, answered these examples alike, all of them."""
    ((are_same,),) = store.query(_SAME, [candidate, baseline, list(examples)])
    return bool(are_same)


def _same_answers(
    store: Store, verdicts: Sequence[ComparedVerdict], shared: Mapping[str, Sequence[str]]
) -> Iterator[Note]:
    for row in verdicts:
        if row.metric != LENGTH or row.slice is not None or row.difference != 0:  # then no text need be read
            continue
        owner = row.candidate_experiment_id or ""
        examples = shared[owner]
        if have_same_answers(store, owner, row.baseline_experiment_id or "", examples):
            n = len(examples)
            answers = f"the answers to all {n} examples are" if n > 1 else "the answer is"
            text = f"{answers} the same on both sides: check that the candidate really differs from the baseline"
            yield Note(candidate_experiment_id=owner, what="answers", metric=None, text=text, refuses=False)
