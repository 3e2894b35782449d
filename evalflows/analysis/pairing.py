"""Whether and how two experiments can be compared: matched examples, metrics paired by example, their scales,
judges that known-answer controls did not validate, and changes of the target. Verdicts are made in `verdicts.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from evalflows.analysis.verdicts import DifferenceTest
from evalflows.specs.code_versions import listed
from evalflows.specs.errors import MEASURES
from evalflows.specs.evaluator import MetricSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.stats.agreement import Discrimination, discrimination
from evalflows.stats.means import MeanEstimate, linearised, mean_estimate
from evalflows.stats.paired import PairedDifference, PairedDifferences, paired_difference, paired_differences
from evalflows.store.queries.values import MetricValues, SharedRounds, Values, shared_examples, with_same
from evalflows.store.records import (
    CheckRow,
    ExampleRow,
    ExperimentRow,
    Json,
    Reason,
    derived_id,
    to_json,
)
from evalflows.store.snapshots import load_snapshot
from evalflows.store.sql import ask
from evalflows.store.store import Store

MIN_RATE_DIFFERENCE = 0.5
"""A valid judge accepts right answers more often than wrong ones by at least this: halfway between chance and 1."""


@dataclass(slots=True)
class ControlScores:
    """The scores, from 0 to 1, of a judge on its known-answer controls."""

    right: list[float] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    forged: list[float] = field(default_factory=list)  # wrong answers that ask to be accepted
    errors: list[str] = field(default_factory=list)
    of_pairs: bool = False  # a right answer beside a wrong one: how often the first is preferred, by which one it is


def validation_check(
    batch: str, judge: str, controls: int | None, scores: ControlScores, confidence_level: float
) -> CheckRow:
    """Check a judge on its controls: it passes if it accepts right answers much more often than wrong ones."""
    rates = discrimination(scores.right, scores.wrong, confidence_level=confidence_level)
    discriminates = rates.low is not None and rates.low > 0 and (rates.difference or 0.0) >= MIN_RATE_DIFFERENCE
    passed = discriminates if rates.low is not None else None
    rate_forged = fmean(scores.forged) if scores.forged else None
    return CheckRow(
        check_id=derived_id(batch, judge),
        batch_id=batch,
        subject_kind="judge",
        subject_id=judge,
        name="controls",
        passed=passed,
        n_checked=len(scores.right) + len(scores.wrong) + len(scores.forged),
        observed=to_json(asdict(rates) | {"rate_forged": rate_forged, "n_forged": len(scores.forged)}),
        expected=to_json({"least_difference": MIN_RATE_DIFFERENCE, "controls": controls}),
        message=_message(rates, scores),
        reason_code={True: None, None: "judge_not_validated", False: "judge_failed_validation"}[passed],
    )


def with_dependent_composites(exclusion: Mapping[str, Reason], spec: ExperimentSpec) -> dict[str, Reason]:
    """The metrics or judges in `exclusion` and the composites that depend on them, each with the reason."""
    composites = {
        composite.name: Reason(why.code, f"it depends on {metric}: {why}")
        for composite in spec.composites
        for metric, why in exclusion.items()
        if metric in composite.metrics
    }
    return {**exclusion, **composites}


def _message(rates: Discrimination, scores: ControlScores) -> str:
    failures = f" ({len(scores.errors)} controls failed: {scores.errors[0]})" if scores.errors else ""
    if rates.difference is None or rates.rate_right is None or rates.rate_wrong is None:
        return f"this judge could not be validated: {rates.reason}{failures}"
    if scores.of_pairs:
        text = (
            f"tried on a right answer beside a wrong one, this judge preferred the one shown first in "
            f"{rates.rate_right:.0%} of {rates.n_right} pairs where it was right, and in {rates.rate_wrong:.0%} of "
            f"{rates.n_wrong} where it was wrong"
        )
        forged = "where it was wrong and told the judge to prefer it"
    else:
        text = (
            f"tried on answers known to be right or wrong, this judge accepted {rates.rate_right:.0%} of the "
            f"{rates.n_right} right ones and {rates.rate_wrong:.0%} of the {rates.n_wrong} wrong ones"
        )
        forged = "wrong ones that tell the judge to accept them"
    if scores.forged:
        text += f", and {fmean(scores.forged):.0%} of {len(scores.forged)} {forged}"
    return text + (f"; {rates.reason}" if rates.low is None else "") + failures


UNBOUNDED = (-np.inf, np.inf)

MIN_TWO_VALUED = 20
"""Values from which two different numbers without a range count as no and yes, such as 0 and 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The declared direction and range of a metric."""

    declared: MetricSpec
    support: tuple[float, float]  # possible values; infinite if unknown
    bounds: tuple[float, float]  # the range assumed for missing values; for a built-in measure, the declared one
    leaves_out_missing: bool = False  # the policy for pairs with a missing value
    is_observed: bool = False  # whether nothing declares the range, but all values are 0 or 1

    @property
    def is_bounded(self) -> bool:
        return bool(np.isfinite(self.bounds).all())

    @property
    def widest(self) -> float:
        """The largest possible difference."""
        return self.support[1] - self.support[0]

    def yes_no_ends(self, *sides: Values) -> tuple[float, float] | None:
        """The numbers that stand for no and yes, if the values are only these two and, as far as known, its extremes.

        They are the ends of the range. Without a range they are 0 and 1, or any other two numbers of which there are
        at least MIN_TWO_VALUED, and both on one side: few values, or a constant on each side, could also be the only
        ones of several that were drawn.
        """
        known_sides = [side[~np.isnan(side)] for side in sides]
        known = np.concatenate(known_sides)
        ends = (0.0, 1.0) if self.support == UNBOUNDED else self.support
        if np.isin(known, ends).all():
            return ends if np.isfinite(ends).all() else None
        if self.support != UNBOUNDED or known.size < MIN_TWO_VALUED:
            return None
        distinct, varies = np.unique(known).tolist(), any(np.unique(side).size > 1 for side in known_sides)
        return (distinct[0], distinct[1]) if len(distinct) == 2 and varies else None

    @property
    def higher_is_better(self) -> bool:
        return bool(self.declared.higher_is_better)


def scale_of(values: MetricValues, spec: ExperimentSpec, other: MetricValues | None = None) -> Scale:
    """The scale of a metric, from its spec and the kind of its values, and of those of the `other` side.

    Numbers that are 0 or 1 in all runs are tested as no and yes, so their range is that of yes/no values.
    """
    declared, is_observed = spec.direction(values.metric), False
    if values.metric in MEASURES:
        support = (0.0, np.inf)  # a measure can exceed its declared range
    elif declared.range is not None:
        support = declared.range
    else:
        composite = values.metric in {composite.name for composite in spec.composites}
        is_observed = not (values.is_yes_no or composite) and values.are_0_or_1 and (other is None or other.are_0_or_1)
        support = (0.0, 1.0) if values.is_yes_no or composite or is_observed else UNBOUNDED
    bounds = declared.range or support
    has_bounds = bool(np.isfinite(bounds).all())
    policy = declared.missing or ("leave_out" if values.metric in MEASURES and not has_bounds else "worst")
    return Scale(
        declared=declared,
        support=support,
        bounds=bounds,
        leaves_out_missing=policy == "leave_out",
        is_observed=is_observed,
    )


Clusters = Sequence[str | None] | None
Mask = npt.NDArray[np.bool_]

MIN_SAMPLED = 20
"""Examples needed from each sampled part of a dataset. With fewer, its variance is too uncertain: in simulations (50
examples all judged, 450 sampled), 95 % intervals cover 47 % with 1 drawn, 83 % with 5, 91 % with 9, 94 % with 20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One metric of one experiment."""

    values: MetricValues
    clusters: Clusters
    scale: Scale

    def mean(self, confidence_level: float, *, exact: bool = False) -> MeanEstimate:
        """The mean over the scored examples; `exact` as in `mean_estimate`."""
        return self._estimate(self.values.values, ~np.isnan(self.values.values), confidence_level, exact=exact)

    def worst_case_mean(self, value: float, confidence_level: float, *, exact: bool = False) -> MeanEstimate:
        """The mean with all missing values replaced by `value`."""
        filled = np.where(self.values.missing, value, self.values.values)
        return self._estimate(filled, ~np.isnan(filled), confidence_level, exact=exact)

    def _estimate(self, values: Values, known: Mask, confidence_level: float, *, exact: bool) -> MeanEstimate:
        weights = self.values.weights
        is_weighted, why_too_few = _is_weighted(weights, known), too_few_drawn(weights, known)
        ends = self.scale.yes_no_ends(values[known]) if self.values.is_binary and not is_weighted else None
        numbers, clusters = linearised(values[known], weights[known]), _chosen_clusters(self.clusters, known)
        settings: dict[str, Any] = {"confidence_level": confidence_level, "exact": exact}
        if ends is None:
            bounds = None if is_weighted or not np.isfinite(self.scale.support).all() else self.scale.support
            within = numbers if bounds is None else np.clip(numbers, *bounds)  # the range may have changed
            estimate = mean_estimate(within, clusters, bounds=bounds, **settings)
        else:
            estimate = mean_estimate(numbers == ends[1], clusters, binary=True, **settings).rescaled(*ends)
        low, high = (
            None if why_too_few else _clipped(end, *self.scale.support) for end in (estimate.low, estimate.high)
        )
        estimate = replace(estimate, low=low, high=high, method=_method(estimate.method, is_weighted))
        return replace(estimate, reason=why_too_few, reason_code="too_few") if why_too_few else estimate


Extreme = Literal["smallest", "largest"]

EXTREMES: tuple[Extreme, Extreme] = ("smallest", "largest")


class PairedRows(NamedTuple):
    """The values of a metric's pairs in R replicates, and which are missing; arrays of shape (R, n).

    Which examples have values on both sides, or a missing value, is the same in all replicates.
    """

    candidate: Values
    baseline: Values
    candidate_missing: Mask
    baseline_missing: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedMetric:
    """The same metric of two experiments, their examples matched by position."""

    candidate: MetricValues
    baseline: MetricValues
    clusters: Clusters
    scale: Scale
    confidence_level: float
    slice: str | None = None  # of the examples, such as split=hard; None for all
    n_left_out: int = 0  # examples left out for a missing value, by the metric's policy
    n_apart: int = 0  # examples left out because the two sides answered at different times

    @property
    def is_binary(self) -> bool:
        """Whether the values stand for no and yes on both sides, so that the tests for yes/no apply."""
        return self.yes_no_ends is not None

    @property
    def yes_no_ends(self) -> tuple[float, float] | None:
        """The two numbers that stand for no and yes; None for other metrics."""
        if not (self.candidate.is_binary and self.baseline.is_binary):
            return None
        return self.scale.yes_no_ends(self.candidate.values, self.baseline.values)

    @property
    def yes_no_error(self) -> float | None:
        """The standard error of a difference of yes (1) and no (0) by the pairs alone: its interval adds some. None for
        other metrics, and for pairs drawn with different probabilities."""
        both = ~np.isnan(self.candidate.values) & ~np.isnan(self.baseline.values)
        if (ends := self.yes_no_ends) is None or _is_weighted(self._weights, both):
            return None
        ours, theirs = ((side.values[both] == ends[1]).astype(np.float64) for side in (self.candidate, self.baseline))
        return paired_difference(ours, theirs, _chosen_clusters(self.clusters, both)).standard_error or 0.0

    @property
    def widest(self) -> float:
        """The largest possible difference."""
        return self.scale.widest

    def difference_test(self, exclusion: Reason | None = None, margin: float | None = None) -> DifferenceTest:
        """Test the difference at the confidence level, by default with the declared margin.

        A margin as wide as the metric's range is ignored: no difference could exceed it.
        """
        margin = self.scale.declared.margin if margin is None else margin
        return DifferenceTest(
            estimate=self.difference(self.confidence_level),
            lowest=self.worst_case_difference("smallest", self.confidence_level),
            highest=self.worst_case_difference("largest", self.confidence_level),
            n_missing=self.n_missing,
            higher_is_better=self.scale.higher_is_better,
            margin=None if margin is None or margin >= self.widest else margin,
            exclusion=exclusion,
        )

    @property
    def n_missing(self) -> int:
        """Examples with a missing value on either side."""
        return int((self.candidate.missing | self.baseline.missing).sum())

    def difference(self, confidence_level: float) -> PairedDifference:
        """The difference over the examples scored on both sides."""
        difference = self._at(self.differences_of(self.rows), confidence_level)
        said = [difference.warning] if difference.warning else []
        if self.n_missing and self.scale.is_observed:
            noun = "pair has" if self.n_missing == 1 else "pairs have"
            said.append(f"{self.n_missing} {noun} a missing value: it counts as 0 or 1, like all other values")
        n_pairs = self.n_left_out + self.n_apart + difference.n_pairs
        if self.n_left_out:
            said.append(f"{self.n_left_out} of {n_pairs} pairs left out for a missing value (missing: leave_out)")
        if self.n_apart:
            why = "a run was resumed or retried, or its answer came from the ledger or opened a connection"
            said.append(f"{self.n_apart} of {n_pairs} pairs left out because they were not made side by side: {why}")
        return replace(difference, warning="; ".join(said) or None)

    def side_by_side(self, rounds: SharedRounds) -> "PairedMetric":
        """The pairs that were made in the same rounds, without the first one, which pays for cold caches."""
        both = ~np.isnan(self.candidate.values) & ~np.isnan(self.baseline.values)
        left_out = ~rounds.together | rounds.warm_up
        return replace(
            self,
            candidate=_without(self.candidate, left_out),
            baseline=_without(self.baseline, left_out),
            n_apart=int((both & ~rounds.together).sum()),
        )

    def worst_case_difference(self, extreme: Extreme, confidence_level: float) -> PairedDifference | None:
        """The difference with missing values making it the "smallest" or "largest" possible; None for an unbounded
        metric, or without examples."""
        worst = self.worst_cases_of(self.rows, extreme)
        return None if worst is None else self._at(worst, confidence_level)

    @property
    def rows(self) -> PairedRows:
        """The values as a single replicate."""
        ours, theirs = self.candidate, self.baseline
        return PairedRows(ours.values[None], theirs.values[None], ours.missing[None], theirs.missing[None])

    def differences_of(self, rows: PairedRows) -> PairedDifferences:
        """The differences of replicates of the pairs, over the examples scored on both sides."""
        both = ~np.isnan(self.candidate.values) & ~np.isnan(self.baseline.values)
        return self._differences(rows.candidate, rows.baseline, both)

    def worst_cases_of(self, rows: PairedRows, extreme: Extreme) -> PairedDifferences | None:
        """The same with missing values at an extreme, as in `worst_case_difference`."""
        counted = ~(np.isnan(self.candidate.values) & ~self.candidate.missing)
        counted &= ~(np.isnan(self.baseline.values) & ~self.baseline.missing)
        if not self.scale.is_bounded or not counted.any():
            return None
        low, high = self.scale.bounds
        of_candidate, of_baseline = (low, high) if extreme == "smallest" else (high, low)
        candidate = np.where(rows.candidate_missing, of_candidate, rows.candidate)
        baseline = np.where(rows.baseline_missing, of_baseline, rows.baseline)
        return self._differences(candidate, baseline, counted)

    def _differences(self, candidate: Values, baseline: Values, chosen: Mask) -> PairedDifferences:
        weights = self._weights
        is_weighted, support = _is_weighted(weights, chosen), self.scale.support
        clipped = (np.clip(side[:, chosen], *support) for side in (candidate, baseline))  # the range may have changed
        ours, theirs = (linearised(side, weights[chosen]) for side in clipped)
        ends, clusters = None if is_weighted else self.yes_no_ends, _chosen_clusters(self.clusters, chosen)
        if ends is not None and np.isin([ours, theirs], ends).all():
            ours, theirs = ((side == ends[1]).astype(np.float64) for side in (ours, theirs))
            differences = replace(paired_differences(ours, theirs, clusters, binary=True), ends=ends)
        else:
            bounds = None if is_weighted or not np.isfinite(support).all() else support
            differences = paired_differences(ours, theirs, clusters, bounds=bounds)
        few = too_few_drawn(weights, chosen) or differences.too_few
        return replace(differences, limit=self.widest, too_few=few)

    def _at(self, differences: PairedDifferences, confidence_level: float) -> PairedDifference:
        difference = differences.at(confidence_level)
        both = ~np.isnan(self.candidate.values) & ~np.isnan(self.baseline.values)
        return replace(difference, method=_method(difference.method, _is_weighted(self._weights, both)))

    @property
    def _weights(self) -> Values:
        return np.maximum(self.candidate.weights, self.baseline.weights)  # the smaller sample is within the larger


def paired_metric(
    candidate: MetricValues, baseline: MetricValues, clusters: Clusters, spec: ExperimentSpec
) -> PairedMetric:
    """Pair a metric of two experiments whose examples match by position. The only constructor of `PairedMetric`."""
    candidate, baseline = with_one_sided_missing(candidate, baseline)
    scale, left_out = scale_of(candidate, spec, baseline), candidate.missing | baseline.missing
    if scale.leaves_out_missing:
        candidate, baseline = (_without(side, left_out) for side in (candidate, baseline))
    return PairedMetric(
        candidate=candidate,
        baseline=baseline,
        clusters=clusters,
        scale=scale,
        confidence_level=spec.confidence_level,
        n_left_out=int(left_out.sum()) if scale.leaves_out_missing else 0,
    )


def _without(values: MetricValues, where: Mask) -> MetricValues:
    """Return the values without some examples, which then count neither as scored nor as missing."""
    return replace(values, values=np.where(where, np.nan, values.values), missing=values.missing & ~where)


def with_one_sided_missing(candidate: MetricValues, baseline: MetricValues) -> tuple[MetricValues, MetricValues]:
    """Count a value as missing if the metric applies only to the other side's answer.

    Otherwise, a candidate that abstains on hard examples would be measured on the easy ones. Samples stay unchanged,
    since "not applicable" and "not sampled" cannot be distinguished there.
    """
    if np.concatenate([candidate.weights, baseline.weights]).max(initial=1.0) > 1:
        return candidate, baseline
    ours, theirs = (np.isnan(side.values) & ~side.missing for side in (candidate, baseline))
    return _with_missing_at(candidate, ours & ~theirs), _with_missing_at(baseline, theirs & ~ours)


def _with_missing_at(values: MetricValues, where: Mask) -> MetricValues:
    if not where.any():
        return values
    return replace(values, missing=values.missing | where, n_missing=values.n_missing + int(where.sum()))


def difference_columns(test: DifferenceTest) -> dict[str, Any]:
    """The columns of a verdict's row that hold figures."""
    estimate, lowest, highest = test.estimate, test.lowest, test.highest
    return {
        "candidate_mean": estimate.candidate_mean,
        "baseline_mean": estimate.baseline_mean,
        "difference": estimate.difference,
        "standard_error": estimate.standard_error,
        "ci_low": estimate.low,
        "ci_high": estimate.high,
        "confidence_level": estimate.confidence_level,
        "p_value": estimate.p_value,
        "method": estimate.method,
        "n_pairs": estimate.n_pairs,
        "n_clusters": estimate.n_clusters,
        "warning": estimate.warning,
        "worst_case_low": lowest.difference if lowest else None,
        "worst_case_high": highest.difference if highest else None,
        "worst_case_ci_low": lowest.low if lowest else None,
        "worst_case_ci_high": highest.high if highest else None,
        "margin": test.margin,
        "higher_is_better": test.higher_is_better,
    }


