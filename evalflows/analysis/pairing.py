"""Metrics paired by example: matched examples, scales, and worst cases of missing values.

Verdicts are made in `verdicts.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from evalflows.analysis.verdicts import DifferenceTest
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES
from evalflows.specs.metrics import MetricSpec
from evalflows.stats.means import MeanEstimate, linearised, mean_estimate
from evalflows.stats.paired import PairedDifference, PairedDifferences, paired_difference, paired_differences
from evalflows.stats.proportions import clopper_pearson_interval
from evalflows.store.queries.shared_examples import SharedRounds, shared_among, with_same
from evalflows.store.queries.values import Mask, MetricValues, Values, distinct
from evalflows.store.records import ExperimentRow, Reason
from evalflows.store.snapshots import Examples

UNBOUNDED = (-np.inf, np.inf)

MIN_TWO_VALUED = 20
"""Values from which two different numbers without a range count as no and yes, such as 0 and 100."""

Clusters = Sequence[str | None] | None
MIN_SAMPLED = 20
"""Examples needed from each sampled part of a dataset. With fewer, its variance is too uncertain: in simulations (50
examples all judged, 450 sampled), 95 % intervals cover 47 % with 1 drawn, 83 % with 5, 91 % with 9, 94 % with 20."""

Extreme = Literal["smallest", "largest"]

EXTREMES: tuple[Extreme, Extreme] = ("smallest", "largest")

Places = npt.NDArray[np.intp]

_OF_ESTIMATE = (
    *("candidate_mean", "baseline_mean", "difference", "standard_error", "confidence_level", "method"),
    *("n_pairs", "n_clusters"),
)


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
        """Return the numbers that stand for no and yes, if the values are only these two and, as far as known, its
        extremes.

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
        different, varies = distinct(known).tolist(), any(distinct(side).size > 1 for side in known_sides)
        return (different[0], different[1]) if len(different) == 2 and varies else None

    @property
    def higher_is_better(self) -> bool:
        return bool(self.declared.higher_is_better)


