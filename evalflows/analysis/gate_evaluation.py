"""Evaluate one gate on one candidate: the estimate behind each rule, the rule results and the decision, which is
stored once for the same evidence.

A fixed-sample test that is repeated often enough is significant by chance. Confidence sequences cover the true value at
all analyses simultaneously, so a gate may stop as soon as it has decided.

The items differ, so the difference is that of two independent means, and includes the difference in traffic.

A difference between scores of two judges would mix in the difference between the judges. On the sampled examples the
newer judge has scored both sides, so the difference is known; on all examples, the candidate's score by the newer judge
minus the baseline's by the older one predicts it. Prediction-powered inference combines both into one estimate.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from evalflows.analysis.differences import ExperimentPair, TestedMetric, timed_metrics, verdicts
from evalflows.analysis.gates import (
    BoundedEstimate,
    Interval,
    Outcome,
    Rule,
    RuleResult,
    approval_problem,
    baseline_name,
    baseline_row,
    bounded_difference,
    bounded_mean,
    conclusion_of,
    evaluate_rules,
    no_baseline,
    oriented,
    rules_of,
    run_level_estimate,
)
from evalflows.analysis.pairing import (
    Clusters,
    Difference,
    JudgeModels,
    MetricSample,
    PairedMetric,
    Places,
    Scale,
    at_places,
    evaluators_of,
    incomparable_metrics,
    version_differences,
)
from evalflows.analysis.slice_search import slice_check
from evalflows.analysis.verdicts import DifferenceTest
from evalflows.engine.chunks import cluster_boundary, in_running_order
from evalflows.engine.prepare import PreparedExperiment, experiment_id, id_of_run_key
from evalflows.engine.revision import revision
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError, metric_of, sliced_metric
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec, ProductionBaseline, RecalibrationSpec
from evalflows.specs.target import RecordedTarget
from evalflows.stats.judge_error import PredictionPowered, prediction_powered_mean
from evalflows.stats.paired import PairedDifference, UnpairedDifference, unpaired_difference
from evalflows.stats.sequential import ConfidenceSequence, cluster_values, confidence_sequence
from evalflows.store.evidence import deleted_decisions, evidence_on
from evalflows.store.manifests import Evidence, Written
from evalflows.store.queries.lookup import approved
from evalflows.store.queries.progress import calls_of_group
from evalflows.store.queries.values import MetricValues, Values
from evalflows.store.queries.windows import (
    ProductionScores,
    composite_definitions,
    known_evaluations,
    production_scores,
    versions_in,
)
from evalflows.store.records import (
    CheckRow,
    DecisionConclusion,
    DecisionRow,
    ExperimentRow,
    Reason,
    VerdictRow,
    after,
    controls_batch,
    dependent_id,
    derived_id,
    from_json,
    now,
    to_json,
)
from evalflows.store.schemas import to_arrow
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimAnalyses:
    """The interim analyses so far of a candidate, and of its baseline if both run together."""

    ranks: Places  # the position of each snapshot example in the running order
    after: Sequence[int]  # the number of examples at each analysis, at cluster boundaries; the last is the current one
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
    """The interim analyses of experiments that run together; None before the first batch has finished."""
    row = rows[0]
    examples = load_snapshot(store, row.snapshot_id)
    running = in_running_order(row, examples)
    rank = {example_id: place for place, example_id in enumerate(running.ids)}
    done = min(_n_done(store, row, running.ids) for row in rows)
    batches = [*range(row.chunk_size, done + 1, row.chunk_size), *([done] if done == len(running) else [])]
    if row.seed is None:  # without batches, the first examples are not a random sample
        batches = [done] if done == len(running) else []
    clusters = running.clusters
    after = sorted({cluster_boundary(clusters, batch) for batch in batches} - {0})
    ranks = np.array([rank[example_id] for example_id in examples.ids], dtype=np.intp)
    return InterimAnalyses(ranks=ranks, after=after, n_examples=len(examples)) if after else None


def _n_done(store: Store, row: ExperimentRow, running: Sequence[str]) -> int:
    """How many examples, counted from the start of the running order, have finished all repetitions."""
    query = """select example_id from source.outputs where experiment_id = ? and status <> 'not_attempted'
               group by 1 having count(distinct repetition) = ?"""
    ran = {example for (example,) in store.query(query, [row.experiment_id, row.repetitions])}
    return next((place for place, example in enumerate(running) if example not in ran), len(running))


def interim_difference(
    paired: PairedMetric, interim_analyses: InterimAnalyses, places: Places
) -> BoundedEstimate | Reason:
    """How much better the candidate is so far, or why that cannot be estimated in batches.

    `places` are the snapshot positions of the paired examples.
    """
    seen = interim_analyses.seen(places)
    candidate, baseline = at_places(paired.candidate, seen), at_places(paired.baseline, seen)
    counted = _counted(candidate) & _counted(baseline)
    if why := _why_not_in_batches(counted, np.maximum(candidate.weights, baseline.weights), paired.clusters):
        return why
    low, high = paired.scale.bounds
    smallest, largest = (
        _filled(candidate, of_candidate, paired.scale) - _filled(baseline, of_baseline, paired.scale)
        for of_candidate, of_baseline in ((low, high), (high, low))
    )
    values = _RunningValues(
        smallest=smallest[counted],
        largest=largest[counted],
        bounds=(low - high, high - low) if paired.scale.is_bounded else None,
        ends=_ends(interim_analyses, interim_analyses.ranks[places][seen][counted]),
        clusters=_running_clusters(paired.clusters, seen, counted),
        higher_is_better=paired.scale.higher_is_better,
        is_whole=interim_analyses.is_whole,
    )
    clusters = None if paired.clusters is None else [paired.clusters[place] for place in seen]
    so_far = replace(paired, candidate=candidate, baseline=baseline, clusters=clusters)
    return values.estimate(so_far.difference(paired.confidence_level).difference, so_far.n_missing, "pairs")


def interim_mean(sample: MetricSample, interim_analyses: InterimAnalyses, places: Places) -> BoundedEstimate | Reason:
    """The candidate's own mean so far, or why it cannot be estimated in batches.

    `places` are the snapshot positions of the sample's examples.
    """
    seen = interim_analyses.seen(places)
    so_far = at_places(sample.values, seen)
    counted, bounds = _counted(so_far), sample.scale.bounds
    if why := _why_not_in_batches(counted, so_far.weights, sample.clusters):
        return why
    smallest, largest = (_filled(so_far, bound, sample.scale)[counted] for bound in bounds)
    values = _RunningValues(
        smallest=smallest,
        largest=largest,
        bounds=bounds if sample.scale.is_bounded else None,
        ends=_ends(interim_analyses, interim_analyses.ranks[places][seen][counted]),
        clusters=_running_clusters(sample.clusters, seen, counted),
        higher_is_better=sample.scale.higher_is_better,
        is_whole=interim_analyses.is_whole,
    )
    known = so_far.values[~np.isnan(so_far.values)]
    return values.estimate(float(known.mean()) if known.size else None, int(so_far.missing.sum()), "examples")


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningClusters:
    """The cluster of each value, and the cluster sizes in the whole dataset."""

    names: Sequence[str | None]
    average_size: float
    largest_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningValues:
    """Values in running order, with missing values at the lower bound and at the upper bound."""

    smallest: Numbers
    largest: Numbers
    bounds: Interval | None
    ends: Sequence[int]  # the number of values at each analysis
    clusters: _RunningClusters | None
    higher_is_better: bool
    is_whole: bool

    def estimate(self, value: float | None, n_missing: int, noun: str) -> BoundedEstimate:
        sign = 1.0 if self.higher_is_better else -1.0
        clusters = None if self.clusters is None else len({*self.clusters.names})
        return BoundedEstimate(
            value=None if value is None else sign * value,
            interval_at=self.worst_case_interval_at,
            worst_case_interval_at=self.worst_case_interval_at,
            worst_case_values=self._means() if self.bounds is not None or not n_missing else None,
            n=len(self.smallest) if clusters is None else clusters,
            noun=noun if clusters is None else "clusters",
            n_missing=n_missing,
            higher_is_better=self.higher_is_better,
            is_sequence=True,
            is_whole=self.is_whole,
            reason=None if n_missing and self.bounds is None else self._sequence(self.smallest, 0.95).reason,
        )

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        same = np.array_equal(self.smallest, self.largest)
        if self.bounds is None and not same:
            return None
        lowest = self._sequence(self.smallest, confidence_level)
        highest = lowest if same else self._sequence(self.largest, confidence_level)
        low, high = (ends[-1] if ends else None for ends in (lowest.low, highest.high))
        return self._oriented(low, high)

    def _sequence(self, values: Numbers, confidence_level: float) -> ConfidenceSequence:
        if self.clusters is None:
            return confidence_sequence(
                values, bounds=self.bounds, confidence_level=confidence_level, interim_analyses=self.ends
            )
        shift, names = self._shift(), self.clusters.names
        sums = cluster_values(
            values - shift,
            names,
            average_size=self.clusters.average_size,
            largest_size=self.clusters.largest_size,
        )
        low, high = self.bounds or (0.0, 0.0)
        wider = self.bounds and ((low - shift) * sums.bounds_factor, (high - shift) * sums.bounds_factor)
        ends = sorted({len({*names[:end]}) for end in self.ends})
        sequence = confidence_sequence(
            sums.values, bounds=wider, confidence_level=confidence_level, interim_analyses=ends
        )
        return replace(sequence, low=_shifted(sequence.low, shift), high=_shifted(sequence.high, shift))

    def _shift(self) -> float:
        """What to subtract from values so that the bounds of a cluster sum include 0, whatever its size."""
        return self.bounds[0] if self.bounds is not None and not self.bounds[0] <= 0 <= self.bounds[1] else 0.0

    def _means(self) -> Interval | None:
        if not self.smallest.size:
            return None
        return self._oriented(float(self.smallest.mean()), float(self.largest.mean()))

    def _oriented(self, low: float | None, high: float | None) -> Interval | None:
        return oriented(low, high, higher_is_better=self.higher_is_better)


def _shifted(ends: Sequence[float | None], by: float) -> tuple[float | None, ...]:
    return tuple(None if end is None else end + by for end in ends)


def _running_clusters(clusters: Clusters, seen: Places, counted: Mask) -> _RunningClusters | None:
    """An example without a cluster is a cluster of its own."""
    if clusters is None:
        return None
    names = [name if name is not None else f"alone {place}" for place, name in enumerate(clusters)]
    sizes = Counter(names).values()
    return _RunningClusters(
        names=[names[place] for place in seen[counted]],
        average_size=len(names) / len(sizes),
        largest_size=max(sizes),
    )


def _why_not_in_batches(counted: Mask, weights: Numbers, clusters: Clusters) -> Reason | None:
    if not counted.size:
        return Reason("no_finished_batch", "none of its examples has run yet")
    if counted.any() and np.ptp(weights[counted]):
        return Reason("not_for_batches", "examples sampled at different rates cannot be analysed in batches")
    if clusters is not None and not counted.all():
        return Reason("not_for_batches", "partly scored clusters cannot be analysed in batches")
    return None


def _counted(metric: MetricValues) -> Mask:
    """The examples that are scored or missing, rather than left out on purpose."""
    return ~np.isnan(metric.values) | metric.missing


def _filled(metric: MetricValues, missing: float, scale: Scale) -> Numbers:
    """The values within bounds, with missing ones replaced."""
    return np.where(metric.missing, missing, metric.values.clip(*scale.bounds))


def _ends(interim_analyses: InterimAnalyses, ranks: Places) -> list[int]:
    """How many of the examples of these ranks had run at each analysis."""
    return sorted({int(np.searchsorted(ranks, after)) for after in interim_analyses.after} - {0})


RECALIBRATION = "recalibrate"
"""Name of the target that replays the baseline's answers."""


