"""Release gates: their rules and bounds, the baselines that a person approved, the differences and means that are
tested, the rule results and their texts.

A new rule is a field of `GateSpec`, and here a kind, its outcome and its texts. Rules are evaluated on R replicates at
once: the pair itself is one, and a backtest draws many.
"""

import getpass
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evalflows.analysis.figures import estimate as estimate_text
from evalflows.analysis.pairing import EXTREMES, MetricSample, PairedMetric, PairedRows, Scale
from evalflows.analysis.verdicts import adjusted_p_text
from evalflows.specs import hints
from evalflows.specs.errors import TRIAL, InputError, StorageError, metric_of, sliced_metric
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import located
from evalflows.specs.gate import Adjustment, GateSpec
from evalflows.specs.values import words
from evalflows.stats.means import TAILED, MeanEstimate, sample_skewness
from evalflows.stats.multiple_tests import adjusted
from evalflows.stats.paired import PairedDifferences
from evalflows.stats.power import least_n
from evalflows.stats.proportions import one_sided_p
from evalflows.store.evidence import evidence_on
from evalflows.store.queries.continuing import continued_by
from evalflows.store.queries.lookup import approvals, approved, conclusions_on
from evalflows.store.queries.values import MetricValues, Values
from evalflows.store.records import (
    FINAL,
    BaselineRow,
    DecisionConclusion,
    ExperimentRow,
    Reason,
    ReasonCode,
    after,
    new_id,
)
from evalflows.store.row_specs import experiment_spec
from evalflows.store.signatures import sign, signature_of
from evalflows.store.store import Store


def baseline_name(spec: ExperimentSpec, gate: GateSpec) -> str:
    """The name under which a gate's baseline is approved, for a baseline that is not a target of the spec."""
    return gate.baseline or spec.name


def baseline_row(store: Store, spec: ExperimentSpec, gate: GateSpec, rows: list[ExperimentRow]) -> ExperimentRow | None:
    """The experiment that a gate compares with: one of this run group, or the approved one; None if none is approved.

    A window of production is none either.

    Raises InputError if the approved experiment is not in the store.
    """
    target = spec.baseline_target(gate)
    if target is not None:
        return next(row for row in rows if row.target == target)
    if gate.production is not None:
        return None
    approval = approved(store, name := baseline_name(spec, gate))
    if approval is None:
        return None
    experiments: list[ExperimentRow] = store.read("experiments", approval.experiment_id)
    if not experiments:
        raise InputError(f"baseline {name!r}: approved {approval.experiment_id}, which is not in {store.layout.root}")
    return experiments[0]


def approval_problem(store: Store, gate: GateSpec, name: str, experiment_id: str) -> str | None:
    """Return why an approval of a baseline is not one that the gate wants; None if it is, or if any will do.

    Raise StorageError if the approval or the experiment has changed since it was signed.
    """
    if not gate.approved_by and gate.signers is None:
        return None
    approval = next((one for one in approvals(store, [experiment_id]) if one.name == name), None)
    if approval is None:
        return f"got a baseline that nobody approved as {name!r}, wanted an approved one (approved_by, signers)"
    if gate.signers is None:
        if approval.approved_by in gate.approved_by:
            return None
        by = approval.approved_by or "somebody"
        return f"got the baseline {name!r} approved by {by}, wanted {' or '.join(gate.approved_by)} (approved_by)"
    (row,) = store.read("baselines", approval.baseline_id)
    signed = hints.approve_signed(name, experiment_id).code
    try:
        if signature_of(store, row, located(gate.signers), gate.approved_by):
            return None
    except StorageError as error:
        raise StorageError(f"the approval of the baseline {name!r}: {error}; {signed} approves it again") from error
    return f"the approval of the baseline {name!r} is not signed, wanted a key in {gate.signers}: {signed}"


def no_baseline(spec: ExperimentSpec, gate: GateSpec, newest: str | None) -> str:
    """The message for a baseline that is not approved yet; `newest` is the experiment that could be."""
    name = baseline_name(spec, gate)
    if FINAL in (spec.dataset.splits or ()):
        return (
            f"no experiment is approved as baseline {name!r} in this store: run the version to compare with by "
            f"this gate, then {hints.approve_as(name).code}"
        )
    if newest is not None:
        command = hints.approve_as(name, newest).code
        return f"no experiment is approved as baseline {name!r} in this store: {command} approves one"
    return (
        f"no experiment is approved as baseline {name!r} in this store: {hints.run().code} runs the version to compare "
        f"with, then {hints.approve_as(name).code}"
    )


