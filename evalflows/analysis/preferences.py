"""The judgements of a comparison: the outcome of each pair over its presentation orders, the sampling units of a win
rate, and win rates at equal length."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from evalflows.analysis.verdicts import DifferenceTest, Verdict, no_difference
from evalflows.engine.pair_trials import pairs_of
from evalflows.specs.frozen import dataclass
from evalflows.stats.length_control import LengthControlled, length_controlled_rates
from evalflows.stats.means import linearised
from evalflows.stats.paired import PairedDifference, paired_difference
from evalflows.store.queries.shared_examples import has_value, value_at
from evalflows.store.records import ComparisonSetRow, ExampleRow, Reason, ReasonCode
from evalflows.store.row_specs import comparison_spec
from evalflows.store.sql import ask_arrow
from evalflows.store.store import Store

MAX_SLICE_VALUES = 50
"""A field with more values than this is nearly an id, so it gives no slices."""

LENGTH_CONTROLLED = "length-controlled"
"""Part of the id and of the method name of a length-controlled verdict."""

Matchup = tuple[str, str]
"""A candidate and a baseline."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Preferences:
    """One metric of a comparison.

    `outcomes` has one row per pair of runs, or per vote: example_id, repetition, left, right (systems), points of the
    left, 0 to 1 (NaN if missing; its mean preference if the verdicts are graded), discrete (its points by the winner
    alone), preference (its mean score if that is graded, else NaN), weight, status, outcome, consistency, asked, longer
    (length of the left minus the right's, in characters), shown (+1 left first, -1 right first, 0 both orders or not
    known), order_status, agreement, cluster_id. `judgements` has one row per presentation order: metric, example_id,
    left, right, points of the left, left_score, winner, shown_first (None if not known), order_status, orders, weight,
    asked, cluster_id.
    """

    metric: str
    evaluator: str
    outcomes: pd.DataFrame
    judgements: pd.DataFrame
    graded: bool = False
    of_votes: bool = False

    def of_examples(self, examples: frozenset[str]) -> "Preferences":
        """Restrict to some examples."""
        outcomes, judgements = (rows[rows.example_id.isin(examples)] for rows in (self.outcomes, self.judgements))
        return replace(self, outcomes=outcomes, judgements=judgements)

    def between(self, candidate: str, baseline: str) -> pd.DataFrame:
        """Return the outcomes between two systems, with the candidate's `points`, `discrete`, `longer` and `shown`."""
        swapped = candidate > baseline  # the candidate is on the right
        rows = self._by_pair.get((baseline, candidate) if swapped else (candidate, baseline))
        if rows is None:
            return self.outcomes.iloc[:0]
        if not swapped:
            return rows
        turned = {"points": 1 - rows.points, "discrete": 1 - rows.discrete, "longer": -rows.longer}
        return rows.assign(**turned, shown=-rows.shown)

    @cached_property
    def pairs_in_one_order(self) -> frozenset[tuple[str, str]]:
        """Left and right of each pair of systems whose judgements are all known to have shown the same one first."""
        if self.judgements.empty:
            return frozenset()
        asked = self.judgements[self.judgements.asked]
        known = asked.order_status.eq("known").groupby([asked.left, asked.right]).all()
        orders = asked.shown_first.groupby([asked.left, asked.right]).nunique()
        return frozenset(known.index[known & (orders == 1)])

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], pd.DataFrame]:
        """The outcomes of each left and right; grouped once, as a tournament has thousands of pairs."""
        return {(str(left), str(right)): rows for (left, right), rows in self.outcomes.groupby(["left", "right"])}


