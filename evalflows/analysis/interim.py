"""Interim analyses: estimates that may be looked at after each batch of examples.

A fixed-sample test that is repeated often enough is significant by chance. Confidence sequences cover the true value at
all analyses simultaneously, so a gate may stop as soon as it has decided.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from evalflows.analysis.pairing import Clusters, MetricSample, PairedMetric, Places, Scale, at_places, filled
from evalflows.analysis.rule_estimates import interval
from evalflows.analysis.rules import Estimate, Facts, Interval
from evalflows.engine.order import cluster_boundary, in_running_order
from evalflows.specs.frozen import dataclass
from evalflows.stats.sequential import ConfidenceSequence, cluster_values, confidence_sequence
from evalflows.store.queries.values import Mask, MetricValues, Values
from evalflows.store.records import ExperimentRow, Reason
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimAnalyses:
    """The interim analyses so far of a candidate, and of its baseline if both run together."""

    ranks: Places  # the position of each snapshot example in the running order
    after: Sequence[int]  # the number of examples at each analysis, at cluster boundaries; the last is the current one
    n_done: int  # examples that have run: also the first ones of a cluster of which others have not
    n_examples: int

    @property
    def is_whole(self) -> bool:
        """Whether all examples have run."""
        return self.after[-1] == self.n_examples

    def seen(self, places: Places) -> Places:
        """Indices into `places` of the examples that have run, in running order."""
        ranks = self.ranks[places]
        order = np.argsort(ranks, kind="stable")
        return order[ranks[order] < self.after[-1]]


def interim_analyses_of(store: Store, rows: Sequence[ExperimentRow]) -> InterimAnalyses | None:
    """Return the interim analyses of experiments that run together; None before the first batch has finished."""
    row = rows[0]
    examples = load_snapshot(store, row.snapshot_id)
    running = in_running_order(row, examples)
    rank = {example_id: index for index, example_id in enumerate(running.ids)}
    done = min(_n_done(store, row, running.ids) for row in rows)
    batches = [*range(row.chunk_size, done + 1, row.chunk_size), *([done] if done == len(running) else [])]
    if row.seed is None:  # without batches, the first examples are not a random sample
        batches = [done] if done == len(running) else []
    clusters = running.clusters
    after = sorted({cluster_boundary(clusters, batch) for batch in batches} - {0})
    ranks = np.array([rank[example_id] for example_id in examples.ids], dtype=np.intp)
    return InterimAnalyses(ranks=ranks, after=after, n_done=done, n_examples=len(examples)) if after else None


def _n_done(store: Store, row: ExperimentRow, running: Sequence[str]) -> int:
    """Return how many examples, counted from the start of the running order, have finished all repetitions."""
    query = """select example_id from source.outputs where experiment_id = ? and status <> 'not_attempted'
               group by 1 having count(distinct repetition) = ?"""
    ran = {example for (example,) in store.query(query, [row.experiment_id, row.repetitions])}
    return next((index for index, example in enumerate(running) if example not in ran), len(running))


def pairs_so_far(paired: PairedMetric, seen: Places) -> PairedMetric:
    """Return the pairs that have run, in running order; `seen` are their positions among all."""
    clusters = None if paired.clusters is None else [paired.clusters[index] for index in seen]
    candidate, baseline = at_places(paired.candidate, seen), at_places(paired.baseline, seen)
    return replace(paired, candidate=candidate, baseline=baseline, clusters=clusters)


def interim_difference(paired: PairedMetric, interim_analyses: InterimAnalyses, places: Places) -> Estimate | Reason:
    """Return how much better the candidate is so far, or why that cannot be estimated in batches.

    `places` are the snapshot positions of the paired examples.
    """
    seen = interim_analyses.seen(places)
    so_far = pairs_so_far(paired, seen)
    candidate, baseline = so_far.candidate, so_far.baseline
    counted = _counted(candidate) & _counted(baseline)
    if why := _why_not_in_batches(counted, np.maximum(candidate.weights, baseline.weights), paired.clusters):
        return why
    low, high = paired.scale.bounds
    smallest, largest = (
        _filled(candidate, of_candidate, paired.scale) - _filled(baseline, of_baseline, paired.scale)
        for of_candidate, of_baseline in ((low, high), (high, low))
    )
    return RunningEstimate(
        value=so_far.difference(paired.confidence_level).difference,
        n_missing=so_far.n_missing,
        noun="pairs",
        smallest=smallest[counted],
        largest=largest[counted],
        bounds=(low - high, high - low) if paired.scale.is_bounded else None,
        ends=_ends(interim_analyses, interim_analyses.ranks[places][seen][counted]),
        clusters=_running_clusters(paired.clusters, seen, counted),
        higher_is_better=paired.scale.higher_is_better,
        is_whole=interim_analyses.is_whole,
    )


def interim_mean(sample: MetricSample, interim_analyses: InterimAnalyses, places: Places) -> Estimate | Reason:
    """Return the candidate's own mean so far, or why it cannot be estimated in batches.

    `places` are the snapshot positions of the sample's examples.
    """
    seen = interim_analyses.seen(places)
    so_far = at_places(sample.values, seen)
    counted, bounds = _counted(so_far), sample.scale.bounds
    if why := _why_not_in_batches(counted, so_far.weights, sample.clusters):
        return why
    smallest, largest = (_filled(so_far, bound, sample.scale)[counted] for bound in bounds)
    known = so_far.values[~np.isnan(so_far.values)]
    return RunningEstimate(
        value=float(known.mean()) if known.size else None,
        n_missing=int(so_far.missing.sum()),
        noun="examples",
        smallest=smallest,
        largest=largest,
        bounds=bounds if sample.scale.is_bounded else None,
        ends=_ends(interim_analyses, interim_analyses.ranks[places][seen][counted]),
        clusters=_running_clusters(sample.clusters, seen, counted),
        higher_is_better=sample.scale.higher_is_better,
        is_whole=interim_analyses.is_whole,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningClusters:
    """The cluster of each value, and the cluster sizes in the whole dataset."""

    names: Sequence[str | None]
    average_size: float
    largest_size: int


@dataclass(frozen=True, kw_only=True)
class RunningEstimate(Estimate):
    """An estimate from values in running order, with missing ones at the lower bound and at the upper bound."""

    value: float | None
    n_missing: int
    noun: str
    smallest: Values
    largest: Values
    bounds: Interval | None
    ends: Sequence[int]  # the number of values at each analysis
    clusters: _RunningClusters | None
    higher_is_better: bool
    is_whole: bool

    @cached_property
    def facts(self) -> Facts:
        clusters = None if self.clusters is None else len({*self.clusters.names})
        means = (float(self.smallest.mean()), float(self.largest.mean())) if self.smallest.size else None
        return Facts(
            value=self.value,
            worst_case_values=means if self.bounds is not None or not self.n_missing else None,
            n=len(self.smallest) if clusters is None else clusters,
            noun=self.noun if clusters is None else "clusters",
            n_missing=self.n_missing,
            higher_is_better=self.higher_is_better,
            is_sequence=True,
            is_whole=self.is_whole,
            reason=None if self.n_missing and self.bounds is None else self._sequence(self.smallest, 0.95).reason,
        )

    def interval_at(self, confidence_level: float) -> Interval | None:
        return self.worst_case_interval_at(confidence_level)

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        same = np.array_equal(self.smallest, self.largest)
        if self.bounds is None and not same:
            return None
        lowest = self._sequence(self.smallest, confidence_level)
        highest = lowest if same else self._sequence(self.largest, confidence_level)
        low, high = (ends[-1] if ends else None for ends in (lowest.low, highest.high))
        return interval(low, high)

    def _sequence(self, values: Values, confidence_level: float) -> ConfidenceSequence:
        if self.clusters is None:
            return confidence_sequence(
                values, bounds=self.bounds, confidence_level=confidence_level, interim_analyses=self.ends
            )
        names, shift = self.clusters.names, 0.0
        if self.bounds is not None and not self.bounds[0] <= 0 <= self.bounds[1]:
            shift = self.bounds[0]  # then the bounds of a cluster sum include 0, whatever its size
        sums = cluster_values(
            values - shift, names, average_size=self.clusters.average_size, largest_size=self.clusters.largest_size
        )
        low, high = self.bounds or (0.0, 0.0)
        wider = self.bounds and ((low - shift) * sums.bounds_factor, (high - shift) * sums.bounds_factor)
        ends = sorted({len({*names[:end]}) for end in self.ends})
        sequence = confidence_sequence(
            sums.values, bounds=wider, confidence_level=confidence_level, interim_analyses=ends
        )
        return replace(sequence, low=_shifted(sequence.low, shift), high=_shifted(sequence.high, shift))


def _shifted(ends: Sequence[float | None], by: float) -> tuple[float | None, ...]:
    return tuple(None if end is None else end + by for end in ends)


def _running_clusters(clusters: Clusters, seen: Places, counted: Mask) -> _RunningClusters | None:
    """Return the clusters; an example without one is a cluster of its own."""
    if clusters is None:
        return None
    names = [name if name is not None else f"alone {index}" for index, name in enumerate(clusters)]
    sizes = Counter(names).values()
    return _RunningClusters(
        names=[names[index] for index in seen[counted]], average_size=len(names) / len(sizes), largest_size=max(sizes)
    )


def _why_not_in_batches(counted: Mask, weights: Values, clusters: Clusters) -> Reason | None:
    if not counted.size:
        return Reason("no_finished_batch", "none of its examples has run yet")
    if counted.any() and np.ptp(weights[counted]):
        return Reason("not_for_batches", "examples sampled at different rates cannot be analysed in batches")
    if clusters is not None and not counted.all():
        return Reason("not_for_batches", "partly scored clusters cannot be analysed in batches")
    return None


def _counted(metric: MetricValues) -> Mask:
    """Return the examples that are scored or missing, rather than left out on purpose."""
    return ~np.isnan(metric.values) | metric.missing


def _filled(metric: MetricValues, extreme: float, scale: Scale) -> Values:
    """Return the values within bounds, with what is missing of each at an extreme."""
    return filled(metric.values.clip(*scale.bounds), metric.missing_part, extreme)


def _ends(interim_analyses: InterimAnalyses, ranks: Places) -> list[int]:
    """Return how many of the examples of these ranks had run at each analysis."""
    return sorted({int(np.searchsorted(ranks, after)) for after in interim_analyses.after} - {0})