def approve_baseline(
    store: Store,
    row: ExperimentRow,
    name: str | None = None,
    *,
    reason: str | None = None,
    by: str | None = None,
    key: Path | None = None,
) -> BaselineRow:
    """Approve an experiment as the baseline of that name, by default its spec's name, and sign that with an SSH key.

    Raises InputError for a key that cannot sign, for a trial, for an incomplete experiment, whose missing values would
    count against every candidate, and without a reason for one that a gate's newest decision failed.
    """
    if row.state != "completed":
        why = f": {row.reason}" if row.reason else ""
        continued = continued_by(store, row.experiment_id)
        raise InputError(f"experiment {row.name!r} is {row.state}{why}; wanted a complete one; {continued}")
    if TRIAL in row.tags:
        raise InputError(f"experiment {row.name!r}: got the tag {TRIAL!r}, wanted one that gates may compare with")
    conclusions = conclusions_on(store, [row.experiment_id]).get(row.experiment_id, {})
    if reason is not None:
        try:
            reason = words(reason)
        except ValueError as error:
            raise InputError(f"reason: {error}") from error
    if reason is None and (gate := next((gate for gate, said in conclusions.items() if said == "FAIL"), None)):
        raise InputError(
            f"experiment {row.name!r}: got FAIL from the gate {gate!r}, wanted another one, or a reason to approve it "
            "all the same (--reason)"
        )
    if key is not None:
        evidence_on(store, [row.experiment_id, row.snapshot_id])  # what is signed is what a run wrote
    name = name or experiment_spec(row).name
    before = approved(store, name)
    recorded_at = after(row.recorded_at, before.recorded_at if before else None)
    approval = BaselineRow(
        baseline_id=new_id("base", recorded_at),
        name=name,
        experiment_id=row.experiment_id,
        approved_by=by or getpass.getuser(),
        reason=reason,
        recorded_at=recorded_at,
    )
    if key is not None:  # before it counts
        sign(store, approval, [row.experiment_id], key)
    store.publish("baselines", approval.baseline_id, [approval])
    return approval


Kind = Literal["non_inferiority", "superiority", "threshold", "confident_threshold"]

Outcome = Literal["met", "broken", "open"]

Interval = tuple[float, float]

Ends = tuple[Values, Values]
"""The ends of intervals, each of shape (R,); infinite where there is none."""

Mask = npt.NDArray[np.bool_]

Outcomes = npt.NDArray[np.str_]
"""An Outcome for each replicate, shape (R,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedEstimate:
    """The quantity that a rule tests: the difference from the baseline, or the candidate's mean.

    It is negated if less is better, so that more is always better here.
    """

    value: float | None
    interval_at: Callable[[float], Interval | None]  # by confidence level, without missing values
    worst_case_interval_at: Callable[[float], Interval | None]  # the same, with missing values at either extreme
    worst_case_values: Interval | None  # the value, with missing values at either extreme
    n: int  # examples, or clusters if there are any
    noun: str  # what n counts
    n_missing: int  # examples with a missing value
    higher_is_better: bool
    p_value: float | None = None  # two-sided, under no difference
    is_sequence: bool = False  # whether the intervals are anytime-valid; these have no p-values
    is_whole: bool = True  # whether all planned examples have run
    reason: str | None = None  # why there is no interval
    reason_code: ReasonCode | None = None
    n_left_out: int = 0  # pairs left out for a missing value, by the metric's policy
    against: str | None = None  # what the candidate is compared with, if not with the same examples
    caution: str | None = None  # why a rule may be met more often than it should
    missing_as: str = ""  # what a missing value counts as, if nothing declares it
    method: str = ""  # what a reader should know of how the interval was made, in words
    interval_of_size: Callable[[int, float], Interval | None] | None = None  # of another n, by confidence level

    @property
    def missing_text(self) -> str:
        """How many have a missing value, in words."""
        noun = self.noun.removesuffix("s") if self.n_missing == 1 else self.noun
        return f"{self.n_missing} {noun} with a missing value{self.missing_as}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule on one metric."""

    kind: Kind
    metric: str
    bound: float  # as the spec has it: a margin or a threshold

    @property
    def is_difference(self) -> bool:
        """Whether the rule compares with a baseline."""
        return self.kind in ("non_inferiority", "superiority")

    def threshold(self, *, higher_is_better: bool) -> float:
        """The value that the estimate must exceed."""
        if self.is_difference:
            return -self.bound if self.kind == "non_inferiority" else self.bound
        return self.bound if higher_is_better else -self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """The outcome of a rule, with its figures."""

    rule: Kind
    metric: str
    bound: float
    outcome: Outcome
    text: str
    reason_code: ReasonCode | None = None  # why it is open
    value: float | None = None  # the difference or the mean, in the metric's own direction; low and high likewise
    low: float | None = None
    high: float | None = None
    n: int | None = None
    n_missing: int | None = None
    p_below: float | None = None  # one-sided p for a broken bound, in the candidate's best case
    p_adjusted: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rules_of(gate: GateSpec) -> list[Rule]:
    """Return the rules of a gate, in the spec's order."""
    kinds: list[tuple[Kind, dict[str, float]]] = [
        ("non_inferiority", gate.non_inferiority),
        ("superiority", gate.superiority),
        ("threshold", gate.thresholds),
        ("confident_threshold", gate.confident_thresholds),
    ]
    return [Rule(kind=kind, metric=metric, bound=bound) for kind, bounds in kinds for metric, bound in bounds.items()]


