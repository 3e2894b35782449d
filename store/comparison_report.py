"""A comparison as a person reads it: who wins, who stands where, what the judge goes by, and that in words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from store.catalog import ask
from store.parquet import Store
from store.results import CONCLUSIONS, p_text

MAY_BE_NONE = "the difference may be none"
"""How the reason begins that an interval shows by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What was compared, and how far it is."""

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
    settled_without_asking: int
    failed_output_policy: str
    both_orders: bool
    randomize_order: bool
    calls: int | None
    calls_cached: int | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate:
    """How often a candidate's answer is the better one."""

    metric: str
    candidate: str
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
    settled: int | None
    conclusion: str
    reason: str | None

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
        return CONCLUSIONS.get(self.conclusion, "")

    @property
    def counts(self) -> tuple[str, str, str, str]:
        """Wins, ties, losses and what is missing; said once, not again of the same pairs at equal length."""
        if self.length_controlled:
            return "", "", "", ""
        return str(self.wins), self.ties_text, str(self.losses), str(self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one experiment stands among all."""

    metric: str
    rank: int | None
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
        known = self.ci_low is not None and self.ci_high is not None
        return f"{self.rating:.0f}" + (f" [{self.ci_low:.0f}, {self.ci_high:.0f}]" if known else "")

    @property
    def rate_text(self) -> str:
        return percent(self.win_rate, self.win_rate_low, self.win_rate_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """What one judge's verdicts go by besides the answers."""

    metric: str
    habit: str
    passed: bool | None
    message: str

    @property
    def text(self) -> str:
        return f"{self.metric}, {self.habit.replace('_', ' ')}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """Everything that is shown of a comparison."""

    overview: Overview
    win_rates: Sequence[WinRate]
    standings: Sequence[Standing]
    habits: Sequence[Habit]
    errors: Sequence[tuple[str, str, int]]  # evaluator, error, how often

    @property
    def known_habits(self) -> list[Habit]:
        """Those that the verdicts tell of."""
        return [one for one in self.habits if not one.message.startswith("not known")]

    @property
    def sentences(self) -> list[str]:
        """What is to be said of it, for someone who reads no tables."""
        return [*self._verdicts(), *self._reasons(), *self._warnings()]

    def _verdicts(self) -> list[str]:
        return [
            f"{one.candidate} against {one.baseline}, {one.metric}: {one.verdict_text}, wins {one.rate_text}"
            for one in self._overall()
        ]

    def _reasons(self) -> list[str]:
        """Why there is not enough evidence, where it is more than that the difference may be none. What holds between
        every two experiments is said once."""
        found: dict[tuple[str, str], list[str]] = {}
        for one in self._overall():
            if one.reason and not one.reason.startswith(MAY_BE_NONE):
                found.setdefault((one.metric, one.reason), []).append(f"{one.candidate} and {one.baseline}")
        pairs = Counter(one.metric for one in self._overall())
        return [
            f"{metric} decides nothing{_between(undecided, pairs[metric])}: {reason}"
            for (metric, reason), undecided in found.items()
        ]

    def _overall(self) -> list[WinRate]:
        """Of all examples, and with answers as long as they are."""
        return [one for one in self.win_rates if one.slice == "all" and not one.length_controlled]

    def _warnings(self) -> list[str]:
        found, over = [], self.overview
        if over.n_left_out:
            found.append(f"{over.n_left_out} examples are not compared, as not all experiments have them alike")
        if over.settled_without_asking:
            policy = "lost" if over.failed_output_policy == "loses" else "were left out"
            found.append(f"{over.settled_without_asking} judgements were not asked for: a run failed, and {policy}")
        if over.missing:
            found.append(f"{over.missing} of {over.planned} judgements are missing")
        return found


def comparison_report(store: Store, comparison_id: str) -> ComparisonReport:
    """What is to be shown of a comparison, all of it as the store is at one moment."""
    overview, rates, standings, habits, errors = ask(
        store, *((query, [comparison_id]) for query in (_OVERVIEW, _RATES, _STANDINGS, _HABITS, _ERRORS))
    )
    return ComparisonReport(
        overview=Overview(**dict(zip(Overview.__slots__, overview[0], strict=True))),
        win_rates=[WinRate(**dict(zip(WinRate.__slots__, row, strict=True))) for row in rates],
        standings=[Standing(**dict(zip(Standing.__slots__, row, strict=True))) for row in standings],
        habits=[Habit(**dict(zip(Habit.__slots__, row, strict=True))) for row in habits],
        errors=[(evaluator, error, int(count)) for evaluator, error, count in errors],
    )


def _between(pairs: Sequence[str], of: int) -> str:
    return "" if len(pairs) == of else f" between {'; '.join(pairs)}"


def percent(share: float | None, low: float | None, high: float | None) -> str:
    """A share with its interval, where it has one; `-` for none."""
    if share is None:
        return "-"
    span = f" [{low:.1%}, {high:.1%}]" if low is not None and high is not None else ""
    return f"{share:.1%}{span}"


_OVERVIEW = """
select comparison_id, name, state, reason, n_experiments, n_shared, n_left_out, planned, judged, missing,
       settled_without_asking, failed_output_policy, both_orders, randomize_order, calls, calls_cached, cost_usd
from comparison_overview where comparison_id = ?
"""

_RATES = """
select metric, candidate, baseline, slice, length_controlled, win_rate, win_rate_low, win_rate_high, p_value,
       p_adjusted, n_pairs, wins, losses, ties, flipped, missing, left_out, settled, conclusion, reason
from win_rates where comparison_id = ?
order by metric, baseline, candidate, slice <> 'all', length_controlled, slice
"""

_STANDINGS = """
select metric, rank, experiment, rating, ci_low, ci_high, win_rate, win_rate_low, win_rate_high, wins, losses, ties,
       reason
from leaderboard where comparison_id = ? and slice = 'all' order by metric, rank, experiment
"""

_HABITS = "select metric, habit, passed, message from judge_habits where comparison_id = ? order by metric, habit"

_ERRORS = """
select evaluator, min(error) || case when count(distinct error) > 1 then ' (and the like)' else '' end as error,
       count(*) as n
from comparisons where comparison_id = ? and status = 'failed'
group by evaluator, regexp_replace(error, '''[^'']*''', '', 'g')  -- names and ids aside
order by n desc, evaluator, error limit 10
"""
