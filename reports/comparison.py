"""The report of a comparison: win rates, ratings, judge biases, and sentences about them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from evalflows.reports.figures import p_text, percent
from evalflows.reports.names_apart import names_apart
from evalflows.reports.results import conclusion_text, verdict_cell
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.states import spooled_if_running


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What was compared, and its progress."""

    comparison_id: str
    name: str
    state: str
    reason: str | None
    n_experiments: int
    n_shared: int
    n_left_out: int
    planned: int
    judged: int
    missing: int
    decided_without_judge: int
    failed_output_policy: str
    both_orders: bool
    randomize_order: bool
    calls: int | None
    calls_cached: int | None
    cost_usd: float | None
    experiments: list[str]  # names
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate:
    """The win rate of a candidate against a baseline."""

    metric: str
    candidate_experiment_id: str
    candidate: str
    baseline_experiment_id: str
    baseline: str
    slice: str
    length_controlled: bool
    win_rate: float | None
    win_rate_low: float | None
    win_rate_high: float | None
    p_value: float | None
    p_adjusted: float | None
    n_pairs: int
    wins: int
    losses: int
    ties: int
    flipped: int
    missing: int
    left_out: int
    decided_without_judge: int | None
    conclusion: str
    reason: str | None
    reason_code: str | None

    @property
    def what(self) -> str:
        return "at equal length" if self.length_controlled else self.slice

    @property
    def rate_text(self) -> str:
        return percent(self.win_rate, self.win_rate_low, self.win_rate_high)

    @property
    def p_text(self) -> str:
        return p_text(self.p_value)

    @property
    def p_adjusted_text(self) -> str:
        return p_text(self.p_adjusted)

    @property
    def ties_text(self) -> str:
        return f"{self.ties} ({self.flipped} flipped)" if self.flipped else str(self.ties)

    @property
    def verdict_text(self) -> str:
        return conclusion_text(self.conclusion, self.reason_code)

    @property
    def verdict_cell(self) -> str:
        return verdict_cell(self.conclusion, self.reason_code)

    @property
    def counts(self) -> tuple[str, str, str, str]:
        """Wins, ties, losses and missing; empty for the length-controlled row, which covers the same pairs."""
        if self.length_controlled:
            return "", "", "", ""
        return str(self.wins), self.ties_text, str(self.losses), str(self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedExperiment:
    """One experiment's rank and rating."""

    metric: str
    rank: int | None
    experiment_id: str
    experiment: str
    rating: float | None
    ci_low: float | None
    ci_high: float | None
    win_rate: float | None
    win_rate_low: float | None
    win_rate_high: float | None
    wins: int
    losses: int
    ties: int
    reason: str | None

    @property
    def rating_text(self) -> str:
        if self.rating is None:
            return "-"
        has_interval = self.ci_low is not None and self.ci_high is not None
        return f"{self.rating:.0f}" + (f" [{self.ci_low:.0f}, {self.ci_high:.0f}]" if has_interval else "")

    @property
    def rate_text(self) -> str:
        return percent(self.win_rate, self.win_rate_low, self.win_rate_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeBias:
    """One check of a judge for a bias, such as for a position."""

    metric: str
    bias: str
    passed: bool | None
    message: str
    reason_code: str | None

    @property
    def text(self) -> str:
        return f"{self.metric}, {self.bias.replace('_', ' ')}: {self.message}"


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
        return [*self._verdicts(), *self._reasons(), *self._warnings()]

    def _verdicts(self) -> list[str]:
        return [
            f"{rate.candidate} against {rate.baseline}, {rate.metric}: {rate.verdict_text}, win rate {rate.rate_text}"
            for rate in self._overall()
        ]

    def _reasons(self) -> list[str]:
        """The reasons for not enough evidence, except an insignificant difference. A reason for all pairs is given
        once."""
        inconclusive: dict[tuple[str, str], list[str]] = {}
        for rate in self._overall():
            if rate.reason and rate.reason_code != "no_significant_difference":
                pairs = inconclusive.setdefault((rate.metric, rate.reason), [])
                pairs.append(f"{rate.candidate} and {rate.baseline}")
        total = Counter(rate.metric for rate in self._overall())
        return [
            f"{metric} is inconclusive{_between(pairs, total[metric])}: {reason}"
            for (metric, reason), pairs in inconclusive.items()
        ]

    def _overall(self) -> list[WinRate]:
        """The win rates on all examples, not length-controlled."""
        return [rate for rate in self.win_rates if rate.slice == "all" and not rate.length_controlled]

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
        store, *((query, [comparison_id]) for query in (_RATES, _RATINGS, _BIASES, _ERRORS))
    )
    win_rates = [WinRate(**dict(zip(WinRate.__slots__, row, strict=True))) for row in rates]
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


def comparison_overviews(store: Store, where: str, values: Sequence[object]) -> list[Overview]:
    """Return the comparisons for which a condition holds; `where` is SQL from there on, with an order if it matters."""
    (rows,) = ask(store, (f"{_OVERVIEW} where {where}", values))
    found = [Overview(**dict(zip(Overview.__slots__, row, strict=True))) for row in rows]
    more = [spooled_if_running(store, one.state, one.comparison_id, "comparisons") for one in found]
    return [replace(one, judged=one.judged + count) for one, count in zip(found, more, strict=True)]


def _between(pairs: Sequence[str], total: int) -> str:
    return "" if len(pairs) == total else f" between {'; '.join(pairs)}"


_OVERVIEW = """
select comparison_id, name, state, reason, n_experiments, n_shared, n_left_out, planned, judged, missing,
       decided_without_judge, failed_output_policy, both_orders, randomize_order, calls, calls_cached, cost_usd,
       experiments, started_at, ended_at
from comparison_overview
"""

_RATES = """
select metric, candidate_experiment_id, candidate, baseline_experiment_id, baseline, slice, length_controlled, win_rate,
       win_rate_low, win_rate_high, p_value, p_adjusted, n_pairs, wins, losses, ties, flipped, missing, left_out,
       decided_without_judge, conclusion, reason, reason_code
from win_rates where comparison_id = ?
order by metric, baseline, candidate, slice <> 'all', length_controlled, slice
"""

_RATINGS = """
select metric, rank, experiment_id, experiment, rating, ci_low, ci_high, win_rate, win_rate_low, win_rate_high,
       wins, losses, ties, reason
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