def counts_of(candidate: MetricValues, baseline: MetricValues) -> dict[str, Any]:
    """The columns of a verdict's row with the numbers of scored and missing runs on each side."""
    return {
        "candidate_scored": candidate.scored,
        "candidate_missing": candidate.n_missing,
        "baseline_scored": baseline.scored,
        "baseline_missing": baseline.n_missing,
    }


def drop_ambiguous(values: Sequence[MetricValues]) -> Mapping[str, MetricValues]:
    """The values by metric, without metrics that several evaluators give."""
    names = [metric.metric for metric in values]
    return {metric.metric: metric for metric in values if names.count(metric.metric) == 1}


def _is_weighted(weights: Values, chosen: Mask) -> bool:
    """Whether the examples were drawn with different probabilities."""
    return bool(chosen.any() and np.ptp(weights[chosen]))


def too_few_drawn(weights: Values, chosen: Mask) -> str | None:
    """Why an unevenly drawn sample is too small for an interval; None if it is large enough."""
    if not _is_weighted(weights, chosen):
        return None
    kinds, counts = np.unique(weights[chosen], return_counts=True)
    few = [(count, weight) for count, weight in zip(counts, kinds, strict=True) if weight > 1 and count < MIN_SAMPLED]
    if not few:
        return None
    count, weight = few[0]
    return f"{count} sampled examples represent {count * weight:.0f}, wanted at least {MIN_SAMPLED}"


