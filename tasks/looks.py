"""What a gate sees that looks after each batch: the examples that have run so far, in the order in which they ran.

A test that is asked again and again would find something by chance at last. Confidence sequences cover the truth at all
looks together, so that a gate may stop when it has decided, whenever that is.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stats import ConfidenceSequence, cluster_values, confidence_sequence
from store.parquet import Store
from store.records import ExperimentRow
from store.snapshots import load_snapshot
from tasks.chunk import in_running_order
from tasks.matched import Places, at_places
from tasks.rules import Interval, Measured, turned
from tasks.sides import Clusters, Side, Sides

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """How far the candidate, and the baseline where it runs along, have come."""

    ranks: Places  # of each example in the snapshot: its place in the order of running
    after: Sequence[int]  # after how many examples there was a look, no cluster cut; the last is where they are now
    n_examples: int

    @property
    def is_whole(self) -> bool:
        """Whether all has run."""
        return self.after[-1] == self.n_examples

    def seen(self, places: Places) -> Places:
        """Of some places in the snapshot those that have run, in the order of running."""
        ranks = self.ranks[places]
        order = np.argsort(ranks, kind="stable")
        return order[ranks[order] < self.after[-1]]


def looks_at(store: Store, rows: Sequence[ExperimentRow]) -> Looks | None:
    """The looks at experiments that run together; None before the first of them is through."""
    row = rows[0]
    examples = load_snapshot(store, row.snapshot_id)
    running = in_running_order(row, examples)
    rank = {example.example_id: place for place, example in enumerate(running)}
    done = min(_done(store, one, [example.example_id for example in running]) for one in rows)
    batches = [*range(row.chunk_size, done + 1, row.chunk_size), *([done] if done == len(running) else [])]
    if row.seed is None:  # begun without batches, in the dataset's order: what ran first is no fair sample
        batches = [done] if done == len(running) else []
    clusters = [example.cluster for example in running]
    after = sorted({_between_clusters(clusters, batch) for batch in batches} - {0})
    ranks = np.array([rank[example.example_id] for example in examples], dtype=np.intp)
    return Looks(ranks=ranks, after=after, n_examples=len(examples)) if after else None


def _done(store: Store, row: ExperimentRow, running: Sequence[str]) -> int:
    """How many examples have run, from the first one on, all repetitions of each."""
    query = """select example_id from source.outputs where experiment_id = ? and status <> 'not_attempted'
               group by 1 having count(distinct repetition) = ?"""
    ran = {example for (example,) in store.query(query, [row.experiment_id, row.repetitions])}
    return next((place for place, example in enumerate(running) if example not in ran), len(running))


def _between_clusters(clusters: Sequence[str | None], place: int) -> int:
    """The last place up to this one at which no cluster is cut."""
    while 0 < place < len(clusters) and clusters[place] is not None and clusters[place] == clusters[place - 1]:
        place -= 1
    return place


def difference_looked_at(sides: Sides, looks: Looks, places: Places) -> Measured | str:
    """How much better the candidate is by what has run, or why that cannot be told early.

    `places` are the snapshot's places of the sides' examples.
    """
    seen = looks.seen(places)
    ours, theirs = at_places(sides.candidate, seen), at_places(sides.baseline, seen)
    so_far = Sides(
        candidate=ours,
        baseline=theirs,
        clusters=None if sides.clusters is None else [sides.clusters[place] for place in seen],
        scale=sides.scale,
        level=sides.level,
    )
    counted = _counted(ours.values, ours.missing) & _counted(theirs.values, theirs.missing)
    if why := _unfit(counted, np.maximum(ours.weights, theirs.weights), sides.clusters):
        return why
    low, high = sides.scale.bounds
    smallest, largest = (
        np.where(ours.missing, one, ours.values.clip(low, high))
        - np.where(theirs.missing, other, theirs.values.clip(low, high))
        for one, other in ((low, high), (high, low))
    )
    cases = _Cases(
        smallest=smallest[counted],
        largest=largest[counted],
        bounds=(low - high, high - low) if sides.scale.is_bounded else None,
        ends=_ends(looks, looks.ranks[places][seen][counted]),
        together=_together(sides.clusters, seen, counted),
        higher_is_better=sides.scale.higher_is_better,
        is_whole=looks.is_whole,
    )
    return cases.measured(so_far.difference(sides.level).difference, so_far.lost, "pairs")


def mean_looked_at(side: Side, looks: Looks) -> Measured | str:
    """How good the candidate is by itself, by what has run, or why that cannot be told early."""
    places = np.arange(looks.n_examples)
    seen = looks.seen(places)
    ours = at_places(side.values, seen)
    counted, (low, high) = _counted(ours.values, ours.missing), side.scale.bounds
    if why := _unfit(counted, ours.weights, side.clusters):
        return why
    smallest, largest = (np.where(ours.missing, end, ours.values.clip(low, high))[counted] for end in (low, high))
    cases = _Cases(
        smallest=smallest,
        largest=largest,
        bounds=(low, high) if side.scale.is_bounded else None,
        ends=_ends(looks, looks.ranks[places][seen][counted]),
        together=_together(side.clusters, seen, counted),
        higher_is_better=side.scale.higher_is_better,
        is_whole=looks.is_whole,
    )
    known = ours.values[~np.isnan(ours.values)]
    return cases.measured(float(known.mean()) if known.size else None, int(ours.missing.sum()), "examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Together:
    """Which of the values are in one cluster, and how large clusters are in the whole dataset."""

    clusters: Sequence[str | None]
    average: float
    largest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cases:
    """Values in the order of running, had the missing gone all one way, and all the other."""

    smallest: Numbers
    largest: Numbers
    bounds: Interval | None
    ends: Sequence[int]  # how many of the values each look had
    together: _Together | None
    higher_is_better: bool
    is_whole: bool

    def measured(self, value: float | None, lost: int, noun: str) -> Measured:
        sign = 1.0 if self.higher_is_better else -1.0
        clusters = None if self.together is None else len({*self.together.clusters})
        return Measured(
            value=None if value is None else sign * value,
            interval_at=self.sure_at,
            sure_at=self.sure_at,
            sure_value=self._means() if self.bounds is not None or not lost else None,
            n=len(self.smallest) if clusters is None else clusters,
            noun=noun if clusters is None else "clusters",
            lost=lost,
            higher_is_better=self.higher_is_better,
            is_sequence=True,
            is_whole=self.is_whole,
            reason=None if lost and self.bounds is None else self._sequence(self.smallest, 0.95).reason,
        )

    def sure_at(self, level: float) -> Interval | None:
        same = np.array_equal(self.smallest, self.largest)
        if self.bounds is None and not same:
            return None
        lowest = self._sequence(self.smallest, level)
        highest = lowest if same else self._sequence(self.largest, level)
        low, high = (one[-1] if one else None for one in (lowest.low, highest.high))
        return self._turned(low, high)

    def _sequence(self, values: Numbers, level: float) -> ConfidenceSequence:
        if self.together is None:
            return confidence_sequence(values, bounds=self.bounds, level=level, looks=self.ends)
        zero = self._zero()
        found = cluster_values(
            values - zero,
            self.together.clusters,
            average_size=self.together.average,
            largest_size=self.together.largest,
        )
        low, high = self.bounds or (0.0, 0.0)
        wider = self.bounds and ((low - zero) * found.bounds_factor, (high - zero) * found.bounds_factor)
        ends = sorted({len({*self.together.clusters[:end]}) for end in self.ends})
        sequence = confidence_sequence(found.values, bounds=wider, level=level, looks=ends)
        return replace(sequence, low=_shifted(sequence.low, zero), high=_shifted(sequence.high, zero))

    def _zero(self) -> float:
        """What is taken off, so that the bounds of a cluster's sum hold 0, whatever its size."""
        return self.bounds[0] if self.bounds is not None and not self.bounds[0] <= 0 <= self.bounds[1] else 0.0

    def _means(self) -> Interval | None:
        if not self.smallest.size:
            return None
        return self._turned(float(self.smallest.mean()), float(self.largest.mean()))

    def _turned(self, low: float | None, high: float | None) -> Interval | None:
        return turned(low, high, higher_is_better=self.higher_is_better)