def scale_of(values: MetricValues, spec: ExperimentSpec, other: MetricValues | None = None) -> Scale:
    """Return the scale of a metric, from its spec and the kind of its values, and of those of the `other` side.

    Values that are 0 or 1 in all runs are tested as no and yes, so their range is that of yes/no values.
    """
    declared, is_observed = spec.direction(values.metric), False
    if values.metric in MEASURES:
        support = (0.0, np.inf)  # a measure can exceed its declared range
    elif declared.range is not None:
        support = declared.range
    else:
        composite = values.metric in {composite.name for composite in spec.composites if composite.weights}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One metric of one experiment."""

    values: MetricValues
    clusters: Clusters
    scale: Scale

    def mean(self, confidence_level: float, *, exact: bool = False) -> MeanEstimate:
        """Return the mean over the scored examples; `exact` as in `mean_estimate`."""
        return self._estimate(self.values.values, ~np.isnan(self.values.values), confidence_level, exact=exact)

    def worst_case_mean(self, value: float, confidence_level: float, *, exact: bool = False) -> MeanEstimate:
        """Return the mean with all missing values replaced by `value`."""
        values = filled(self.values.values, self.values.missing_part, value)
        return self._estimate(values, ~np.isnan(values), confidence_level, exact=exact)

    def interval_of_size(self, n: int, confidence_level: float) -> tuple[float, float] | None:
        """Return the exact interval that n examples with this share of yes would give; None for other metrics, in
        clusters, and of an uneven sample."""
        values = self.values.values[~np.isnan(self.values.values)]
        ends = self.scale.yes_no_ends(values) if self.values.is_binary and self.clusters is None else None
        if ends is None or _is_weighted(self.values.counted, ~np.isnan(self.values.values)):
            return None
        shares = clopper_pearson_interval(float(np.mean(values == ends[1])) * n, n, confidence_level=confidence_level)
        low, high = (ends[0] + (ends[1] - ends[0]) * share for share in shares)
        return low, high

    def _estimate(self, values: Values, known: Mask, confidence_level: float, *, exact: bool) -> MeanEstimate:
        weights = self.values.counted
        is_weighted, why_too_few = _is_weighted(weights, known), too_few_drawn(self.values.weights, known)
        ends = self.scale.yes_no_ends(values[known]) if self.values.is_binary and not is_weighted else None
        numbers, clusters = linearised(values[known], weights[known]), _chosen_clusters(self.clusters, known)
        settings: dict[str, Any] = {"confidence_level": confidence_level, "exact": exact}
        if ends is None:
            bounds = _weighted_support(self.scale.support, self.values.weights[known], weights[known], numbers)
            within = numbers if bounds is None else np.clip(numbers, *bounds)  # the range may have changed
            rare = self.scale.declared.rare_losses
            estimate = mean_estimate(within, clusters, bounds=bounds, rare_values=rare, **settings)
        else:
            estimate = mean_estimate(numbers == ends[1], clusters, binary=True, **settings).rescaled(*ends)
        low, high = (
            None if why_too_few else _clipped(end, *self.scale.support) for end in (estimate.low, estimate.high)
        )
        method = _method(estimate.method, _is_weighted(self.values.weights, known), self.values.quarantine, known)
        estimate = replace(estimate, low=low, high=high, method=method)
        return replace(estimate, reason=why_too_few, reason_code="too_few") if why_too_few else estimate


class PairedRows(NamedTuple):
    """The values of a metric's pairs in R replicates, and the shares of them that are missing; arrays of shape (R, n).

    Which examples have values on both sides, or a missing value, is the same in all replicates.
    """

    candidate: Values
    baseline: Values
    candidate_missing: Values
    baseline_missing: Values


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
    why_apart: str = ""  # how many for which reason, in words

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

    def difference_test(self, exclusion: Reason | None = None, margin: float | None = None) -> DifferenceTest:
        """Test the difference at the confidence level, by default with the declared margin.

        A margin as wide as the metric's range is ignored: no difference could exceed it.
        """
        margin = self.scale.declared.margin if margin is None else margin
        estimate = self.difference(self.confidence_level)
        lowest, highest = self.worst_case_differences(estimate)
        return DifferenceTest(
            estimate=estimate,
            lowest=lowest,
            highest=highest,
            n_missing=self.n_missing,
            higher_is_better=self.scale.higher_is_better,
            margin=None if margin is None or margin >= self.scale.widest else margin,
            exclusion=exclusion,
        )

    @property
    def n_missing(self) -> int:
        """Examples with a missing value on either side."""
        return int((self.candidate.missing | self.baseline.missing).sum())

    def difference(self, confidence_level: float) -> PairedDifference:
        """Return the difference over the examples scored on both sides."""
        difference = self._at(self.differences_of(self.rows), confidence_level)
        said = [difference.warning] if difference.warning else []
        if self.n_missing and self.scale.is_observed:
            noun = "pair has" if self.n_missing == 1 else "pairs have"
            said.append(f"{self.n_missing} {noun} a missing value: it counts as 0 or 1, like all other values")
        n_pairs = self.n_left_out + self.n_apart + difference.n_pairs
        if self.n_left_out:
            said.append(f"{self.n_left_out} of {n_pairs} pairs left out for a missing value (missing: leave_out)")
        if self.n_apart:
            left_out = f"{self.n_apart} of {n_pairs} pairs left out because they were not made side by side"
            said.append(f"{left_out}: {self.why_apart}")
        return replace(difference, warning="; ".join(said) or None)

    def side_by_side(self, rounds: SharedRounds) -> "PairedMetric":
        """Return the pairs that were made in the same rounds, without the first one, which pays for cold caches."""
        both = ~np.isnan(self.candidate.values) & ~np.isnan(self.baseline.values)
        left_out = ~rounds.together | rounds.warm_up
        return replace(
            self,
            candidate=self.candidate.without(left_out),
            baseline=self.baseline.without(left_out),
            n_apart=int((apart := both & ~rounds.together).sum()),
            why_apart=_why_apart(apart, rounds),
        )

    def worst_case_difference(self, extreme: Extreme, confidence_level: float) -> PairedDifference | None:
        """Return the difference with missing values making it the "smallest" or "largest" possible; None for an
        unbounded metric, or without examples."""
        worst = self.worst_cases_of(self.rows, extreme)
        return None if worst is None else self._at(worst, confidence_level)

    def worst_case_differences(self, known: PairedDifference) -> list[PairedDifference | None]:
        """Return both: if nothing is missing, they are the difference that is known."""
        if not self.n_missing:
            return [known if self.scale.is_bounded and known.n_pairs else None] * 2
        return [self.worst_case_difference(extreme, known.confidence_level) for extreme in EXTREMES]

    @property
    def rows(self) -> PairedRows:
        """The values as a single replicate."""
        ours, theirs = self.candidate, self.baseline
        return PairedRows(ours.values[None], theirs.values[None], ours.missing_part[None], theirs.missing_part[None])

    def differences_of(self, rows: PairedRows) -> PairedDifferences:
        """Return the differences of replicates of the pairs, over the examples scored on both sides."""
        both = ~np.isnan(self.candidate.values) & ~np.isnan(self.baseline.values)
        return self._differences(rows.candidate, rows.baseline, both)

    def worst_cases_of(self, rows: PairedRows, extreme: Extreme) -> PairedDifferences | None:
        """Return the pairs with missing values at an extreme, as in `worst_case_difference`."""
        counted = ~(np.isnan(self.candidate.values) & ~self.candidate.missing)
        counted &= ~(np.isnan(self.baseline.values) & ~self.baseline.missing)
        if not self.scale.is_bounded or not counted.any():
            return None
        low, high = self.scale.bounds
        of_candidate, of_baseline = (low, high) if extreme == "smallest" else (high, low)
        candidate = filled(rows.candidate, rows.candidate_missing, of_candidate)
        baseline = filled(rows.baseline, rows.baseline_missing, of_baseline)
        return self._differences(candidate, baseline, counted)

    def _differences(self, candidate: Values, baseline: Values, chosen: Mask) -> PairedDifferences:
        weights, sampling = self._weights, self._sampling
        is_weighted, support = _is_weighted(weights, chosen), self.scale.support
        clipped = (np.clip(side[:, chosen], *support) for side in (candidate, baseline))  # the range may have changed
        ours, theirs = (linearised(side, weights[chosen]) for side in clipped)
        ends, clusters = None if is_weighted else self.yes_no_ends, _chosen_clusters(self.clusters, chosen)
        if ends is not None and np.isin([ours, theirs], ends).all():
            ours, theirs = ((side == ends[1]).astype(np.float64) for side in (ours, theirs))
            differences = replace(paired_differences(ours, theirs, clusters, binary=True), ends=ends)
        else:
            bounds = _weighted_support(support, sampling[chosen], weights[chosen], ours, theirs)
            ours, theirs = (side if bounds is None else np.clip(side, *bounds) for side in (ours, theirs))  # rounding
            rare = self.scale.declared.rare_losses
            differences = paired_differences(ours, theirs, clusters, bounds=bounds, rare_values=rare)
        few = too_few_drawn(sampling, chosen) or differences.too_few
        return replace(differences, limit=self.scale.widest, too_few=few)

    def _at(self, differences: PairedDifferences, confidence_level: float) -> PairedDifference:
        difference = differences.at(confidence_level)
        both = ~np.isnan(self.candidate.values) & ~np.isnan(self.baseline.values)
        is_sampled = _is_weighted(self._sampling, both)
        return replace(difference, method=_method(difference.method, is_sampled, self.candidate.quarantine, both))

    @property
    def _sampling(self) -> Values:
        return np.maximum(self.candidate.weights, self.baseline.weights)  # the smaller sample is within the larger

    @property
    def _weights(self) -> Values:
        quarantine = self.candidate.quarantine
        return self._sampling if quarantine is None else self._sampling * quarantine


def _why_apart(apart: Mask, rounds: SharedRounds) -> str:
    """Return why pairs are apart, with the number of each reason."""
    ledger = int((apart & rounds.from_ledger).sum())
    others = int(apart.sum()) - ledger
    counted = ((ledger, "with an answer from the ledger"), (others, "of a run that was resumed or retried"))
    return ", ".join(f"{count} {why}" for count, why in counted if count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedPart:
    """A part of a composite on both sides, its examples matched as those of the composite."""

    candidate: MetricValues
    baseline: MetricValues
    weight: float | None  # its share of the composite's value; None: it can decide that alone


def paired_metric(
    candidate: MetricValues,
    baseline: MetricValues,
    clusters: Clusters,
    spec: ExperimentSpec,
    parts: Sequence[PairedPart] = (),
) -> PairedMetric:
    """Pair a metric of two experiments whose examples match by position. The only constructor of `PairedMetric`.

    `parts` are those of a composite.
    """
    candidate, baseline = with_one_sided_missing(candidate, baseline, parts)
    scale, left_out = scale_of(candidate, spec, baseline), candidate.missing | baseline.missing
    if scale.leaves_out_missing:
        candidate, baseline = (side.without(left_out) for side in (candidate, baseline))
    return PairedMetric(
        candidate=candidate,
        baseline=baseline,
        clusters=clusters,
        scale=scale,
        confidence_level=spec.confidence_level,
        n_left_out=int(left_out.sum()) if scale.leaves_out_missing else 0,
    )


def filled(values: Values, missing: Values, extreme: float) -> Values:
    """Return the values with a share of each, `missing`, at an extreme, which may be infinite if none is missing."""
    found, where = values.copy(), missing > 0
    share = missing[where]
    found[where] = np.where(share < 1, values[where], 0.0) * (1 - share) + share * extreme
    return found


def with_one_sided_missing(
    candidate: MetricValues, baseline: MetricValues, parts: Sequence[PairedPart] = ()
) -> tuple[MetricValues, MetricValues]:
    """Count runs as missing if the metric, or a part of the composite, applies only to the other side's answers.

    Otherwise, a candidate that abstains on hard examples would be measured on the easy ones. With several repetitions,
    the runs are counted by which it applies to fewer answers than on the other side; of a composite, the weight of the
    parts that apply to the other side's answer alone.
    """
    of_parts = [(part.candidate.inapplicable_part, part.baseline.inapplicable_part, part.weight) for part in parts]
    its_parts = [(its, mine, weight) for mine, its, weight in of_parts]
    return (
        with_missing(candidate, baseline.inapplicable_part, of_parts),
        with_missing(baseline, candidate.inapplicable_part, its_parts),
    )


def with_missing(
    values: MetricValues, other: Values, parts: Sequence[tuple[Values, Values, float | None]] = ()
) -> MetricValues:
    """Count as missing what applies to other answers alone, by the share of runs that it does not apply to there.

    `parts` are those of a composite: the shares of runs that each does not apply to here and there, and its weight.
    """
    lost = _lost(values.inapplicable_part, other)
    if values.missing_share is None:
        lost = np.sign(lost)
    weight_lost, weight_of_neither = np.zeros_like(lost), np.zeros_like(lost)
    for mine, its, weight in parts:
        if weight is None:
            lost = np.maximum(lost, np.sign(_lost(mine, its)))
        else:
            weight_lost += weight * _lost(mine, its)
            weight_of_neither += weight * np.nan_to_num(np.minimum(mine, its))
    lost = np.maximum(lost, weight_lost / np.where(weight_of_neither < 1, 1 - weight_of_neither, 1.0))
    if not lost.any():
        return values
    where = ~values.missing & (lost > 0)
    return replace(
        values,
        missing=values.missing | where,
        missing_share=1 - (1 - values.missing_part) * (1 - lost),
        n_missing=values.n_missing + int(where.sum()),
    )


def _lost(own: Values, other: Values) -> Values:
    """Return the share of the runs that a metric should apply to, as on the other side, to which it does not."""
    both = np.minimum(own, other)
    return np.where(own > both, (own - both) / np.where(both < 1, 1 - both, 1.0), 0.0)


def difference_columns(test: DifferenceTest) -> dict[str, Any]:
    """Return the columns of a verdict's row that hold figures."""
    estimate, lowest, highest = test.estimate, test.lowest, test.highest
    return estimate_columns(estimate) | {
        "p_value": estimate.p_value,
        "warning": estimate.warning,
        "worst_case_low": lowest.difference if lowest else None,
        "worst_case_high": highest.difference if highest else None,
        "worst_case_ci_low": lowest.low if lowest else None,
        "worst_case_ci_high": highest.high if highest else None,
        "margin": test.margin,
        "higher_is_better": test.higher_is_better,
    }


