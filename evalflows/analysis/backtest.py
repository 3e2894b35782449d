"""Backtest a gate: its decisions on past pairs of experiments and on the halves of one experiment, and its error rates
on simulated pairs, whose rules are computed for many replicates at once."""

# Under the null hypothesis it does not matter which side is the candidate (Fisher 1935). Swapping the sides of random
# examples (of whole clusters, if any) turns any pair into one without a difference that keeps its size, noise, clusters
# and missing values.

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from evalflows.analysis.comparability import is_same_target
from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.gate_evaluation import GateEvaluation
from evalflows.analysis.pairing import PairedMetric, PairedRows, drop_ambiguous
from evalflows.analysis.rule_estimates import replicated_differences
from evalflows.analysis.rules import Outcomes, ReplicatedRule, Rule, outcomes, replicated_rule
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_names import MEASURES, TRIAL, base_metric, metric_of
from evalflows.stats.clusters import clustering_of
from evalflows.stats.means import ShareEstimate, share_estimate
from evalflows.stats.proportions import PairShare, pair_share
from evalflows.store.queries.conclusions import Approval, approvals
from evalflows.store.queries.values import Mask, MetricValues, RepetitionValues, has_two_values, repetition_values
from evalflows.store.records import DecisionConclusion, ExperimentRow, Reason
from evalflows.store.row_specs import experiment_spec
from evalflows.store.sql import ask
from evalflows.store.store import Store

Relation = Literal["baseline", "earlier", "halves"]
"""What a candidate is compared with: the gate's baseline at that time, another earlier experiment, or the other half of
its own repetitions."""

Repetitions = npt.NDArray[np.intp]
LIMIT, REPLICATES = 200, 200
MARGIN_MULTIPLES = (1, 2, 3)
"""The planted regressions, in multiples of the margin."""

SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of pairs or replicates, with its interval."""

    count: int
    n: int
    share: float | None
    low: float | None
    high: float | None
    method: str

    @property
    def short_text(self) -> str:
        """The share without its interval, such as `12 %`."""
        return "-" if self.share is None else percent(self.share)

    @property
    def text(self) -> str:
        """The share with its interval, if there is one."""
        span = "" if self.low is None or self.high is None else f" ({percent(self.low)} to {percent(self.high)})"
        return f"{self.short_text}{span}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """The gate's decision on one past pair."""

    candidate_experiment_id: str
    candidate: str
    baseline_experiment_id: str
    baseline: str
    started_at: datetime  # of the candidate
    relation: Relation
    is_same_target: bool
    has_identical_values: bool  # whether candidate and baseline have identical values
    conclusion: DecisionConclusion
    is_refused: bool  # left open because a metric is not comparable
    violates_non_inferiority: bool
    broken: Sequence[str]  # the violated rules, such as `non_inferiority exact_match`
    because: str  # the rules that decided, in words
    n_shared: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Decisions on a group of pairs, counted. Shares exclude pairs that are not comparable or have identical values."""

    n: int
    failed: int
    passed: int
    open: int
    refused: int
    identical: int
    failed_non_inferiority: int  # FAIL by a non-inferiority rule
    experiments: int
    fail: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFall:
    """Decisions on replicates in which the candidate was made worse in one metric."""

    metric: str
    times: int  # the injected fall, as a multiple of the margin
    fall: float
    reached: float  # the mean fall achieved, as far as the values allow
    caught: Share
    passed: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Decisions on sign-flip null replicates: candidate and baseline are swapped at random, thresholds ignored."""

    pairs: int
    replicates: int  # of each pair
    seed: int
    failed: Share
    passed: Share
    open: Share
    falls: Sequence[PlantedFall]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """The backtest of one gate."""

    gate: str
    policy: dict[str, Any]
    experiments: int  # complete ones that have the gate's metrics
    decisions: Sequence[PastDecision]  # newest first
    left_out: int  # older pairs beyond the limit
    too_few_shared: int  # pairs left out because they share fewer examples than the gate's minimum
    past: Counted  # different targets
    same_target: Counted
    halves: Counted
    simulated: Simulated | None
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the backtest as a dict for JSON, with its sentences."""
        return {**asdict(self), "sentences": self.sentences}

    @property
    def sentences(self) -> list[str]:
        """The backtest in sentences."""
        return [
            *_past(self),
            *_same_target(self),
            *_too_few_shared(self),
            *(_simulation_text(self.simulated) if self.simulated else ()),
            *self.notes,
        ]


def percent(share: float) -> str:
    """Format a share as whole percent, with one decimal below 10 and above 90 %."""
    per_cent = 100 * share
    digits = 0 if 10 <= per_cent <= 90 else 1
    return f"{per_cent:.{digits}f}".removesuffix(".0") + " %"


def _past(backtest: Backtest) -> list[str]:
    past = backtest.past
    if not past.n:
        return [
            f"no past pairs of different targets: {backtest.experiments} complete experiments have the gate's metrics"
        ]
    refused = f"; {past.refused} could not be compared (not counted as blocked)" if past.refused else ""
    left_out = f"; {backtest.left_out} older pairs were left out" if backtest.left_out else ""
    return [
        f"of {_pairs(past.n, 'past pair')} of different targets, the gate would have blocked {past.failed} (FAIL), "
        f"passed {past.passed} (PASS) and left {past.open} open (NOT ENOUGH EVIDENCE){refused}{left_out}"
    ]


def _same_target(backtest: Backtest) -> list[str]:
    groups = (("of the same target", backtest.same_target), ("of two halves of repetitions", backtest.halves))
    sentences = [sentence for what, counted in groups for sentence in _without_difference(what, counted)]
    return sentences or [
        "no two experiments have the same target, and none has repetitions: the false-alarm rate is unknown"
    ]


def _without_difference(what: str, counted: Counted) -> Iterator[str]:
    if counted.fail.n:
        only_false_alarms = counted.failed_non_inferiority == counted.failed
        false_alarms = (
            ""
            if only_false_alarms
            else f", {counted.failed_non_inferiority} of them by a non-inferiority rule (a false alarm)"
        )
        yield (
            f"on {_pairs(counted.fail.n, 'pair')} {what} (from {counted.experiments} experiments), the gate decided "
            f"FAIL {counted.failed} times, {counted.fail.text}{false_alarms}; "
            f"NOT ENOUGH EVIDENCE {counted.open} times, PASS {counted.passed} times"
        )
    if counted.identical:
        yield f"{_pairs(counted.identical, 'more pair')} {what} had identical values: not counted"


def _too_few_shared(backtest: Backtest) -> Iterator[str]:
    if count := backtest.too_few_shared:
        share = f"{_pairs(count, 'pair')} with fewer than {backtest.policy['min_examples']} shared examples"
        yield f"{share} (min_examples) {'was' if count == 1 else 'were'} left out"


def _simulation_text(simulated: Simulated) -> list[str]:
    return [
        f"on {simulated.replicates} replicates without a difference of each of {_pairs(simulated.pairs, 'pair')}, the "
        f"gate decided FAIL in {simulated.failed.short_text}, NOT ENOUGH EVIDENCE in {simulated.open.short_text}, "
        f"PASS in {simulated.passed.short_text}",
        *map(_planted, simulated.falls),
    ]


def _planted(fall: PlantedFall) -> str:
    times = {1: "its margin", 2: "twice its margin", 3: "3 times its margin"}[fall.times]
    limited = "" if fall.reached > 0.95 * fall.fall else f"; its values allow {fall.reached:.3g}"
    return (
        f"{fall.metric} worse by {times} ({fall.fall:.3g}{limited}): caught in {fall.caught.short_text}, "
        f"passed in {fall.passed.short_text}"
    )


def _pairs(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True, kw_only=True)
class RepetitionHalves(ExperimentPair):
    """A pair of two random halves of the candidate's repetitions, drawn for each example."""

    has_run_level_metrics: ClassVar[bool] = False
    metrics: tuple[str, ...]
    seed: int

    @property
    def is_against_itself(self) -> bool:
        return False

    @cached_property
    def values(self) -> Mapping[str, MetricValues]:
        return self._values_of(self._order[:, : self._half])

    @cached_property
    def baseline_values(self) -> Mapping[str, MetricValues]:
        return self._values_of(self._order[:, self._half : 2 * self._half])

    @property
    def _half(self) -> int:
        return self.candidate.repetitions // 2

    @cached_property
    def _order(self) -> Repetitions:
        places = np.tile(np.arange(self.candidate.repetitions), (self.candidate.n_examples, 1))
        return np.random.default_rng(self.seed).permuted(places, axis=1)

    @cached_property
    def _by_repetition(self) -> list[RepetitionValues]:
        return repetition_values(self.reader.store, self.candidate, self.metrics)

    def _values_of(self, chosen: Repetitions) -> Mapping[str, MetricValues]:
        values = drop_ambiguous([_of_repetitions(metric, chosen) for metric in self._by_repetition])
        return self.in_quarantine(self.candidate, values)


