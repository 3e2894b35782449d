"""Who wins: each candidate's win rate against the baseline, what the judge goes by, and where all stand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from prefect import task
from prefect.cache_policies import NO_CACHE

from specs.comparison import ComparisonSpec
from specs.gate import Adjustment
from stats import LengthControlled, PairedDifference, length_controlled, paired_difference
from store.parquet import Store
from store.records import CheckRow, ComparisonSetRow, Conclusion, RatingRow, VerdictRow, derived_id, to_json
from tasks.comparison import experiments_of
from tasks.conclude import Evidence, conclude
from tasks.habits import agreements, as_check, habits_of, in_one_order, unfit
from tasks.pairs import baseline_of, pairs_of
from tasks.preference_data import Preferences, preferences_in, slices
from tasks.shared_examples import shared_examples
from tasks.sides import numbers_of
from tasks.standings import circles, ratings_of

FloatArray = npt.NDArray[np.float64]

LENGTH_CONTROLLED = "length-controlled"
"""How the method of a verdict begins that speaks of answers of equal length."""


@task(cache_policy=NO_CACHE, persist_result=False)
def weigh_preferences(row: ComparisonSetRow) -> str:
    """Keep the verdicts, the ratings and the judges' habits of a comparison, made anew from the rows that are there.

    Returns its id.
    """
    store, spec = Store(), ComparisonSpec.model_validate_json(row.spec)
    experiments = experiments_of(store, spec.experiments)
    shared = shared_examples(store, experiments)
    parts = list(slices(shared.examples, spec.by))
    metrics = preferences_in(store, row, shared.examples)
    names = [one.name for one in experiments]
    weighed = [_weighed(row.comparison_id, one, spec, parts, names) for one in metrics]
    agreed = [as_check(row.comparison_id, *found) for found in agreements(metrics, spec.level)]
    store.publish("checks", row.comparison_id, [*agreed, *(check for one in weighed for check in one.checks)])
    store.publish("verdicts", row.comparison_id, [verdict for one in weighed for verdict in one.verdicts])
    store.publish("ratings", row.comparison_id, [rating for one in weighed for rating in one.ratings])
    return row.comparison_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighed:
    """What one metric says."""

    checks: Sequence[CheckRow]
    verdicts: Sequence[VerdictRow]
    ratings: Sequence[RatingRow]


def _weighed(
    comparison_id: str,
    found: Preferences,
    spec: ComparisonSpec,
    parts: Sequence[tuple[str, frozenset[str]]],
    names: Sequence[str],
) -> _Weighed:
    habits = habits_of(found, spec.level)
    against = unfit(habits)
    of_slices = [(name, found.of_examples(examples)) for name, examples in parts]
    open_ = [
        verdict
        for candidate, baseline in _facing(spec)
        for verdict in _Facing(comparison_id, found.metric, candidate, baseline, spec.level, against).verdicts(
            found, of_slices
        )
    ]
    ratings = [
        replace(rating, reason=rating.reason or against)
        for name, one in [(None, found), *of_slices]
        for rating in ratings_of(comparison_id, one, spec, name)
    ]
    habits += [circles(found, spec, names)] if len(names) > 2 else []
    checks = [as_check(comparison_id, found.metric, habit) for habit in habits]
    return _Weighed(checks=checks, verdicts=list(_concluded(open_, spec.adjustment)), ratings=ratings)


def _concluded(verdicts: Sequence["_Open"], adjustment: Adjustment) -> Iterator[VerdictRow]:
    """All win rates of a metric are adjusted together, and those of its slices together."""
    whole, sliced = (
        iter(
            conclude([one.evidence for one in verdicts if one.evidence and bool(one.row.slice) == of_slice], adjustment)
        )
        for of_slice in (False, True)
    )
    for one in verdicts:
        if one.evidence is None:
            yield one.row
            continue
        said = next(sliced if one.row.slice else whole)
        yield replace(
            one.row,
            conclusion=said.conclusion,
            reason=said.reason,
            p_adjusted=said.p_adjusted,
            adjustment=said.adjustment,
        )


def _evidence(points: FloatArray, together: Sequence[str], level: float, unfit: str | None) -> Evidence:
    """Of each example's points of the candidate, 0 to 1, nan where they are missing."""

    def difference(numbers: FloatArray) -> PairedDifference:
        known = ~np.isnan(numbers)
        clusters = [one for one, is_known in zip(together, known, strict=True) if is_known]
        binary = bool(np.isin(numbers[known], (0.0, 1.0)).all())
        return paired_difference(
            numbers[known], 1 - numbers[known], clusters, level=level, binary=binary, bounds=(0.0, 1.0)
        )

    lost = np.isnan(points)
    return Evidence(
        found=difference(points),
        lowest=difference(np.where(lost, 0.0, points)) if points.size else None,
        highest=difference(np.where(lost, 1.0, points)) if points.size else None,
        lost=int(lost.sum()),
        unfit=unfit,
    )


