"""Win rates of pairwise comparisons, with intervals and verdicts, and Bradley-Terry ratings of the experiments. A
comparison that is judged in batches has intervals that hold at every look, so that it may stop early."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np
import pandas as pd

from evalflows.analysis.judge_biases import ORDER_UNKNOWN, JudgeBias, as_check, biases_of, exclusion, shown_in_one_order
from evalflows.analysis.pairing import difference_columns, estimate_columns
from evalflows.analysis.preferences import (
    LENGTH_CONTROLLED,
    Preferences,
    Units,
    as_difference,
    counts_of,
    discrete_rate,
    length_controlled_verdict,
    rates_at_equal_length,
)
from evalflows.analysis.verdicts import DifferenceTest, Verdict, classify, no_difference, why_missing
from evalflows.engine.order import cluster_boundary
from evalflows.engine.pair_trials import baseline_of, pairs_of
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import Adjustment
from evalflows.stats.length_control import LengthControlled
from evalflows.stats.means import linearised, mean_estimate
from evalflows.stats.paired import PairedDifference
from evalflows.stats.ratings import Ratings, bradley_terry, cycles, rank_ranges
from evalflows.stats.sequential import cluster_values, confidence_sequence
from evalflows.store.records import CheckRow, ComparisonSetRow, RatingRow, Reason, VerdictRow, derived_id, to_json
from evalflows.store.snapshots import Examples

ELO, AVERAGE = 400 / math.log(10), 1000.0
"""Rating points per log-odds, and the mean rating: the Elo scale, on which 400 points are odds of 10 to 1."""

Slices = Sequence[tuple[str, frozenset[str]]]

_INTERVALS = ("ci_low", "ci_high", "rank_low", "rank_high", "win_rate_low", "win_rate_high")

NOT_AT_LOOKS = Reason("no_interval", "there is no interval for it that holds at interim analyses")
"""Why ratings and win rates at equal length have no intervals, and decide nothing, if pairs are judged in batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """An interim analysis of a comparison, or its last one: the examples whose pairs have all been judged."""

    places: Mapping[str, int]  # of these examples in the order of judging
    clusters: Mapping[str, str | None]  # of all compared examples
    n_tests: int = 1  # win rates that are looked at together
    n_slice_tests: int = 1

    @property
    def n_seen(self) -> int:
        return len(self.places)

    @property
    def is_last(self) -> bool:
        return len(self.places) == len(self.clusters)

    def of_examples(self, examples: Collection[str]) -> "Look":
        """Restrict to some examples."""
        places = {example: index for example, index in self.places.items() if example in examples}
        clusters = {example: cluster for example, cluster in self.clusters.items() if example in examples}
        return replace(self, places=places, clusters=clusters)

    def test(self, outcomes: pd.DataFrame, confidence_level: float, exclusion: Reason | None) -> DifferenceTest:
        """Return the evidence on a candidate's points minus the baseline's, from -1 to 1, with confidence sequences.

        `outcomes` are those of `Preferences.between`. The points of an example are the mean of its repetitions.
        """
        rows = outcomes[outcomes.status.isin(["scored", "missing"]) & outcomes.example_id.isin(list(self.places))]
        points = rows.groupby("example_id").points.mean(skipna=False)
        points = points.loc[sorted(points.index, key=self.places.__getitem__)]
        n_missing = int(points.isna().sum())
        estimate = lowest = highest = self._difference(points.dropna(), confidence_level)
        if n_missing:
            lowest, highest = (self._difference(points.fillna(case), confidence_level) for case in (0.0, 1.0))
        return DifferenceTest(
            estimate=estimate, lowest=lowest, highest=highest, n_missing=n_missing, exclusion=exclusion
        )

    def _difference(self, points: "pd.Series[float]", confidence_level: float) -> PairedDifference:
        low = high = mean = reason = None
        clusters = [self.clusters[example] for example in points.index]
        if len(points):
            sizes = Counter(cluster or f"example {example}" for example, cluster in self.clusters.items())
            values = cluster_values(
                2 * points.to_numpy(np.float64) - 1,
                clusters,
                average_size=len(self.clusters) / len(sizes),
                largest_size=max(sizes.values()),
            )
            bounds = (-values.bounds_factor, values.bounds_factor)
            sequence = confidence_sequence(values.values, bounds=bounds, confidence_level=confidence_level)
            mean, low, high, reason = float(points.mean()), sequence.low[-1], sequence.high[-1], sequence.reason
        return PairedDifference(
            candidate_mean=mean,
            baseline_mean=None if mean is None else 1 - mean,
            difference=None if mean is None else 2 * mean - 1,
            low=low,
            high=high,
            p_value=None,
            confidence_level=confidence_level,
            method="betting",
            n_pairs=len(points),
            n_clusters=len(set(clusters)) if any(clusters) else None,
            reason=reason if len(points) else "no batch of pairs has been judged yet",
        )


