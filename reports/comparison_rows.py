"""The rows of a comparison's report: what was compared, win rates, ratings, and checks of the judges."""

from dataclasses import dataclass
from datetime import datetime

from evalflows.reports.figures import p_text, percent
from evalflows.reports.results import conclusion_text


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
    n_votes: int | None  # of recorded votes; then the experiments are systems of their file
    planned: int
    judged: int
    missing: int
    decided_without_judge: int
    failed_output_policy: str
    both_orders: bool
    order_rule: str
    randomize_order: bool
    calls: int | None
    calls_cached: int | None
    cost_usd: float | None
    experiments: list[str]  # names
    started_at: datetime
    ended_at: datetime | None

    @property
    def progress_text(self) -> str:
        """What was compared, how far it is, and what it cost, without its name and state."""
        if self.n_votes is not None:
            return f"{self.n_votes} votes on {self.n_experiments} systems, {self.n_shared} prompts"
        text = f"{self.n_experiments} experiments, {self.n_shared} shared examples, {self.order_text}; "
        text += f"{self.judged} of {self.planned} judged"
        if self.calls is not None:
            cost = "cost unknown" if self.cost_usd is None else f"{self.cost_usd:.4f} USD"
            text += f"; {self.calls} model calls, {self.calls_cached} from the ledger, {cost}"
        elif self.state in ("completed", "incomplete"):
            text += "; model calls of evaluators were not recorded, so their cost is unknown"
        return f"{text}; {self.reason}" if self.reason else text

    @property
    def order_text(self) -> str:
        if self.both_orders:
            return "each pair in both orders"
        return "random order per pair" if self.randomize_order else "fixed order"


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
    standard_error: float | None
    win_rate_low: float | None
    win_rate_high: float | None
    method: str
    p_value: float | None
    p_adjusted: float | None
    n_pairs: int
    wins: int
    losses: int
    ties: int
    half: int
    flipped: int
    missing: int
    left_out: int
    decided_without_judge: int | None
    discrete_win_rate: float | None  # if verdicts are graded: counted as wins, losses and ties
    discrete_standard_error: float | None
    discrete_low: float | None
    discrete_high: float | None
    conclusion: str
    reason: str | None
    reason_code: str | None
    warning: str | None

    @property
    def what(self) -> str:
        return "at equal length" if self.length_controlled else self.slice

    @property
    def rate_text(self) -> str:
        return percent(self.win_rate, self.win_rate_low, self.win_rate_high)

    @property
    def discrete_text(self) -> str:
        return percent(self.discrete_win_rate, self.discrete_low, self.discrete_high)

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
    def is_overall(self) -> bool:
        """Whether it is of all examples, and not length-controlled."""
        return self.slice == "all" and not self.length_controlled

    @property
    def verdict_text(self) -> str:
        return conclusion_text(self.conclusion, self.reason_code)

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
    rank_low: int | None  # the best and the worst rank that the differences of ratings allow
    rank_high: int | None
    experiment_id: str
    experiment: str
    rating: float | None
    standard_error: float | None
    ci_low: float | None
    ci_high: float | None
    method: str | None
    win_rate: float | None
    win_rate_standard_error: float | None
    win_rate_low: float | None
    win_rate_high: float | None
    wins: int
    losses: int
    ties: int
    guarded: bool | None  # whether half a win and half a loss keep its rating finite
    guard_reason: str | None
    reason: str | None

    @property
    def rank_text(self) -> str:
        if self.rank is None:
            return "-"
        return f"{self.rank}" if self.rank_low is None else f"{self.rank} [{self.rank_low}, {self.rank_high}]"

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
