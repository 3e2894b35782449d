"""Win rates of pairwise comparisons, with intervals and verdicts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from evalflows.analysis.differences.metric_pairs import difference_columns
from evalflows.analysis.differences.verdicts import DifferenceTest, Verdict, classify
from evalflows.analysis.pairwise.judge_biases import as_check, biases_of, exclusion, in_one_order
from evalflows.analysis.pairwise.preferences import Preferences
from evalflows.analysis.pairwise.ratings import intransitive_cycles, ratings_of
from evalflows.execution.pair_chunks import baseline_of, pairs_of
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.gate import Adjustment
from evalflows.stats import LengthControlled, PairedDifference, length_controlled, paired_difference
from evalflows.store.reasons import Reason, ReasonCode
from evalflows.store.records import CheckRow, RatingRow, VerdictRow, derived_id, to_json

FloatArray = npt.NDArray[np.float64]


LENGTH_CONTROLLED = "length-controlled"
"""Part of the id and of the method name of a length-controlled verdict."""


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
    parts: Sequence[tuple[str, frozenset[str]]],
    names: Sequence[str],
) -> WinRateEstimates:
    """Estimate the win rates and ratings of one metric, overall and by slice, and check its judge for biases.

    `parts` are the slices, each with its name and example ids; `names` are the experiments' names.
    """
    biases = biases_of(preferences, spec.confidence_level)
    excluded = exclusion(biases)
    slices = [(name, preferences.of_examples(examples)) for name, examples in parts]
    pending = [
        verdict
        for candidate, baseline in _matchups(spec)
        for verdict in _Matchup(
            comparison_id, preferences.metric, candidate, baseline, spec.confidence_level, excluded
        ).verdicts(preferences, slices)
    ]
    ratings = [
        replace(rating, reason=excluded.text, reason_code=excluded.code)
        if excluded and rating.reason is None
        else rating
        for name, part in [(None, preferences), *slices]
        for rating in ratings_of(comparison_id, part, spec, name)
    ]
    biases += [intransitive_cycles(preferences, spec, names)] if len(names) > 2 else []
    checks = [as_check(comparison_id, preferences.metric, bias) for bias in biases]
    return WinRateEstimates(checks=checks, verdicts=list(_classified(pending, spec.adjustment)), ratings=ratings)


def _classified(pending: Sequence["_Pending"], adjustment: Adjustment) -> Iterator[VerdictRow]:
    """Classify all win rates of a metric, adjusted together, and those of its slices, adjusted together."""
    whole, sliced = (
        iter(classify([one.test for one in pending if one.test and bool(one.row.slice) == of_slice], adjustment))
        for of_slice in (False, True)
    )
    for one in pending:
        if one.test is None:
            yield one.row
            continue
        verdict = next(sliced if one.row.slice else whole)
        yield replace(
            one.row,
            conclusion=verdict.conclusion,
            reason=verdict.reason,
            reason_code=verdict.reason_code,
            p_adjusted=verdict.p_adjusted,
            adjustment=verdict.adjustment,
        )


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
        found=difference(points),
        lowest=difference(np.where(n_missing, 0.0, points)) if points.size else None,
        highest=difference(np.where(n_missing, 1.0, points)) if points.size else None,
        n_missing=int(n_missing.sum()),
        exclusion=exclusion,
    )


def _test_columns(test: DifferenceTest) -> dict[str, Any]:
    """The columns of a verdict that only its test has."""
    names = ("p_value", "worst_case_low", "worst_case_high", "worst_case_ci_low", "worst_case_ci_high", "warning")
    columns = difference_columns(test)
    return {name: columns[name] for name in names}


def _matchups(spec: ComparisonSpec) -> list[tuple[str, str]]:
    """Candidate and baseline of each pair; without the spec's baseline in it, the one named first is the candidate."""
    base = baseline_of(spec)
    return [(named, other) if other == base else (other, named) for named, other in pairs_of(spec)]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A verdict's row and its test; the test is None if the row has its conclusion already."""

    row: VerdictRow
    test: DifferenceTest | None