def p_below_threshold(rule: Rule, estimate: BoundedEstimate | Reason, min_examples: int) -> float | None:
    """Return the one-sided p-value of the estimate lying below the threshold, with missing values at their best.

    None without a test: there is no estimate or interval, there are too few examples, the rule is a plain threshold, or
    the gate has interim analyses.
    """
    if (
        isinstance(estimate, Reason)
        or rule.kind == "threshold"
        or estimate.is_sequence
        or estimate.n < min_examples
        or estimate.worst_case_interval_at(0.5) is None
    ):
        return None

    def interval_at(confidence_level: float) -> Interval:
        return estimate.worst_case_interval_at(confidence_level) or (-np.inf, np.inf)

    return one_sided_p(interval_at, rule.threshold(higher_is_better=estimate.higher_is_better)).p_below


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedRule:
    """A rule, but a plain threshold, and what it tests in each of R replicates; arrays of shape (R,)."""

    rule: Rule
    worst_case_interval_at: Callable[[float], Ends]  # by confidence level, negated if less is better; see `Ends`
    p_value: Values  # two-sided, of no difference; nan without a test
    n: int
    higher_is_better: bool

    @property
    def is_known(self) -> Mask:
        """Whether there is an interval."""
        low, high = self.worst_case_interval_at(0.5)
        return np.isfinite(low) | np.isfinite(high)

    def lies_below(self, confidence_level: float) -> Mask:
        threshold = self.rule.threshold(higher_is_better=self.higher_is_better)
        return np.asarray(self.worst_case_interval_at(confidence_level)[1] < threshold)

    def outcomes(self, broken: Mask, confidence_level: float) -> Outcomes:
        """`met` where the worst-case interval lies above the threshold; superiority without a margin also needs the
        test."""
        threshold = self.rule.threshold(higher_is_better=self.higher_is_better)
        met = self.worst_case_interval_at(confidence_level)[0] > threshold
        if self.rule.kind == "superiority" and self.rule.bound == 0:
            met &= ~(self.p_value > 1 - confidence_level)
        return np.where(broken, "broken", np.where(met, "met", "open"))


def replicated_rule(rule: Rule, estimate: BoundedEstimate, count: int = 1) -> ReplicatedRule:
    """A rule on the same estimate in all of `count` replicates."""

    def worst_case_interval_at(confidence_level: float) -> Ends:
        low, high = estimate.worst_case_interval_at(confidence_level) or (-np.inf, np.inf)
        return np.full(count, low), np.full(count, high)

    return ReplicatedRule(
        rule=rule,
        worst_case_interval_at=worst_case_interval_at,
        p_value=np.full(count, np.nan if estimate.p_value is None else estimate.p_value),
        n=estimate.n,
        higher_is_better=estimate.higher_is_better,
    )


def outcomes(
    tested: Sequence[ReplicatedRule], *, confidence_level: float, min_examples: int, adjustment: Adjustment
) -> list[Outcomes]:
    """The outcome of each rule in each replicate, in samples of fixed size.

    To pass, every rule must hold at the confidence level: no adjustment is needed (Berger 1982, intersection-union).
    To fail, one broken rule is enough, so the one-sided tests of the rules that could fail are adjusted: an adjusted p
    is at most alpha exactly where the interval at the matching level lies below the threshold. That level is
    alpha / (m - r) for Holm, with r others rejected, and alpha k / m for Benjamini and Hochberg.
    """
    if not tested:
        return []
    alpha = (1 - confidence_level) / 2
    counted = np.array([one.is_known & (one.n >= min_examples) for one in tested])

    def below(part: float) -> Mask:
        return np.asarray(np.array([one.lies_below(1 - 2 * alpha * part) for one in tested]) & counted)

    rejected = _REJECTED[adjustment](below, counted.sum(axis=0), len(tested))
    return [
        one.outcomes(broken, confidence_level) if one.n >= min_examples else np.full(broken.shape, "open")
        for one, broken in zip(tested, rejected, strict=True)
    ]


