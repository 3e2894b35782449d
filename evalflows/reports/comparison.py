"""The report of a comparison: win rates, ratings, judge biases, and sentences about them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evalflows.reports.comparison_rows import JudgeBias, Overview, RankedExperiment, WinRate
from evalflows.reports.names_apart import names_apart
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.states import spooled_if_running

MAX_PAIRS = 20
"""Most pairs of systems that are written out in sentences, and in the narrow table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """Everything that is shown about a comparison."""

    overview: Overview
    win_rates: Sequence[WinRate]
    ranking: Sequence[RankedExperiment]
    biases: Sequence[JudgeBias]
    errors: Sequence[tuple[str, str, int]]  # evaluator, error, how often

    @property
    def known_biases(self) -> list[JudgeBias]:
        """The bias checks that had data."""
        return [bias for bias in self.biases if bias.reason_code != "no_data"]

    @property
    def sentences(self) -> list[str]:
        """The comparison in sentences."""
        return [*self._verdicts(), *self._graded(), *self._reasons(), *self._about_ratings(), *self._warnings()]

    def _verdicts(self) -> list[str]:
        if self.has_many_pairs:
            return self._counted_verdicts()
        return [
            f"{rate.candidate} against {rate.baseline}, {rate.metric}: {rate.verdict_text}, win rate {rate.rate_text}"
            for rate in self._overall()
        ]

    def _counted_verdicts(self) -> list[str]:
        by_metric: dict[str, Counter[str]] = {}
        for rate in self._overall():
            by_metric.setdefault(rate.metric, Counter())[rate.verdict_text] += 1
        return [
            f"{metric}, {verdicts.total()} pairs of systems by their direct votes: "
            + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            for metric, verdicts in by_metric.items()
        ]

    def _graded(self) -> list[str]:
        """The discrete win rates of judges with graded verdicts, whose win rate is their mean preference."""
        if self.has_many_pairs:
            return []
        return [
            f"{rate.candidate} against {rate.baseline}, {rate.metric}: the win rate is the mean of graded verdicts; "
            f"counted as wins, ties and losses it is {rate.discrete_text}"
            for rate in self._overall()
            if rate.discrete_win_rate is not None
        ]

    def _reasons(self) -> list[str]:
        """The reasons for not enough evidence, except an insignificant difference. A reason for all pairs is given
        once."""
        if self.has_many_pairs:
            return []
        undecided: dict[tuple[str, str], list[str]] = {}
        for rate in self._overall():
            if rate.reason and rate.reason_code != "no_significant_difference":
                pairs = undecided.setdefault((rate.metric, rate.reason), [])
                pairs.append(f"{rate.candidate} and {rate.baseline}")
        total = Counter(rate.metric for rate in self._overall())
        return [
            f"not enough evidence in {metric}{_between(pairs, total[metric])}: {reason}"
            for (metric, reason), pairs in undecided.items()
        ]

    def _about_ratings(self) -> list[str]:
        """Why there are no ratings, or why some have a weak prior, and whose."""
        guarded: dict[tuple[str, str], list[str]] = {}
        for row in self.ranking if self.has_ranking else ():
            if row.guarded and row.guard_reason:
                guarded.setdefault((row.metric, row.guard_reason), []).append(row.experiment)
        missing = dict.fromkeys(
            (row.metric, row.reason) for row in self.ranking if row.rating is None and self.has_ranking
        )
        return [f"{metric} has no ratings: {reason}" for metric, reason in missing] + [
            f"{metric}, ratings of {', '.join(names)}: {reason}" if len(names) <= MAX_PAIRS else f"{metric}: {reason}"
            for (metric, reason), names in guarded.items()
        ]

    def _overall(self) -> list[WinRate]:
        return [rate for rate in self.win_rates if rate.is_overall]

    @property
    def has_ranking(self) -> bool:
        """Whether ratings are shown: for three or more systems."""
        return self.overview.n_experiments > 2

    @property
    def has_many_pairs(self) -> bool:
        """Whether there are too many pairs of systems for a sentence each."""
        return len(self._overall()) > MAX_PAIRS

    def _warnings(self) -> list[str]:
        warnings, over = [], self.overview
        if over.n_left_out:
            warnings.append(
                f"{over.n_left_out} examples were not compared: not all experiments have them with the same inputs"
            )
        if over.decided_without_judge:
            policy = "the failed run loses" if over.failed_output_policy == "loses" else "such pairs are left out"
            warnings.append(f"{over.decided_without_judge} judgements needed no judge, as a run had failed: {policy}")
        if over.missing:
            warnings.append(f"{over.missing} of {over.planned} judgements are missing")
        return warnings