def ratings_of(
    comparison_id: str, preferences: Preferences, spec: ComparisonSpec, name: str | None = None
) -> list[RatingRow]:
    """Return the rating of each experiment by one metric; `name` is the slice's name, None for all examples."""
    fit = _fit(preferences, spec)
    ranks, ranges = _ranks(fit), _rank_ranges(fit, spec.adjustment)
    return [
        RatingRow(
            rating_id=derived_id(comparison_id, preferences.metric, experiment, "bradley-terry", name),
            comparison_id=comparison_id,
            metric=preferences.metric,
            experiment_id=experiment,
            method="bradley-terry",
            slice=name,
            rating=_elo(fit.ratings, entry),
            standard_error=ELO * fit.standard_errors[entry] if fit.standard_errors else None,
            ci_low=_elo(fit.lows, entry),
            ci_high=_elo(fit.highs, entry),
            confidence_level=fit.confidence_level,
            rank=ranks[entry] if ranks else None,
            rank_low=ranges[entry][0] if ranges else None,
            rank_high=ranges[entry][1] if ranges else None,
            n_clusters=fit.n_clusters,
            settings=_settings(fit, entry),
            reason=_reason(fit, spec.experiments),
            reason_code=None if fit.reason is None else "not_identifiable" if fit.ratings is None else "no_interval",
            **_win_counts(preferences, experiment, spec.confidence_level),
        )
        for entry, experiment in enumerate(spec.experiments)
    ]


def intransitive_cycles(preferences: Preferences, spec: ComparisonSpec, names: Sequence[str]) -> JudgeBias:
    """Check for intransitive cycles, in which no ranking of the experiments is right."""
    index = {experiment: entry for entry, experiment in enumerate(spec.experiments)}
    net = np.zeros((len(index), len(index)))
    scored = preferences.outcomes[preferences.outcomes.points.notna()]
    entries = (scored.left.map(index).to_numpy(dtype=int), scored.right.map(index).to_numpy(dtype=int))
    np.add.at(net, entries, 2 * scored.points.to_numpy() - 1)
    net -= net.T
    cycle_texts = [" beats ".join(names[entry] for entry in (*cycle, cycle[0])) for cycle in cycles(net)]
    message = f"intransitive, possibly by chance: {'; '.join(cycle_texts)}" if cycle_texts else "no intransitive cycles"
    return JudgeBias(name="cycles", message=message, passed=None if cycle_texts else True, n=len(index))


def _fit(preferences: Preferences, spec: ComparisonSpec) -> Ratings:
    index = {experiment: entry for entry, experiment in enumerate(spec.experiments)}
    rows = preferences.judgements
    left_first = (rows.shown_first != "right").to_numpy()
    left, right = (rows[side].map(index).to_numpy(dtype=int) for side in ("left", "right"))
    points = rows.points.to_numpy(dtype=float)
    return bradley_terry(
        np.where(left_first, left, right),
        np.where(left_first, right, left),
        np.where(left_first, points, 1 - points),
        list(rows.cluster_id),
        entries=len(index),
        weights=rows.weight.to_numpy(dtype=float) / rows.orders.to_numpy(dtype=float),
        guard=spec.ratings.guard,
        order_term=spec.ratings.order_term,
        order_known=rows.order_status.eq("known").to_numpy(dtype=bool),
        confidence_level=spec.confidence_level,
    )


def _reason(fit: Ratings, experiments: Sequence[str]) -> str | None:
    if fit.apart is None or not fit.n:
        return fit.reason
    first, second = (experiments[entry] for entry in fit.apart)
    return f"{first} and {second} are not connected by comparisons: no common scale"


def _ranks(fit: Ratings) -> list[int] | None:
    """Return the rank of each entry, 1 for the highest rating; equal ratings share a rank."""
    if fit.ratings is None:
        return None
    rounded = [round(rating, 9) for rating in fit.ratings]
    return [1 + sum(other > rating for other in rounded) for rating in rounded]


def _rank_ranges(fit: Ratings, adjustment: Adjustment) -> list[tuple[int, int]] | None:
    if fit.ratings is None or fit.covariance is None or fit.df is None:
        return None
    level = fit.confidence_level
    return rank_ranges(fit.ratings, fit.covariance, df=fit.df, confidence_level=level, adjustment=adjustment)