def _shifted(ends: Sequence[float | None], by: float) -> tuple[float | None, ...]:
    return tuple(None if end is None else end + by for end in ends)


def _together(clusters: Clusters, seen: Places, counted: npt.NDArray[np.bool_]) -> _Together | None:
    """An example without a cluster is one by itself."""
    if clusters is None:
        return None
    named = [one if one is not None else f"alone {place}" for place, one in enumerate(clusters)]
    sizes = Counter(named).values()
    return _Together(
        clusters=[named[place] for place in seen[counted]],
        average=len(named) / len(sizes),
        largest=max(sizes),
    )


def _unfit(counted: npt.NDArray[np.bool_], weights: Numbers, clusters: Clusters) -> str | None:
    """Why values cannot be looked at early; None where they can."""
    if counted.any() and np.ptp(weights[counted]):
        return "a sample of uneven rates cannot be looked at in batches"
    if clusters is not None and not counted.all():
        return "it has values for parts of clusters only, which cannot be looked at in batches"
    return None


def _counted(values: Numbers, missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Those that are there or missing, and not left out on purpose."""
    return ~np.isnan(values) | missing


def _ends(looks: Looks, ranks: Places) -> list[int]:
    """How many of some examples, by their places in the order of running, each look had."""
    return sorted({int(np.searchsorted(ranks, after)) for after in looks.after} - {0})
