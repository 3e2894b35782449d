"""Win rates of pairwise comparisons, with intervals and verdicts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from evalflows.analysis.differences.metric_pairs import difference_columns
from evalflows.analysis.differences.verdicts import DifferenceTest, Verdict, classify
from evalflows.analysis.pairwise.judge_biases import as_check, biases_of, exclusion, shown_in_one_order
from evalflows.analysis.pairwise.length_controlled import (
    LENGTH_CONTROLLED,
    as_difference,
    length_controlled_verdict,
    rates_at_equal_length,
)
from evalflows.analysis.pairwise.preferences import Preferences
from evalflows.analysis.pairwise.ratings import intransitive_cycles, ratings_of
from evalflows.execution.pair_chunks import baseline_of, pairs_of
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.gate import Adjustment
from evalflows.stats import LengthControlled, PairedDifference, paired_difference
from evalflows.store.reasons import Reason
from evalflows.store.records import CheckRow, RatingRow, VerdictRow, derived_id, to_json

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRateEstimates:
    """The checks, verdicts and ratings of one metric."""

    checks: Sequence[CheckRow]
    verdicts: Sequence[VerdictRow]
    ratings: Sequence[RatingRow]


def estimate_win_rates(
    comparison_id: str,
    preferences: Preferences,
    spec: ComparisonSpec,
    slices: Sequence[tuple[str, frozenset[str]]],
    names: Sequence[str],
) -> WinRateEstimates:
    """Estimate the win rates and ratings of one metric, overall and by slice, and check its judge for biases.

    `slices` are pairs of a name and example ids; `names` are the experiments' names.
    """
    biases = biases_of(preferences, spec.confidence_level)
    excluded = exclusion(biases)
    by_slice = [(name, preferences.of_examples(examples)) for name, examples in slices]
    at_equal_length = rates_at_equal_length(preferences, _matchups(spec), spec.confidence_level)
    pending = [
        verdict
        for (candidate, baseline), rate in at_equal_length.items()
        for verdict in _Matchup(
            comparison_id, preferences.metric, candidate, baseline, spec.confidence_level, excluded
        ).verdicts(preferences, rate, by_slice)
    ]
    ratings = [
        rating
        for name, of_slice in [(None, preferences), *by_slice]
        for rating in _ratings(comparison_id, of_slice, spec, name, excluded)
    ]
    biases += [intransitive_cycles(preferences, spec, names)] if len(names) > 2 else []
    checks = [as_check(comparison_id, preferences.metric, bias) for bias in biases]
    return WinRateEstimates(checks=checks, verdicts=list(_classified(pending, spec.adjustment)), ratings=ratings)


def _ratings(
    comparison_id: str, preferences: Preferences, spec: ComparisonSpec, name: str | None, excluded: Reason | None
) -> Iterator[RatingRow]:
    """Yield the ratings by one metric, with the reason if its judge is excluded."""
    for rating in ratings_of(comparison_id, preferences, spec, name):
        if excluded and rating.reason is None:
            yield replace(rating, reason=excluded.text, reason_code=excluded.code)
        else:
            yield rating


def _classified(pending: Sequence["_Pending"], adjustment: Adjustment) -> Iterator[VerdictRow]:
    """Classify all win rates of a metric, adjusted together, and those of its slices, adjusted together."""
    overall, of_slices = (
        iter(classify(_tests(pending, is_of_slice=is_of_slice), adjustment)) for is_of_slice in (False, True)
    )
    for verdict in pending:
        if verdict.test is None:
            yield verdict.row
            continue
        classified = next(of_slices if verdict.is_of_slice else overall)
        yield replace(
            verdict.row,
            conclusion=classified.conclusion,
            reason=classified.reason,
            reason_code=classified.reason_code,
            p_adjusted=classified.p_adjusted,
            adjustment=classified.adjustment,
        )


def _tests(pending: Sequence["_Pending"], *, is_of_slice: bool) -> list[DifferenceTest]:
    return [verdict.test for verdict in pending if verdict.test and verdict.is_of_slice == is_of_slice]


def _test_of(
    points: FloatArray, cluster_ids: Sequence[str], confidence_level: float, exclusion: Reason | None
) -> DifferenceTest:
    """Test the candidate's points per example, 0 to 1, NaN if missing."""

    def difference(numbers: FloatArray) -> PairedDifference:
        known = ~np.isnan(numbers)
        clusters = [cluster for cluster, is_known in zip(cluster_ids, known, strict=True) if is_known]
        binary = bool(np.isin(numbers[known], (0.0, 1.0)).all())
        return paired_difference(
            numbers[known],
            1 - numbers[known],
            clusters,
            confidence_level=confidence_level,
            binary=binary,
            bounds=(0.0, 1.0),
        )

    n_missing = np.isnan(points)
    return DifferenceTest(
        estimate=difference(points),
        lowest=difference(np.where(n_missing, 0.0, points)) if points.size else None,
        highest=difference(np.where(n_missing, 1.0, points)) if points.size else None,
        n_missing=int(n_missing.sum()),
        exclusion=exclusion,
    )


def _test_columns(test: DifferenceTest) -> dict[str, Any]:
    """The columns of a verdict that come from its test alone."""
    names = ("p_value", "worst_case_low", "worst_case_high", "worst_case_ci_low", "worst_case_ci_high", "warning")
    columns = difference_columns(test)
    return {name: columns[name] for name in names}


