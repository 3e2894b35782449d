"""Any stored experiments against a baseline, started together or apart, and against the runs before them; and several
candidates of one gate: whether its own metrics tell them apart, and which is best.

Diffs are kept in the process while the rows that they rest on are the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

from evalflows.analysis.changes import ChosenExamples, ComparedExperiments, ComparedFigures
from evalflows.analysis.differences import ExperimentPair, MetricReader, estimate_rows, verdicts_of
from evalflows.analysis.figures import ONLY_JUDGE_DIFFERS
from evalflows.analysis.run_together import have_same_answers, notes_of_verdicts, notes_on
from evalflows.analysis.slice_search import search_slices
from evalflows.analysis.verdicts import classify
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import Adjustment
from evalflows.specs.metric_names import MEASURES
from evalflows.store.queries.conclusions import ComparedVerdict, current_verdicts
from evalflows.store.queries.lookup import experiment_rows
from evalflows.store.records import ExperimentRow, VerdictRow
from evalflows.store.store import Store

STRICTEST: tuple[Adjustment, ...] = ("holm", "benjamini_hochberg", "none")
"""The adjustments, strictest first: the candidates' specs may name different ones."""


def figures_between(
    store: Store,
    baseline: str,
    candidates: Sequence[str],
    where: str | None = None,
    *,
    searched: Sequence[str] | None = None,
    rows_of: Callable[[str], list[tuple[Any, ...]]] | None = None,
) -> ComparedFigures:
    """Return verdicts, notes and what they rest on; with `searched`, the slices that depart in these metrics, or in
    those of all evaluators if it is empty. `rows_of` runs the condition, as in `MetricReader`.

    Raise InputError for one experiment given twice, for experiments without a common example, and for a condition
    (`where`, SQL) that is none or that holds for no common example.
    """
    rows = experiment_rows(store, [baseline, *candidates])
    reader = MetricReader(store, rows=rows_of)
    pairs = stored_pairs(reader, rows[0], rows[1:], where)
    chosen = None if where is None else _chosen(reader, rows, where)
    verdicts = _current(store, pairs) if where is None else _new_verdicts(pairs)
    shared = {pair.candidate.experiment_id: _example_ids(pair) for pair in pairs}
    return ComparedFigures(
        compared=ComparedExperiments(
            baseline_experiment_id=baseline,
            candidate_experiment_ids=list(candidates),
            chosen=shared if chosen else None,
        ),
        verdicts=verdicts,
        notes=[
            *(
                note
                for pair in pairs
                for note in notes_on(pair.candidate, rows[0], [*pair.differences, *pair.quarantine_notes])
            ),
            *notes_of_verdicts(store, rows[1:], verdicts, shared),
        ],
        n_compared={candidate: len(examples) for candidate, examples in shared.items()},
        chosen=chosen,
        searches=() if searched is None else [search_slices(pair, searched) for pair in pairs],
    )


def _current(store: Store, pairs: Sequence[ExperimentPair]) -> list[ComparedVerdict]:
    """Return the verdicts on pairs: the one that counts where a gate or a run has compared the two, else a new one."""
    stored = current_verdicts(store, [pair.candidate.experiment_id for pair in pairs])
    found = [
        stored.get((row.candidate_experiment_id, row.baseline_experiment_id or "", row.metric), row)
        for row in _new_verdicts(pairs)
    ]
    of_judge = {(pair.candidate.experiment_id, metric) for pair in pairs for metric in _only_judged_otherwise(pair)}
    return [
        replace(row, conclusion="not_enough_evidence", reason=ONLY_JUDGE_DIFFERS, reason_code="only_judge_differs")
        if row.conclusion in ("better", "worse") and (row.candidate_experiment_id, row.metric) in of_judge
        else row
        for row in found
    ]


def judge_changes(pair: ExperimentPair) -> dict[str, str]:
    """Return what the provider of a judge has changed behind its model's name, in words, by judge."""
    return {found.metric: found.text for found in pair.differences if found.what == "provider" and found.metric}


def _only_judged_otherwise(pair: ExperimentPair) -> list[str]:
    """Return the metrics of judges that a provider has changed, if the answers are the same on both sides."""
    judges = judge_changes(pair)
    if not judges or pair.baseline is None:
        return []
    sides = pair.candidate.experiment_id, pair.baseline.experiment_id
    are_same = have_same_answers(pair.reader.store, *sides, _example_ids(pair))
    return [name for name, values in pair.values.items() if are_same and values.evaluator in judges]


