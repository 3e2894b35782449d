"""Match the examples of two experiments."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from evalflows.analysis.differences.metric_pairs import Clusters, MetricSample
from evalflows.store.parquet import Store
from evalflows.store.queries.metric_values import MetricValues
from evalflows.store.queries.shared_examples import shared_examples, with_same
from evalflows.store.records import ExampleRow, ExperimentRow
from evalflows.store.snapshots import load_snapshot

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedExamples:
    """The shared examples, which have the same inputs and references, and their positions in each snapshot.

    They are in the candidate's order.
    """

    example_ids: Sequence[str]
    candidate: Places
    baseline: Places
    absent: int = 0  # examples in only one of the snapshots
    changed: int = 0  # examples in both, with different inputs or references
    is_whole: bool = False  # whether both have the same snapshot

    @property
    def n_shared(self) -> int:
        return len(self.candidate)

    @property
    def left_out(self) -> int:
        return self.absent + self.changed

    def at(self, places: Places) -> "MatchedExamples":
        """Some of the shared examples, by their positions among them."""
        return replace(
            self,
            example_ids=[self.example_ids[place] for place in places],
            candidate=self.candidate[places],
            baseline=self.baseline[places],
            is_whole=False,
        )

    def of_candidate(self, metric: MetricValues) -> MetricValues:
        return metric if self.is_whole else at_places(metric, self.candidate)

    def of_baseline(self, metric: MetricValues) -> MetricValues:
        return metric if self.is_whole else at_places(metric, self.baseline)

    def of_clusters(self, clusters: Clusters) -> Clusters:
        return None if clusters is None else [clusters[place] for place in self.candidate]


def matched(store: Store, candidate: ExperimentRow, baseline: ExperimentRow) -> MatchedExamples:
    """Match examples by id; shared examples must have the same inputs and references."""
    ours = _example_ids(store, candidate.snapshot_id)
    if candidate.snapshot_id == baseline.snapshot_id:
        places = np.arange(len(ours), dtype=np.intp)
        return MatchedExamples(example_ids=ours, candidate=places, baseline=places, is_whole=True)
    shared = shared_examples(store, [candidate, baseline])
    # scores against different references are not comparable
    shared = with_same(shared, load_snapshot(store, baseline.snapshot_id), _references)
    names = shared.examples.ids
    return MatchedExamples(
        example_ids=names,
        candidate=_places(ours, names),
        baseline=_places(_example_ids(store, baseline.snapshot_id), names),
        absent=shared.absent,
        changed=shared.changed,
    )


def at_places(metric: MetricValues, places: Places) -> MetricValues:
    """A metric on some of the examples; `scored` and `n_missing` then count examples."""
    values, missing = metric.values[places], metric.missing[places]
    return replace(
        metric,
        values=values,
        missing=missing,
        weights=metric.weights[places],
        scored=int((~np.isnan(values)).sum()),
        n_missing=int(missing.sum()),
    )


def sample_at(sample: MetricSample, places: Places) -> MetricSample:
    """A metric with its clusters on some of the examples."""
    clusters = None if sample.clusters is None else [sample.clusters[place] for place in places]
    return replace(sample, values=at_places(sample.values, places), clusters=clusters)


def _references(example: ExampleRow) -> str | None:
    return example.reference_outputs


def _example_ids(store: Store, snapshot_id: str) -> list[str]:
    rows = store.query("select example_id from source.examples where snapshot_id = ? order by position", [snapshot_id])
    return [example_id for (example_id,) in rows]


def _places(among: Sequence[str], names: Sequence[str]) -> Places:
    place = {name: number for number, name in enumerate(among)}
    return np.array([place[name] for name in names], dtype=np.intp)