def _elo(ratings: Sequence[float] | None, entry: int) -> float | None:
    return None if ratings is None else AVERAGE + ELO * ratings[entry]


def _settings(fit: Ratings, entry: int) -> str:
    order = ("order_effect", "order_standard_error", "order_low", "order_high", "order_reason")
    names = (*order, "guard", "guard_reason", "method")
    own = {"guarded": entry in fit.guarded, "judgements": fit.n}
    return to_json({name: getattr(fit, name) for name in names} | own)


def _win_counts(preferences: Preferences, experiment: str, confidence_level: float) -> dict[str, Any]:
    """Wins, losses and ties over all others, and the win rate with examples (or clusters) as sampling units."""
    rows = preferences.outcomes[(preferences.outcomes.left == experiment) | (preferences.outcomes.right == experiment)]
    scored = rows[rows.points.notna()]
    points, discrete = (side.where(scored.left == experiment, 1 - side) for side in (scored.points, scored.discrete))
    units = Units.of(scored.assign(points=points, discrete=discrete), of_votes=preferences.of_votes)
    values = linearised(units.points, units.weights)
    rate = mean_estimate(values, units.clusters, confidence_level=confidence_level)
    return {
        "win_rate": rate.mean,
        "win_rate_standard_error": rate.standard_error,
        "win_rate_low": None if rate.low is None else max(rate.low, 0.0),
        "win_rate_high": None if rate.high is None else min(rate.high, 1.0),
        "wins": int((discrete > 0.5).sum()),
        "losses": int((discrete < 0.5).sum()),
        "ties": int((discrete == 0.5).sum()),
        "missing": int((rows.status == "missing").sum()),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRateEstimates:
    """The checks, verdicts and ratings of a comparison."""

    checks: Sequence[CheckRow]
    verdicts: Sequence[VerdictRow]
    ratings: Sequence[RatingRow]


def estimate_win_rates(
    comparison_id: str,
    metrics: Sequence[Preferences],
    spec: ComparisonSpec,
    slices: Slices,
    names: Sequence[str],
    excluded: Mapping[str, Reason] | None = None,
    look: Look | None = None,
) -> WinRateEstimates:
    """Estimate the win rates and ratings by each metric, overall and by slice, and check its judge for biases.

    `slices` are pairs of a name and example ids; `names` are the names of the experiments or systems; `excluded` are
    metrics that decide nothing, and why. The p-values of all judges and candidates are adjusted together, and so are
    those of all their slices. At a `look` of a comparison in batches, the intervals of win rates decide, and nothing
    else has one.
    """
    if look is not None:
        n_tests = sum(len(_matchups(spec, preferences)) for preferences in metrics)
        if spec.adjustment != "none":
            look = replace(look, n_tests=n_tests, n_slice_tests=n_tests * len(slices))
    estimated = [
        _of_metric(comparison_id, preferences, spec, slices, names, (excluded or {}).get(preferences.metric), look)
        for preferences in metrics
    ]
    pending = [verdict for _, verdicts, _ in estimated for verdict in verdicts]
    return WinRateEstimates(
        checks=[check for checks, _, _ in estimated for check in checks],
        verdicts=list(_classified(pending, spec.adjustment)),
        ratings=[rating for _, _, ratings in estimated for rating in ratings],
    )


def _of_metric(
    comparison_id: str,
    preferences: Preferences,
    spec: ComparisonSpec,
    slices: Slices,
    names: Sequence[str],
    why_excluded: Reason | None,
    look: Look | None,
) -> tuple[list[CheckRow], list["_Pending"], list[RatingRow]]:
    biases = biases_of(preferences, spec.confidence_level)
    excluded = why_excluded or exclusion(biases)
    by_slice = [(name, preferences.of_examples(examples)) for name, examples in slices]
    matchups = _matchups(spec, preferences)
    at_equal_length = rates_at_equal_length(preferences, matchups, spec.confidence_level)
    if look is not None:
        nothing: dict[str, Any] = dict.fromkeys(("low", "high", "standard_error")) | {"reason": NOT_AT_LOOKS.text}
        at_equal_length = {matchup: replace(rate, **nothing) for matchup, rate in at_equal_length.items()}
    pending = [
        verdict
        for candidate, baseline in matchups
        for verdict in _Matchup(
            comparison_id, preferences.metric, candidate, baseline, spec.confidence_level, excluded, look, dict(slices)
        ).verdicts(preferences, at_equal_length.get((candidate, baseline)), by_slice)
    ]
    ratings = [
        rating
        for name, of_slice in [(None, preferences), *by_slice]
        for rating in _ratings(comparison_id, of_slice, spec, name, excluded, look)
    ]
    biases += [intransitive_cycles(preferences, spec, names)] if len(names) > 2 else []
    return [as_check(comparison_id, preferences.metric, bias) for bias in biases], pending, ratings


def _ratings(
    comparison_id: str,
    preferences: Preferences,
    spec: ComparisonSpec,
    name: str | None,
    excluded: Reason | None,
    look: Look | None,
) -> Iterator[RatingRow]:
    for rating in ratings_of(comparison_id, preferences, spec, name):
        if look is not None:
            nothing: dict[str, Any] = dict.fromkeys(_INTERVALS)
            rating, excluded = replace(rating, **nothing), excluded or NOT_AT_LOOKS
        if excluded and rating.reason is None:
            yield replace(rating, reason=excluded.text, reason_code=excluded.code)
        else:
            yield rating


def _classified(pending: Sequence["_Pending"], adjustment: Adjustment) -> Iterator[VerdictRow]:
    """Classify all win rates of a comparison, adjusted together, and those of slices, adjusted together."""
    overall, of_slices = (
        iter(classify([rate.test for rate in pending if rate.test and rate.is_of_slice == is_of_slice], adjustment))
        for is_of_slice in (False, True)
    )
    for verdict in pending:
        if verdict.test is None:
            yield verdict.row
            continue
        yield replace(verdict.row, **asdict(next(of_slices if verdict.is_of_slice else overall)))


def _test_columns(test: DifferenceTest, outcomes: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of a verdict that come from its test alone."""
    names = ("p_value", "worst_case_low", "worst_case_high", "worst_case_ci_low", "worst_case_ci_high")
    columns = difference_columns(test)
    warnings = [columns["warning"], ORDER_UNKNOWN.text if (outcomes.order_status == "unknown").any() else None]
    return {name: columns[name] for name in names} | {"warning": "; ".join(filter(None, warnings)) or None}


def _matchups(spec: ComparisonSpec, preferences: Preferences) -> list[tuple[str, str]]:
    """Return the candidate and baseline of each pair; the second is the candidate if neither is the spec's baseline.

    Systems that no vote compares are left out: nothing was planned for them.
    """
    base, pairs = baseline_of(spec), pairs_of(spec)
    if preferences.of_votes:
        met = set(preferences.outcomes[["left", "right"]].itertuples(index=False, name=None))
        pairs = [pair for pair in pairs if tuple(sorted(pair)) in met]
    return [(named, other) if other == base else (other, named) for named, other in pairs]


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
    look: Look | None = None
    slices: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def verdicts(
        self,
        preferences: Preferences,
        at_equal_length: LengthControlled | None,
        by_slice: Sequence[tuple[str, Preferences]],
    ) -> Iterator[_Pending]:
        """Yield the win rate, the length-controlled win rate, and the win rate of each slice."""
        outcomes = preferences.between(self.candidate, self.baseline)
        if one_order := shown_in_one_order(preferences, self.candidate, self.baseline):
            self = replace(self, exclusion=self.exclusion or one_order)
        yield self._win_rate(preferences, outcomes, None)
        if at_equal_length is not None:
            yield _Pending(self._length_controlled(outcomes, at_equal_length), None)
        for name, of_slice in by_slice:
            between = of_slice.between(self.candidate, self.baseline)
            if len(between) or not preferences.of_votes:
                yield self._win_rate(preferences, between, name)

    def _win_rate(self, preferences: Preferences, outcomes: pd.DataFrame, name: str | None) -> _Pending:
        if self.look is not None:
            return _Pending(self._at_look(self.look, preferences, outcomes, name), None)
        units = Units.of(outcomes, of_votes=preferences.of_votes)
        test = units.test(self.confidence_level, self.exclusion)
        counts = counts_of(outcomes)
        if preferences.graded:
            counts |= discrete_rate(units.difference(units.discrete, self.confidence_level))
        row = self._row(counts, test.estimate, Verdict(conclusion="not_enough_evidence"), name)
        return _Pending(replace(row, **_test_columns(test, outcomes)), test)

    def _at_look(self, look: Look, preferences: Preferences, outcomes: pd.DataFrame, name: str | None) -> VerdictRow:
        n_tests = look.n_tests if name is None else look.n_slice_tests
        of = look if name is None else look.of_examples(self.slices[name])
        test = of.test(outcomes, self.confidence_level, self.exclusion)
        adjusted = of.test(outcomes, 1 - (1 - self.confidence_level) / n_tests, self.exclusion)
        counts = counts_of(outcomes)
        if preferences.graded:
            units = Units.of(outcomes, of_votes=False)
            discrete = units.difference(units.discrete, self.confidence_level)
            counts |= discrete_rate(replace(discrete, low=None, high=None, standard_error=None))
        row = self._row(counts, test.estimate, conclusion_of(test, adjusted, n_tests), name)
        return replace(row, **_test_columns(test, outcomes))

    def _length_controlled(self, outcomes: pd.DataFrame, estimate: LengthControlled) -> VerdictRow:
        counted = int(outcomes.status.isin(["scored", "missing"]).sum())
        n_missing = counted - estimate.n
        verdict = length_controlled_verdict(estimate)
        if n_missing:  # a failed run has no length
            text = f"{n_missing} of {counted} pairs have no verdict or length, which could change the conclusion"
            verdict = Verdict.undecided(Reason("missing_could_flip", text))
        return self._row(counts_of(outcomes), as_difference(estimate), verdict, None, length_controlled=True)

    def _row(
        self,
        counts: Mapping[str, Any],
        difference: PairedDifference,
        verdict: Verdict,
        name: str | None,
        *,
        length_controlled: bool = False,
    ) -> VerdictRow:
        if self.exclusion is not None:
            verdict = Verdict.undecided(self.exclusion)
        kind = LENGTH_CONTROLLED if length_controlled else None
        low = None if difference.low is None else max(difference.low, -1.0)
        high = None if difference.high is None else min(difference.high, 1.0)
        return VerdictRow(
            verdict_id=derived_id(self.comparison_id, self.candidate, self.baseline, self.metric, name, kind),
            run_group=self.comparison_id,
            comparison_id=self.comparison_id,
            metric=self.metric,
            slice=name,
            candidate_experiment_id=self.candidate,
            baseline_experiment_id=self.baseline,
            length_controlled=length_controlled,
            **asdict(verdict),
            **estimate_columns(replace(difference, low=low, high=high)),
            **_count_columns(counts),
        )


def _count_columns(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of pairs of runs: a pair counts as scored, or as missing, for both of its sides."""
    scored = counts["wins"] + counts["ties"] + counts["losses"]
    return {
        "candidate_scored": scored,
        "candidate_missing": counts["missing"],
        "baseline_scored": scored,
        "baseline_missing": counts["missing"],
        "settings": to_json(counts),
    }


def look_at(row: ComparisonSetRow, examples: Examples, judged: Collection[str]) -> Look:
    """Return what can be looked at: `examples`, in the order of judging, up to the last batch whose pairs have all been
    `judged`, without the first part of a cluster."""
    clusters = dict(zip(examples.ids, examples.clusters, strict=True))
    done = next((index for index, example in enumerate(examples.ids) if example not in judged), len(examples.ids))
    if done < len(examples.ids):
        done = cluster_boundary(examples.clusters, done - done % row.chunk_size)
    return Look(places={example: index for index, example in enumerate(examples.ids[:done])}, clusters=clusters)


def conclusion_of(test: DifferenceTest, at_level: DifferenceTest, n_tests: int) -> Verdict:
    """Classify by the intervals alone: a confidence sequence has no test.

    `at_level` is the same evidence at the level of Bonferroni's method over all `n_tests` win rates.
    """
    if test.exclusion is not None:
        return Verdict.undecided(test.exclusion)
    gain, worst = at_level.gain(), at_level.worst_case_gain()
    if gain is None or worst is None:
        return Verdict.undecided(Reason("no_interval", test.estimate.reason or "no interval"))
    if worst[0] > 0 or worst[1] < 0:
        return Verdict(conclusion="better" if worst[0] > 0 else "worse")
    alone = test.gain() or gain
    if alone[0] <= 0 <= alone[1]:
        return Verdict.undecided(
            why_missing(at_level) if at_level.missing_could_flip else no_difference(test.estimate.n_pairs)
        )
    if gain[0] <= 0 <= gain[1]:
        level = f"{100 * at_level.estimate.confidence_level:.3g} %"
        text = f"the interval at {level}, for {n_tests} win rates (Bonferroni), includes no difference"
        return Verdict.undecided(Reason("not_significant_after_adjustment", text))
    return Verdict.undecided(why_missing(at_level))
