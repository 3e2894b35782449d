"""Two experiments side by side: which example of one is which of the other's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from store.parquet import Store
from store.records import ExperimentRow
from store.snapshots import load_snapshot
from store.values import MetricValues
from tasks.shared_examples import Shared, shared_examples
from tasks.sides import Clusters

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The examples that both have with the same inputs and references: their places in each snapshot, in the
    candidate's order."""

    shared: Shared
    candidate: Places
    baseline: Places
    is_whole: bool  # whether both have the same snapshot, and nothing is left out

    @property
    def n_shared(self) -> int:
        return len(self.candidate)

    def of_candidate(self, one: MetricValues) -> MetricValues:
        return one if self.is_whole else at_places(one, self.candidate)

    def of_baseline(self, one: MetricValues) -> MetricValues:
        return one if self.is_whole else at_places(one, self.baseline)

    def of_clusters(self, clusters: Clusters) -> Clusters:
        return None if clusters is None else [clusters[place] for place in self.candidate]


def matched(store: Store, candidate: ExperimentRow, baseline: ExperimentRow) -> Matched:
    """Examples are the same by their ids, and if what was asked is the same."""
    shared = _with_same_references(store, shared_examples(store, [candidate, baseline]), baseline)
    ours, theirs = (_places(store, row.snapshot_id) for row in (candidate, baseline))
    names = [example.example_id for example in shared.examples]
    return Matched(
        shared=shared,
        candidate=np.array([ours[name] for name in names], dtype=np.intp),
        baseline=np.array([theirs[name] for name in names], dtype=np.intp),
        is_whole=candidate.snapshot_id == baseline.snapshot_id and not shared.left_out,
    )


def both_sided(one: MetricValues, other: MetricValues) -> tuple[MetricValues, MetricValues]:
    """Where a metric applies to one side's answer and not to the other's, it is missing there: else a candidate that
    abstains where it is wrong would be measured by the rest. Of samples nothing can be told."""
    if np.concatenate([one.weights, other.weights]).max(initial=1.0) > 1:
        return one, other
    ours, theirs = (np.isnan(each.values) & ~each.missing for each in (one, other))
    return _also_missing(one, ours & ~theirs), _also_missing(other, theirs & ~ours)


def _also_missing(one: MetricValues, where: npt.NDArray[np.bool_]) -> MetricValues:
    return replace(one, missing=one.missing | where, lost=one.lost + int(where.sum())) if where.any() else one


def at_places(one: MetricValues, places: Places) -> MetricValues:
    """A metric of some of the examples; what was scored and lost is counted by examples then."""
    values, missing = one.values[places], one.missing[places]
    return replace(
        one,
        values=values,
        missing=missing,
        weights=one.weights[places],
        scored=int((~np.isnan(values)).sum()),
        lost=int(missing.sum()),
    )


def _with_same_references(store: Store, shared: Shared, baseline: ExperimentRow) -> Shared:
    """Answers that were held against other references are not compared: their scores mean other things."""
    theirs = {one.example_id: one.reference_outputs for one in load_snapshot(store, baseline.snapshot_id)}
    same = [one for one in shared.examples if theirs[one.example_id] == one.reference_outputs]
    return replace(shared, examples=same, changed=shared.changed + len(shared.examples) - len(same))


def _places(store: Store, snapshot_id: str) -> Mapping[str, int]:
    return {example.example_id: place for place, example in enumerate(load_snapshot(store, snapshot_id))}
