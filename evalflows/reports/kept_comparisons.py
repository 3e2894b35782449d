"""Comparisons of experiments that the dashboard keeps between requests."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property

from evalflows.analysis import changes
from evalflows.analysis.diff import figures_between
from evalflows.analysis.differences import MetricReader
from evalflows.reports.diff import ExperimentsDiff, diff_of, diff_without_lists
from evalflows.specs.metric_names import MEASURES
from evalflows.store.queries.lookup import rows_of_experiments, run_groups
from evalflows.store.queries.people_checks import people_batches
from evalflows.store.queries.progress import owner_states
from evalflows.store.records import controls_batch
from evalflows.store.store import Store

MOST_CHANGES = 500_000
"""Changes that are kept, of all comparisons together: about 200 MB."""


class KeptComparison:
    """A diff without lists of examples, and the changes of each metric, which are read when they are asked for."""

    def __init__(self, store: Store, figures: changes.ComparedFigures) -> None:
        self.compared: changes.ComparedExperiments = figures.compared
        self.diff: ExperimentsDiff = diff_without_lists(store, figures)
        self._store, self._lock = store, threading.Lock()
        self._changes: dict[str, Mapping[str, Sequence[changes.ExampleChange]]] = {}

    @property
    def metrics(self) -> list[str]:
        """The metrics of which examples have changes: those of evaluators first."""
        counts = (count for count in self.diff.counts if any(getattr(count, change) for change in _WITH_VALUES))
        names = list(dict.fromkeys(count.metric for count in counts))
        return sorted(names, key=lambda name: (name in MEASURES, name))

    @property
    def listed_metrics(self) -> list[str]:
        """Those whose examples are listed by default."""
        listed = {count.metric for count in self.diff.counts if count.is_listed}
        return [metric for metric in self.metrics if metric in listed]

    @property
    def repetitions(self) -> int:
        """The most repetitions that an experiment has."""
        return max(side.repetitions for side in (self.diff.baseline, *self.diff.candidates))

    @cached_property
    def searches(self) -> Sequence[changes.SliceSearch]:
        """The slices in which each candidate departs from its overall difference."""
        candidates = [candidate.experiment_id for candidate in self.diff.candidates]
        return diff_of(self._store, self.diff.baseline.experiment_id, candidates, limit=0, slices=True).searches

    @property
    def is_running(self) -> bool:
        return any(side.state == "running" for side in (self.diff.baseline, *self.diff.candidates))

    @property
    def size(self) -> int:
        """The changes that are held."""
        return sum(len(some) for metric in self._changes.values() for some in metric.values())

    @cached_property
    def examples(self) -> Sequence[changes.SharedExample]:
        """The compared examples, in the baseline's order."""
        reader, ids = MetricReader(self._store), self.compared.experiment_ids
        baseline, *candidates = (self._store.read("experiments", identity)[0] for identity in ids)
        shared = {row.experiment_id: reader.matched(row, baseline).example_ids for row in candidates}
        return changes.shared_examples(self._store, ids[0], shared)

    def changes(self, metrics: Sequence[str]) -> list[Mapping[str, Sequence[changes.ExampleChange]]]:
        """Return the changes in each of these metrics, by example, in the candidates' order."""
        with self._lock:
            if unread := [metric for metric in metrics if metric not in self._changes]:
                with self._store.reading(only=rows_of_experiments(self._store, self.compared.experiment_ids)):
                    self._changes |= changes.changes_of(self._store, self.compared, unread)
            return [self._changes[metric] for metric in metrics]


class KeptComparisons:
    """The comparisons that were asked for last."""

    def __init__(self, most_changes: int = MOST_CHANGES) -> None:
        self._most, self._lock = most_changes, threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], KeptComparison] = OrderedDict()

    def get(self, store: Store, baseline: str, candidates: Sequence[str]) -> KeptComparison:
        """Return the comparison of experiments, given by id.

        It is made anew if a row of the experiments, of their judges' validations, or an approval was added, and as long
        as an experiment is running: whether it still runs is in no row. Raise InputError as `figures_between` does.
        """
        key = (store.layout.root, baseline, *candidates, _state(store, [baseline, *candidates]))
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
        if kept is None:
            with store.reading(about=[baseline, *candidates]):
                kept = KeptComparison(store, store.steady(lambda: figures_between(store, baseline, candidates)))
            if not kept.is_running:
                self._keep(key, kept)
        return kept

    def _keep(self, key: tuple[object, ...], comparison: KeptComparison) -> None:
        """Keep a comparison, and as many of the others as fit beside it."""
        with self._lock:
            self._kept[key] = comparison
            while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > self._most:
                self._kept.popitem(last=False)


_WITH_VALUES = [change for change in changes.CHANGES if change != "not_applicable"]


def _state(store: Store, experiments: Sequence[str]) -> tuple[object, ...]:
    """Return what the rows are known by."""
    groups = run_groups(store, experiments)
    owners = [*experiments, *groups, *map(controls_batch, groups), *people_batches(store)]
    return store.damage_version, owner_states(store, owners, ["baselines", "decisions"])