def recalibrations_of(store: Store, prepared: PreparedExperiment) -> list[ExperimentSpec]:
    """Specs to run so that gates with `recalibrate` can compare with baselines scored by other evaluator versions."""
    spec, specs = prepared.spec, {}
    for gate in spec.gates:
        baseline = baseline_row(store, spec, gate, []) if spec.baseline_target(gate) is None else None
        if gate.recalibrate is not None and baseline is not None and metrics_to_recalibrate(prepared, gate, baseline):
            recalibration = recalibration_spec(spec, prepared.by_name, gate.recalibrate, baseline)
            specs[recalibration.run_key] = recalibration
    return list(specs.values())


def metrics_to_recalibrate(
    prepared: PreparedExperiment, gate: GateSpec, baseline: ExperimentRow
) -> Mapping[str, Reason]:
    """The metrics that a gate compares across two versions of an evaluator, each with the reason."""
    changed = incomparable_metrics(version_differences(prepared.by_name, evaluators_of(baseline), prepared.spec))
    compared = {metric_of(name) for name in (*gate.non_inferiority, *gate.superiority)}
    return {metric: why for metric, why in changed.items() if metric in compared}


def recalibration_spec(
    spec: ExperimentSpec,
    evaluators: Mapping[str, Mapping[str, Any]],
    recalibrate: RecalibrationSpec,
    baseline: ExperimentRow,
) -> ExperimentSpec:
    """The spec that replays the baseline's answers to a sample of its examples, for the newer evaluators to score."""
    versions = sorted(evaluator["version"] for evaluator in evaluators.values())
    key = derived_id(RECALIBRATION, baseline.experiment_id, recalibrate.sample, recalibrate.seed, *versions)
    return spec.model_copy(
        update={
            "name": f"{spec.name}-{RECALIBRATION}",
            "description": f"Answers of {baseline.name}, scored again for comparison",
            "dataset": DatasetSpec(
                snapshot=baseline.snapshot_id,
                sample=min(recalibrate.sample, baseline.n_examples),
                seed=recalibrate.seed,
            ),
            "targets": [RecordedTarget(kind="recorded", name=RECALIBRATION, experiment=baseline.experiment_id)],
            "baseline": None,
            "repetitions": 1,
            "gates": [],
            "compare": None,
            "summary_evaluators": [],
            "run_key": f"{RECALIBRATION}-{key}",
        }
    )


