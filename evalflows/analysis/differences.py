"""Two experiments, metric by metric: their paired data, the test of each difference, and the minimum detectable effect;
with pass@k and pass^k as metrics of their own. `verdicts.py` concludes from the tests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from evalflows.analysis.comparability import (
    Difference,
    JudgeModels,
    ServedBy,
    differences,
    incomparable_metrics,
    judge_models,
    served_by,
)
from evalflows.analysis.experiment_metrics import (
    ExperimentMetric,
    PairedExperimentMetric,
    experiment_metrics,
)
from evalflows.analysis.flaky import Quarantine, observed_before, why_too_many
from evalflows.analysis.judge_drift import JudgeStream, drift_differences, judge_streams
from evalflows.analysis.judge_exclusions import Exclusion, JudgedMetric, by_controls, by_fallback, by_people, exclusions
from evalflows.analysis.pairing import (
    Clusters,
    MatchedExamples,
    MetricSample,
    PairedMetric,
    PairedPart,
    Places,
    at_places,
    counts_of,
    difference_columns,
    drop_ambiguous,
    joined,
    matched,
    paired_metric,
    sample_at,
    scale_of,
    unanswered,
)
from evalflows.analysis.rule_estimates import run_level_estimate
from evalflows.analysis.rules import Estimate, Rule
from evalflows.analysis.verdicts import MISSING_DECIDES, DifferenceTest, Verdict, classify
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import Adjustment
from evalflows.specs.metric_names import (
    LATENCY,
    MEASURES,
    PassKind,
    SlicedMetric,
    base_metric,
    metric_of,
    pass_k_name,
    slice_named,
    sliced_metric,
)
from evalflows.specs.metrics import MetricSpec
from evalflows.stats.arrays import FloatArray
from evalflows.stats.paired import PairedDifference
from evalflows.stats.pass_at_k import pass_at_k, pass_hat_k
from evalflows.stats.power import smallest_detectable, unseen_variance
from evalflows.stats.proportions import normal_quantile
from evalflows.store.kept_checks import QUARANTINE, keep_check
from evalflows.store.queries.alike import answers_alike
from evalflows.store.queries.invalid_trials import InvalidTrials, invalid_trials
from evalflows.store.queries.lookup import example_ids_of
from evalflows.store.queries.repeated_values import Repeated
from evalflows.store.queries.shared_examples import SharedRounds, places_of, shared_rounds, slice_value
from evalflows.store.queries.values import (
    MetricValues,
    Trials,
    clusters_of,
    metric_values,
    places_where,
    trials,
)
from evalflows.store.records import EstimateRow, ExperimentRow, Reason, VerdictRow, derived_id, from_json
from evalflows.store.row_specs import experiment_spec
from evalflows.store.snapshots import Examples, load_snapshot
from evalflows.store.store import Store

POWER = 0.8
"""The power of the minimum detectable effect: the usual one in planning trials."""

NOTHING_DETECTABLE: Mapping[str, Any] = {"minimum_detectable_effect": None, "power": None}

KINDS: dict[PassKind, Callable[..., FloatArray]] = {"pass@": pass_at_k, "pass^": pass_hat_k}

T = TypeVar("T")

NOT_SIDE_BY_SIDE = Reason(
    "not_side_by_side",
    "not measured side by side: the answers were made in separate runs, recorded, or taken from the ledger",
)

BRIEF_S = 0.001
"""Mean latencies below this are those of functions, not of services: their difference is that of the machine."""


def detectable_effect_columns(difference: PairedDifference, paired: PairedMetric) -> Mapping[str, Any]:
    """Return the columns of a verdict's row with the minimum detectable effect and its power.

    It is that of a plan with as many pairs, if these are the past ones.
    """
    n = difference.n_pairs if difference.n_clusters is None else difference.n_clusters
    is_recalibrated = difference.candidate_mean is None
    error = None if is_recalibrated else paired.yes_no_error
    is_yes_no = error is not None
    variance = n * (error if error is not None else standard_error_of(difference) or 0.0) ** 2
    if is_yes_no and not variance and n > 1:
        variance = unseen_variance(n)
    if n < 2 or not variance:
        return NOTHING_DETECTABLE
    smallest = smallest_detectable(
        n,
        variance,
        yes_no=is_yes_no and difference.n_clusters is None,
        confidence_level=difference.confidence_level,
        power=POWER,
    )
    low, high = (is_yes_no and paired.yes_no_ends) or (0.0, 1.0)
    if (effect := (high - low) * smallest) > paired.scale.widest:  # no difference is as large
        return NOTHING_DETECTABLE
    return {"minimum_detectable_effect": effect, "power": POWER}


def standard_error_of(difference: PairedDifference) -> float | None:
    """Return the test's standard error, else the one implied by the interval; None without either, or if it is 0."""
    if difference.standard_error is not None:
        return difference.standard_error or None
    if difference.low is None or difference.high is None or difference.low == difference.high:
        return None
    return (difference.high - difference.low) / 2 / normal_quantile(difference.confidence_level)


