"""Estimate the variance of a metric's paired difference from past experiments, else by a cautious guess."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Literal

import numpy as np
import numpy.typing as npt

from evalflows.analysis.differences.metric_pairs import Clusters
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.execution.prepared import PreparedExperiment
from evalflows.specs.metric_names import base_metric, is_pass_k
from evalflows.stats import paired_difference
from evalflows.stats.differences.components import Components, difference_components
from evalflows.stats.differences.power import cautious_sd
from evalflows.store.parquet import Store
from evalflows.store.queries.metric_history import MeasuredBefore, measured_before, run_values
from evalflows.store.records import ExperimentRow

ENOUGH_PAIRS = 20
"""Pairs from which a run group is used as it is; with fewer, an older run group with enough is preferred. From 20
normal differences, the standard error of their variance is a third of it."""

MOST_STARTS = 20
"""Run groups that are examined."""

ROUGH_BELOW = 50
"""Units from which the number of examples is within about 40 % of the right one, at 95 % confidence."""

Unit = Literal["example", "cluster"]
Source = Literal["two_sides", "one_side", "guess"]
Runs = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The variance of a paired difference between examples, or clusters, in squared units of the metric."""

    source: Source
    basis: str  # where it is from, in words
    unit: Unit
    variance: float  # with as many repetitions as there were
    between: float | None  # the part of examples; None where nothing tells the two apart
    within: float | None  # what one repetition of both sides adds
    repetitions: int | None  # of those experiments
    n_pairs: int | None
    n_clusters: int | None
    design_effect: float | None  # how much more a mean varies as examples come in clusters
    is_yes_no: bool

    @property
    def is_split(self) -> bool:
        return self.between is not None and self.within is not None

    def variance_at(self, repetitions: int) -> float:
        if self.between is None or self.within is None:
            return self.variance
        return self.between + self.within / repetitions

    @property
    def parts(self) -> Components | float:
        """The argument of `plan_sizes`."""
        if not self.is_split:
            return math.sqrt(self.variance)
        return Components(
            between=self.between,
            within=self.within,
            observed=self.variance,
            n=self.n_pairs or 0,
            method="anova",
            reason=None,
        )

    @property
    def n_units(self) -> int | None:
        return self.n_clusters if self.unit == "cluster" else self.n_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The history query: which past experiments resemble the planned one most."""

    store: Store
    prepared: PreparedExperiment
    dataset_name: str | None
    snapshot_id: str  # "" where it is not frozen yet
    clustered: bool

    def version(self, name: str) -> str | None:
        """The version of an evaluator or a composite."""
        described = self.prepared.described.get(name)
        return None if described is None else described["version"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What is known of a metric before it is measured."""

    name: str
    evaluator: str  # whose it is, or the composite's own name
    is_yes_no: bool
    bounds: tuple[float, float] | None


def spread_of(place: Place, metric: Metric) -> Spread | str:
    """The variance estimate of a metric from past experiments, or why there is none.

    Experiments on the same dataset are preferred, then those with the same evaluator version, then the newest.
    """
    found = measured_before(place.store, base_metric(metric.name))
    version = place.version(metric.evaluator)
    found.sort(key=lambda one: (_same_dataset(place, one), one.evaluator_version == version), reverse=True)
    best = _best(_of_pairs(place, metric.name, found))
    if best is not None and best.variance > 0:
        return best
    if best is None and found and (one := _of_one_side(place, metric.name, found[0])) is not None:
        return one
    return _guess(metric, best)


def _best(spreads: Iterable[Spread]) -> Spread | None:
    """The first estimate above 0 from enough pairs, else the one from the most pairs."""
    seen: list[Spread] = []
    for one in islice(spreads, MOST_STARTS):
        if one.variance > 0 and (one.n_pairs or 0) >= ENOUGH_PAIRS:
            return one
        seen.append(one)
    return max(seen, key=lambda one: (one.variance > 0, one.n_pairs or 0), default=None)


def _same_dataset(place: Place, one: MeasuredBefore) -> bool:
    by_name = place.dataset_name is not None and one.dataset_name == place.dataset_name
    return by_name or one.snapshot_id == place.snapshot_id


def _of_pairs(place: Place, metric: str, found: Sequence[MeasuredBefore]) -> Iterator[Spread]:
    """Yield the largest variance estimate of each run group's candidates against its baseline, then those of the two
    newest experiments on each snapshot."""
    several: dict[str, list[MeasuredBefore]] = {}
    for one in found:
        several.setdefault(one.run_group, []).append(one)
    for group in several.values():
        base = next((one for one in group if one.is_baseline), group[-1])
        others = [one for one in group if one is not base and one.evaluator_version == base.evaluator_version]
        spreads = [spread for other in others if (spread := _of_pair(place, metric, other, base))]
        if spreads:
            yield max(spreads, key=lambda one: one.variance)
    by_same = sorted(found, key=lambda one: (one.snapshot_id, one.evaluator_version))  # stable: the newest first
    for _, alike in groupby(by_same, key=lambda one: (one.snapshot_id, one.evaluator_version)):
        newest = list(alike)[:2]
        is_of_two_starts = len({one.run_group for one in newest}) == 2
        if is_of_two_starts and (spread := _of_pair(place, metric, newest[0], newest[1])):
            yield spread