def recalibration_row(
    store: Store, spec: ExperimentSpec, gate: GateSpec, candidate: ExperimentRow, baseline: ExperimentRow
) -> ExperimentRow | None:
    """The experiment in which a baseline's answers were scored again, by the candidate's evaluators; None if there is
    none.
    """
    if gate.recalibrate is None:
        return None
    run_key = recalibration_spec(spec, evaluators_of(candidate), gate.recalibrate, baseline).run_key or ""
    rows = store.read("experiments", experiment_id(id_of_run_key("group", run_key), RECALIBRATION))
    return rows[0] if rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibrated:
    """A paired metric, and the newer judge's scores of some of the baseline's answers."""

    paired: PairedMetric  # the baseline scored by the older judge
    rejudged: Values  # the baseline scored by the newer judge, by position; NaN if not sampled or missing
    sampled: Mask

    def estimate(self) -> BoundedEstimate:
        """How much better the candidate is according to the newer judge."""
        level, higher = self.paired.confidence_level, self.paired.scale.higher_is_better
        estimate, is_clustered = self._estimate(level, None), self.paired.clusters is not None
        return BoundedEstimate(
            value=None if estimate.mean is None else estimate.mean if higher else -estimate.mean,
            interval_at=self._interval_at,
            worst_case_interval_at=self._worst_case_interval_at,
            worst_case_values=self._worst_case_interval_at(level),
            n=self._sampled_clusters() if is_clustered else estimate.n_labels,
            noun=f"{'clusters' if is_clustered else 'pairs'} scored by the newer judge",
            n_missing=self._n_missing,
            higher_is_better=higher,
            reason=estimate.reason,
        )

    def difference(self) -> PairedDifference:
        """The same for a verdict; the method gives an interval but no p-value."""
        estimate = self._estimate(self.paired.confidence_level, None)
        return PairedDifference(
            candidate_mean=None,
            baseline_mean=None,
            difference=estimate.mean,
            low=estimate.low,
            high=estimate.high,
            p_value=None,
            confidence_level=estimate.confidence_level,
            method=f"recalibrated: {estimate.method}",
            n_pairs=estimate.n_labels,
            n_clusters=estimate.n_clusters,
            reason=estimate.reason or "recalibrated from another judge: an interval, but no test",
        )

    def _interval_at(self, confidence_level: float) -> Interval | None:
        estimate = self._estimate(confidence_level, None)
        return oriented(estimate.low, estimate.high, higher_is_better=self.paired.scale.higher_is_better)

    def _worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        if not self._n_missing:
            return self._interval_at(confidence_level)
        if not self.paired.scale.is_bounded:
            return None
        smallest, largest = (self._estimate(confidence_level, extreme) for extreme in ("smallest", "largest"))
        return oriented(smallest.low, largest.high, higher_is_better=self.paired.scale.higher_is_better)

    def _sampled_clusters(self) -> int:
        clusters = self.paired.clusters or []
        return len({clusters[place] or f"alone {place}" for place in np.flatnonzero(self.sampled).tolist()})

    @property
    def _n_missing(self) -> int:
        """Examples with a missing value: of the candidate, or of the newer judge's scores of the baseline."""
        return int((self.paired.candidate.missing | (self.sampled & np.isnan(self.rejudged))).sum())

    def _estimate(self, confidence_level: float, extreme: str | None) -> PredictionPowered:
        """The mean difference, without missing values, or with them making it the "smallest" or "largest" possible."""
        low, high = self.paired.scale.bounds
        candidate, rejudged = self.paired.candidate.values, self.rejudged
        if extreme is not None:
            of_candidate, of_baseline = (low, high) if extreme == "smallest" else (high, low)
            candidate = np.where(self.paired.candidate.missing, of_candidate, candidate)
            rejudged = np.where(self.sampled & np.isnan(rejudged), of_baseline, rejudged)
        is_scored = ~np.isnan(candidate)
        known = is_scored & self.sampled & ~np.isnan(rejudged)
        older = self.paired.baseline.values
        predicted = candidate - np.where(np.isnan(older), np.nanmean(older) if (~np.isnan(older)).any() else 0.0, older)
        rest = is_scored & ~known
        return prediction_powered_mean(
            (candidate - rejudged)[known],
            predicted[known],
            predicted[rest],
            _in_order(self.paired.clusters, known, rest),
            bounds=(low - high, high - low) if self.paired.scale.is_bounded else None,
            confidence_level=confidence_level,
        )