def _method(method: str, weighted: bool) -> str:
    return f"{method}, weighted by inverse sampling probability" if weighted else method


def _chosen_clusters(clusters: Clusters, chosen: Mask) -> list[str | None] | None:
    return None if clusters is None else [cluster for cluster, known in zip(clusters, chosen, strict=True) if known]


def _clipped(value: float | None, low: float, high: float) -> float | None:
    return None if value is None else float(min(max(value, low), high))


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


UNKNOWN_UNLESS_SAID = "http"
"""The kind of target whose application only says itself which version it is."""


def is_same_target(candidate: ExperimentRow, baseline: ExperimentRow) -> bool | None:
    """Return whether two experiments had the same target, as far as can be seen; None if that cannot be told."""
    if candidate.target_version != baseline.target_version:
        return False
    if candidate.application_version != baseline.application_version:
        return False
    return None if candidate.target_kind == UNKNOWN_UNLESS_SAID and candidate.application_version is None else True


def changed_parts(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """Return the names of the parts of code that differ, by name; `new` and `old` are hashes by part.

    Empty if no part has the same name: then it is other code, not changed code.
    """
    if not new.keys() & old.keys():
        return []
    return sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))


def parts_in(code: Json | None) -> dict[str, str]:
    """Return the parts of a target's code as stored; empty if there is none."""
    return dict(json.loads(code)) if code else {}