def _of_pair(place: Place, metric: str, candidate: MeasuredBefore, baseline: MeasuredBefore) -> Spread | None:
    """The variance estimate of a pair; None if it shares fewer than two examples or clusters."""
    rows = [_row(place.store, one) for one in (candidate, baseline)]
    reader = MetricReader(place.store)
    both = reader.matched(*rows)
    ours, theirs = (
        _runs(place, metric, row, one)[places]
        for row, one, places in zip(rows, (candidate, baseline), (both.candidate, both.baseline), strict=True)
    )
    clusters = both.of_clusters(reader.clusters(rows[0])) if place.clustered else None
    spread = _spread(ours, theirs, clusters)
    if spread is None:
        return None
    basis = f"{candidate.name} against {baseline.name} of {candidate.started_at:%Y-%m-%d}, {spread.n_pairs} examples"
    return replace(spread, basis=basis + _unlike(place, candidate), is_yes_no=candidate.is_yes_no)


def _unlike(place: Place, one: MeasuredBefore) -> str:
    return "" if _same_dataset(place, one) else f" of another dataset ({one.dataset_name or one.snapshot_id})"


def _spread(ours: Runs, theirs: Runs, clusters: Clusters) -> Spread | None:
    """The variance per unit is that of the mean times the number of units. Noise between repetitions is independent of
    clusters, so the design effect applies to the rest."""
    given = np.flatnonzero(~(np.isnan(ours).all(axis=1) | np.isnan(theirs).all(axis=1)))
    ours, theirs = ours[given], theirs[given]
    together = None if clusters is None else [clusters[place] for place in given.tolist()]
    parts = difference_components(ours, theirs)
    if parts.observed is None:
        return None
    found = paired_difference(np.nanmean(ours, axis=1), np.nanmean(theirs, axis=1), together)
    if found.p_value is None:
        return None
    units = parts.n if found.n_clusters is None else found.n_clusters
    of_mean = parts.n * (found.standard_error or 0.0) ** 2  # the variance of one example, were they alone
    noise = 0.0 if parts.between is None else parts.observed - parts.between
    scale = units / parts.n
    return Spread(
        source="two_sides",
        basis="",
        unit="example" if found.n_clusters is None else "cluster",
        variance=of_mean * scale,
        between=None if parts.between is None else max(of_mean - noise, 0.0) * scale,
        within=None if parts.within is None else parts.within * scale,
        repetitions=min(ours.shape[1], theirs.shape[1]),
        n_pairs=parts.n,
        n_clusters=found.n_clusters,
        design_effect=None if found.n_clusters is None or not parts.observed else of_mean / parts.observed,
        is_yes_no=False,
    )


def _of_one_side(place: Place, metric: str, one: MeasuredBefore) -> Spread | None:
    """Assume that another target's answers vary as much, independently of these."""
    runs = _runs(place, metric, _row(place.store, one), one)
    values = runs[~np.isnan(runs).all(axis=1)]
    means = np.nanmean(values, axis=1) if len(values) else np.array([])
    variance = 2 * float(np.var(means, ddof=1)) if means.size > 1 else 0.0
    if not variance:
        return None
    basis = f"{one.name} alone, assuming independent answers of the other target, {means.size} examples"
    return _alone("one_side", variance, basis + _unlike(place, one), one.is_yes_no, int(means.size), one.repetitions)


def _guess(metric: Metric, seen: Spread | None) -> Spread | str:
    """For a bounded metric: the largest variance of independent answers.

    Less for yes/no pairs that never differed: if n are alike, at most 3 in n others differ, at 95 % confidence (Hanley
    & Lippman-Hand 1983).
    """
    if seen is not None and seen.is_yes_no and seen.n_pairs:
        basis = f"a cautious guess: all differences were the same in {seen.basis}, but 3 in {seen.n_pairs} may differ"
        most = min(3 / seen.n_pairs, cautious_sd(0.5, 0.5) ** 2)
        return _alone("guess", most, basis, True, seen.n_pairs, seen.repetitions)
    where = "no experiment in the store has it" if seen is None else f"all differences were the same in {seen.basis}"
    if metric.bounds is None:
        return f"unknown, since {where}; run it on {ROUGH_BELOW} examples first"
    width = metric.bounds[1] - metric.bounds[0]
    what = "right or wrong" if metric.is_yes_no else "the best or the worst possible"
    basis = f"a cautious guess, since {where}: each answer {what} with probability 1/2"
    return _alone("guess", (width * cautious_sd(0.5, 0.5)) ** 2, basis, metric.is_yes_no, None, None)


def _alone(
    source: Source, variance: float, basis: str, is_yes_no: bool, n_pairs: int | None, repetitions: int | None
) -> Spread:
    return Spread(
        source=source,
        basis=basis,
        unit="example",
        variance=variance,
        between=None,
        within=None,
        repetitions=repetitions,
        n_pairs=n_pairs,
        n_clusters=None,
        design_effect=None,
        is_yes_no=is_yes_no,
    )


def _row(store: Store, one: MeasuredBefore) -> ExperimentRow:
    (row,) = store.read("experiments", one.experiment_id)
    return row  # type: ignore[no-any-return]


def _runs(place: Place, metric: str, row: ExperimentRow, one: MeasuredBefore) -> Runs:
    """One row per example and one column per repetition; a single column for a pass@k metric."""
    if not is_pass_k(metric):
        return run_values(place.store, row, metric, one.evaluator_version)
    versions = (v for v in MetricReader(place.store).all_values(row, place.prepared.spec) if v.metric == metric)
    values = next((v.values for v in versions if v.evaluator_version == one.evaluator_version), None)
    return np.full((row.n_examples, 1), np.nan) if values is None else values[:, None]