def recalibrated(
    store: Store, paired: PairedMetric, example_ids: Sequence[str], rejudged: MetricValues, row: ExperimentRow
) -> Recalibrated:
    """Align the newer judge's scores of the baseline, `rejudged` of experiment `row`, with the paired examples."""
    places = {example_id: place for place, example_id in enumerate(load_snapshot(store, row.snapshot_id).ids)}
    at = [places.get(example_id) for example_id in example_ids]
    values = np.array([np.nan if place is None else rejudged.values[place] for place in at], dtype=np.float64)
    missing = np.array([place is not None and bool(rejudged.missing[place]) for place in at], dtype=bool)
    sampled = missing | ~np.isnan(values)  # examples to which the judge does not apply were not sampled
    return Recalibrated(paired=paired, rejudged=values, sampled=sampled)


def _in_order(clusters: Clusters, known: Mask, rest: Mask) -> list[str | None] | None:
    if clusters is None:
        return None
    return [clusters[place] for place in (*np.flatnonzero(known), *np.flatnonzero(rest))]


SHORT = 8
"""Characters of a version that are shown."""


def with_fixed_window(gate: GateSpec) -> GateSpec:
    """Return a gate whose window of production, if any, has ends, so that a gate decided again reads the same."""
    if gate.production is None:
        return gate
    return gate.model_copy(update={"baseline": gate.production.fixed(now()).text})


def with_fixed_windows(spec: ExperimentSpec) -> ExperimentSpec:
    """Return a spec in whose gates windows of production have ends."""
    fixed = [with_fixed_window(gate) for gate in spec.gates]
    return spec if fixed == spec.gates else spec.model_copy(update={"gates": fixed})


def check_production(store: Store, prepared: PreparedExperiment, gate: GateSpec, window: ProductionBaseline) -> None:
    """Raise InputError, before anything is paid, if a window cannot be the baseline of a gate."""
    spec, where = prepared.spec, f"gate {gate.name!r}: baseline {window.text!r}"
    if window.evaluation not in (known := known_evaluations(store)):
        names = ", ".join(known) or "none yet (`evaluate-traces`)"
        raise InputError(f"{where}: no trace evaluation is called {window.evaluation!r}, wanted one of {names}")
    versions = {name: one["version"] for name, one in prepared.by_name.items()}
    for metric in gate.compared:
        if metric in (timed := timed_metrics(spec)):
            raise InputError(f"{where}: {metric} cannot be compared with production: {timed[metric]}")
        found = _in_window(store, spec, window, metric, versions)
        if isinstance(found, Reason):
            raise InputError(f"{where}: {found}")
        n = found.n_clusters if found.n_clusters < found.values.values.size else found.n_scored
        if n < gate.min_examples:
            noun = found.noun if n == found.n_scored else "sessions"
            raise InputError(f"{where}: {metric}: got {n} scored {noun}, wanted at least {gate.min_examples}")