def preferences_in(store: Store, row: ComparisonSetRow, examples: Sequence[ExampleRow]) -> list[Preferences]:
    """Return the metrics of a comparison, without those that several evaluator versions give.

    Planned pairs without a row, as in an interrupted comparison, count as missing.
    """
    of_votes = row.n_votes is not None
    if not of_votes:
        store.verify(row.experiments, {"outputs"})
    outcomes = _drop_unused_own_names(ask_arrow(store, _OUTCOMES, [row.comparison_id]).to_pandas())
    judgements = ask_arrow(store, _JUDGEMENTS, [row.comparison_id]).to_pandas()
    found = []
    for metric, of_metric in outcomes.groupby("metric", sort=True):
        if of_metric.evaluator_version.nunique() != 1:
            continue
        rows = of_metric.reset_index(drop=True)
        found.append(
            _with_grades(
                Preferences(
                    metric=str(metric),
                    evaluator=str(rows.evaluator.iloc[0]),
                    outcomes=rows if of_votes else _with_missing_pairs(rows, row, examples),
                    judgements=judgements[judgements.metric == metric].reset_index(drop=True),
                    of_votes=of_votes,
                )
            )
        )
    return found


def _with_grades(preferences: Preferences) -> Preferences:
    """Take the preferences as points, if all verdicts of the judge are graded and not all are wins, losses or ties.

    A pair that was decided without the judge, since a run failed, keeps its points.
    """
    outcomes, judgements = preferences.outcomes, preferences.judgements
    judged = outcomes[outcomes.asked & (outcomes.status == "scored")]
    grades = judged.preference
    if grades.empty or grades.isna().any() or grades.isin((0.0, 0.5, 1.0)).all():
        return preferences
    points = outcomes.preference.where(outcomes.asked, outcomes.points)
    of_orders = judgements.left_score.where(judgements.asked, judgements.points)
    return replace(
        preferences,
        outcomes=outcomes.assign(points=points),
        judgements=judgements.assign(points=of_orders),
        graded=True,
    )


