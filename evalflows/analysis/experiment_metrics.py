"""Metrics of a whole experiment: their intervals and paired differences, by what they are on resamples of the examples.

Such a metric (macro F1, a corpus BLEU) has no value per example. Resamples are drawn alike for all experiments on the
same examples, so that a difference is paired.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from evalflows.analysis.rule_estimates import interval
from evalflows.analysis.rules import Estimate, Facts, Interval
from evalflows.analysis.verdicts import DifferenceTest
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metrics import MetricSpec
from evalflows.stats.paired import PairedDifference
from evalflows.stats.power import smallest_detectable
from evalflows.stats.resampling import N_RESAMPLES, FigureEstimate, Resampled, figure_difference, figure_interval
from evalflows.store.records import EstimateRow, ExperimentRow, MissingAs, Reason, ResampleRow, derived_id
from evalflows.store.store import Store

OTHER_EXAMPLES = Reason(
    "not_comparable",
    "the two experiments have other examples, and a metric of a whole experiment is compared only on the same ones",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentMetric:
    """One metric of one whole experiment, on its examples and on resamples of them."""

    metric: str
    evaluator: str
    evaluator_version: str
    declared: MetricSpec
    cases: Mapping[
        MissingAs, Resampled
    ]  # without `lowest` and `highest`: missing answers could change it by any amount
    n_runs: int  # with an answer
    n_missing: int

    @property
    def bounds(self) -> Interval:
        return self.declared.range or (-np.inf, np.inf)

    @property
    def why_incomplete(self) -> Reason | None:
        """Why it decides nothing: answers are missing, and nobody knows what they could change; None if it decides."""
        if not self.n_missing or self.cases.keys() >= {"lowest", "highest"}:
            return None
        text = (
            f"computed from {self.n_runs} of {self.n_runs + self.n_missing} answers: the missing ones could change it"
        )
        return Reason("incomplete", text)

    @property
    def n(self) -> int:
        return self.cases["known"].n

    @property
    def method(self) -> str:
        """How the interval was made, for a reader: with the number of resamples, if time was up before all."""
        count = self.cases["known"].resamples.size
        return " (by resamples)" if count >= N_RESAMPLES else f" (by {count} resamples)"

    @property
    def noun(self) -> str:
        return "clusters" if self.cases["known"].is_clustered else "examples"

    def case(self, case: MissingAs) -> Resampled:
        """Return what it is with missing answers at an extreme; only of one that decides."""
        return self.cases[case if self.n_missing else "known"]

    def estimate(self, confidence_level: float, case: MissingAs = "known") -> FigureEstimate:
        """Return the value with its interval."""
        return figure_interval(self.case(case), bounds=self.bounds, confidence_level=confidence_level)

    def estimate_row(self, experiment_id: str, confidence_level: float) -> EstimateRow:
        known, estimate = self.cases["known"], self.estimate(confidence_level)
        return EstimateRow(
            estimate_id=derived_id(experiment_id, self.metric, self.evaluator_version, None),
            experiment_id=experiment_id,
            metric=self.metric,
            evaluator_version=self.evaluator_version,
            mean=estimate.value,
            standard_error=estimate.standard_error,
            ci_low=estimate.low,
            ci_high=estimate.high,
            confidence_level=confidence_level,
            method=f"{estimate.method}{self.method}",
            n_examples=estimate.n,
            n_clusters=known.n if known.is_clustered else None,
            reason=estimate.reason,
            reason_code=estimate.reason_code,
        )


def experiment_metrics(store: Store, row: ExperimentRow, spec: ExperimentSpec) -> Mapping[str, ExperimentMetric]:
    """Return the metrics of a whole experiment that have resamples, without those that several evaluators give."""
    rows: list[ResampleRow] = store.read("resamples", row.experiment_id)
    found = {}
    for metric, of_metric in grouped((each.metric, each) for each in rows).items():
        first = of_metric[0]
        if all(each.evaluator_version == first.evaluator_version for each in of_metric):
            found[metric] = ExperimentMetric(
                metric=metric,
                evaluator=first.evaluator,
                evaluator_version=first.evaluator_version,
                declared=spec.direction(metric),
                cases={each.missing_as: _resampled(each) for each in of_metric},
                n_runs=first.n_runs,
                n_missing=first.n_missing,
            )
    return found


def _resampled(row: ResampleRow) -> Resampled:
    value, resamples, left_out = (
        np.array([np.nan if each is None else each for each in values], dtype=np.float64)
        for values in ([row.value], row.resamples, row.left_out)
    )
    return Resampled(
        value=float(value[0]), resamples=resamples, left_out=left_out, n=row.n_units, is_clustered=row.is_clustered
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedExperimentMetric:
    """The same metric of two whole experiments, which have a difference only on the same examples."""

    candidate: ExperimentMetric
    baseline: ExperimentMetric
    confidence_level: float
    are_on_same_examples: bool
    n_pairs: int  # examples that both have answered; in the `known` difference, an answer without its pair counts, too

    @property
    def why_not_compared(self) -> Reason | None:
        """Why the difference decides nothing: the examples are others, or answers are missing."""
        incomplete = self.candidate.why_incomplete or self.baseline.why_incomplete
        return incomplete if self.are_on_same_examples else OTHER_EXAMPLES

    @property
    def n_missing(self) -> int:
        return self.candidate.n_missing + self.baseline.n_missing

    def difference(self, confidence_level: float, case: MissingAs = "known") -> PairedDifference:
        """Return candidate minus baseline; with missing answers at an extreme, the candidate's at this one and the
        baseline's at the other."""
        opposite: Mapping[MissingAs, MissingAs] = {"known": "known", "lowest": "highest", "highest": "lowest"}
        ours, theirs = self.candidate.case(case), self.baseline.case(opposite[case])
        if not self.are_on_same_examples:
            return PairedDifference(
                candidate_mean=self.candidate.estimate(confidence_level).value,
                baseline_mean=self.baseline.estimate(confidence_level).value,
                difference=None,
                low=None,
                high=None,
                p_value=None,
                confidence_level=confidence_level,
                method="none",
                n_pairs=0,
                n_clusters=None,
                reason=OTHER_EXAMPLES.text,
            )
        found = figure_difference(ours, theirs, bounds=self.candidate.bounds, confidence_level=confidence_level)
        if not self.n_missing:
            return found
        warnings = [self._warning_on_missing, *([found.warning] if found.warning else [])]
        return replace(found, n_pairs=self.n_pairs, warning="; ".join(warnings))

    @property
    def _warning_on_missing(self) -> str:
        sides = f"{self.candidate.n_runs} answers are compared with {self.baseline.n_runs} of the baseline"
        return f"{sides}: an answer that is missing on one side still counts on the other"

    def difference_test(self, exclusion: Reason | None, margin: float | None = None) -> DifferenceTest:
        """Test the difference, by default with the declared margin."""
        declared, level = self.candidate.declared, self.confidence_level
        low, high = self.candidate.bounds
        margin = declared.margin if margin is None else margin
        is_bounded = not (self.candidate.why_incomplete or self.baseline.why_incomplete)
        return DifferenceTest(
            estimate=self.difference(level),
            lowest=self.difference(level, "lowest") if is_bounded else None,
            highest=self.difference(level, "highest") if is_bounded else None,
            n_missing=self.n_missing,
            higher_is_better=bool(declared.higher_is_better),
            margin=None if margin is None or margin >= high - low else margin,
            exclusion=exclusion,
        )

    @property
    def counts(self) -> dict[str, int]:
        """The columns of a verdict's row with the numbers of scored and missing runs on each side."""
        return {
            "candidate_scored": self.candidate.n_runs,
            "candidate_missing": self.candidate.n_missing,
            "baseline_scored": self.baseline.n_runs,
            "baseline_missing": self.baseline.n_missing,
        }

    def detectable_effect(self, power: float) -> float | None:
        """Return the smallest difference that as many examples detect with this power; None if it is not known."""
        difference = self.difference(self.confidence_level)
        n, error = self.candidate.n, difference.standard_error
        if n < 2 or not error:
            return None
        effect = smallest_detectable(n, n * error**2, yes_no=False, confidence_level=self.confidence_level, power=power)
        low, high = self.candidate.bounds
        return effect if effect <= high - low else None