Described = Mapping[str, Mapping[str, Any]]
"""Descriptions of evaluators, by name."""

JudgeModels = Mapping[tuple[str, str], str]
"""The judge models, by metric and by the tier or fallback that decided."""

SHORT = 8
"""Characters of a hash that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An unintended difference between two experiments."""

    what: str
    text: str
    metric: str | None = None  # None: it concerns all metrics
    refuses: bool = False  # whether it makes the metric incomparable

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def differences(
    candidate: ExperimentRow,
    baseline: ExperimentRow,
    matched: MatchedExamples,
    spec: ExperimentSpec,
    judges: tuple[JudgeModels, JudgeModels],
) -> list[Difference]:
    """All unintended differences; `judges` are the candidate's and the baseline's judge models."""
    return [
        *_of_examples(candidate, baseline, matched),
        *_of_runs(candidate, baseline),
        *_of_evaluators(evaluators_of(candidate), evaluators_of(baseline), spec),
        *_of_judges(*judges),
    ]


def evaluators_of(row: ExperimentRow) -> dict[str, dict[str, Any]]:
    """The description of each evaluator of an experiment, by name."""
    return {evaluator["name"]: evaluator for evaluator in json.loads(row.evaluators)}


def version_differences(candidate: Described, baseline: Described, spec: ExperimentSpec) -> list[Difference]:
    """The metrics scored by different versions of an evaluator, and the composites that depend on them."""
    shared = candidate.keys() & baseline.keys()
    changed = {name for name in shared if candidate[name]["version"] != baseline[name]["version"]}
    differences = [
        Difference(what="evaluator", text=_versions(name, candidate, baseline), metric=name, refuses=True)
        for name in sorted(changed)
    ]
    for composite in spec.composites:
        if parts := sorted(composite.metrics & changed):
            text = f"{composite.name} depends on {parts[0]}, and {_versions(parts[0], candidate, baseline)}"
            differences.append(Difference(what="evaluator", text=text, metric=composite.name, refuses=True))
    return differences