def _drop_unused_own_names(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Drop rows under an evaluator's own name if it gives its metrics only under other names."""
    given = outcomes[outcomes.asked & (outcomes.status == "scored")]
    others = set(given.evaluator) - set(given[given.metric == given.evaluator].evaluator)
    return outcomes[~(outcomes.evaluator.isin(others) & (outcomes.metric == outcomes.evaluator))]


def _with_missing_pairs(outcomes: pd.DataFrame, row: ComparisonSetRow, examples: Sequence[ExampleRow]) -> pd.DataFrame:
    keys = ["example_id", "repetition", "left", "right"]
    existing = set(outcomes[keys].itertuples(index=False, name=None))
    pairs = [tuple(sorted(pair)) for pair in pairs_of(comparison_spec(row))]
    missing: dict[str, object] = dict.fromkeys(("points", "discrete", "preference", "longer"), np.nan)
    missing |= {"weight": 1.0, "status": "missing", "asked": True, "shown": 0.0}
    missing_rows = [
        {**dict(zip(keys, key, strict=True)), "cluster_id": _cluster_id(example), **missing}
        for pair in pairs
        for repetition in range(row.repetitions)
        for example in examples
        if (key := (example.example_id, repetition, *pair)) not in existing
    ]
    return pd.concat((outcomes, pd.DataFrame(missing_rows)), ignore_index=True) if missing_rows else outcomes


def _cluster_id(example: ExampleRow) -> str:
    return f"cluster {example.cluster}" if example.cluster is not None else f"example {example.example_id}"


def slices(examples: Sequence[ExampleRow], by: Sequence[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name and the examples of each value of some fields, and of each split if there are several."""
    splits = ["split"] if len({example.split for example in examples} - {None}) > 1 else []
    for path in dict.fromkeys([*splits, *by]):
        of_value: dict[str, set[str]] = {}
        for example in examples:
            if has_value(example, path):
                of_value.setdefault(str(value_at(example, path)), set()).add(example.example_id)
        if len(of_value) <= MAX_SLICE_VALUES:
            yield from ((f"{path}={value}", frozenset(ids)) for value, ids in sorted(of_value.items()))


_OUTCOMES = """
select metric, evaluator, evaluator_version, example_id, repetition, left_experiment_id as "left",
       right_experiment_id as "right", coalesce(left_points, 'nan'::double) as points, points as discrete,
       coalesce(left_preference, 'nan'::double) as preference, weight, status, outcome, consistency,
       decided_by is distinct from 'failed_output' as asked, (left_length - right_length)::double as longer,
       case shown_first when 'left' then 1.0 when 'right' then -1.0 else 0.0 end as shown, order_status, agreement,
       coalesce('cluster ' || cluster, 'example ' || example_id) as cluster_id
from pair_outcomes where comparison_id = ?
order by metric, example_id, repetition, "left", "right"
"""

_JUDGEMENTS = """
select c.metric, c.example_id, c.left_experiment_id as "left", c.right_experiment_id as "right", c.winner,
       case c.winner when 'left' then 1.0 when 'right' then 0.0 else 0.5 end as points, c.left_score,
       case when coalesce(c.order_status, 'known') = 'known' then c.shown_first end as shown_first,
       coalesce(c.order_status, 'known') as order_status, coalesce(c.weight, 1) as weight,
       p.orders, p.decided_by is distinct from 'failed_output' as asked,
       coalesce('cluster ' || p.cluster, 'example ' || p.example_id) as cluster_id
from comparisons c join pair_outcomes p using (comparison_id, metric, evaluator_version, left_run_id, right_run_id)
where c.comparison_id = ? and p.status = 'scored' and c.status = 'scored'
order by c.metric, c.example_id, c.repetition, c.left_run_id, c.right_run_id, c.shown_first
"""


def rates_at_equal_length(
    preferences: Preferences, matchups: Sequence[Matchup], confidence_level: float
) -> Mapping[Matchup, LengthControlled]:
    """Return each candidate's win rate at equal length, from one regression of all pairs that have a verdict and
    lengths.

    Empty for votes, which have no lengths.
    """
    if preferences.of_votes:
        return {}
    rows = preferences.outcomes
    rows = rows[rows.status.isin(["scored", "missing"]) & rows.points.notna() & rows.longer.notna()]
    names = {*rows.left, *rows.right, *(side for matchup in matchups for side in matchup)}
    entries = {name: entry for entry, name in enumerate(sorted(names))}
    rates = length_controlled_rates(
        rows.left.map(entries),
        rows.right.map(entries),
        rows.points,
        rows.longer,
        list(rows.cluster_id),
        pairs=[(entries[candidate], entries[baseline]) for candidate, baseline in matchups],
        order=rows.shown,
        confidence_level=confidence_level,
    )
    return dict(zip(matchups, rates, strict=True))


def as_difference(estimate: LengthControlled) -> PairedDifference:
    """Turn a win rate and its interval into the difference between the two sides' win rates."""
    low, rate, high = (
        None if share is None else 2 * share - 1 for share in (estimate.low, estimate.rate, estimate.high)
    )
    return PairedDifference(
        candidate_mean=estimate.rate,
        baseline_mean=None if estimate.rate is None else 1 - estimate.rate,
        difference=rate,
        low=low,
        high=high,
        p_value=None,
        confidence_level=estimate.confidence_level,
        method=f"{LENGTH_CONTROLLED}: {estimate.method}",
        n_pairs=estimate.n,
        n_clusters=estimate.n_clusters,
        standard_error=None if estimate.standard_error is None else 2 * estimate.standard_error,
        warning=None,
        reason=estimate.reason,
    )


def length_controlled_verdict(estimate: LengthControlled) -> Verdict:
    """Classify by the interval alone: a length-controlled win rate has no test."""
    if estimate.low is None or estimate.high is None:
        code: ReasonCode = "not_identifiable" if estimate.rate is None else "no_interval"
        return Verdict.undecided(Reason(code, estimate.reason or "no interval"))
    if estimate.low > 0.5 or estimate.high < 0.5:
        return Verdict(conclusion="better" if estimate.low > 0.5 else "worse")
    return Verdict.undecided(no_difference(estimate.n))


@dataclass(frozen=True, slots=True)
class Units:
    """The sampling units of a win rate: examples, their repetitions averaged, or votes; arrays of shape (n,)."""

    points: FloatArray  # of the candidate, 0 to 1, NaN if missing
    discrete: FloatArray  # the same by the winner alone
    weights: FloatArray
    clusters: list[str]

    @classmethod
    def of(cls, outcomes: pd.DataFrame, *, of_votes: bool) -> "Units":
        counts = np.array([status in ("scored", "missing") for status in outcomes.status.array], dtype=bool)
        rows = outcomes if counts.all() else outcomes[counts]
        if not of_votes:
            # a missing repetition makes its example missing
            of_examples = rows.groupby(["cluster_id", "example_id"])[["points", "discrete", "weight"]]
            rows = of_examples.mean(skipna=False).reset_index()
        points, discrete, weights = (rows[name].to_numpy(np.float64) for name in ("points", "discrete", "weight"))
        return cls(points, discrete, weights, list(rows.cluster_id))

    def difference(self, points: FloatArray, confidence_level: float) -> PairedDifference:
        """Return the candidate's points minus the baseline's, over the units where they are known."""
        known = ~np.isnan(points)
        numbers, weights = points[known], self.weights[known]
        is_weighted = bool(numbers.size and np.ptp(weights))
        values = linearised(numbers, weights) if is_weighted else numbers
        return paired_difference(
            values,
            1 - values,
            [cluster for cluster, is_known in zip(self.clusters, known, strict=True) if is_known],
            confidence_level=confidence_level,
            binary=not is_weighted and bool(np.isin(numbers, (0.0, 1.0)).all()),
            bounds=None if is_weighted else (0.0, 1.0),  # weighted values may lie outside
            complementary=not is_weighted,
        )

    def test(self, confidence_level: float, exclusion: Reason | None) -> DifferenceTest:
        missing, estimate = np.isnan(self.points), self.difference(self.points, confidence_level)
        lowest = highest = estimate if self.points.size else None
        if missing.any():
            lowest, highest = (
                self.difference(np.where(missing, case, self.points), confidence_level) for case in (0.0, 1.0)
            )
        return DifferenceTest(
            estimate=estimate, lowest=lowest, highest=highest, n_missing=int(missing.sum()), exclusion=exclusion
        )


def counts_of(outcomes: pd.DataFrame) -> dict[str, Any]:
    """Numbers of pairs of runs by the winner; a pair that flipped, or half of it, counts by the comparison's rule."""
    points, asked = outcomes.discrete.to_numpy(), outcomes.asked.to_numpy(bool)
    outcome, status = Counter(outcomes.outcome.array), Counter(outcomes.status.array)
    return {
        "wins": int((points > 0.5).sum()),
        "losses": int((points < 0.5).sum()),
        "ties": int((points == 0.5).sum()),
        "half": outcome["half"],
        "flipped": outcome["flipped"],
        "missing": status["missing"],
        "decided_without_judge": int((~asked & ~np.isnan(points)).sum()),
        "left_out": status["left_out"] + status["not_applicable"],
    }


def discrete_rate(difference: PairedDifference) -> dict[str, Any]:
    """Return the win rate that counts graded verdicts as wins, losses and ties, as rates from 0 to 1."""
    ends = {"low": difference.low, "high": difference.high}
    rates = {name: None if end is None else (1 + min(max(end, -1.0), 1.0)) / 2 for name, end in ends.items()}
    error = difference.standard_error
    return {
        "discrete": difference.candidate_mean,
        **{f"discrete_{name}": rate for name, rate in rates.items()},
        "discrete_standard_error": None if error is None else error / 2,
    }