def _by_holm(below: Callable[[float], Mask], tests: npt.NDArray[np.int_], n_rules: int) -> Mask:
    by_level = np.array([below(1 / max(1, n_left)) for n_left in range(n_rules + 1)])
    count = np.zeros_like(tests)
    for _ in range(n_rules + 1):
        chosen = by_level[np.maximum(tests - count, 0), :, np.arange(len(tests))].T  # each replicate at its own level
        count = np.maximum(count, chosen.sum(axis=0))
    return np.asarray(chosen)


def _by_benjamini_hochberg(below: Callable[[float], Mask], tests: npt.NDArray[np.int_], n_rules: int) -> Mask:
    chosen = np.zeros((n_rules, len(tests)), dtype=bool)
    for n_tests in range(1, n_rules + 1):
        for rank in range(1, n_tests + 1):
            rejected_at_rank = below(rank / n_tests)
            chosen |= rejected_at_rank & (tests == n_tests) & (rejected_at_rank.sum(axis=0) >= rank)
    return chosen


_REJECTED: Mapping[Adjustment, Callable[[Callable[[float], Mask], npt.NDArray[np.int_], int], Mask]] = {
    "holm": _by_holm,
    "benjamini_hochberg": _by_benjamini_hochberg,
    "none": lambda below, tests, n_rules: below(1.0),
}


def threshold_outcome(estimate: BoundedEstimate, threshold: float, confidence_level: float) -> Outcome:
    """Compare the mean itself with a threshold; open if missing or pending values could change the outcome."""
    values = estimate.worst_case_values if estimate.is_whole else estimate.worst_case_interval_at(confidence_level)
    if values is None:
        return "open"
    return "met" if values[0] >= threshold else "broken" if values[1] < threshold else "open"


def oriented(low: float | None, high: float | None, *, higher_is_better: bool) -> Interval | None:
    """Negate an interval if less is better, so that more is better; None if an end is None."""
    if low is None or high is None:
        return None
    return (low, high) if higher_is_better else (-high, -low)


LONG_TAIL = 1.0
"""Skewness of the values of both sides from which a met non-inferiority rule warns. In simulations (6,000 runs of 30
and 100 pairs), the rule passes log-normal values (log-sd 1, skewness 2) with a loss equal to the margin in 4.1 and 3.4
%, not 2.5 %, and 99 to 100 % of these runs warn; grades from 1 to 5 pass in 2.1 and 2.4 %, and at most 3 % warn."""