@dataclass(frozen=True, slots=True)
class _Matchup:
    """One candidate against one baseline, by one metric."""

    comparison_id: str
    metric: str
    candidate: str
    baseline: str
    confidence_level: float
    exclusion: Reason | None

    def verdicts(self, preferences: Preferences, slices: Sequence[tuple[str, Preferences]]) -> Iterator[_Pending]:
        """The win rate, the length-controlled win rate, and the win rate of each slice."""
        rows = preferences.between(self.candidate, self.baseline)
        if one_order := in_one_order(preferences, self.candidate, self.baseline):
            self = replace(self, exclusion=self.exclusion or one_order)
        yield self._win_rate(rows, None)
        yield _Pending(self._length_controlled(rows), None)
        for name, part in slices:
            yield self._win_rate(part.between(self.candidate, self.baseline), name)

    def _win_rate(self, rows: pd.DataFrame, name: str | None) -> _Pending:
        counted = rows[rows.status.isin(["scored", "missing"])]
        by_example = counted.groupby(["cluster_id", "example_id"]).points.agg(lambda points: points.mean(skipna=False))
        points = np.asarray(by_example, dtype=np.float64)
        cluster_ids = list(by_example.index.get_level_values(0))
        test = _test_of(points, cluster_ids, self.confidence_level, self.exclusion)
        row = self._row(rows, test.found, Verdict(conclusion="not_enough_evidence"), name)
        return _Pending(replace(row, **_test_columns(test)), test)

    def _length_controlled(self, rows: pd.DataFrame) -> VerdictRow:
        counted = rows[rows.status.isin(["scored", "missing"])]
        scored = counted[counted.points.notna() & counted.longer.notna()]
        n_missing = len(counted) - len(scored)
        found = length_controlled(
            scored.points,
            scored.longer,
            list(scored.cluster_id),
            order=scored.shown,
            confidence_level=self.confidence_level,
        )
        verdict = _length_controlled_verdict(found)
        if n_missing:  # a failed run has no length
            text = f"{n_missing} of {len(counted)} pairs have no verdict or length, which could change the conclusion"
            verdict = _undecided(Reason("missing_could_flip", text))
        return self._row(rows, _as_difference(found), verdict, None, length_controlled=True)

    def _row(
        self,
        rows: pd.DataFrame,
        found: PairedDifference,
        verdict: Verdict,
        name: str | None,
        *,
        length_controlled: bool = False,
    ) -> VerdictRow:
        if self.exclusion is not None:
            verdict = _undecided(self.exclusion)
        counts = _counts(rows)
        sides = (self.candidate, self.baseline, self.metric, name, LENGTH_CONTROLLED if length_controlled else None)
        return VerdictRow(
            verdict_id=derived_id(self.comparison_id, *sides),
            run_group=self.comparison_id,
            comparison_id=self.comparison_id,
            metric=self.metric,
            slice=name,
            candidate_experiment_id=self.candidate,
            baseline_experiment_id=self.baseline,
            candidate_mean=found.candidate_mean,
            baseline_mean=found.baseline_mean,
            difference=found.difference,
            ci_low=None if found.low is None else max(found.low, -1.0),
            ci_high=None if found.high is None else min(found.high, 1.0),
            confidence_level=found.confidence_level,
            method=found.method,
            n_pairs=found.n_pairs,
            n_clusters=found.n_clusters,
            candidate_scored=int(rows.points.notna().sum()),
            candidate_missing=counts["missing"],
            baseline_scored=int(rows.points.notna().sum()),
            baseline_missing=counts["missing"],
            length_controlled=length_controlled,
            conclusion=verdict.conclusion,
            reason=verdict.reason,
            reason_code=verdict.reason_code,
            settings=to_json(counts),
        )


def _counts(rows: pd.DataFrame) -> dict[str, Any]:
    """Numbers of pairs of runs; a flipped pair also counts as a tie."""
    return {
        "wins": int((rows.points == 1).sum()),
        "losses": int((rows.points == 0).sum()),
        "ties": int((rows.points == 0.5).sum()),
        "flipped": int((rows.outcome == "flipped").sum()),
        "missing": int((rows.status == "missing").sum()),
        "settled": int((~rows.asked & rows.points.notna()).sum()),
        "left_out": int(rows.status.isin(["left_out", "not_applicable"]).sum()),
    }


def _as_difference(found: LengthControlled) -> PairedDifference:
    """Turn a win rate and its interval into the difference between the two sides' win rates."""
    low, rate, high = (None if share is None else 2 * share - 1 for share in (found.low, found.rate, found.high))
    return PairedDifference(
        candidate_mean=found.rate,
        baseline_mean=None if found.rate is None else 1 - found.rate,
        difference=rate,
        low=low,
        high=high,
        p_value=None,
        confidence_level=found.confidence_level,
        method=f"{LENGTH_CONTROLLED}: {found.method}",
        n_pairs=found.n,
        n_clusters=found.n_clusters,
        standard_error=None,
        warning=None,
        reason=found.reason,
    )


def _length_controlled_verdict(found: LengthControlled) -> Verdict:
    """Classify by the interval alone: a length-controlled win rate has no test."""
    if found.low is None or found.high is None:
        code: ReasonCode = "not_identifiable" if found.rate is None else "no_interval"
        return _undecided(Reason(code, found.reason or "no interval"))
    if found.low > 0.5 or found.high < 0.5:
        return Verdict(conclusion="better" if found.low > 0.5 else "worse")
    return _undecided(Reason("no_significant_difference", f"no significant difference ({found.n} pairs)"))


def _undecided(why: Reason) -> Verdict:
    return Verdict(conclusion="not_enough_evidence", reason=why.text, reason_code=why.code)
