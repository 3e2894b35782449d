"""Any stored experiments against a baseline, started together or apart, and against the runs before them.

Diffs are kept in the process while the rows that they rest on are the same.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property

from evalflows.analysis.differences import ExperimentPair, MetricReader, estimate_rows, verdicts_of
from evalflows.analysis.pairing import commit_change, is_plain_change
from evalflows.reports.diff import (
    CHANGES,
    METRICS_SHOWN,
    ComparedExperiments,
    ComparedFigures,
    ExampleChange,
    ExperimentsDiff,
    Note,
    diff_without_lists,
    experiments_diff,
)
from evalflows.reports.experiments import PreviousRun, previous_run
from evalflows.reports.results import ChosenExamples
from evalflows.reports.side_by_side import SharedExample, changes_of, shared_examples
from evalflows.specs.errors import MEASURES, InputError
from evalflows.specs.gate import Adjustment
from evalflows.store.queries.lookup import run_groups
from evalflows.store.queries.progress import owner_states
from evalflows.store.records import ExperimentRow, VerdictRow, controls_batch
from evalflows.store.store import Store

STRICTEST: tuple[Adjustment, ...] = ("holm", "benjamini_hochberg", "none")
"""The adjustments, strictest first: the candidates' specs may name different ones."""


def diff_of(
    store: Store,
    baseline: str,
    candidates: Sequence[str],
    *,
    where: str | None = None,
    metrics: Sequence[str] = (),
    limit: int = METRICS_SHOWN,
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


MOST_CHANGES = 500_000
"""Changes that are kept, of all comparisons together: about 200 MB."""


class KeptComparison:
    """A diff without lists of examples, and the changes of each metric, which are read when they are asked for."""

    def __init__(self, store: Store, figures: ComparedFigures) -> None:
        self.compared: ComparedExperiments = figures.compared
        self.diff: ExperimentsDiff = diff_without_lists(store, figures)
        self._store, self._lock = store, threading.Lock()
        self._changes: dict[str, Mapping[str, Sequence[ExampleChange]]] = {}

    @property
    def metrics(self) -> list[str]:
        """The metrics of which examples have changes: those of evaluators first."""
        counts = (one for one in self.diff.counts if any(getattr(one, change) for change in _WITH_VALUES))
        names = list(dict.fromkeys(one.metric for one in counts))
        return sorted(names, key=lambda name: (name in MEASURES, name))

    @property
    def repetitions(self) -> int:
        """The most repetitions that an experiment has."""
        return max(one.repetitions for one in (self.diff.baseline, *self.diff.candidates))

    @property
    def is_running(self) -> bool:
        return any(one.state == "running" for one in (self.diff.baseline, *self.diff.candidates))

    @property
    def size(self) -> int:
        """The changes that are held."""
        return sum(len(some) for metric in self._changes.values() for some in metric.values())

    @cached_property
    def examples(self) -> Sequence[SharedExample]:
        """The compared examples, in the baseline's order."""
        reader, ids = MetricReader(self._store), self.compared.experiment_ids
        baseline, *candidates = (self._store.read("experiments", identity)[0] for identity in ids)
        shared = {row.experiment_id: reader.matched(row, baseline).example_ids for row in candidates}
        return shared_examples(self._store, ids[0], shared)

    def changes(self, metrics: Sequence[str]) -> list[Mapping[str, Sequence[ExampleChange]]]:
        """Return the changes in each of these metrics, by example, in the candidates' order."""
        with self._lock:
            if unread := [metric for metric in metrics if metric not in self._changes]:
                self._changes |= changes_of(self._store, self.compared, unread)
            return [self._changes[metric] for metric in metrics]


class KeptComparisons:
    """The comparisons that were asked for last."""

    def __init__(self, most_changes: int = MOST_CHANGES) -> None:
        self._most, self._lock = most_changes, threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], KeptComparison] = OrderedDict()

    def get(self, store: Store, baseline: str, candidates: Sequence[str], today: date) -> KeptComparison:
        """Return the comparison of experiments, given by id; names may say how long ago something was, as of `today`.

        It is made anew if a row of the experiments, of their judges' validations, or an approval was added, and as long
        as an experiment is running: whether it still runs is in no row. Raise InputError as `figures_between` does.
        """
        key = (store.layout.root, baseline, *candidates, today, _state(store, [baseline, *candidates]))
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
        if kept is None:
            kept = KeptComparison(store, store.steady(lambda: figures_between(store, baseline, candidates)))
            if not kept.is_running:
                self._keep(key, kept)
        return kept

    def _keep(self, key: tuple[object, ...], one: KeptComparison) -> None:
        """Keep a comparison, and as many of the others as fit beside it."""
        with self._lock:
            self._kept[key] = one
            while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > self._most:
                self._kept.popitem(last=False)


_WITH_VALUES = [change for change in CHANGES if change != "not_applicable"]

kept_comparisons = KeptComparisons()
"""Those of this process."""


def _state(store: Store, experiments: Sequence[str]) -> tuple[object, ...]:
    """What the rows are known by."""
    groups = run_groups(store, experiments)
    owners = [*experiments, *groups, *map(controls_batch, groups)]
    return store.damage_version, owner_states(store, owners, ["baselines"])


def previous_runs(store: Store, earlier: Sequence[tuple[str, str]]) -> Iterator[PreviousRun]:
    """Yield how each experiment did against the earlier run beside it, if they share examples; both are ids."""
    reader = MetricReader(store)
    for identity, before in earlier:
        row, previous = (_row(store, one) for one in (identity, before))
        if reader.matched(row, previous).n_shared:
            yield previous_run(row, previous, verdicts_between(reader, previous, [row]))


def _row(store: Store, identity: str) -> ExperimentRow:
    row: ExperimentRow = store.read("experiments", identity)[0]
    return row