def _matchups(spec: ComparisonSpec) -> list[tuple[str, str]]:
    """The candidate and baseline of each pair; the second is the candidate if neither is the spec's baseline."""
    base = baseline_of(spec)
    return [(named, other) if other == base else (other, named) for named, other in pairs_of(spec)]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A verdict's row and its test; None for a row that already has a conclusion."""

    row: VerdictRow
    test: DifferenceTest | None

    @property
    def is_of_slice(self) -> bool:
        return bool(self.row.slice)


@dataclass(frozen=True, slots=True)
class _Matchup:
    """One candidate against one baseline, by one metric."""

    comparison_id: str
    metric: str
    candidate: str
    baseline: str
    confidence_level: float
    exclusion: Reason | None

    def verdicts(
        self,
        preferences: Preferences,
        at_equal_length: LengthControlled,
        by_slice: Sequence[tuple[str, Preferences]],
    ) -> Iterator[_Pending]:
        """Yield the win rate, the length-controlled win rate, and the win rate of each slice."""
        outcomes = preferences.between(self.candidate, self.baseline)
        if one_order := shown_in_one_order(preferences, self.candidate, self.baseline):
            self = replace(self, exclusion=self.exclusion or one_order)
        yield self._win_rate(outcomes, None)
        yield _Pending(self._length_controlled(outcomes, at_equal_length), None)
        for name, of_slice in by_slice:
            yield self._win_rate(of_slice.between(self.candidate, self.baseline), name)

    def _win_rate(self, outcomes: pd.DataFrame, name: str | None) -> _Pending:
        counted = outcomes[outcomes.status.isin(["scored", "missing"])]
        by_example = counted.groupby(["cluster_id", "example_id"]).points.agg(lambda points: points.mean(skipna=False))
        points = np.asarray(by_example, dtype=np.float64)
        cluster_ids = list(by_example.index.get_level_values(0))
        test = _test_of(points, cluster_ids, self.confidence_level, self.exclusion)
        row = self._row(outcomes, test.estimate, Verdict(conclusion="not_enough_evidence"), name)
        return _Pending(replace(row, **_test_columns(test)), test)

    def _length_controlled(self, outcomes: pd.DataFrame, estimate: LengthControlled) -> VerdictRow:
        counted = int(outcomes.status.isin(["scored", "missing"]).sum())
        n_missing = counted - estimate.n
        verdict = length_controlled_verdict(estimate)
        if n_missing:  # a failed run has no length
            text = f"{n_missing} of {counted} pairs have no verdict or length, which could change the conclusion"
            verdict = Verdict.undecided(Reason("missing_could_flip", text))
        return self._row(outcomes, as_difference(estimate), verdict, None, length_controlled=True)

    def _row(
        self,
        outcomes: pd.DataFrame,
        difference: PairedDifference,
        verdict: Verdict,
        name: str | None,
        *,
        length_controlled: bool = False,
    ) -> VerdictRow:
        if self.exclusion is not None:
            verdict = Verdict.undecided(self.exclusion)
        kind = LENGTH_CONTROLLED if length_controlled else None
        return VerdictRow(
            verdict_id=derived_id(self.comparison_id, self.candidate, self.baseline, self.metric, name, kind),
            run_group=self.comparison_id,
            comparison_id=self.comparison_id,
            metric=self.metric,
            slice=name,
            candidate_experiment_id=self.candidate,
            baseline_experiment_id=self.baseline,
            length_controlled=length_controlled,
            conclusion=verdict.conclusion,
            reason=verdict.reason,
            reason_code=verdict.reason_code,
            **_estimate_columns(difference),
            **_count_columns(outcomes),
        )


def _estimate_columns(difference: PairedDifference) -> dict[str, Any]:
    return {
        "candidate_mean": difference.candidate_mean,
        "baseline_mean": difference.baseline_mean,
        "difference": difference.difference,
        "ci_low": None if difference.low is None else max(difference.low, -1.0),
        "ci_high": None if difference.high is None else min(difference.high, 1.0),
        "confidence_level": difference.confidence_level,
        "method": difference.method,
        "n_pairs": difference.n_pairs,
        "n_clusters": difference.n_clusters,
    }


def _count_columns(outcomes: pd.DataFrame) -> dict[str, Any]:
    """The numbers of pairs of runs: a pair counts as scored, or as missing, for both of its sides."""
    counts, scored = _counts(outcomes), int(outcomes.points.notna().sum())
    return {
        "candidate_scored": scored,
        "candidate_missing": counts["missing"],
        "baseline_scored": scored,
        "baseline_missing": counts["missing"],
        "settings": to_json(counts),
    }


def _counts(outcomes: pd.DataFrame) -> dict[str, Any]:
    """Numbers of pairs of runs; a flipped pair also counts as a tie."""
    return {
        "wins": int((outcomes.points == 1).sum()),
        "losses": int((outcomes.points == 0).sum()),
        "ties": int((outcomes.points == 0.5).sum()),
        "flipped": int((outcomes.outcome == "flipped").sum()),
        "missing": int((outcomes.status == "missing").sum()),
        "settled": int((~outcomes.asked & outcomes.points.notna()).sum()),
        "left_out": int(outcomes.status.isin(["left_out", "not_applicable"]).sum()),
    }
