"""Any stored experiments against a baseline, started together or apart."""

from collections.abc import Sequence

from evalflows.analysis.differences.comparability import commit_change, is_plain_change
from evalflows.analysis.differences.estimates import estimate_rows
from evalflows.analysis.differences.experiment_pair import ExperimentPair, verdicts_of
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.reports.chosen_results import ChosenExamples
from evalflows.reports.diff import SHOWN, ComparedFigures, ExperimentsDiff, Note, experiments_diff
from evalflows.reports.example_changes import ComparedExperiments
from evalflows.specs.errors import InputError
from evalflows.specs.gate import Adjustment
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow, VerdictRow

STRICTEST: tuple[Adjustment, ...] = ("holm", "benjamini_hochberg", "none")
"""The adjustments, strictest first: the candidates' specs may name different ones."""


def diff_of(
    store: Store,
    baseline: str,
    candidates: Sequence[str],
    *,
    where: str | None = None,
    metrics: Sequence[str] = (),
    limit: int = SHOWN,
) -> ExperimentsDiff:
    """Return the diff of experiments, given by id; nothing is stored.

    Args:
        store: The store.
        baseline: Its id.
        candidates: Their ids.
        where: A SQL condition: only the examples for which it holds count.
        metrics: Show only these. The verdicts are the same: p-values are adjusted over all metrics.
        limit: The most examples in each list.

    Raise InputError for one experiment given twice, for experiments without a common example, for a metric that none
    has, and for a condition that is none or that holds for no common example.
    """
    figures = figures_between(store, baseline, candidates, where)
    return experiments_diff(store, figures, metrics=metrics, limit=limit)


def figures_between(
    store: Store, baseline: str, candidates: Sequence[str], where: str | None = None
) -> ComparedFigures:
    """Return verdicts, notes and what they rest on. Raise InputError as `diff_of` does."""
    rows: list[ExperimentRow] = [store.read("experiments", identity)[0] for identity in (baseline, *candidates)]
    reader = MetricReader(store)
    pairs = stored_pairs(reader, rows[0], rows[1:], where)
    chosen = None if where is None else _chosen(reader, rows, where)
    shared = {pair.candidate.experiment_id: _example_ids(pair) for pair in pairs}
    return ComparedFigures(
        compared=ComparedExperiments(
            baseline_experiment_id=baseline,
            candidate_experiment_ids=list(candidates),
            chosen=shared if chosen else None,
        ),
        verdicts=list(verdicts_of(pairs, _adjustment(pairs))),
        notes=[note for pair in pairs for note in _notes(pair)],
        n_compared={candidate: len(examples) for candidate, examples in shared.items()},
        chosen=chosen,
    )


def verdicts_between(
    reader: MetricReader, baseline: ExperimentRow, candidates: Sequence[ExperimentRow], where: str | None = None
) -> list[VerdictRow]:
    """Return the verdict on each metric of every candidate, by its own spec, as if one call had started all of them.

    p-values are adjusted over all candidates and metrics. Only latencies that were measured side by side are compared.
    `where`: as in `ExperimentPair`.
    """
    pairs = stored_pairs(reader, baseline, candidates, where)
    return list(verdicts_of(pairs, _adjustment(pairs)))


def stored_pairs(
    reader: MetricReader, baseline: ExperimentRow, candidates: Sequence[ExperimentRow], where: str | None = None
) -> list[ExperimentPair]:
    """Return each candidate with the baseline. Raise InputError for pairs that cannot be compared."""
    ids = [row.experiment_id for row in (baseline, *candidates)]
    if twice := next((row for row in (baseline, *candidates) if ids.count(row.experiment_id) > 1), None):
        raise InputError(f"experiment {twice.name!r} ({twice.experiment_id}): got it twice, wanted different ones")
    pairs = [
        ExperimentPair(reader=reader, spec=reader.spec(row), candidate=row, baseline=baseline, where=where)
        for row in candidates
    ]
    for pair in pairs:
        _check(pair)
    return pairs


def _check(pair: ExperimentPair) -> None:
    assert pair.baseline is not None and pair.matched is not None
    if not pair.matched.n_shared:
        names = f"experiments {pair.baseline.name!r} and {pair.candidate.name!r}"
        raise InputError(f"{names}: got no common example, wanted some with the same id, inputs and reference")
    if not _example_ids(pair):
        shared = f"none of the {pair.matched.n_shared} examples of {pair.candidate.name!r}"
        raise InputError(
            f"where {pair.where!r}: got {shared} that are compared, wanted a condition that holds for some"
        )


def _example_ids(pair: ExperimentPair) -> Sequence[str]:
    """The shared examples that count."""
    assert pair.matched is not None
    return (
        [pair.matched.example_ids[place] for place in pair.shared_places("")]
        if pair.where
        else pair.matched.example_ids
    )


def _adjustment(pairs: Sequence[ExperimentPair]) -> Adjustment:
    return min((pair.spec.adjustment for pair in pairs), key=STRICTEST.index)


def _chosen(reader: MetricReader, rows: Sequence[ExperimentRow], where: str) -> ChosenExamples:
    """The examples of each experiment for which the condition holds, and the means on these."""
    examples = {}
    for row in rows:
        ids = reader.matched(row, row).example_ids
        examples[row.experiment_id] = [ids[place] for place in reader.places_where(row.snapshot_id, where)]
    estimates = [one for row in rows for one in estimate_rows(reader, row, reader.spec(row), where)]
    return ChosenExamples(where=where, examples=examples, estimates=estimates)


def _notes(pair: ExperimentPair) -> list[Note]:
    assert pair.baseline is not None
    owner = pair.candidate.experiment_id
    notes = [Note(candidate_experiment_id=owner, **one.as_dict()) for one in pair.differences]
    commits = commit_change(pair.candidate, pair.baseline)
    if commits and is_plain_change(pair.candidate, pair.baseline):
        what = f"git commit {commits}"
        notes.append(Note(candidate_experiment_id=owner, what="commit", metric=None, text=what, refuses=False))
    return notes