def estimate_columns(estimate: PairedDifference) -> dict[str, Any]:
    """Return the columns of a verdict's row that hold a difference and its interval."""
    return {name: getattr(estimate, name) for name in _OF_ESTIMATE} | {"ci_low": estimate.low, "ci_high": estimate.high}


def counts_of(candidate: MetricValues, baseline: MetricValues) -> dict[str, Any]:
    """Return the columns of a verdict's row with the numbers of scored and missing runs on each side."""
    return {
        "candidate_scored": candidate.scored,
        "candidate_missing": candidate.n_missing,
        "baseline_scored": baseline.scored,
        "baseline_missing": baseline.n_missing,
    }


def drop_ambiguous(values: Sequence[MetricValues]) -> Mapping[str, MetricValues]:
    """Return the values by metric, without metrics that several evaluators give."""
    names = [metric.metric for metric in values]
    return {metric.metric: metric for metric in values if names.count(metric.metric) == 1}


def _is_weighted(weights: Values, chosen: Mask) -> bool:
    """Return whether the examples were drawn with different probabilities."""
    return bool(chosen.any() and np.ptp(weights[chosen]))


def too_few_drawn(weights: Values, chosen: Mask) -> str | None:
    """Return why an unevenly drawn sample is too small for an interval; None if it is large enough."""
    if not _is_weighted(weights, chosen):
        return None
    kinds, counts = np.unique(weights[chosen], return_counts=True)
    few = [(count, weight) for count, weight in zip(counts, kinds, strict=True) if weight > 1 and count < MIN_SAMPLED]
    if not few:
        return None
    count, weight = few[0]
    return f"{count} sampled examples represent {count * weight:.0f}, wanted at least {MIN_SAMPLED}"