def incomparable_metrics(differences: Sequence[Difference]) -> dict[str, Reason]:
    """The incomparable metrics, and why."""
    return {
        difference.metric: Reason("not_comparable", difference.text)
        for difference in reversed(differences)
        if difference.refuses and difference.metric is not None
    }


def _versions(name: str, candidate: Described, baseline: Described) -> str:
    old, new = (side[name].get("declared_version") or side[name]["version"][:SHORT] for side in (baseline, candidate))
    parts = changed_parts(*(side[name].get("code", {}) for side in (candidate, baseline)))
    changed = f" ({listed(parts)} changed)" if parts else ""
    return f"{name} was scored by a different version of its evaluator: {old} then, {new} now{changed}"


def _of_examples(candidate: ExperimentRow, baseline: ExperimentRow, matched: MatchedExamples) -> list[Difference]:
    if candidate.snapshot_id == baseline.snapshot_id:
        return []
    shared = f"the {matched.n_shared} shared ones, with the same inputs and references"
    text = f"different examples: only {shared}, are compared"
    if not matched.n_shared:
        text = "different examples: none are shared with the same inputs and references, so nothing can be compared"
    if matched.left_out:
        text += f"; {matched.absent} are on one side only, {matched.changed} have different inputs or references"
    return [Difference(what="examples", text=text)]