ENOUGH_FOR_TAILS = 300
"""Pairs, or clusters, from which it does not warn: such a loss then passes in 2.7 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedDifferences:
    """The differences that a rule tests in each of R replicates of a pair, negated if less is better."""

    known: PairedDifferences
    worst_cases: tuple[PairedDifferences, PairedDifferences] | None  # smallest and largest; None if unbounded
    higher_is_better: bool

    def interval_at(self, confidence_level: float) -> Ends:
        """The intervals without missing values; infinite where there is none."""
        return self._oriented(*self.known.interval_at(confidence_level))

    def worst_case_interval_at(self, confidence_level: float) -> Ends:
        """The same with missing values at either extreme."""
        lowest, highest = self.worst_cases or (self.known, self.known)
        if self.worst_cases is None:
            return np.full(len(self.known.error), -np.inf), np.full(len(self.known.error), np.inf)
        low, high = lowest.interval_at(confidence_level)[0], highest.interval_at(confidence_level)[1]
        known = lowest.has_interval & highest.has_interval
        return self._oriented(np.where(known, low, -np.inf), np.where(known, high, np.inf))

    def of_size(self, n: int) -> "ReplicatedDifferences":
        """What n pairs or clusters would give, without missing values; see `PairedDifferences.of_size`."""
        return replace(self, known=self.known.of_size(n), worst_cases=None)

    def _oriented(self, low: Values, high: Values) -> Ends:
        return (low, high) if self.higher_is_better else (-high, -low)


def _widened(method: str) -> str:
    return " (widened by the range)" if TAILED in method else ""


def replicated_differences(paired: PairedMetric, rows: PairedRows) -> ReplicatedDifferences:
    """The differences that are tested in replicates of a pair; the pair itself is one."""
    known = paired.differences_of(rows)
    smallest, largest = (paired.worst_cases_of(rows, one) if paired.n_missing else known for one in EXTREMES)
    worst_cases = None if smallest is None or largest is None else (smallest, largest)
    return ReplicatedDifferences(known=known, worst_cases=worst_cases, higher_is_better=paired.scale.higher_is_better)


def bounded_difference(paired: PairedMetric) -> BoundedEstimate:
    """How much better the candidate is than the baseline."""
    estimate, tested = paired.difference(paired.confidence_level), replicated_differences(paired, paired.rows)
    higher = tested.higher_is_better
    worst = [paired.worst_case_difference(extreme, paired.confidence_level) for extreme in EXTREMES]
    values = (None if one is None else one.difference for one in worst)
    n, noun = tested.known.n, "clusters" if tested.known.is_clustered else "pairs"
    return BoundedEstimate(
        value=_sign(estimate.difference, higher),
        interval_at=lambda confidence_level: _single(tested.interval_at(confidence_level)),
        worst_case_interval_at=lambda confidence_level: _single(tested.worst_case_interval_at(confidence_level)),
        worst_case_values=oriented(*values, higher_is_better=higher),
        n=n,
        noun=noun,
        n_missing=paired.n_missing,
        n_left_out=paired.n_left_out,
        higher_is_better=higher,
        p_value=estimate.p_value,
        reason=estimate.reason,
        reason_code=estimate.reason_code,
        method=_widened(estimate.method),
        caution=None
        if paired.is_binary
        else _caution(f"{n} {noun}", n, paired.scale, paired.candidate, paired.baseline),
        missing_as=AS_0_OR_1 if paired.scale.is_observed else "",
        interval_of_size=lambda n, confidence_level: _single(tested.of_size(n).interval_at(confidence_level)),
    )


def _single(ends: Ends) -> Interval | None:
    """The interval of a single replicate, if it has one."""
    (low,), (high,) = (end.tolist() for end in ends)
    return None if math.isinf(low) and math.isinf(high) else (low, high)


def bounded_mean(sample: MetricSample, confidence_level: float) -> BoundedEstimate:
    """The candidate's own mean; yes/no metrics get an exact interval, since a threshold decides on one side only."""
    higher, n_missing = sample.scale.higher_is_better, int(sample.values.missing.sum())

    def interval_at(level: float) -> Interval | None:
        mean = sample.mean(level, exact=True)
        return oriented(mean.low, mean.high, higher_is_better=higher)

    def worst_cases(level: float) -> tuple[MeanEstimate, MeanEstimate] | None:
        """The means with all missing values at the lower and at the upper bound; None for an unbounded metric."""
        if not n_missing:
            return (mean := sample.mean(level, exact=True)), mean
        if not sample.scale.is_bounded:
            return None
        low, high = sample.scale.bounds
        return sample.worst_case_mean(low, level, exact=True), sample.worst_case_mean(high, level, exact=True)

    def worst_case_interval_at(level: float) -> Interval | None:
        ends = worst_cases(level)
        return ends and oriented(ends[0].low, ends[1].high, higher_is_better=higher)

    estimate, worst = sample.mean(confidence_level, exact=True), worst_cases(confidence_level)
    is_exact = estimate.method != sample.mean(confidence_level).method
    n, noun = (estimate.n, "examples") if estimate.n_clusters is None else (estimate.n_clusters, "clusters")
    return BoundedEstimate(
        value=_sign(estimate.mean, higher),
        interval_at=interval_at,
        worst_case_interval_at=worst_case_interval_at,
        worst_case_values=worst and oriented(worst[0].mean, worst[1].mean, higher_is_better=higher),
        n=n,
        noun=noun,
        n_missing=n_missing,
        higher_is_better=higher,
        reason=estimate.reason,
        reason_code=estimate.reason_code,
        caution=None if sample.values.is_binary else _caution(f"{n} {noun}", n, sample.scale, sample.values),
        missing_as=AS_0_OR_1 if sample.scale.is_observed else "",
        method=" (exact)" if is_exact else _widened(estimate.method),
    )


AS_0_OR_1 = ", counted as 0 or 1,"
"""What a missing value counts as if all other values are 0 or 1."""