def _method(method: str, is_sampled: bool, quarantine: Values | None, chosen: Mask) -> str:
    by = ["inverse sampling probability"] if is_sampled else []
    by += ["noise in quarantine"] if quarantine is not None and _is_weighted(quarantine, chosen) else []
    return f"{method}, weighted by {' and '.join(by)}" if by else method


def _weighted_support(
    support: tuple[float, float], sampling: Values, weights: Values, *sides: Values
) -> tuple[float, float] | None:
    """Return the possible values of `sides` that were linearised with weights; None if the range, or what the weight of
    a value that was not drawn would be, is unknown, as in an uneven sample.

    A value in quarantine weighs at most as much as the others, so none is farther from the mean than the ends of the
    range, times n over the sum of the weights.
    """
    if not np.isfinite(support).all() or (sampling.size and np.ptp(sampling)):
        return None
    if not weights.size or not np.ptp(weights):
        return support
    factor = weights.size * float(weights.max()) / float(weights.sum())
    means = np.concatenate([side.mean(axis=-1, keepdims=True).ravel() for side in sides])
    low, high = (factor * end + (1 - factor) * means for end in support)
    return float(low.min()), float(high.max())


def _chosen_clusters(clusters: Clusters, chosen: Mask) -> list[str | None] | None:
    return None if clusters is None else [cluster for cluster, known in zip(clusters, chosen, strict=True) if known]