def comparison_report(store: Store, comparison_id: str) -> ComparisonReport:
    """Return the report of a comparison, read from one consistent state of the store.

    Raise StorageError if a file of the comparison or of its experiments is damaged.
    """
    for row in store.read("comparison_sets", comparison_id):
        store.verify(row.experiments, {"experiments", "outputs"})
    (overview,) = comparison_overviews(store, "comparison_id = $1", [comparison_id])
    rates, ranking, biases, errors = ask(
        store,
        (_RATES, [[comparison_id]]),
        *((query, [comparison_id]) for query in (_RATINGS, _BIASES, _ERRORS)),
    )
    win_rates = [WinRate(**dict(zip(WinRate.__slots__, row[1:], strict=True))) for row in rates]
    ranked = [RankedExperiment(**dict(zip(RankedExperiment.__slots__, row, strict=True))) for row in ranking]
    names = names_apart(
        store,
        {rate.candidate_experiment_id: rate.candidate for rate in win_rates}
        | {rate.baseline_experiment_id: rate.baseline for rate in win_rates},
    )
    return ComparisonReport(
        overview=overview,
        win_rates=[
            replace(rate, candidate=names[rate.candidate_experiment_id], baseline=names[rate.baseline_experiment_id])
            for rate in win_rates
        ],
        ranking=[replace(row, experiment=names.get(row.experiment_id, row.experiment)) for row in ranked],
        biases=[JudgeBias(**dict(zip(JudgeBias.__slots__, row, strict=True))) for row in biases],
        errors=[(evaluator, error, int(count)) for evaluator, error, count in errors],
    )


def overall_win_rates(store: Store, comparisons: Sequence[str]) -> dict[str, list[WinRate]]:
    """Return the win rates of each comparison over all examples, not length-controlled."""
    (rows,) = ask(store, (_RATES, [list(comparisons)]))
    found: dict[str, list[WinRate]] = {}
    for comparison_id, *values in rows:
        rate = WinRate(**dict(zip(WinRate.__slots__, values, strict=True)))
        if rate.is_overall:
            found.setdefault(comparison_id, []).append(rate)
    return found


def comparison_overviews(store: Store, where: str, values: Sequence[object]) -> list[Overview]:
    """Return the comparisons for which a condition holds; `where` is SQL from there on, with an order if it matters."""
    (rows,) = ask(store, (f"{_OVERVIEW} where {where}", values))
    found = [Overview(**dict(zip(Overview.__slots__, row, strict=True))) for row in rows]
    more = [spooled_if_running(store, one.state, one.comparison_id, "comparisons") for one in found]
    return [replace(one, judged=one.judged + count) for one, count in zip(found, more, strict=True)]


def _between(pairs: Sequence[str], total: int) -> str:
    return "" if len(pairs) == total else f" between {'; '.join(pairs)}"


_OVERVIEW = """
select comparison_id, name, state, reason, n_experiments, n_shared, n_left_out, n_votes, planned, judged, missing,
       decided_without_judge, failed_output_policy, both_orders, order_rule, randomize_order, calls, calls_cached,
       cost_usd, experiments, started_at, ended_at
from comparison_overview
"""

_RATES = """
select comparison_id, metric, candidate_experiment_id, candidate, baseline_experiment_id, baseline, slice,
       length_controlled, win_rate, standard_error, win_rate_low, win_rate_high, method, p_value, p_adjusted, n_pairs,
       wins, losses, ties, half, flipped, missing, left_out, decided_without_judge, discrete_win_rate,
       discrete_standard_error, discrete_low, discrete_high, conclusion, reason, reason_code, warning
from win_rates where is_one_of(comparison_id, $1)
order by metric, baseline, candidate, slice <> 'all', length_controlled, slice
"""

_RATINGS = """
select metric, rank, rank_low, rank_high, experiment_id, experiment, rating, standard_error, ci_low, ci_high, method,
       win_rate, win_rate_standard_error, win_rate_low, win_rate_high,
       wins, losses, ties, guarded, guard_reason, reason
from leaderboard where comparison_id = ? and slice = 'all' order by metric, rank, experiment
"""

_BIASES = """
select metric, bias, passed, message, reason_code from judge_biases where comparison_id = ? order by metric, bias
"""

_ERRORS = """
select evaluator, min(error) || case when count(distinct error) > 1 then ' (and the like)' else '' end as error,
       count(*) as n
from comparisons where comparison_id = ? and status = 'failed'
group by evaluator, regexp_replace(error, '''[^'']*''', '', 'g')  -- ignoring names and ids
order by n desc, evaluator, error limit 10
"""