@dataclass(frozen=True)
class ExperimentMetricEstimate(Estimate):
    """The candidate's own value."""

    metric: ExperimentMetric
    confidence_level: float

    @cached_property
    def facts(self) -> Facts:
        metric, level = self.metric, self.confidence_level
        known, lowest, highest = (metric.estimate(level, case) for case in CASES)
        return Facts(
            value=known.value,
            worst_case_values=interval(lowest.value, highest.value),
            n=metric.n,
            noun=metric.noun,
            n_missing=metric.n_missing,
            higher_is_better=bool(metric.declared.higher_is_better),
            reason=known.reason,
            reason_code=known.reason_code,
            method=metric.method,
        )

    def interval_at(self, confidence_level: float) -> Interval | None:
        estimate = self.metric.estimate(confidence_level)
        return interval(estimate.low, estimate.high)

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        low, high = (self.metric.estimate(confidence_level, case) for case in CASES[1:])
        return interval(low.low, high.high)


@dataclass(frozen=True)
class ExperimentMetricDifference(Estimate):
    """How much the candidate's value differs from that of the baseline."""

    paired: PairedExperimentMetric

    @cached_property
    def facts(self) -> Facts:
        paired, metric = self.paired, self.paired.candidate
        known, lowest, highest = (paired.difference(paired.confidence_level, case) for case in CASES)
        return Facts(
            value=known.difference,
            worst_case_values=interval(lowest.difference, highest.difference),
            n=metric.n if metric.noun == "clusters" else known.n_pairs,
            noun="clusters" if metric.noun == "clusters" else "pairs",
            n_missing=paired.n_missing,
            higher_is_better=bool(metric.declared.higher_is_better),
            p_value=known.p_value,
            caution=known.warning,
            reason=known.reason,
            reason_code=known.reason_code,
            method=metric.method,
        )

    def interval_at(self, confidence_level: float) -> Interval | None:
        difference = self.paired.difference(confidence_level)
        return interval(difference.low, difference.high)

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        low, high = (self.paired.difference(confidence_level, case) for case in CASES[1:])
        return interval(low.low, high.high)


CASES: tuple[MissingAs, MissingAs, MissingAs] = ("known", "lowest", "highest")