def _worst(evidence: Evidence) -> dict[str, Any]:
    """The figures of a verdict that are not those of its row already."""
    names = ("p_value", "worst_case_low", "worst_case_high", "worst_ci_low", "worst_ci_high", "warning")
    numbers = numbers_of(evidence)
    return {name: numbers[name] for name in names}


def _facing(spec: ComparisonSpec) -> list[tuple[str, str]]:
    """Candidate and baseline of each pair of experiments; where neither is the baseline, the one named first is."""
    base = baseline_of(spec)
    return [(named, other) if other == base else (other, named) for named, other in pairs_of(spec)]


@dataclass(frozen=True, slots=True)
class _Open:
    """A verdict without its conclusion, and what that is to rest on; None for one that was concluded."""

    row: VerdictRow
    evidence: Evidence | None


@dataclass(frozen=True, slots=True)
class _Facing:
    """One candidate against one baseline, by one metric."""

    comparison_id: str
    metric: str
    candidate: str
    baseline: str
    level: float
    unfit: str | None

    def verdicts(self, found: Preferences, parts: Sequence[tuple[str, Preferences]]) -> Iterator[_Open]:
        """The win rate, that at equal length, and the win rate of each slice."""
        rows = found.between(self.candidate, self.baseline)
        if always := in_one_order(found, self.candidate, self.baseline):
            self = replace(self, unfit=self.unfit or always)
        yield self._won(rows, None)
        yield _Open(self._at_equal_length(rows), None)
        for name, part in parts:
            yield self._won(part.between(self.candidate, self.baseline), name)

    def _won(self, rows: pd.DataFrame, name: str | None) -> _Open:
        counted = rows[rows.status.isin(["scored", "missing"])]
        by_example = counted.groupby(["together", "example_id"]).points.agg(lambda one: one.mean(skipna=False))
        points = np.asarray(by_example, dtype=np.float64)
        together = list(by_example.index.get_level_values(0))
        evidence = _evidence(points, together, self.level, self.unfit)
        row = self._row(rows, evidence.found, "not_enough_evidence", None, name)
        return _Open(replace(row, **_worst(evidence)), evidence)

    def _at_equal_length(self, rows: pd.DataFrame) -> VerdictRow:
        counted = rows[rows.status.isin(["scored", "missing"])]
        scored = counted[counted.points.notna() & counted.longer.notna()]
        lost = len(counted) - len(scored)
        found = length_controlled(
            scored.points, scored.longer, list(scored.together), order=scored.shown, level=self.level
        )
        difference = _as_difference(found)
        conclusion: Conclusion = "not_enough_evidence"
        reason = found.reason
        if found.low is not None and found.high is not None:
            decided = found.low > 0.5 or found.high < 0.5
            conclusion = ("better" if found.low > 0.5 else "worse") if decided else conclusion
            reason = None if decided else f"the difference may be none ({found.n} pairs)"
        if lost:  # a failed run has no length
            conclusion = "not_enough_evidence"
            reason = f"{lost} of {len(counted)} pairs have no verdict between two lengths, which could turn it"
        return self._row(rows, difference, conclusion, reason, None)

    def _row(
        self,
        rows: pd.DataFrame,
        found: PairedDifference,
        conclusion: Conclusion,
        reason: str | None,
        name: str | None,
    ) -> VerdictRow:
        if self.unfit is not None:
            conclusion, reason = "not_enough_evidence", self.unfit
        counts = _counts(rows)
        is_controlled = found.method.startswith(LENGTH_CONTROLLED)
        sides = (self.candidate, self.baseline, self.metric, name, LENGTH_CONTROLLED if is_controlled else None)
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
            level=found.level,
            method=found.method,
            n_pairs=found.n_pairs,
            n_clusters=found.n_clusters,
            candidate_scored=int(rows.points.notna().sum()),
            candidate_missing=counts["missing"],
            baseline_scored=int(rows.points.notna().sum()),
            baseline_missing=counts["missing"],
            conclusion=conclusion,
            reason=reason,
            settings=to_json(counts),
        )


def _counts(rows: pd.DataFrame) -> dict[str, Any]:
    """Of pairs of runs; a flipped one is a tie as well."""
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
    """A win rate with its interval as what it is above the other side's."""
    low, rate, high = (None if one is None else 2 * one - 1 for one in (found.low, found.rate, found.high))
    return PairedDifference(
        candidate_mean=found.rate,
        baseline_mean=None if found.rate is None else 1 - found.rate,
        difference=rate,
        low=low,
        high=high,
        p_value=None,
        level=found.level,
        method=f"{LENGTH_CONTROLLED}: {found.method}",
        n_pairs=found.n,
        n_clusters=found.n_clusters,
        seed=None,
        resamples=None,
        standard_error=None,
        warning=None,
        reason=found.reason,
    )