def trial_values(
    trials: Callable[..., Trials], row: ExperimentRow, metric: MetricValues, declared: MetricSpec
) -> Iterator[MetricValues]:
    """Yield `metric pass@k` (at least one of k repetitions passes) and `metric pass^k` (all k pass) for each k.

    One value per example, 0 to 1; NaN for fewer than k scored repetitions.
    """
    if not declared.pass_k:
        return
    higher = declared.is_higher_better(metric.metric)
    repeated = trials(row, metric, pass_threshold=declared.pass_threshold, higher_is_better=higher)
    for k in sorted({*declared.pass_k}):
        for kind in KINDS:
            yield _values(metric, repeated, kind, k)


def _values(metric: MetricValues, repeated: Trials, kind: PassKind, k: int) -> MetricValues:
    enough = repeated.scored >= k
    values = np.full(len(repeated.scored), np.nan)
    values[enough] = KINDS[kind](repeated.passed[enough], repeated.scored[enough], k)
    return replace(
        metric,
        metric=pass_k_name(metric.metric, kind, k),
        values=values,
        is_yes_no=True,
        is_binary=False,
        scored=int(enough.sum()),
        n_missing=int(metric.missing.sum()),
        missing_share=None,
    )


class MetricReader:
    """A reader that caches what it reads; use it only while experiments do not change.

    Without `keeps_values`, it reads the values of metrics again each time, and has one metric in memory at a time.
    `rows` runs conditions in SQL that others have written, in a process of its own.
    """

    def __init__(
        self, store: Store, *, keeps_values: bool = True, rows: Callable[[str], list[tuple[Any, ...]]] | None = None
    ) -> None:
        self.store, self._keeps_values, self._rows = store, keeps_values, rows
        self._read: dict[tuple[str, ...], Any] = {}

    def spec(self, row: ExperimentRow) -> ExperimentSpec:
        """Return the spec that an experiment was run by."""
        return self._once(("spec", row.experiment_id), lambda: experiment_spec(row))

    def values(self, row: ExperimentRow, spec: ExperimentSpec) -> Mapping[str, MetricValues]:
        """By metric, without metrics that several evaluators give."""
        return drop_ambiguous(list(self.all_values(row, spec)))

    def all_values(self, row: ExperimentRow, spec: ExperimentSpec) -> Iterator[MetricValues]:
        """Yield the metrics of an experiment, and the pass@k metrics that the spec declares of them."""
        read = self._metric_values(row)
        values = self._once(("values", row.experiment_id), lambda: [*read]) if self._keeps_values else read
        for metric in values:
            yield metric
            yield from self._trial_values(row, metric, spec)

    def _metric_values(self, row: ExperimentRow) -> Iterator[MetricValues]:
        return metric_values(self.store, row)

    def experiment(self, identity: str) -> ExperimentRow:
        row: ExperimentRow = self.store.read("experiments", identity)[0]
        return row

    def examples(self, snapshot_id: str) -> Examples:
        return load_snapshot(self.store, snapshot_id)

    def trials(
        self, row: ExperimentRow, metric: MetricValues, *, pass_threshold: float, higher_is_better: bool
    ) -> Trials:
        return trials(self.store, row, metric, pass_threshold=pass_threshold, higher_is_better=higher_is_better)

    def run_level(self, row: ExperimentRow, spec: ExperimentSpec, rule: Rule) -> Estimate | Reason:
        """Return the estimate of a run-level metric, or why the rule cannot be evaluated."""
        return run_level_estimate(self.store, spec, row, rule)

    def input_groups(self, snapshot_id: str) -> Sequence[int] | None:
        """Return the group of each example's inputs, in the snapshot's order; None if none are kept."""
        from evalflows.analysis.input_groups import kept_groups  # late: it loads embeddings

        return kept_groups(self.store, snapshot_id)

    def answers_alike(self, sides: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return by field what the answers of two experiments have in common, by example."""
        return answers_alike(self.store, sides)

    def invalid_trials(self, experiments: Sequence[str]) -> Sequence[InvalidTrials]:
        return invalid_trials(self.store, experiments)

    def experiment_metrics(self, row: ExperimentRow, spec: ExperimentSpec) -> Mapping[str, ExperimentMetric]:
        """Return the metrics of the whole experiment that have an interval; empty without `summary_evaluators`."""

        def read() -> Mapping[str, ExperimentMetric]:
            has_any = from_json(row.spec).get("summary_evaluators")
            return experiment_metrics(self.store, row, spec) if has_any else {}

        return self._once(("experiment_metrics", row.experiment_id, spec.model_dump_json(include={"metrics"})), read)

    def clusters(self, row: ExperimentRow) -> Clusters:
        """Return the cluster of each example, in the snapshot's order; None if no example has one."""
        return self._once(("clusters", row.snapshot_id), lambda: clusters_of(self.store, row.snapshot_id))

    def slice_values(self, snapshot_id: str, path: str) -> list[str | None]:
        """Return each example's value at a path, in the snapshot's order; None if it has none."""
        read = lambda: [slice_value(example, path) for example in self.examples(snapshot_id)]  # noqa: E731
        return self._once(("slice", snapshot_id, path), read)

    def places_where(self, snapshot_id: str, condition: str) -> Places:
        """Return the positions of the examples for which a SQL condition holds, or in a slice by its name in rules and
        output, `metadata.topic=billing`. Raise InputError if it is neither."""

        def read() -> Places:
            sliced = slice_named(condition)
            if sliced is None:
                return places_where(self.store, snapshot_id, condition, self._rows)
            return places_of(self.slice_values(snapshot_id, sliced.path or ""), sliced)

        return self._once(("where", snapshot_id, condition), read)

    def matched(self, candidate: ExperimentRow, baseline: ExperimentRow) -> MatchedExamples:
        key = ("matched", candidate.snapshot_id, baseline.snapshot_id)
        return self._once(key, lambda: matched(candidate, baseline, self.example_ids, self.examples))

    def example_ids(self, snapshot_id: str) -> list[str]:
        """Return the ids of the examples, in the snapshot's order."""
        return self._once(("ids", snapshot_id), lambda: example_ids_of(self.store, snapshot_id))

    def quarantine(self, row: ExperimentRow, spec: ExperimentSpec) -> Quarantine | None:
        """Return the spec's quarantine as of an experiment's run; None if it has none."""
        if not spec.quarantine:
            return None

        def observed() -> Repeated:
            return self._once(("observed", row.experiment_id), lambda: observed_before(self.store, row))

        key = ("quarantine", row.experiment_id, spec.model_dump_json(include={"quarantine"}))
        return self._once(key, lambda: Quarantine(entries=spec.quarantine, experiment=row, observed=observed))

    def shared_rounds(self, candidate: ExperimentRow, baseline: ExperimentRow) -> SharedRounds:
        key = ("rounds", candidate.experiment_id, baseline.experiment_id)
        return self._once(key, lambda: shared_rounds(self.store, candidate, baseline))

    def exclusions(self, row: ExperimentRow, spec: ExperimentSpec) -> Mapping[str, Exclusion]:
        """Return the metrics of an experiment that decide nothing because of their judge."""

        def read() -> dict[str, Exclusion]:
            judged = [
                JudgedMetric(value.metric, value.evaluator, value.evaluator_version)
                for value in self.all_values(row, spec)
            ]
            people = self._once(("people",), lambda: by_people(self.store))
            controls = by_controls(self.store, [row.run_group])[row.run_group]
            fallback = by_fallback(self.store, {row.experiment_id: row.spec}).get(row.experiment_id, {})
            return exclusions(judged, controls, people, fallback)

        return self._once(("exclusions", row.experiment_id, spec.model_dump_json(include={"metrics"})), read)

    def judge_models(self, row: ExperimentRow) -> JudgeModels:
        return self._once(("judges", row.experiment_id), lambda: judge_models(self.store, row))

    def served_by(self, row: ExperimentRow) -> ServedBy:
        return self._once(("served", row.experiment_id), lambda: served_by(self.store, row))

    def judge_streams(self, owners: Sequence[str]) -> list[JudgeStream]:
        return self._once(("anchors", *owners), lambda: judge_streams(self.store, owners))

    def _trial_values(self, row: ExperimentRow, metric: MetricValues, spec: ExperimentSpec) -> list[MetricValues]:
        declared = spec.direction(metric.metric)
        if not declared.pass_k:
            return []
        key = ("trials", row.experiment_id, metric.metric, metric.evaluator_version, declared.model_dump_json())
        return self._once(key, lambda: list(trial_values(self.trials, row, metric, declared)))

    def _once(self, key: tuple[str, ...], read: Callable[[], T]) -> T:
        if key not in self._read:
            self._read[key] = read()
        content: T = self._read[key]
        return content


NO_PLACES: Places = np.array([], dtype=np.intp)


def timed_metrics(spec: ExperimentSpec) -> dict[str, Reason]:
    """Return the metrics that are compared only side by side, latency and composites of it, with the reason if not."""
    return with_dependent_composites({LATENCY: NOT_SIDE_BY_SIDE}, spec)


@dataclass(frozen=True, kw_only=True)
class ExperimentPair:
    """A candidate and its baseline, if there is one.

    The table of results, gates and backtests all compare experiments through this class.
    """

    reader: MetricReader
    spec: ExperimentSpec
    candidate: ExperimentRow
    baseline: ExperimentRow | None
    where: str | None = None  # a SQL condition on the candidate's examples: only these count

    has_run_level_metrics: ClassVar[bool] = True

    @property
    def is_against_itself(self) -> bool:
        return self.baseline is not None and self.baseline.experiment_id == self.candidate.experiment_id

    @cached_property
    def values(self) -> Mapping[str, MetricValues]:
        """The candidate's metrics."""
        return self.in_quarantine(self.candidate, self.reader.values(self.candidate, self.spec))

    @cached_property
    def baseline_values(self) -> Mapping[str, MetricValues]:
        return self.in_quarantine(self.baseline, self.reader.values(self.baseline, self.spec)) if self.baseline else {}

    @cached_property
    def quarantine(self) -> Quarantine | None:
        """The spec's quarantine as of the candidate's run, which weighs both sides; None without one."""
        return self.reader.quarantine(self.candidate, self.spec)

    def in_quarantine(self, row: ExperimentRow, values: Mapping[str, MetricValues]) -> Mapping[str, MetricValues]:
        """Return the metrics of one side with the weights of the examples in quarantine."""
        if (quarantine := self.quarantine) is None:
            return values
        ids = self.reader.example_ids(row.snapshot_id)
        return {name: quarantine.applied(metric, ids) for name, metric in values.items()}

    @cached_property
    def quarantine_notes(self) -> list[Difference]:
        """What is in quarantine, for each entry."""
        if (quarantine := self.quarantine) is None:
            return []
        metrics = [name for name in self.values if name not in MEASURES]
        ids = self.reader.example_ids(self.candidate.snapshot_id)
        return [Difference(what=QUARANTINE, text=text) for text in quarantine.texts(metrics, ids)]

    @cached_property
    def matched(self) -> MatchedExamples | None:
        """The shared examples; None without a baseline."""
        return self.reader.matched(self.candidate, self.baseline) if self.baseline else None

    @cached_property
    def differences(self) -> Sequence[Difference]:
        """The unintended differences between the two experiments."""
        if self.baseline is None or self.matched is None:
            return []
        judges = self.reader.judge_models(self.candidate), self.reader.judge_models(self.baseline)
        served = self.reader.served_by(self.candidate), self.reader.served_by(self.baseline)
        found = differences(self.candidate, self.baseline, self.matched, self.spec.composites, judges, served)
        return [*found, *drift_differences(self.reader.judge_streams, self.candidate, self.baseline, self.spec)]

    @property
    def clusters(self) -> Clusters:
        """The clusters of the candidate's examples."""
        return self.reader.clusters(self.candidate)

    def sample(self, name: str, *, with_lost: bool = False) -> MetricSample | None:
        """Return a metric of the candidate, or a slice of it; None if the candidate does not have it.

        `with_lost`, examples that only the baseline has come after its own, if the baseline has the metric.
        """
        values = self.values.get(metric_of(name))
        if values is None:
            return None
        sample = MetricSample(values=values, clusters=self.clusters, scale=scale_of(values, self.spec))
        sample = sample_at(sample, self.sample_places(name)) if self._is_part(name) else sample
        theirs, lost = self.baseline_values.get(metric_of(name)), self.lost_places(name) if with_lost else NO_PLACES
        if theirs is None or not lost.size:
            return sample
        joint = joined(sample.values, unanswered(at_places(theirs, lost)))
        return replace(sample, values=joint, clusters=self._with_lost(sample.clusters, sample.values.values.size, lost))

    def sample_places(self, name: str) -> Places:
        """Return the positions of a metric's examples in the candidate's snapshot: all, or those of its slice."""
        return self._places_in(self.candidate, name)

    def _places_in(self, row: ExperimentRow, name: str) -> Places:
        sliced, places = sliced_metric(name), np.arange(row.n_examples, dtype=np.intp)
        if self.where is not None:
            places = self.reader.places_where(row.snapshot_id, self.where)
        if sliced.path is not None:
            places = np.intersect1d(places, places_of(self.reader.slice_values(row.snapshot_id, sliced.path), sliced))
        return places

    def lost_places(self, name: str) -> Places:
        """Return the positions, in the baseline's snapshot, of a metric's examples that the candidate's lacks, or has
        with other inputs or references.

        The slice is by the baseline's examples.
        """
        if self.baseline is None or self.matched is None or self.matched.is_whole:
            return NO_PLACES
        return np.setdiff1d(self._places_in(self.baseline, name), self.matched.baseline)

    def _is_part(self, name: str) -> bool:
        """Return whether a metric's examples are only some of the snapshot's."""
        return self.where is not None or sliced_metric(name).path is not None

    def paired(self, name: str, *, with_lost: bool = False) -> PairedMetric | None:
        """Return a metric, or a slice of it, on the shared examples; None if either experiment does not have it.

        `with_lost`, the baseline's other examples come after them: the candidate has no answer to these.
        """
        metric, matched = metric_of(name), self.matched_in(name)
        if metric not in self.values or metric not in self.baseline_values or matched is None:
            return None
        # latency is compared only where both sides answered side by side
        lost = self.lost_places(name) if with_lost and metric != LATENCY else NO_PLACES
        ours, theirs = self._sides(metric, matched, lost)
        parts = [*self._parts(metric, matched, lost)]
        clusters = self._with_lost(matched.of_clusters(self.clusters), matched.n_shared, lost)
        paired = paired_metric(ours, theirs, clusters, self.spec, parts)
        paired = replace(paired, slice=sliced_metric(name).slice)
        rounds = self._rounds if metric == LATENCY else None
        if rounds is None or not rounds.together.any():
            return paired
        return paired.side_by_side(rounds.at(self.shared_places(name)))

    def _sides(self, metric: str, matched: MatchedExamples, lost: Places) -> tuple[MetricValues, MetricValues]:
        """Return a metric of both sides on shared examples, and then on lost ones."""
        every = self.baseline_values[metric]
        ours, theirs = matched.of_candidate(self.values[metric]), matched.of_baseline(every)
        if not lost.size:
            return ours, theirs
        of_lost = at_places(every, lost)
        return joined(ours, unanswered(of_lost)), joined(theirs, of_lost)

    def _with_lost(self, clusters: Clusters, count: int, lost: Places) -> Clusters:
        """Return the clusters of so many examples, and then of lost ones."""
        theirs = self.reader.clusters(self.baseline) if lost.size and self.baseline is not None else None
        if not lost.size or (clusters is None and theirs is None):
            return clusters
        of_lost = [None] * lost.size if theirs is None else [theirs[index] for index in lost]
        return [*(clusters or [None] * count), *of_lost]

    def _parts(self, metric: str, matched: MatchedExamples, lost: Places) -> Iterator[PairedPart]:
        """Yield the parts of a composite, and theirs, on shared and then on lost examples; none of another metric."""
        assert self.baseline is not None
        composite = next((composite for composite in self.spec.composites if composite.name == metric), None)
        if composite is None or composite.panel:
            return
        is_mean = composite.aggregation == "weighted_mean" and composite.function is None
        is_mean = is_mean and self.candidate.repetitions == self.baseline.repetitions == 1
        total = sum(composite.weights.values())
        for part in composite.metrics:
            if part in self.values and part in self.baseline_values:
                weighs = is_mean and part not in composite.requirements
                ours, theirs = self._sides(part, matched, lost)
                yield PairedPart(
                    candidate=ours, baseline=theirs, weight=composite.weights[part] / total if weighs else None
                )

    @cached_property
    def experiment_metrics(self) -> Mapping[str, PairedExperimentMetric]:
        """The metrics of the whole experiment that both sides have; none on only some of the examples."""
        if self.baseline is None or self.where is not None:
            return {}
        ours = self.reader.experiment_metrics(self.candidate, self.spec)
        theirs = self.reader.experiment_metrics(self.baseline, self.spec)
        n_pairs = self._n_answered_by_both() if ours.keys() & theirs.keys() else 0
        return {
            name: PairedExperimentMetric(
                candidate=metric,
                baseline=theirs[name],
                confidence_level=self.spec.confidence_level,
                are_on_same_examples=self._are_on_same_examples,
                n_pairs=n_pairs,
            )
            for name, metric in ours.items()
            if name in theirs
        }

    def _n_answered_by_both(self) -> int:
        """Return how many examples both sides have answered, at least once."""
        assert self.baseline is not None
        sides = [self.candidate.experiment_id, self.baseline.experiment_id]
        query = """select count(*) from (select example_id from source.outputs where experiment_id in (?, ?)
                   and status = 'ok' group by all having count(distinct experiment_id) = 2)"""
        return int(self.reader.store.query(query, sides)[0][0])

    @cached_property
    def _are_on_same_examples(self) -> bool:
        """Whether both sides have the same examples in the same order, and no others."""
        assert self.baseline is not None and self.matched is not None
        everything = [*range(self.candidate.n_examples)]
        sides = (self.matched.candidate, self.matched.baseline)
        return self.candidate.n_examples == self.baseline.n_examples and all([*side] == everything for side in sides)

    def matched_in(self, name: str) -> MatchedExamples | None:
        """Return the shared examples of a metric: all, or those of its slice; None without a baseline."""
        if self.matched is None or not self._is_part(name):
            return self.matched
        return self.matched.at(self.shared_places(name))

    def shared_places(self, name: str) -> Places:
        """Return the positions of a metric's examples among the shared ones.

        The slice is by the candidate's examples.
        """
        shared = np.array([] if self.matched is None else self.matched.candidate, dtype=np.intp)
        return np.flatnonzero(np.isin(shared, self.sample_places(name))).astype(np.intp)

    def why_excluded(self, name: str, *, compared: bool = True) -> Reason | None:
        """Return why a metric decides nothing because of a judge: the candidate's, or if it is `compared` also the
        baseline's; None if it may decide."""
        metric, sides = metric_of(name), self._excluded if compared else self._excluded[:1]
        return next((side[metric] for side in sides if metric in side), None)

    def why_refused(self, name: str) -> Reason | None:
        """Return why a metric, or a slice of it, is not comparable; metrics derived from refused ones (pass@k) are
        refused with them."""
        sliced = sliced_metric(name)
        metric = sliced.metric
        values = self.values.get(metric) or self.reader.experiment_metrics(self.candidate, self.spec).get(metric)
        refused = self._refused.get(metric) or (self._refused.get(values.evaluator) if values else None)
        return refused or self._why_moved(sliced)

    def _why_moved(self, sliced: SlicedMetric) -> Reason | None:
        """Return why a slice is not comparable: examples may have come to it, or left it, since the baseline."""
        if sliced.path is None or self.matched is None or self.baseline is None or self.matched.is_whole:
            return None
        sides = (self.candidate, self.matched.candidate), (self.baseline, self.matched.baseline)
        ours, theirs = (
            np.isin(shared, places_of(self.reader.slice_values(row.snapshot_id, sliced.path), sliced))
            for row, shared in sides
        )
        moved = int((ours != theirs).sum())
        if not moved:
            return None
        which = "1 shared example is" if moved == 1 else f"{moved} shared examples are"
        return Reason("not_comparable", f"{which} in {sliced.slice} on one side only")

    def difference_test(self, paired: PairedMetric, margin: float | None = None) -> DifferenceTest:
        """Test a metric's difference, by default with the declared margin."""
        metric = paired.candidate.metric
        name = metric if paired.slice is None else f"{metric}@{paired.slice}"
        why = self.why_refused(name) or self.why_excluded(metric) or why_too_brief(paired, margin)
        why = why or why_too_many(paired.candidate, self.spec.quarantine_at_most)
        return paired.difference_test(why, margin)

    def tested(self, name: str) -> "TestedMetric | None":
        """Return the test of a metric's difference with the declared margin; None if either side does not have it."""
        if (paired := self.paired(name)) is not None:
            return TestedMetric(pair=self, paired=paired, test=self.difference_test(paired))
        if (whole := self.experiment_metrics.get(name)) is not None:
            test = whole.difference_test(self.why_refused(name) or whole.why_not_compared)
            return TestedMetric(pair=self, paired=whole, test=test)
        return None

    @cached_property
    def _excluded(self) -> Sequence[Mapping[str, Reason]]:
        """The metrics that decide nothing because of their judge: the candidate's, and the baseline's."""
        return [
            with_dependent_composites({metric: exclusion.reason for metric, exclusion in side.items()}, self.spec)
            for side in self.exclusions
        ]

    @cached_property
    def exclusions(self) -> Sequence[Mapping[str, Exclusion]]:
        """The judges' exclusions by metric: the candidate's, and the baseline's."""
        rows = [row for row in (self.candidate, self.baseline) if row is not None]
        return [self.reader.exclusions(row, self.spec) for row in rows]

    @cached_property
    def _refused(self) -> Mapping[str, Reason]:
        refused = incomparable_metrics(self.differences)
        if self._rounds is not None and not self._rounds.together.any():
            refused |= timed_metrics(self.spec)
        return refused

    @cached_property
    def _rounds(self) -> SharedRounds | None:
        """The rounds in which both sides answered; None without a baseline, or if both are of one experiment."""
        if self.baseline is None or self.baseline.experiment_id == self.candidate.experiment_id:
            return None
        return self.reader.shared_rounds(self.candidate, self.baseline)


def why_too_brief(paired: PairedMetric, margin: float | None = None) -> Reason | None:
    """Return why the latencies of both sides cannot be told apart, unless it is by a margin that a clock can tell."""
    if paired.candidate.metric != LATENCY or (margin or 0.0) >= BRIEF_S:
        return None
    means = [side.values[~np.isnan(side.values)] for side in (paired.candidate, paired.baseline)]
    is_brief = all(len(values) and values.mean() < BRIEF_S for values in means)
    return Reason("too_brief", "answers of both take less than a millisecond") if is_brief else None


def verdicts_of(pairs: Sequence[ExperimentPair], adjustment: Adjustment) -> Iterator[VerdictRow]:
    """Yield the verdict on each metric of each pair.

    Metrics of evaluators and built-in measures (latency, cost, …) are two families, adjusted separately. The judges of
    a panel have no verdicts of their own.
    """
    tested = [
        each
        for pair in pairs
        for metric in (*pair.values, *pair.experiment_metrics)
        if base_metric(metric) not in pair.spec.panel_members and (each := pair.tested(metric))
    ]
    for is_measure in (False, True):
        family = [each for each in tested if (each.paired.candidate.metric in MEASURES) == is_measure]
        yield from map(verdict_row, family, classify([each.test for each in family], adjustment))


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedMetric:
    """One metric of a pair, and the test of its difference."""

    pair: ExperimentPair
    paired: PairedMetric | PairedExperimentMetric
    test: DifferenceTest

    @property
    def slice(self) -> str | None:
        return self.paired.slice if isinstance(self.paired, PairedMetric) else None

    @property
    def detectable_effect(self) -> Mapping[str, Any]:
        """The columns of a verdict's row with the minimum detectable effect."""
        if isinstance(self.paired, PairedMetric):
            return detectable_effect_columns(self.test.estimate, self.paired)
        effect = self.paired.detectable_effect(POWER)
        return {"minimum_detectable_effect": effect, "power": None if effect is None else POWER}

    @property
    def counts(self) -> dict[str, Any]:
        """The columns of a verdict's row with the numbers of scored and missing runs on each side."""
        if isinstance(self.paired, PairedMetric):
            return counts_of(self.paired.candidate, self.paired.baseline)
        return self.paired.counts


def verdict_row(tested: TestedMetric, verdict: Verdict, decision_id: str | None = None) -> VerdictRow:
    """Return a verdict as a row; `decision_id` is its gate decision, if any."""
    candidate, baseline, metric = tested.pair.candidate, tested.pair.baseline, tested.paired.candidate.metric
    assert baseline is not None  # a paired metric has a baseline
    of_slice = tested.slice
    of_group = derived_id(candidate.experiment_id, baseline.experiment_id, metric, of_slice)
    of_decision = [decision_id, metric] if of_slice is None else [decision_id, metric, of_slice]
    return VerdictRow(
        verdict_id=derived_id(*of_decision) if decision_id else of_group,
        decision_id=decision_id,
        run_group=decision_id or candidate.run_group,
        metric=metric,
        slice=of_slice,
        candidate_experiment_id=candidate.experiment_id,
        baseline_experiment_id=baseline.experiment_id,
        **asdict(verdict),
        **difference_columns(tested.test),
        # missing values that could change the verdict leave larger differences undecided, too
        **(NOTHING_DETECTABLE if verdict.reason_code in MISSING_DECIDES else tested.detectable_effect),
        **tested.counts,
    )


def publish_differences(
    store: Store, reader: MetricReader, rows: Sequence[ExperimentRow], spec: ExperimentSpec
) -> None:
    """Publish the estimates of each experiment of a run group, and the verdicts on each candidate."""
    for row in rows:
        store.publish("estimates", row.experiment_id, list(estimate_rows(reader, row, spec)))
        if spec.quarantine:
            notes = ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=None).quarantine_notes
            identity, said = derived_id(QUARANTINE, row.experiment_id), "\n".join(note.text for note in notes)
            keep_check(store, identity, QUARANTINE, ("experiment", row.experiment_id), said, passed=False)
    store.publish("verdicts", rows[0].run_group, list(verdicts_on(reader, rows, spec)))