def _clipped(value: float | None, low: float, high: float) -> float | None:
    return None if value is None else float(min(max(value, low), high))


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
            example_ids=[self.example_ids[index] for index in places],
            candidate=self.candidate[places],
            baseline=self.baseline[places],
            is_whole=False,
        )

    def of_candidate(self, metric: MetricValues) -> MetricValues:
        return metric if self.is_whole else at_places(metric, self.candidate)

    def of_baseline(self, metric: MetricValues) -> MetricValues:
        return metric if self.is_whole else at_places(metric, self.baseline)

    def of_clusters(self, clusters: Clusters) -> Clusters:
        return None if clusters is None else [clusters[index] for index in self.candidate]


def matched(
    candidate: ExperimentRow,
    baseline: ExperimentRow,
    ids: Callable[[str], Sequence[str]],
    examples: Callable[[str], Examples],
) -> MatchedExamples:
    """Match examples by id; shared examples must have the same inputs and references.

    `ids` and `examples` return those of a snapshot by its id, in its order.
    """
    ours = ids(candidate.snapshot_id)
    if candidate.snapshot_id == baseline.snapshot_id:
        places = np.arange(len(ours), dtype=np.intp)
        return MatchedExamples(example_ids=ours, candidate=places, baseline=places, is_whole=True)
    theirs = examples(baseline.snapshot_id)
    shared = shared_among([examples(candidate.snapshot_id), theirs])
    shared = with_same(shared, theirs, "reference_outputs")  # scores against different references are not comparable
    names = shared.examples.ids
    return MatchedExamples(
        example_ids=names,
        candidate=_places(ours, names),
        baseline=_places(ids(baseline.snapshot_id), names),
        absent=shared.absent,
        changed=shared.changed,
    )