def _in_window(
    store: Store, spec: ExperimentSpec, window: ProductionBaseline, metric: str, versions: Mapping[str, str]
) -> ProductionScores | Reason:
    """Return the scores of a metric in a window by the evaluator that the candidate has, or why there are none.

    `versions` are those of the candidate's evaluators, by name.
    """
    identity = evaluation_id(window.evaluation)
    given = versions_in(store, identity, window, metric)
    if not given:
        return Reason("no_such_metric", f"no item of the window has a score of {metric}")
    evaluator = next((name for name in given if name in versions), None)
    if evaluator is None:
        others = ", ".join(sorted(given))
        return Reason("not_comparable", f"{metric} was scored by {others} in production, which the candidate lacks")
    definitions = composite_definitions(store, identity)  # a composite's version includes its evaluators'
    same = [one for one in given[evaluator] if definitions.get(one, one) == versions[evaluator]]
    if not same:
        then = given[evaluator][0]
        return _other_version(metric, evaluator, definitions.get(then, then), versions[evaluator])
    for part in sorted({name for one in spec.composites if one.name == metric for name in one.metrics}):
        for name, found in versions_in(store, identity, window, part).items():
            if changed := {*found} - {versions.get(name)}:  # a composite's score does not say which version it is of
                return _other_version(metric, name, min(changed), versions.get(name))
    scores = production_scores(store, identity, window, metric, same[0])
    if scores is None:
        return Reason("no_data", f"no item of version {window.version} in the window has a score of {metric}")
    if not scores.n_scored:
        return Reason("not_numeric", f"{metric} has no numeric score in the window")
    return scores


def _other_version(metric: str, evaluator: str, then: str, wanted: str | None) -> Reason:
    now_has = "none" if wanted is None else wanted[:SHORT]
    text = f"{evaluator} has another version in production: {then[:SHORT]} there, {now_has} now"
    return Reason("not_comparable", f"{metric}: {text}; wanted the same, so that only the answers differ")


@dataclass(frozen=True, kw_only=True)
class ProductionComparison:
    """The metrics of a candidate against a window of production."""

    store: Store
    spec: ExperimentSpec
    window: ProductionBaseline
    values: Mapping[str, MetricValues]  # the candidate's
    judge_models: JudgeModels  # the candidate's

    @property
    def owners(self) -> list[str]:
        """The owners of the scores in the window."""
        assert self.window.since is not None and self.window.until is not None  # fixed before
        identity, first = evaluation_id(self.window.evaluation), self.window.since.astimezone(UTC).date()
        n_days = (self.window.until.astimezone(UTC).date() - first).days + 1
        return [identity, *(f"{identity}-{first + timedelta(days=number)}" for number in range(n_days))]

    @cached_property
    def note(self) -> Difference:
        """What limits every comparison with production."""
        text = (
            f"compared with {self.window.text}: not the same examples, so the difference includes the difference in "
            "traffic"
        )
        return Difference(what="examples", text=text)

    def estimate(self, metric: str, sample: MetricSample, min_examples: int) -> BoundedEstimate | Reason:
        """Return how much better the candidate is than production in a metric, or why that cannot be said."""
        if metric in (timed := timed_metrics(self.spec)):
            return timed[metric]
        versions = {values.evaluator: values.evaluator_version for values in self.values.values()}
        found = _in_window(self.store, self.spec, self.window, metric, versions)
        if isinstance(found, Reason):
            return found
        if why := self._other_judge(metric, found):
            return why
        theirs = MetricSample(values=found.values, clusters=found.clusters, scale=sample.scale)
        estimate = _Unpaired(sample, theirs).estimate(found, self.spec.confidence_level)
        n, noun = _count(theirs, found.noun)
        if n < min_examples:
            return Reason("below_min_examples", f"{n} scored {noun} of production, wanted at least {min_examples}")
        return estimate

    def _other_judge(self, metric: str, found: ProductionScores) -> Reason | None:
        """Why two sides that one evaluator scored are not comparable: its connection named another model."""
        for decider, models in found.judge_models.items():
            ours = self.judge_models.get((metric, decider))
            if ours is not None and ours != models:
                text = f"{metric} was judged by a different model: {models} in production, {ours} now"
                return Reason("not_comparable", text)
        return None


def _count(sample: MetricSample, noun: str) -> tuple[int, str]:
    """Return what is counted of a sample, and how many: scored items, or clusters if there are any."""
    estimate = sample.mean(0.95)
    is_clustered = estimate.n_clusters is not None and estimate.n_clusters < estimate.n
    return (estimate.n_clusters or 0, "sessions") if is_clustered else (estimate.n, noun)