def _new_verdicts(pairs: Sequence[ExperimentPair]) -> list[ComparedVerdict]:
    rows = [*verdicts_of(pairs, strictest(pairs))]
    n_tests = Counter(row.metric in MEASURES for row in rows if row.p_adjusted is not None)
    columns = [field.name for field in fields(VerdictRow)]
    return [
        ComparedVerdict(
            **{name: getattr(row, name) for name in columns}, family="diff", n_in_family=n_tests[row.metric in MEASURES]
        )
        for row in rows
    ]


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
    """Return the shared examples that count."""
    assert pair.matched is not None
    return (
        [pair.matched.example_ids[index] for index in pair.shared_places("")]
        if pair.where
        else pair.matched.example_ids
    )


def strictest(pairs: Sequence[ExperimentPair]) -> Adjustment:
    """Return the strictest adjustment of the candidates' specs."""
    return min((pair.spec.adjustment for pair in pairs), key=STRICTEST.index, default=STRICTEST[0])


def _chosen(reader: MetricReader, rows: Sequence[ExperimentRow], where: str) -> ChosenExamples:
    """Return the examples of each experiment for which the condition holds, and the means on these."""
    examples = {}
    for row in rows:
        ids = reader.matched(row, row).example_ids
        examples[row.experiment_id] = [ids[index] for index in reader.places_where(row.snapshot_id, where)]
    estimates = [estimate for row in rows for estimate in estimate_rows(reader, row, reader.spec(row), where)]
    return ChosenExamples(where=where, examples=examples, estimates=estimates)


def verdicts_since(
    store: Store, earlier: Iterable[tuple[str, str]]
) -> Iterator[tuple[ExperimentPair, int, list[ComparedVerdict]]]:
    """Yield each experiment with the earlier run as its baseline, the number of examples that they share, and the
    verdicts, if they share any; given are ids."""
    reader = MetricReader(store)
    for ids in earlier:
        row, previous = (store.read("experiments", identity)[0] for identity in ids)
        if n_shared := reader.matched(row, previous).n_shared:
            (pair,) = stored_pairs(reader, previous, [row])
            yield pair, n_shared, _current(store, [pair])


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How some candidates compare with each other, by ids of experiments."""

    candidates: Sequence[str]
    metrics: Sequence[str]  # those of the gate that could be compared
    better: Mapping[tuple[str, str], Sequence[str]]  # the first is significantly better than the second in these

    @property
    def best(self) -> str | None:
        """The candidate that is better than each other one in some metric, and worse in none; None if none is."""
        return next(
            (candidate for candidate in self.candidates if len(self.candidates) > 1 and self._beats_all(candidate)),
            None,
        )

    def _beats_all(self, candidate: str) -> bool:
        others = [other for other in self.candidates if other != candidate]
        return all((candidate, other) in self.better and (other, candidate) not in self.better for other in others)


def standing(reader: MetricReader, candidates: Sequence[str], metrics: Sequence[str]) -> Standing:
    """Compare candidates with each other by some metrics, with p-values adjusted over all pairs and metrics.

    Metrics that two candidates do not share, and those of judges that decide nothing, tell nothing apart.
    """
    rows = [reader.experiment(identity) for identity in candidates]
    pairs = [
        ExperimentPair(reader=reader, spec=reader.spec(second), candidate=second, baseline=first)
        for first, second in combinations(rows, 2)
    ]
    tested = [
        (pair, metric, tested_metric.test)
        for pair in pairs
        for metric in metrics
        if (tested_metric := pair.tested(metric)) is not None
    ]
    better: dict[tuple[str, str], list[str]] = {}
    for (pair, metric, _), verdict in zip(
        tested, classify([test for *_, test in tested], strictest(pairs)), strict=True
    ):
        first, second = pair.baseline.experiment_id if pair.baseline else "", pair.candidate.experiment_id
        if verdict.conclusion in ("better", "worse"):
            sides = (second, first) if verdict.conclusion == "better" else (first, second)
            better.setdefault(sides, []).append(metric)
    compared = {metric for _, metric, test in tested if test.exclusion is None}
    return Standing(
        candidates=list(candidates), metrics=[metric for metric in metrics if metric in compared], better=better
    )
