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

MIN_PAIRS = 20
"""A run group with fewer pairs is used only if no older one has enough. The standard error of the variance of 20
normal differences is a third of that variance."""

MAX_RUN_GROUPS = 20
"""The most run groups that are examined."""

RELIABLE_UNITS = 50
"""With this many units, a planned sample size is within about 40 % of the right one, at 95 % confidence."""

Unit = Literal["example", "cluster"]
Source = Literal["two_sides", "one_side", "guess"]
RunValues = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceEstimate:
    """The variance of a paired difference across examples, or clusters, in squared units of the metric."""

    source: Source
    basis: str  # the experiments or assumption behind it, in words
    unit: Unit
    variance: float  # with the repetitions of those experiments
    between: float | None  # between examples; None if it cannot be separated from the noise of repetitions
    within: float | None  # added by one repetition of both sides
    repetitions: int | None  # of the experiments behind it
    n_pairs: int | None
    n_clusters: int | None
    design_effect: float | None  # by which clusters multiply the variance of a mean
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
class HistoryQuery:
    """What a search for similar past experiments needs to know about the planned one."""

    store: Store
    prepared: PreparedExperiment
    dataset_name: str | None
    snapshot_id: str  # "" if it is not frozen yet
    is_clustered: bool

    def version(self, name: str) -> str | None:
        """The version of an evaluator or a composite; None if unknown."""
        described = self.prepared.described.get(name)
        return None if described is None else described["version"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricProperties:
    """What is known about a metric before it is measured."""

    name: str
    evaluator: str  # the one that gives it, or the composite's own name
    is_yes_no: bool
    bounds: tuple[float, float] | None


def estimate_variance(history: HistoryQuery, metric: MetricProperties) -> VarianceEstimate | str:
    """The variance estimate of a metric from past experiments, or why there is none.

    Experiments on the same dataset are preferred, then those with the same evaluator version, then the newest.
    """
    past, version = measured_before(history.store, base_metric(metric.name)), history.version(metric.evaluator)

    def preference(experiment: MeasuredBefore) -> tuple[bool, bool]:
        return _is_same_dataset(history, experiment), experiment.evaluator_version == version

    past.sort(key=preference, reverse=True)
    best = _best(_from_pairs(history, metric.name, past))
    if best is not None and best.variance > 0:
        return best
    if best is None and past and (estimate := _from_one_experiment(history, metric.name, past[0])) is not None:
        return estimate
    return _cautious_guess(metric, best)


def _best(estimates: Iterable[VarianceEstimate]) -> VarianceEstimate | None:
    """The first estimate above 0 from enough pairs, else the one from the most pairs."""
    seen: list[VarianceEstimate] = []
    for estimate in islice(estimates, MAX_RUN_GROUPS):
        if estimate.variance > 0 and (estimate.n_pairs or 0) >= MIN_PAIRS:
            return estimate
        seen.append(estimate)
    return max(seen, key=lambda estimate: (estimate.variance > 0, estimate.n_pairs or 0), default=None)


def _is_same_dataset(history: HistoryQuery, experiment: MeasuredBefore) -> bool:
    has_same_name = history.dataset_name is not None and experiment.dataset_name == history.dataset_name
    return has_same_name or experiment.snapshot_id == history.snapshot_id


def _from_pairs(history: HistoryQuery, metric: str, past: Sequence[MeasuredBefore]) -> Iterator[VarianceEstimate]:
    """Yield the largest variance estimate of each run group's candidates against its baseline, then that of the two
    newest experiments on each snapshot."""
    groups: dict[str, list[MeasuredBefore]] = {}
    for experiment in past:
        groups.setdefault(experiment.run_group, []).append(experiment)
    for group in groups.values():
        base = next((experiment for experiment in group if experiment.is_baseline), group[-1])
        others = [other for other in group if other is not base and other.evaluator_version == base.evaluator_version]
        estimates = [estimate for other in others if (estimate := _from_pair(history, metric, other, base))]
        if estimates:
            yield max(estimates, key=lambda estimate: estimate.variance)
    by_snapshot = sorted(past, key=_snapshot_and_version)  # stable: the newest stay first
    for _, same in groupby(by_snapshot, key=_snapshot_and_version):
        newest = list(same)[:2]
        are_separate_runs = len({experiment.run_group for experiment in newest}) == 2
        if are_separate_runs and (estimate := _from_pair(history, metric, newest[0], newest[1])):
            yield estimate


def _snapshot_and_version(experiment: MeasuredBefore) -> tuple[str, str]:
    return experiment.snapshot_id, experiment.evaluator_version


def _from_pair(
    history: HistoryQuery, metric: str, candidate: MeasuredBefore, baseline: MeasuredBefore
) -> VarianceEstimate | None:
    """The variance estimate of a pair; None if it shares fewer than two examples or clusters."""
    candidate_row, baseline_row = (_experiment_row(history.store, side) for side in (candidate, baseline))
    reader = MetricReader(history.store)
    matched = reader.matched(candidate_row, baseline_row)
    ours = _run_values(history, metric, candidate_row, candidate)[matched.candidate]
    theirs = _run_values(history, metric, baseline_row, baseline)[matched.baseline]
    clusters = matched.of_clusters(reader.clusters(candidate_row)) if history.is_clustered else None
    estimate = _paired_variance(ours, theirs, clusters)
    if estimate is None:
        return None
    basis = f"{candidate.name} against {baseline.name} of {candidate.started_at:%Y-%m-%d}, {estimate.n_pairs} examples"
    return replace(estimate, basis=basis + _other_dataset_note(history, candidate), is_yes_no=candidate.is_yes_no)


def _other_dataset_note(history: HistoryQuery, experiment: MeasuredBefore) -> str:
    if _is_same_dataset(history, experiment):
        return ""
    return f" of another dataset ({experiment.dataset_name or experiment.snapshot_id})"


def _paired_variance(ours: RunValues, theirs: RunValues, clusters: Clusters) -> VarianceEstimate | None:
    """The variance of the paired differences per example, or cluster: that of their mean times the number of these.

    Noise between repetitions is independent of clusters, so the design effect applies to the rest only.
    """
    ours, theirs, cluster_ids = _scored_on_both_sides(ours, theirs, clusters)
    parts = difference_components(ours, theirs)
    if parts.observed is None:
        return None
    test = paired_difference(np.nanmean(ours, axis=1), np.nanmean(theirs, axis=1), cluster_ids)
    if test.p_value is None:
        return None
    units = parts.n if test.n_clusters is None else test.n_clusters
    per_example = parts.n * (test.standard_error or 0.0) ** 2  # of independent examples whose mean has this error
    noise = 0.0 if parts.between is None else parts.observed - parts.between
    scale = units / parts.n
    return VarianceEstimate(
        source="two_sides",
        basis="",
        unit="example" if test.n_clusters is None else "cluster",
        variance=per_example * scale,
        between=None if parts.between is None else max(per_example - noise, 0.0) * scale,
        within=None if parts.within is None else parts.within * scale,
        repetitions=min(ours.shape[1], theirs.shape[1]),
        n_pairs=parts.n,
        n_clusters=test.n_clusters,
        design_effect=None if test.n_clusters is None or not parts.observed else per_example / parts.observed,
        is_yes_no=False,
    )


def _scored_on_both_sides(
    ours: RunValues, theirs: RunValues, clusters: Clusters
) -> tuple[RunValues, RunValues, list[str | None] | None]:
    scored = np.flatnonzero(~(np.isnan(ours).all(axis=1) | np.isnan(theirs).all(axis=1)))
    cluster_ids = None if clusters is None else [clusters[place] for place in scored.tolist()]
    return ours[scored], theirs[scored], cluster_ids


def _from_one_experiment(history: HistoryQuery, metric: str, experiment: MeasuredBefore) -> VarianceEstimate | None:
    """The variance from one target's answers, if those of another vary as much and independently of these."""
    runs = _run_values(history, metric, _experiment_row(history.store, experiment), experiment)
    values = runs[~np.isnan(runs).all(axis=1)]
    means = np.nanmean(values, axis=1) if len(values) else np.array([])
    variance = 2 * float(np.var(means, ddof=1)) if means.size > 1 else 0.0
    if not variance:
        return None
    basis = f"{experiment.name} alone, assuming independent answers of the other target, {means.size} examples"
    return _without_split(
        "one_side",
        variance,
        basis + _other_dataset_note(history, experiment),
        experiment.is_yes_no,
        int(means.size),
        experiment.repetitions,
    )


def _cautious_guess(metric: MetricProperties, seen: VarianceEstimate | None) -> VarianceEstimate | str:
    """The largest variance of independent answers, for a bounded metric; else why the variance is unknown.

    For yes/no metrics whose n past pairs never differed, at most 3 in n pairs differ at 95 % confidence (Hanley &
    Lippman-Hand 1983).
    """
    if seen is not None and seen.is_yes_no and seen.n_pairs:
        basis = f"a cautious guess: all differences were the same in {seen.basis}, but 3 in {seen.n_pairs} may differ"
        upper_bound = min(3 / seen.n_pairs, cautious_sd(0.5, 0.5) ** 2)
        return _without_split("guess", upper_bound, basis, True, seen.n_pairs, seen.repetitions)
    why = "no experiment in the store has it" if seen is None else f"all differences were the same in {seen.basis}"
    if metric.bounds is None:
        return f"unknown, since {why}; run it on {RELIABLE_UNITS} examples first"
    width = metric.bounds[1] - metric.bounds[0]
    value_text = "right or wrong" if metric.is_yes_no else "the best or the worst possible"
    basis = f"a cautious guess, since {why}: each answer {value_text} with probability 1/2"
    return _without_split("guess", (width * cautious_sd(0.5, 0.5)) ** 2, basis, metric.is_yes_no, None, None)


def _without_split(
    source: Source, variance: float, basis: str, is_yes_no: bool, n_pairs: int | None, repetitions: int | None
) -> VarianceEstimate:
    return VarianceEstimate(
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


def _experiment_row(store: Store, measured: MeasuredBefore) -> ExperimentRow:
    (row,) = store.read("experiments", measured.experiment_id)
    return row  # type: ignore[no-any-return]


def _run_values(history: HistoryQuery, metric: str, row: ExperimentRow, measured: MeasuredBefore) -> RunValues:
    """One row per example and one column per repetition; a single column for a pass@k metric."""
    if not is_pass_k(metric):
        return run_values(history.store, row, metric, measured.evaluator_version)
    versions = (v for v in MetricReader(history.store).all_values(row, history.prepared.spec) if v.metric == metric)
    values = next((v.values for v in versions if v.evaluator_version == measured.evaluator_version), None)
    return np.full((row.n_examples, 1), np.nan) if values is None else values[:, None]