@dataclass(frozen=True, slots=True)
class _Unpaired:
    """The difference of two samples by confidence level."""

    candidate: MetricSample
    production: MetricSample

    def estimate(self, found: ProductionScores, confidence_level: float) -> BoundedEstimate:
        higher = self.candidate.scale.higher_is_better
        ours, difference = self.candidate.mean(confidence_level), self.at(confidence_level)
        ends = self._extremes(confidence_level)
        values = (None, None) if ends is None else (ends[0].difference, ends[1].difference)
        value = difference.difference
        n_missing = int(self.candidate.values.missing.sum()) + found.values.n_missing
        return BoundedEstimate(
            value=value if value is None or higher else -value,
            interval_at=self.interval_at,
            worst_case_interval_at=self.worst_case_interval_at,
            worst_case_values=oriented(*values, higher_is_better=higher),
            n=ours.n if ours.n_clusters is None else ours.n_clusters,
            noun="examples" if ours.n_clusters is None else "clusters",
            n_missing=n_missing,
            higher_is_better=higher,
            reason=difference.reason,
            reason_code=difference.reason_code,
            against=f"{found.n_scored} {found.noun} of production, which are other items",
        )

    def at(self, confidence_level: float) -> UnpairedDifference:
        return unpaired_difference(self.candidate.mean(confidence_level), self.production.mean(confidence_level))

    def interval_at(self, confidence_level: float) -> Interval | None:
        difference = self.at(confidence_level)
        return oriented(difference.low, difference.high, higher_is_better=self.candidate.scale.higher_is_better)

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        ends = self._extremes(confidence_level)
        if ends is None:
            return None
        return oriented(ends[0].low, ends[1].high, higher_is_better=self.candidate.scale.higher_is_better)

    def _extremes(self, confidence_level: float) -> tuple[UnpairedDifference, UnpairedDifference] | None:
        """The smallest and the largest difference over all possible missing values; None for an unbounded metric."""
        if not (self.candidate.values.missing.any() or self.production.values.missing.any()):
            return (both := self.at(confidence_level)), both
        if not self.candidate.scale.is_bounded:
            return None
        low, high = self.candidate.scale.bounds
        ours, theirs = (
            [side.worst_case_mean(end, confidence_level) for end in (low, high)]
            for side in (self.candidate, self.production)
        )
        return unpaired_difference(ours[0], theirs[1]), unpaired_difference(ours[1], theirs[0])


COMPARED = ("non_inferiority", "superiority")
"""The kinds of rules that need a baseline."""

_DECIDING: Mapping[DecisionConclusion, Outcome] = {"PASS": "met", "FAIL": "broken", "NOT ENOUGH EVIDENCE": "open"}
"""The outcome of the rules that lead to a conclusion."""