def _caution(what: str, n: int, scale: Scale, *sides: MetricValues) -> str | None:
    """Warn if so few of the values can miss rare ones that would be a loss.

    With a range, `stats.means.unseen_tail` covers them, but not the skewness of values with a long tail.
    """
    if n >= ENOUGH_FOR_TAILS:
        return None
    values = np.concatenate([side.values for side in sides])
    skewness = sample_skewness(values[~np.isnan(values)])
    if abs(skewness) >= LONG_TAIL:
        return f"the values have a long tail (skewness {skewness:.1f}), of which {what} may miss what would be a loss"
    if not np.isfinite(scale.support).all():
        return f"no range is declared: {what} may miss rare values that would be a loss"
    return None


def _sign(value: float | None, higher_is_better: bool) -> float | None:
    return value if value is None or higher_is_better else -value


def run_level_estimate(store: Store, spec: ExperimentSpec, row: ExperimentRow, rule: Rule) -> BoundedEstimate | Reason:
    """The estimate of a run-level metric, or why the rule cannot be evaluated."""
    sliced = sliced_metric(rule.metric)
    scores = store.query(_RUN_LEVEL, [row.experiment_id, sliced.metric])
    if scores and sliced.path is not None:
        return Reason("run_level_metric", "a run-level metric is one number for all examples: it has no slices")
    if len(scores) != 1:
        several = Reason("ambiguous_metric", "several run-level evaluators give it")
        return several if scores else _why_no_values(store, row, sliced.metric)
    ((value, error),) = scores
    answered, planned = store.query(_ANSWERED, [row.experiment_id])[0][0], row.n_examples * row.repetitions
    if value is None:
        return Reason("not_numeric", f"it is not a number: {error or 'a label'}")
    if rule.kind != "threshold":
        text = "a run-level metric is one number without an interval: wanted under thresholds"
        return Reason("run_level_metric", text)
    if answered < planned:
        return Reason("incomplete", f"computed from {answered} of {planned} answers: the missing ones could change it")
    higher = bool(spec.direction(rule.metric).higher_is_better)
    gain = value if higher else -value
    return BoundedEstimate(
        value=gain,
        interval_at=lambda confidence_level: None,
        worst_case_interval_at=lambda confidence_level: None,
        worst_case_values=(gain, gain),
        n=answered,
        noun="answers",
        n_missing=0,
        higher_is_better=higher,
    )


def _why_no_values(store: Store, row: ExperimentRow, metric: str) -> Reason:
    ((evaluators, labels, numbers),) = store.query(_PER_RUN, [row.experiment_id, metric])
    if labels:
        besides = " besides numbers" if numbers else ""
        return Reason("not_numeric", f"it has labels{besides}, which are not averaged")
    if evaluators > 1:
        return Reason("ambiguous_metric", f"{evaluators} evaluators give it, so it is ambiguous")
    if not evaluators:
        return Reason("no_such_metric", "no evaluator gives it")
    return Reason("no_data", "it has no scored values")


_RUN_LEVEL = """select value, error from staging.scores
             where experiment_id = ? and subject_kind = 'experiment' and metric = ?"""
_ANSWERED = "select count(*) from source.outputs where experiment_id = ? and status = 'ok'"
_PER_RUN = """select count(distinct evaluator), count(label), count(value) from staging.scores
              where experiment_id = ? and subject_kind = 'run' and turn is null and metric = ?"""


MAX_SUGGESTED_N = 1_000_000
"""The largest sample size that is suggested: beyond it, the estimate is next to the threshold."""


def why_open(rule: Rule, estimate: BoundedEstimate, confidence_level: float, threshold: float) -> Reason:
    """Explain why a rule is neither met nor broken."""
    interval = estimate.interval_at(confidence_level)
    if interval is None and rule.kind != "threshold":
        return Reason(estimate.reason_code or "no_interval", f"; {estimate.reason or 'no interval'}")
    is_above = estimate.value is not None and (
        estimate.value >= threshold if rule.kind == "threshold" else interval is not None and interval[0] > threshold
    )
    is_below = interval is not None and interval[1] < threshold
    if estimate.n_missing:
        return _why_missing_matters(estimate, could_flip=is_above or is_below)
    if is_above and estimate.p_value is not None and estimate.p_value > 1 - confidence_level:
        text = f"; the interval excludes zero, but the test is not significant (p = {estimate.p_value:.3f})"
        return Reason("interval_and_test_disagree", text)
    is_worse = rule.kind == "non_inferiority" and interval is not None and interval[1] < 0
    text = "; significantly worse, but not by more than the margin" if is_worse else ""
    needed = _needed_n(estimate, confidence_level, threshold)
    code: ReasonCode = "worse_but_maybe_within_margin" if is_worse else "interval_includes_bound"
    if needed is not None:
        text = f"{text}; about {needed:,} {estimate.noun} would decide if the estimate stays the same"
    return Reason(code, text)