def _of_repetitions(metric: RepetitionValues, chosen: Repetitions) -> MetricValues:
    """Return a metric over the chosen repetitions of each example, shape (examples, repetitions)."""
    values, missing = (np.take_along_axis(array, chosen, axis=1) for array in (metric.values, metric.missing))
    counts = (~np.isnan(values)).sum(axis=1)
    means = np.where(counts > 0, np.nansum(values, axis=1) / np.maximum(counts, 1), np.nan)
    return MetricValues(
        metric=metric.metric,
        evaluator=metric.evaluator,
        evaluator_version=metric.evaluator_version,
        is_yes_no=metric.is_yes_no,
        is_binary=chosen.shape[1] == 1 and (metric.is_yes_no or has_two_values(metric.evaluator, means)),
        values=means,
        missing=np.asarray(missing.any(axis=1)),
        scored=int(counts.sum()),
        n_missing=int(missing.sum()),
        weights=metric.weights,
        are_0_or_1=bool(np.isin(metric.values[~np.isnan(metric.values)], (0, 1)).all()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPair:
    """Two past experiments, and why they are compared."""

    candidate: ExperimentRow
    baseline: ExperimentRow
    relation: Relation


@dataclass(frozen=True, kw_only=True)
class PastExperiments:
    """The completed experiments of a store that have all metrics of a gate."""

    store: Store
    gate: GateSpec

    def pairs(self) -> list[PastPair]:
        """Pair each experiment with every earlier one that shares enough examples with it.

        The newest candidates come first; of each candidate, the baseline that the gate would have used comes first.
        """
        return [pair for pair in self._candidates if self._shares_enough(pair)]

    @property
    def too_few_shared(self) -> int:
        """How many pairs of the same dataset's name, or with the gate's baseline, share fewer examples."""
        of_one_dataset = (
            pair
            for pair in self._candidates
            if pair.relation == "baseline" or pair.candidate.dataset_name == pair.baseline.dataset_name is not None
        )
        return sum(not self._shares_enough(pair) for pair in of_one_dataset)

    @cached_property
    def _candidates(self) -> Sequence[PastPair]:
        return [pair for row in self.experiments for pair in self._of(row)]

    @cached_property
    def experiments(self) -> Sequence[ExperimentRow]:
        """The experiments, newest first."""
        wanted = {base_metric(metric_of(name)) for name in self.gate.metrics} - {*MEASURES}
        ((*rows,),) = ask(self.store, (_EXPERIMENTS, [TRIAL]))
        with_all_metrics = [experiment_id for experiment_id, metrics in rows if wanted <= {*(metrics or [])}]
        return [self.store.read("experiments", experiment_id)[0] for experiment_id in with_all_metrics]

    def _of(self, row: ExperimentRow) -> Iterator[PastPair]:
        baseline_then = self._baseline_then(row)
        if baseline_then is not None:
            yield PastPair(candidate=row, baseline=baseline_then, relation="baseline")
        for other in self.experiments:
            if other is not baseline_then and other.started_at < row.started_at:
                yield PastPair(candidate=row, baseline=other, relation="earlier")

    def _baseline_then(self, row: ExperimentRow) -> ExperimentRow | None:
        """Return the candidate's baseline at its time: a target of the same run group, or the approved experiment."""
        spec = experiment_spec(row)
        target = spec.baseline_target(self.gate)
        others = [other for other in self.experiments if other is not row]
        if target is not None:
            same_group = (other for other in others if other.run_group == row.run_group)
            return next((other for other in same_group if other.target == target != row.target), None)
        name, ended_at = self.gate.baseline or spec.name, row.ended_at or row.started_at
        earlier = (approval for approval in self._approvals if approval.recorded_at <= ended_at)
        approved = next((approval.experiment_id for approval in earlier if approval.name == name), None)
        return next((other for other in others if other.experiment_id == approved), None)

    def _shares_enough(self, pair: PastPair) -> bool:
        snapshots = frozenset((pair.candidate.snapshot_id, pair.baseline.snapshot_id))
        shared = pair.candidate.n_examples if len(snapshots) == 1 else self._shared.get(snapshots, 0)
        return shared >= self.gate.min_examples

    @cached_property
    def _approvals(self) -> Sequence[Approval]:
        return sorted(approvals(self.store), key=lambda approval: approval.recorded_at, reverse=True)

    @cached_property
    def _shared(self) -> Mapping[frozenset[str], int]:
        """How many examples with the same inputs and references two snapshots share."""
        snapshots = list(dict.fromkeys(row.snapshot_id for row in self.experiments))
        (rows,) = ask(self.store, (_SHARED, [snapshots]))
        return {frozenset((snapshot, other)): count for snapshot, other, count in rows}


_EXPERIMENTS = """
with given as (
    select experiment_id, list(distinct metric) as metrics
    from scores where subject_kind = 'run' and turn is null group by experiment_id
)
select experiment_id, metrics from experiments left join given using (experiment_id)
where state = 'completed' and not list_contains(tags, $1) order by started_at desc, experiment_id desc
"""

_SHARED = """
select one.snapshot_id, other.snapshot_id, count(*)
from examples one join examples other using (example_id)
where one.snapshot_id < other.snapshot_id and one.inputs = other.inputs
  and one.reference_outputs is not distinct from other.reference_outputs
  and list_contains($1, one.snapshot_id) and list_contains($1, other.snapshot_id)
group by all
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateDecisions:
    """A gate's decisions on the replicates, without thresholds, which concern one side only."""

    failed: Mask
    passed: Mask
    caught: Mask  # a rule on a metric with a planted regression is broken


@dataclass(frozen=True, kw_only=True)
class Replicates:
    """`count` replicates of a pair that has all estimates of a gate's non-inferiority and superiority rules."""

    evaluation: GateEvaluation
    count: int
    seed: int

    def decisions(self, planted: Mapping[str, float] | None = None) -> ReplicateDecisions:
        """Return the decisions; `planted` has the regression planted in the candidate, by metric."""
        regressions = planted or {}
        by_rule = [(rule, outcomes) for rule, outcomes in self.outcomes(regressions) if rule.is_difference]
        of_regressed = [outcomes == "broken" for rule, outcomes in by_rule if rule.metric in regressions]
        return ReplicateDecisions(
            failed=np.any([outcomes == "broken" for _, outcomes in by_rule], axis=0),
            passed=np.all([outcomes == "met" for _, outcomes in by_rule], axis=0),
            caught=np.any(of_regressed, axis=0) if of_regressed else np.zeros(self.count, dtype=bool),
        )

    def outcomes(self, planted: Mapping[str, float]) -> list[tuple[Rule, Outcomes]]:
        """Return the outcomes, shape (replicates,), of each rule that has an estimate, except plain thresholds."""
        testable = [
            self._compared(rule, planted.get(rule.metric))
            if rule.is_difference
            else replicated_rule(rule, estimate, self.count)
            for rule, estimate in self.evaluation.estimates
            if not isinstance(estimate, Reason) and rule.kind != "threshold"
        ]
        gate, confidence_level = self.evaluation.gate, self.evaluation.pair.spec.confidence_level
        found = outcomes(
            testable, confidence_level=confidence_level, min_examples=gate.min_examples, adjustment=gate.adjustment
        )
        return [(tested.rule, of_rule) for tested, of_rule in zip(testable, found, strict=True)]

    def _compared(self, rule: Rule, regression: float | None) -> ReplicatedRule:
        if regression is None:
            return self._without_difference[rule]
        paired = self.evaluation.compared[rule.metric]
        rows = with_regression(paired, self._swapped(rule.metric), regression, self.seed)
        return self._tested(rule, paired, rows)

    def _tested(self, rule: Rule, paired: PairedMetric, rows: PairedRows) -> ReplicatedRule:
        tested = replicated_differences(paired, rows, of_no_difference=rule.is_of_no_difference)
        return ReplicatedRule(
            rule=rule,
            worst_case_interval_at=cache(tested.worst_case_interval_at),  # asked for at the same levels again
            p_value=tested.known.p_value if rule.kind == "superiority" else np.full(self.count, np.nan),
            n=tested.known.n,
            higher_is_better=tested.higher_is_better,
        )

    def _swapped(self, metric: str) -> PairedRows:
        paired, swaps = self.evaluation.compared[metric], self.swaps[:, self.evaluation.pair.shared_places(metric)]
        n_lost = paired.candidate.values.size - swaps.shape[1]  # examples that only the baseline has stay as they are
        return swap_sides(paired, np.pad(swaps, ((0, 0), (0, n_lost))))

    @cached_property
    def _without_difference(self) -> Mapping[Rule, ReplicatedRule]:
        """Its rules are tested again beside each regression that is planted in another one."""
        compared = self.evaluation.compared
        rules = (rule for rule, _ in self.evaluation.estimates if rule.is_difference and rule.metric in compared)
        return {rule: self._tested(rule, compared[rule.metric], self._swapped(rule.metric)) for rule in rules}

    @cached_property
    def swaps(self) -> Mask:
        """Which shared examples each replicate swaps, shape (replicates, examples): whole clusters, for all rules."""
        pair = self.evaluation.pair
        assert pair.matched is not None  # it has estimates of differences
        clustering = clustering_of(pair.matched.of_clusters(pair.clusters), pair.matched.n_shared)
        drawn = np.random.default_rng([self.seed, 0]).random((self.count, clustering.count)) < 0.5
        return np.asarray(drawn[:, clustering.numbers])


def swap_sides(paired: PairedMetric, swaps: Mask) -> PairedRows:
    """Swap candidate and baseline where `swaps`, of shape (replicates, examples), is true."""
    ours, theirs = paired.candidate, paired.baseline
    return PairedRows(
        np.where(swaps, theirs.values, ours.values),
        np.where(swaps, ours.values, theirs.values),
        np.where(swaps, theirs.missing_part, ours.missing_part),
        np.where(swaps, ours.missing_part, theirs.missing_part),
    )


def with_regression(paired: PairedMetric, rows: PairedRows, regression: float, seed: int) -> PairedRows:
    """Make the candidate's mean worse by `regression`: random passes become fails; bounded values move the same
    fraction of their distance to the worst value; unbounded values all move by the same amount."""
    worst, distance = _worst(paired), _distance_to_worst(paired)
    fraction = min(regression / distance, 1.0) if distance else 0.0
    if not np.isfinite(worst):
        regressed = rows.candidate + (-regression if paired.scale.higher_is_better else regression)
    elif paired.is_binary:
        fails = np.random.default_rng([seed, 1]).random(rows.candidate.shape) < fraction
        regressed = np.where(fails & ~np.isnan(rows.candidate), worst, rows.candidate)
    else:
        regressed = rows.candidate + fraction * (worst - rows.candidate)
    return rows._replace(candidate=regressed)


def _worst(paired: PairedMetric) -> float:
    """Return the worst possible value; infinite if unbounded."""
    low, high = paired.yes_no_ends or paired.scale.support
    return low if paired.scale.higher_is_better else high


def _distance_to_worst(paired: PairedMetric) -> float:
    """Return the distance of the mean of both sides from the worst possible value."""
    values = np.concatenate([paired.candidate.values, paired.baseline.values])
    known = values[~np.isnan(values)]
    return abs(float(known.mean()) - _worst(paired)) if known.size else 0.0


def backtest(
    store: Store,
    gate: GateSpec,
    spec: ExperimentSpec | None = None,
    *,
    replicates: int = REPLICATES,
    limit: int = LIMIT,
    seed: int = SEED,
) -> Backtest:
    """Evaluate a gate on the newest `limit` pairs, on pairs of the same target, and on simulated replicates.

    Each pair is simulated `replicates` times without a difference, and as often with each planted regression. Makes no
    calls and stores nothing.

    `spec` declares the metrics and the confidence level; by default, each candidate's own spec does.
    """
    past = PastExperiments(store=store, gate=gate)
    evaluations = _Evaluations(reader=MetricReader(store), gate=gate, spec=spec)
    pairs = past.pairs() if gate.compares else []
    evaluated = [(pair, evaluations.of_pair(pair.candidate, pair.baseline)) for pair in pairs[:limit]]
    decisions = [_decision(evaluation, pair.baseline, pair.relation) for pair, evaluation in evaluated]
    repeated = [row for row in past.experiments if gate.compares and row.repetitions > 1][:limit]
    of_halves = [_decision(evaluations.of_halves(row, seed), row, "halves") for row in repeated]
    complete = [evaluation for _, evaluation in evaluated if evaluation.has_all_estimates]
    return Backtest(
        gate=gate.name,
        policy=gate.model_dump(mode="json"),
        experiments=len(past.experiments),
        decisions=[*decisions, *of_halves],
        left_out=max(0, len(pairs) - limit),
        too_few_shared=past.too_few_shared if gate.compares else 0,
        past=_counted([decision for decision in decisions if not decision.is_same_target]),
        same_target=_counted([decision for decision in decisions if decision.is_same_target]),
        halves=_counted(of_halves),
        simulated=_simulated(gate, complete, replicates, seed) if complete and replicates else None,
        notes=_notes(gate),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluations:
    """A gate's evaluations on stored experiments, without interim analyses, recalibration and production."""

    reader: MetricReader
    gate: GateSpec
    spec: ExperimentSpec | None

    def of_pair(self, candidate: ExperimentRow, baseline: ExperimentRow) -> GateEvaluation:
        pair = ExperimentPair(reader=self.reader, spec=self._spec(candidate), candidate=candidate, baseline=baseline)
        return GateEvaluation(gate=self._policy, pair=pair)

    def of_halves(self, row: ExperimentRow, seed: int) -> GateEvaluation:
        pair = RepetitionHalves(
            reader=self.reader,
            spec=self._spec(row),
            candidate=row,
            baseline=row,
            metrics=tuple(dict.fromkeys(map(metric_of, self.gate.metrics))),
            seed=seed,
        )
        return GateEvaluation(gate=self._policy, pair=pair)

    @property
    def _policy(self) -> GateSpec:
        baseline = None if self.gate.production else self.gate.baseline
        return self.gate.model_copy(update={"batch": None, "recalibrate": None, "baseline": baseline})

    def _spec(self, row: ExperimentRow) -> ExperimentSpec:
        return self.spec or self.reader.spec(row)


def _decision(evaluation: GateEvaluation, baseline: ExperimentRow, relation: Relation) -> PastDecision:
    candidate, conclusion = evaluation.pair.candidate, evaluation.conclusion
    broken = [result for result in evaluation.rule_results if result.outcome == "broken"]
    return PastDecision(
        candidate_experiment_id=candidate.experiment_id,
        candidate=candidate.name,
        baseline_experiment_id=baseline.experiment_id,
        baseline=baseline.name,
        started_at=candidate.started_at,
        relation=relation,
        is_same_target=bool(is_same_target(candidate, baseline)),
        has_identical_values=_has_identical_values(evaluation),
        conclusion=conclusion,
        is_refused=conclusion == "NOT ENOUGH EVIDENCE" and evaluation.is_refused,
        violates_non_inferiority=any(result.rule == "non_inferiority" for result in broken),
        broken=[f"{result.rule} {result.metric}" for result in broken],
        because=evaluation.summary,
        n_shared=evaluation.pair.matched.n_shared if evaluation.pair.matched else 0,
    )


def _counted(decisions: Sequence[PastDecision]) -> Counted:
    """Count decisions; pairs of the same target with identical values are counted separately."""
    comparable = [decision for decision in decisions if not decision.is_refused]
    identical = [decision for decision in comparable if decision.is_same_target and decision.has_identical_values]
    counted = [decision for decision in comparable if decision not in identical]
    failed = [decision.conclusion == "FAIL" for decision in counted]
    members = [_members(decision) for decision in counted]
    fail_share = pair_share(np.array(failed, dtype=float), members)
    return Counted(
        n=len(decisions),
        failed=sum(failed),
        passed=sum(decision.conclusion == "PASS" for decision in counted),
        open=sum(decision.conclusion == "NOT ENOUGH EVIDENCE" for decision in counted),
        refused=sum(decision.is_refused for decision in decisions),
        identical=len(identical),
        failed_non_inferiority=sum(decision.violates_non_inferiority for decision in counted),
        experiments=len(
            {*(decision.candidate_experiment_id for decision in counted)}
            | {*(decision.baseline_experiment_id for decision in counted)}
        ),
        fail=_share_of(fail_share, fail_share.n_yes, fail_share.n_pairs),
    )


def _members(decision: PastDecision) -> tuple[str, str]:
    """Return the two experiments of a pair; the second half of the same experiment counts as another one."""
    suffix = " again" if decision.relation == "halves" else ""
    return decision.candidate_experiment_id, f"{decision.baseline_experiment_id}{suffix}"


def _has_identical_values(evaluation: GateEvaluation) -> bool:
    """Return whether both sides have identical values, without any random variation."""
    pairs = [(paired.candidate.values, paired.baseline.values) for paired in evaluation.compared.values()]
    return bool(pairs) and all(np.array_equal(ours, theirs, equal_nan=True) for ours, theirs in pairs)


def _simulated(gate: GateSpec, evaluations: Sequence[GateEvaluation], replicates: int, seed: int) -> Simulated:
    drawn = [
        Replicates(evaluation=evaluation, count=replicates, seed=seed + number)
        for number, evaluation in enumerate(evaluations)
    ]
    without_difference = [of_pair.decisions() for of_pair in drawn]
    return Simulated(
        pairs=len(evaluations),
        replicates=replicates,
        seed=seed,
        failed=_share(decisions.failed for decisions in without_difference),
        passed=_share(decisions.passed for decisions in without_difference),
        open=_share(~decisions.failed & ~decisions.passed for decisions in without_difference),
        falls=[
            _planted_regression(drawn, metric, margin, times)
            for metric, margin in gate.non_inferiority.items()
            for times in MARGIN_MULTIPLES
        ],
    )


def _planted_regression(drawn: Sequence[Replicates], metric: str, margin: float, times: int) -> PlantedFall:
    regression = times * margin
    by_evaluation = [of_pair.decisions({metric: regression}) for of_pair in drawn]
    possible = (_distance_to_worst(of_pair.evaluation.compared[metric]) for of_pair in drawn)
    return PlantedFall(
        metric=metric,
        times=times,
        fall=regression,
        reached=float(np.mean([min(regression, distance) for distance in possible])),
        caught=_share(decisions.caught for decisions in by_evaluation),
        passed=_share(decisions.passed for decisions in by_evaluation),
    )


def _share(arrays: Iterable[npt.NDArray[np.bool_]]) -> Share:
    """Return the share of true values over all replicates.

    Its interval covers the simulation, but not the choice of pairs.
    """
    yes = np.concatenate(list(arrays)).astype(float)
    estimate = share_estimate(yes)
    return _share_of(estimate, int(yes.sum()), estimate.n)


def _share_of(estimate: PairShare | ShareEstimate, count: int, n: int) -> Share:
    return Share(count=count, n=n, share=estimate.share, low=estimate.low, high=estimate.high, method=estimate.method)


def _notes(gate: GateSpec) -> list[str]:
    notes = []
    if not gate.compares:
        notes.append("this gate has only thresholds, which need no baseline: there are no pairs to test it on")
    if gate.batch is not None:
        notes.append(
            "this gate has interim analyses; the backtest decided once, on all examples, and so decides more often"
        )
    if gate.recalibrate is not None:
        notes.append("this gate recalibrates across judges; the backtest makes no calls and refuses such pairs")
    if gate.production is not None:
        notes.append("this gate compares with production; the backtest compared experiments, example by example")
    return notes