@dataclass(frozen=True, kw_only=True)
class GateEvaluation:
    """One gate on one pair of experiments: the only place where a gate's decision is computed."""

    gate: GateSpec
    pair: ExperimentPair

    @cached_property
    def rule_results(self) -> list[RuleResult]:
        confidence_level = self.pair.spec.confidence_level
        return evaluate_rules(
            self.estimates,
            confidence_level=confidence_level,
            min_examples=self.gate.min_examples,
            adjustment=self.gate.adjustment,
        )

    @property
    def conclusion(self) -> DecisionConclusion:
        return conclusion_of(self.rule_results)

    @property
    def summary(self) -> str:
        """The texts of the rules that led to the conclusion."""
        return "; ".join(one.text for one in self.rule_results if one.outcome == _DECIDING[self.conclusion])

    @cached_property
    def estimates(self) -> tuple[tuple[Rule, BoundedEstimate | Reason], ...]:
        """The estimate that each rule tests, or why there is none."""
        return tuple((rule, self._estimate(rule)) for rule in rules_of(self.gate))

    @cached_property
    def compared(self) -> Mapping[str, PairedMetric]:
        """The metrics of non-inferiority and superiority rules that have an estimate."""
        metrics = dict.fromkeys(
            rule.metric
            for rule, estimate in self.estimates
            if rule.kind in COMPARED and not isinstance(estimate, Reason)
        )
        return {metric: paired for metric in metrics if (paired := self.pair.paired(metric))}

    @property
    def is_refused(self) -> bool:
        """Whether a metric of its non-inferiority or superiority rules is not comparable."""
        return any(rule.kind in COMPARED and self.pair.why_refused(rule.metric) for rule, _ in self.estimates)

    @property
    def has_all_estimates(self) -> bool:
        """Whether all non-inferiority and superiority rules have an estimate."""
        return not any(isinstance(estimate, Reason) for rule, estimate in self.estimates if rule.kind in COMPARED)

    @cached_property
    def interim_analyses(self) -> InterimAnalyses | None:
        """The interim analyses so far; None for a gate without batches, or before the first batch has finished."""
        if self.gate.batch is None:
            return None
        candidate = self.pair.candidate
        running = [row for row in (candidate, self.pair.baseline) if row and row.run_group == candidate.run_group]
        return interim_analyses_of(self.pair.reader.store, running)

    def decision(self, flow_run_id: str | None = None) -> DecisionRow:
        """The row to store; `flow_run_id` is the flow run that decides, if any."""
        code, pair = revision(), self.pair
        results = [result.as_dict() for result in self.rule_results]
        return DecisionRow(
            decision_id=self._identity,
            gate=self.gate.name,
            run_group=pair.candidate.run_group,
            candidate_experiment_id=pair.candidate.experiment_id,
            baseline_experiment_id=pair.baseline.experiment_id if pair.baseline else None,
            conclusion=self.conclusion,
            summary=self.summary,
            reasons=to_json(results),
            policy=self.gate.model_dump_json(),
            confidence_level=pair.spec.confidence_level,
            comparability=to_json([difference.as_dict() for difference in self._differences]),
            n_shared=pair.matched.n_shared if pair.matched else None,
            flow_run_id=flow_run_id,
            git_commit=code.commit,
            evalflows_version=version("evalflows"),
            interim_analyses=len(self.interim_analyses.after) if self.interim_analyses else None,
            calls_saved=self._calls_saved(),
            decided_at=now(),
        )

    def verdicts(self, decision_id: str) -> Iterator[VerdictRow]:
        """The verdicts on the metrics of the gate's rules."""
        tested = [
            TestedMetric(pair=self.pair, paired=paired, test=self._difference_test(name, paired))
            for name in self.gate.metrics
            if (paired := self.pair.paired(name)) is not None
        ]
        return verdicts(tested, self.pair.spec.adjustment, decision_id)

    def slices(self, decision_id: str) -> Iterator[CheckRow]:
        """The search of slices against an experiment: in the metrics of broken rules, else in those compared, since a
        mean can hide one that got worse."""
        pair = self.pair
        broken = [one.metric for one in self.rule_results if one.outcome == "broken"]
        searched = dict.fromkeys(map(metric_of, broken or self.gate.compared))
        metrics = [metric for metric in searched if metric in pair.values]
        if metrics and pair.matched and pair.matched.n_shared and not pair.is_against_itself:
            yield slice_check(decision_id, pair, metrics)

    @property
    def evidence(self) -> list[str]:
        """The owners of the rows that it rests on."""
        pair, rejudged = self.pair, self._rejudged if self.is_refused else None
        rows = [row for row in (pair.candidate, pair.baseline, rejudged) if row is not None]
        owners = {name for row in rows for name in (row.experiment_id, row.snapshot_id, controls_batch(row.run_group))}
        owners |= {one.batch_id for side in pair.exclusions for one in side.values() if one.batch_id is not None}
        if self._production is not None:
            owners |= {*self._production.owners}
        elif pair.baseline is not None and (
            approval := approved(pair.reader.store, baseline_name(pair.spec, self.gate))
        ):
            owners |= {approval.baseline_id} if approval.experiment_id == pair.baseline.experiment_id else set()
        return sorted(owners)

    @cached_property
    def _rejudged(self) -> ExperimentRow | None:
        """The experiment in which the baseline's answers were scored again; None if there is none."""
        pair = self.pair
        if pair.baseline is None:
            return None
        return recalibration_row(pair.reader.store, pair.spec, self.gate, pair.candidate, pair.baseline)

    @property
    def _identity(self) -> str:
        """An id from the evidence: other wording does not change it."""
        candidate, baseline = self.pair.candidate.experiment_id, self.pair.baseline
        evidence = to_json([{**result.as_dict(), "text": None} for result in self.rule_results])
        base, policy = baseline.experiment_id if baseline else "", self.gate.model_dump_json()
        return dependent_id("dec", candidate, candidate, base, policy, str(self.pair.spec.confidence_level), evidence)

    @cached_property
    def _production(self) -> ProductionComparison | None:
        """The comparison with a window of production; None for other baselines."""
        if self.gate.production is None:
            return None
        pair = self.pair
        return ProductionComparison(
            store=pair.reader.store,
            spec=pair.spec,
            window=self.gate.production,
            values=pair.values,
            judge_models=pair.reader.judge_models(pair.candidate),
        )

    @property
    def _differences(self) -> list[Difference]:
        of_production = [self._production.note] if self._production and self.gate.compares else []
        return [*self.pair.differences, *of_production]

    def _difference_test(self, name: str, paired: PairedMetric) -> DifferenceTest:
        if recalibration := self._recalibrated(name, paired):
            higher = paired.scale.higher_is_better
            return DifferenceTest(
                estimate=recalibration.difference(),
                higher_is_better=higher,
                exclusion=self.pair.why_excluded(name),
            )
        return self.pair.difference_test(paired, self.gate.non_inferiority.get(name))

    def _recalibrated(self, name: str, paired: PairedMetric) -> Recalibrated | None:
        """The metric with the newer judge's scores of the baseline; None if it did not score the baseline."""
        why = self.pair.why_refused(paired.candidate.metric)
        if why is None or why.code != "not_comparable":
            return None
        reader, spec, matched = self.pair.reader, self.pair.spec, self.pair.matched_in(name)
        row = self._rejudged
        rejudged = reader.values(row, spec).get(paired.candidate.metric) if row else None
        if row is None or rejudged is None or matched is None:
            return None
        if rejudged.evaluator_version != paired.candidate.evaluator_version:
            return None
        return recalibrated(reader.store, paired, matched.example_ids, rejudged, row)

    def _estimate(self, rule: Rule) -> BoundedEstimate | Reason:
        sample = self.pair.sample(rule.metric)
        if sample is None:
            return self._run_level(rule)
        if not sample.values.values.size:
            return Reason("no_such_slice", f"no example has {sliced_metric(rule.metric).slice}")
        if exclusion := self.pair.why_excluded(rule.metric, compared=rule.kind in COMPARED):
            return Reason(exclusion.code, f"excluded: {exclusion}")
        if self.gate.batch is not None and self.interim_analyses is None:
            return Reason("no_finished_batch", "no batch has finished yet, or the run was started without batches")
        return self._difference_estimate(rule, sample) if rule.kind in COMPARED else self._mean_estimate(rule, sample)

    @cached_property
    def _approval_problem(self) -> str | None:
        pair = self.pair
        if pair.baseline is None or pair.spec.baseline_target(self.gate) is not None:
            return None
        name = baseline_name(pair.spec, self.gate)
        return approval_problem(pair.reader.store, self.gate, name, pair.baseline.experiment_id)

    def _run_level(self, rule: Rule) -> BoundedEstimate | Reason:
        """The estimate of a metric that one evaluator computes from all answers of the candidate."""
        if not self.pair.has_run_level_metrics:
            return Reason("no_such_metric", "no evaluator gives it, or several do")
        return run_level_estimate(self.pair.reader.store, self.pair.spec, self.pair.candidate, rule)

    def _difference_estimate(self, rule: Rule, sample: MetricSample) -> BoundedEstimate | Reason:
        if self._production is not None:
            estimate = self._production.estimate(rule.metric, sample, self.gate.min_examples)
            return self._why_too_wide(rule, sample) or estimate
        if self.pair.baseline is None:
            return Reason("no_baseline", no_baseline(self.pair.spec, self.gate, self.pair.candidate.experiment_id))
        if self._approval_problem:
            return Reason("approved_by_others", self._approval_problem)
        if self.pair.is_against_itself:
            return Reason("candidate_is_baseline", "the candidate is the approved baseline itself")
        paired, matched = self.pair.paired(rule.metric), self.pair.matched_in(rule.metric)
        if paired is None or matched is None:
            return Reason("no_such_metric", "the baseline has no such metric")
        if too_wide := self._why_too_wide(rule, sample):
            return too_wide
        if why := self.pair.why_refused(rule.metric):
            recalibration = self._recalibrated(rule.metric, paired)
            return recalibration.estimate() if recalibration else Reason(why.code, f"refused: {why}")
        if self.interim_analyses is not None:
            return interim_difference(paired, self.interim_analyses, matched.candidate)
        return bounded_difference(paired)

    def _why_too_wide(self, rule: Rule, sample: MetricSample) -> Reason | None:
        if rule.kind != "non_inferiority" or rule.bound < sample.scale.widest:
            return None
        text = f"a margin of {rule.bound:g} is as wide as the metric's range: no difference could exceed it"
        return Reason("margin_too_wide", text)

    def _mean_estimate(self, rule: Rule, sample: MetricSample) -> BoundedEstimate | Reason:
        if self.interim_analyses is not None:
            return interim_mean(sample, self.interim_analyses, self.pair.sample_places(rule.metric))
        return bounded_mean(sample, self.pair.spec.confidence_level)

    def _calls_saved(self) -> int | None:
        """Estimate the model calls saved by stopping early; None without batches, before a decision, and if calls may
        have been made that nobody recorded."""
        if self.interim_analyses is None or self.conclusion == "NOT ENOUGH EVIDENCE":
            return None  # an undecided gate still needs the remaining calls
        calls = calls_of_group(self.pair.reader.store, self.pair.candidate.run_group)
        seen = self.interim_analyses.after[-1]
        return None if calls is None else round(calls * (self.interim_analyses.n_examples - seen) / seen)