def _why_missing_matters(estimate: BoundedEstimate, *, could_flip: bool) -> Reason:
    missing = f"; {estimate.missing_text}"
    if estimate.worst_case_values is None:
        return Reason("missing_unbounded", f"{missing}, and no declared range bounds the metric")
    if could_flip:
        return Reason("missing_could_flip", f"{missing} could flip this")
    return Reason("interval_includes_bound", f"{missing}")


def _needed_n(estimate: BoundedEstimate, confidence_level: float, threshold: float) -> int | None:
    """The n at which the interval excludes the threshold if the value stays the same, rounded up to two digits.

    From 100 on it is rounded; without `interval_of_size`, the interval is narrowed by the root of n.
    """
    interval, value = estimate.interval_at(confidence_level), estimate.value
    if interval is None or value is None or estimate.is_sequence or value == threshold:
        return None
    if estimate.against:  # more examples would narrow one side only
        return None
    half = (interval[1] - interval[0]) / 2

    def decides(n: int) -> bool:
        narrowed = half * math.sqrt(estimate.n / n)
        ends = value - narrowed, value + narrowed
        if estimate.interval_of_size is not None:
            ends = estimate.interval_of_size(n, confidence_level) or ends
        return ends[0] > threshold if value > threshold else ends[1] < threshold

    needed = least_n(decides, estimate.n + 1, MAX_SUGGESTED_N)
    if needed is None:
        return None
    step: int = 10 ** max(0, len(str(needed)) - 2)
    return math.ceil(needed / step) * step


def figures_text(rule: Rule, estimate: BoundedEstimate, confidence_level: float) -> str:
    """The value, its interval and n, in the metric's own direction. Rounding moves no end onto zero or the bound."""
    interval, sign = estimate.interval_at(confidence_level), 1 if estimate.higher_is_better else -1
    if estimate.value is None:
        return ""
    low, high = (None, None) if interval is None else sorted(sign * end for end in interval)
    marks = (0.0, rule.bound, -rule.bound) if rule.is_difference else (rule.bound,)
    texts = estimate_text(
        sign * estimate.value, low, high, metric_of(rule.metric), signed=rule.is_difference, marks=marks
    )
    left_out = f" ({estimate.n_left_out} left out for a missing value)" if estimate.n_left_out else ""
    against = f" against {estimate.against}" if estimate.against else ""
    method = estimate.method if interval else ""
    return f": {' '.join(filter(None, texts))}{method}, {estimate.n} {estimate.noun}{left_out}{against}"


def outcome_text(rule: Rule, outcome: Outcome, confidence_level: float, *, higher_is_better: bool) -> str:
    """What the metric does: "is not worse by more than 0.05", "reaches 0.8", "may exceed 2"."""
    bound = f"{rule.bound:g}"
    if rule.is_difference:
        by = "" if rule.kind == "superiority" and not rule.bound else f" by more than {bound}"
        return DIFFERENCE_TEXTS[rule.kind, outcome] + by
    text = (FLOOR_TEXTS if higher_is_better else CEILING_TEXTS)[outcome]
    is_confident = rule.kind == "confident_threshold" and outcome != "open"
    return f"{text} {bound}" + (f" at {100 * confidence_level:g}% confidence" if is_confident else "")


DIFFERENCE_TEXTS: dict[tuple[Kind, Outcome], str] = {
    ("non_inferiority", "met"): "is not worse",
    ("non_inferiority", "broken"): "is worse",
    ("non_inferiority", "open"): "may be worse",
    ("superiority", "met"): "is better",
    ("superiority", "broken"): "is not better",
    ("superiority", "open"): "may not be better",
}

FLOOR_TEXTS: dict[Outcome, str] = {"met": "reaches", "broken": "does not reach", "open": "may not reach"}

CEILING_TEXTS: dict[Outcome, str] = {"met": "does not exceed", "broken": "exceeds", "open": "may exceed"}