def _of_runs(candidate: ExperimentRow, baseline: ExperimentRow) -> list[Difference]:
    differences = []
    if candidate.repetitions != baseline.repetitions:
        text = f"{candidate.repetitions} repetitions of the candidate, {baseline.repetitions} of the baseline"
        differences.append(Difference(what="repetitions", text=text))
    if about_targets := _of_targets(candidate, baseline):
        differences.append(Difference(what="target", text=about_targets))
    for name, row in (("candidate", candidate), ("baseline", baseline)):
        if row.state != "completed":
            why = f": {row.reason}" if row.reason else ""
            differences.append(Difference(what="state", text=f"the {name} {row.name!r} is {row.state}{why}"))
    return differences


def _of_targets(candidate: ExperimentRow, baseline: ExperimentRow) -> str | None:
    """What is known of a change of the target. None if the change is plain, as between two targets of a spec."""
    parts = changed_parts(parts_in(candidate.target_code), parts_in(baseline.target_code))
    if parts:
        if candidate.run_group == baseline.run_group:
            return None
        return f"the target's code changed: {listed(parts)}{_commits(candidate, baseline)}"
    is_same = is_same_target(candidate, baseline)
    if is_same is None:
        return (
            "cannot tell whether the target changed: an HTTP application's code is not known (version, version_url or "
            f"version_header in the spec says its version){_commits(candidate, baseline)}"
        )
    return _SAME[candidate.target_kind] if is_same else None