def keep_decision(store: Store, evaluation: GateEvaluation, flow_run: str | None = None) -> DecisionRow:
    """Publish a decision with its verdicts, and return its row. Repeating a decision only updates its time.

    Args:
        store: The store.
        evaluation: The gate on a candidate and its baseline.
        flow_run: Id of the flow run that decides; None outside flows.

    Raise StorageError for evidence that no run wrote.
    """
    evidence = evidence_of(store, evaluation)
    row = evaluation.decision(flow_run)
    decided_at = after(_newest_decision(store, row))
    tables: dict[str, list[object]] = {}
    if before := store.read("decisions", row.decision_id):
        row = replace(before[0], recorded_at=decided_at)
    else:
        tables["verdicts"] = [*evaluation.verdicts(row.decision_id)]
        tables["checks"] = [*evaluation.slices(row.decision_id)]
        row = replace(row, decided_at=decided_at, recorded_at=decided_at)
    if deleted := deleted_decisions(store):
        text = f"an earlier decision is missing from this store: {deleted[0]}"
        if len(deleted) > 1:
            text = f"{len(deleted)} earlier decisions are missing from this store, such as {deleted[0]}"
        known = from_json(row.comparability) or []
        said = Difference(what="history", text=text).as_dict()
        row = replace(row, comparability=to_json([*(one for one in known if one["what"] != "history"), said]))
    tables["decisions"] = [row]
    contents = [(table, [to_arrow(table, rows)]) for table, rows in tables.items()]
    store.publish_all(row.decision_id, contents, Written(evidence=evidence, flow_run=flow_run))
    return row


def evidence_of(store: Store, evaluation: GateEvaluation) -> Evidence:
    """Return what an evaluation rests on. Raise StorageError for a file of it that no run wrote."""
    return evidence_on(store, evaluation.evidence)


def _newest_decision(store: Store, row: DecisionRow) -> datetime | None:
    """Return the time of the newest decision of the gate, or on the candidate; None if there is none."""
    query = "select max(recorded_at) from source.decisions where gate = ? or candidate_experiment_id = ?"
    ((newest,),) = store.query(query, [row.gate, row.candidate_experiment_id])
    return newest  # type: ignore[no-any-return]