def evaluate_rules(
    estimates: Sequence[tuple[Rule, BoundedEstimate | Reason]],
    *,
    confidence_level: float,
    min_examples: int,
    adjustment: Adjustment,
) -> list[RuleResult]:
    """Evaluate each rule on its estimate; a Reason instead of an estimate leaves the rule open.

    Rules in batches have confidence sequences, whose levels are adjusted by Bonferroni; for the others, see `outcomes`.
    """
    could_fail = sum(rule.kind != "threshold" for rule, _ in estimates)
    stricter = confidence_level if adjustment == "none" else 1 - (1 - confidence_level) / max(could_fail, 1)
    p_values = [p_below_threshold(rule, estimate, min_examples) for rule, estimate in estimates]
    known = [p for p in p_values if p is not None]
    all_adjusted = iter(adjusted(np.array(known), adjustment).tolist())
    fixed = [
        replicated_rule(rule, estimate)
        for rule, estimate in estimates
        if not isinstance(estimate, Reason) and rule.kind != "threshold" and not estimate.is_sequence
    ]
    of_fixed = iter(
        outcomes(fixed, confidence_level=confidence_level, min_examples=min_examples, adjustment=adjustment)
    )
    results = []
    for (rule, estimate), p in zip(estimates, p_values, strict=True):
        if isinstance(estimate, Reason):
            results.append(_result(rule, "open", f"{rule.metric}: {estimate}", estimate.code))
            continue
        if rule.kind == "threshold":
            threshold = rule.threshold(higher_is_better=estimate.higher_is_better)
            outcome = threshold_outcome(estimate, threshold, confidence_level)
        elif estimate.is_sequence:
            sequence = replicated_rule(rule, estimate)
            outcome = sequence.outcomes(sequence.lies_below(stricter), confidence_level).tolist()[0]
        else:
            outcome = next(of_fixed).tolist()[0]
        result = _evaluated(rule, estimate, confidence_level, min_examples, outcome)
        result = replace(result, p_below=p, p_adjusted=None if p is None else next(all_adjusted))
        result = _with_adjustment(result, confidence_level, len(known), adjustment)
        results.append(_with_figures(result, estimate, confidence_level))
    return results


def conclusion_of(results: Sequence[RuleResult]) -> DecisionConclusion:
    """FAIL if any rule is broken, PASS if all are met."""
    outcomes = {result.outcome for result in results}
    return "FAIL" if "broken" in outcomes else "NOT ENOUGH EVIDENCE" if "open" in outcomes else "PASS"


def _with_figures(result: RuleResult, estimate: BoundedEstimate, confidence_level: float) -> RuleResult:
    """Add the estimate to a result, in the metric's own direction."""
    interval, sign = estimate.interval_at(confidence_level), 1 if estimate.higher_is_better else -1
    low, high = (None, None) if interval is None else sorted(sign * end for end in interval)
    return replace(
        result,
        value=None if estimate.value is None else sign * estimate.value,
        low=low,
        high=high,
        n=estimate.n,
        n_missing=estimate.n_missing,
    )


def _with_adjustment(result: RuleResult, confidence_level: float, n_tests: int, adjustment: Adjustment) -> RuleResult:
    """Say so if a rule is open only because its p-value is adjusted."""
    p, p_adjusted, alpha = result.p_below, result.p_adjusted, (1 - confidence_level) / 2
    if result.outcome != "open" or p is None or p_adjusted is None or not p <= alpha < p_adjusted:
        return result
    text = f"{result.text}; {adjusted_p_text(p, p_adjusted, n_tests, adjustment)}"
    return replace(result, text=text, reason_code="not_significant_after_adjustment")


def _evaluated(
    rule: Rule, estimate: BoundedEstimate, confidence_level: float, min_examples: int, outcome: Outcome
) -> RuleResult:
    figures, higher = figures_text(rule, estimate, confidence_level), estimate.higher_is_better
    if estimate.n < min_examples:
        text = outcome_text(rule, "open", confidence_level, higher_is_better=higher)
        n = figures or f": {estimate.n} {estimate.noun}"
        text = f"{rule.metric} {text}{n}; wanted at least {min_examples} to decide"
        return _result(rule, "open", text, "below_min_examples")
    threshold = rule.threshold(higher_is_better=higher)
    why = why_open(rule, estimate, confidence_level, threshold) if outcome == "open" else None
    missing = f"; {estimate.missing_text} could not change that"
    note = why or (missing if estimate.n_missing else "")
    if rule.kind != "threshold" and outcome == "met" and estimate.caution:
        note = f"{note}; {estimate.caution}"
    text = outcome_text(rule, outcome, confidence_level, higher_is_better=higher)
    return _result(rule, outcome, f"{rule.metric} {text}{figures}{note}", why.code if why else None)


def _result(rule: Rule, outcome: Outcome, text: str, code: ReasonCode | None) -> RuleResult:
    return RuleResult(
        rule=rule.kind, metric=rule.metric, bound=rule.bound, outcome=outcome, text=text, reason_code=code
    )