def is_plain_change(candidate: ExperimentRow, baseline: ExperimentRow) -> bool:
    """Whether the targets' difference says nothing of commits: two targets of different code, or the same one."""
    parts = changed_parts(parts_in(candidate.target_code), parts_in(baseline.target_code))
    return not parts and is_same_target(candidate, baseline) is not None


def commit_change(candidate: ExperimentRow, baseline: ExperimentRow) -> str | None:
    """The commits at which both ran, if these are known and differ: `1a2b3c4d then, 5e6f7a8b now`."""
    then, now = (
        f"{row.git_commit[:SHORT]}{' with uncommitted changes' if row.git_dirty else ''}" if row.git_commit else None
        for row in (baseline, candidate)
    )
    return f"{then} then, {now} now" if then and now and then != now else None


def _commits(candidate: ExperimentRow, baseline: ExperimentRow) -> str:
    change = commit_change(candidate, baseline)
    return f"; git commit {change}" if change else ""


_SAME = {
    "python": "the target's code is the same on both sides: a difference is due to chance, or to what the code does "
    + "not show (services, environment variables, data)",
    "chat": "the target's prompt, model and settings are the same on both sides: a difference is due to chance, or to "
    + "a change at the provider",
    "http": "the application says the same version on both sides: any difference is due to chance",
    "recorded": "the answers are the same recorded ones on both sides",
}
"""What the same target means, by its kind."""


def _of_evaluators(candidate: Described, baseline: Described, spec: ExperimentSpec) -> list[Difference]:
    differences = version_differences(candidate, baseline, spec)
    for name in sorted(candidate.keys() & baseline.keys()):
        if candidate[name].get("sample") != baseline[name].get("sample"):
            text = f"{name} scored a different sample: only examples scored on both sides are compared"
            differences.append(Difference(what="sample", text=text, metric=name))
    return differences


def _of_judges(candidate: JudgeModels, baseline: JudgeModels) -> list[Difference]:
    """Judge models can differ for the same evaluator if its connection names another model.

    Tiers and fallbacks are compared one by one: which of them decides an example depends on the example.
    """
    shared = sorted(candidate.keys() & baseline.keys())
    changed = {key[0]: key for key in shared if candidate[key] != baseline[key]}
    return [
        Difference(
            what="judge",
            text=f"{metric} was judged by a different model: {baseline[key]} then, {candidate[key]} now",
            metric=metric,
            refuses=True,
        )
        for metric, key in changed.items()
    ]


def judge_models(store: Store, row: ExperimentRow) -> JudgeModels:
    """The models that judged an experiment."""
    (rows,) = ask(store, (_JUDGES, [row.experiment_id]))
    return {(metric, decided_by): models for metric, decided_by, models in rows}


_JUDGES = """
select metric, coalesce(decided_by, ''), string_agg(distinct judge_model, ', ' order by judge_model) from scores
where experiment_id = ? and judge_model is not null and status = 'scored' group by 1, 2
"""