def at_places(metric: MetricValues, places: Places) -> MetricValues:
    """Return a metric on some of the examples; `scored` and `n_missing` then count examples."""
    values, missing = metric.values[places], metric.missing[places]
    return replace(
        metric,
        values=values,
        missing=missing,
        missing_share=None if metric.missing_share is None else metric.missing_share[places],
        inapplicable=None if metric.inapplicable is None else metric.inapplicable[places],
        weights=metric.weights[places],
        quarantine=None if metric.quarantine is None else metric.quarantine[places],
        scored=int((~np.isnan(values)).sum()),
        n_missing=int(missing.sum()),
    )


def joined(first: MetricValues, then: MetricValues) -> MetricValues:
    """Return a metric on the examples of one side, with the values of others after them."""
    has_shares = first.missing_share is not None or then.missing_share is not None
    has_quarantine = first.quarantine is not None or then.quarantine is not None
    sides = (first, then)
    return replace(
        first,
        values=np.concatenate([side.values for side in sides]),
        missing=np.concatenate([side.missing for side in sides]),
        missing_share=np.concatenate([side.missing_part for side in sides]) if has_shares else None,
        inapplicable=np.concatenate([side.inapplicable_part for side in sides]),
        weights=np.concatenate([side.weights for side in sides]),
        quarantine=np.concatenate([side.weight_in_quarantine for side in sides]) if has_quarantine else None,
        scored=first.scored + then.scored,
        n_missing=first.n_missing + then.n_missing,
    )


def unanswered(answered: MetricValues) -> MetricValues:
    """Return a metric of the other side if it has no answer to any of these examples: missing wherever it applies."""
    where = ~np.isnan(answered.values) | answered.missing
    return replace(
        answered,
        values=np.full(where.size, np.nan),
        missing=where,
        missing_share=None if answered.missing_share is None else where.astype(np.float64),
        inapplicable=answered.inapplicable_part,
        scored=0,
        n_missing=int(where.sum()),
    )


def sample_at(sample: MetricSample, places: Places) -> MetricSample:
    """Return a metric with its clusters on some of the examples."""
    clusters = None if sample.clusters is None else [sample.clusters[index] for index in places]
    return replace(sample, values=at_places(sample.values, places), clusters=clusters)


def _places(among: Sequence[str], names: Sequence[str]) -> Places:
    index_of = {name: number for number, name in enumerate(among)}
    return np.array([index_of[name] for name in names], dtype=np.intp)
