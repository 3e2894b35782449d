"""Candidates against a baseline: figures, what else differs, and how the examples changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalflows.reports.change_queries import Change
from evalflows.reports.chosen_results import ChosenExamples, on_chosen
from evalflows.reports.example_changes import (
    ChangeCounts,
    ChangeFilter,
    ChangeList,
    ComparedExperiments,
    change_counts,
    change_lists,
)
from evalflows.reports.experiments_report import ExperimentOverview, overviews
from evalflows.reports.names_apart import names_apart
from evalflows.reports.result_sentences import sentences
from evalflows.reports.results import VERDICT_FIELDS, Result, results_of
from evalflows.specs.close_names import names_to_choose
from evalflows.specs.errors import InputError
from evalflows.specs.metric_names import MEASURES
from evalflows.store.parquet import Store
from evalflows.store.records import VerdictRow

LISTED: tuple[Change, ...] = ("regressed", "improved", "flipped", "changed", "missing")
"""The changes of which examples are listed, in this order."""

SHOWN = 5
"""Examples of each list, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something else that differs between a candidate and the baseline."""

    candidate_experiment_id: str
    what: str  # examples, repetitions, target, state, evaluator, sample, judge, commit
    metric: str | None  # None: it concerns all metrics
    text: str
    refuses: bool  # whether it makes the metric incomparable


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigures:
    """What the analysis says of candidates and their baseline."""

    compared: ComparedExperiments
    verdicts: Sequence[VerdictRow]
    notes: Sequence[Note]
    n_compared: Mapping[str, int]  # examples that both sides have, and that count, by candidate
    chosen: ChosenExamples | None = None  # None: all examples count


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentsDiff:
    """Candidates against a baseline."""

    baseline: ExperimentOverview
    candidates: Sequence[ExperimentOverview]
    names: Mapping[str, str]  # of the experiments by id, apart from each other
    where: str | None  # the condition on the examples
    n_compared: Mapping[str, int]  # examples that are compared, by candidate
    results: Sequence[Result]
    notes: Sequence[Note]
    counts: Sequence[ChangeCounts]
    lists: Sequence[ChangeList]

    @property
    def run_groups(self) -> dict[str, str]:
        """The run group of each experiment, by its id."""
        return {one.experiment_id: one.run_group for one in (self.baseline, *self.candidates)}

    @property
    def sentences(self) -> list[str]:
        return sentences(self.results)


def experiments_diff(
    store: Store, figures: ComparedFigures, *, metrics: Sequence[str] = (), limit: int = SHOWN
) -> ExperimentsDiff:
    """Return the diff of candidates and their baseline, from the figures of `analysis.differences.stored_pairs`.

    Args:
        store: The store.
        figures: What is compared, and how it came out.
        metrics: Only these. By default all; examples are then listed by the metrics of evaluators.
        limit: The most examples in each list.

    Raise InputError for a metric that no experiment has.
    """
    diff = diff_without_lists(store, figures, metrics)
    listed = metrics or [one.metric for one in diff.counts if one.metric not in MEASURES]
    wanted = ChangeFilter(metrics=listed, changes=LISTED)
    return replace(diff, lists=change_lists(store, figures.compared, wanted, limit=limit) if listed else [])


def diff_without_lists(store: Store, figures: ComparedFigures, metrics: Sequence[str] = ()) -> ExperimentsDiff:
    """Return the same without lists of examples, which take as long as all else."""
    compared = figures.compared
    baseline, *candidates = overviews(store, _IN_ORDER, [compared.experiment_ids])
    names = names_apart(store, {one.experiment_id: one.target for one in (baseline, *candidates)})
    results = compared_results(store, figures, names)
    check_metrics(metrics, [result.metric for result in results if result.has_rows])
    return ExperimentsDiff(
        baseline=baseline,
        candidates=candidates,
        names=names,
        where=figures.chosen.where if figures.chosen else None,
        n_compared=figures.n_compared,
        results=[result for result in results if not metrics or result.metric in metrics],
        notes=[note for note in figures.notes if not metrics or note.metric is None or note.metric in metrics],
        counts=[one for one in change_counts(store, compared) if not metrics or one.metric in metrics],
        lists=[],
    )


def check_metrics(metrics: Sequence[str], known: Sequence[str]) -> None:
    """Raise InputError for a metric that is not among the known ones."""
    for metric in metrics:
        if metric not in known:
            raise InputError(f"metric: got {metric!r}, wanted {names_to_choose(metric, known)}")


def compared_results(store: Store, figures: ComparedFigures, names: Mapping[str, str]) -> list[Result]:
    """Return each metric's results, the baseline's first, with the differences and verdicts of `figures`.

    If only some examples count, means and counts are those of these examples. `names` are those of the experiments.
    """
    baseline = figures.compared.baseline_experiment_id
    verdicts = {(one.candidate_experiment_id, one.metric): one for one in figures.verdicts}
    results = [
        replace(
            result,
            target=names[result.experiment_id],
            **_against(result, verdicts.get((result.experiment_id, result.metric)), baseline, names[baseline]),
        )
        for result in results_of(store, figures.compared.experiment_ids)
    ]
    return results if figures.chosen is None else on_chosen(store, results, figures.chosen)


def _against(result: Result, verdict: VerdictRow | None, baseline_id: str, baseline: str) -> dict[str, Any]:
    """The fields of a result about its difference from the baseline; None without a verdict.

    A result without one in its own run either has the reason why its mean has no interval, which stays.
    """
    if verdict is None:
        own = {"reason": result.reason, "reason_code": result.reason_code} if result.conclusion is None else {}
        return {**dict.fromkeys(("baseline_experiment_id", "baseline", *VERDICT_FIELDS)), **own}
    against = {name: getattr(verdict, field) for name, field in VERDICT_FIELDS.items()}
    return {"baseline_experiment_id": baseline_id, "baseline": baseline, **against}


_IN_ORDER = "is_one_of(experiment_id, $1) order by list_position($1, experiment_id)"