def verdicts_on(reader: MetricReader, rows: Sequence[ExperimentRow], spec: ExperimentSpec) -> Iterator[VerdictRow]:
    """Yield the verdict on each metric of every candidate of a run group."""
    base = next(row for row in rows if row.target == (spec.baseline or rows[0].target))
    pairs = [ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=base) for row in rows if row is not base]
    return verdicts_of(pairs, spec.adjustment)


def estimate_rows(
    reader: MetricReader, row: ExperimentRow, spec: ExperimentSpec, where: str | None = None
) -> Iterator[EstimateRow]:
    """Yield the mean of each metric of an experiment, with its interval; `where`: as in `ExperimentPair`."""
    for metric in reader.all_values(row, spec):
        sample = MetricSample(values=metric, clusters=reader.clusters(row), scale=scale_of(metric, spec))
        if where is not None:
            sample = sample_at(sample, reader.places_where(row.snapshot_id, where))
        estimate = sample.mean(spec.confidence_level)
        yield EstimateRow(
            estimate_id=derived_id(row.experiment_id, metric.metric, metric.evaluator_version, None),
            experiment_id=row.experiment_id,
            metric=metric.metric,
            evaluator_version=metric.evaluator_version,
            mean=estimate.mean,
            standard_error=estimate.standard_error,
            ci_low=estimate.low,
            ci_high=estimate.high,
            confidence_level=estimate.confidence_level,
            method=estimate.method,
            n_examples=estimate.n,
            n_clusters=estimate.n_clusters,
            reason=estimate.reason,
            reason_code=estimate.reason_code,
        )
    if where is None:
        for whole in reader.experiment_metrics(row, spec).values():
            yield whole.estimate_row(row.experiment_id, spec.confidence_level)


def with_dependent_composites(exclusion: Mapping[str, Reason], spec: ExperimentSpec) -> dict[str, Reason]:
    """Return the metrics or judges in `exclusion` and the composites that depend on them, each with the reason."""
    found = dict(exclusion)
    for composite in spec.composites:
        if (metric := composite.undone_by(found)) is not None:
            found[composite.name] = Reason(found[metric].code, f"it depends on {metric}: {found[metric]}")
    return found
