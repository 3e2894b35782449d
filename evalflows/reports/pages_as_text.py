"""What is shown about experiments: their progress and cost, results, decisions, worst examples, and what failed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from evalflows.reports.decisions import Decision
from evalflows.reports.result_sentences import judges_in_sentences, sentences
from evalflows.reports.results import Result
from evalflows.reports.worst_examples import Worst, worst_of
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import run_groups
from evalflows.store.queries.states import spooled_if_running
from evalflows.store.records import controls_batch

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOverview:
    """One experiment and its progress. Calls, tokens and cost are None where they were not recorded."""

    experiment_id: str
    name: str
    target: str
    run_group: str
    state: str
    reason: str | None
    tags: list[str]
    dataset_name: str | None
    snapshot_id: str
    n_examples: int
    repetitions: int
    planned: int
    answered: int  # of a running one, also those that are not in its parts yet
    failed: int
    calls: int | None
    calls_cached: int | None
    recorded_calls: int
    unrecorded_answers: int  # whose target may have made calls that nobody recorded
    unrecorded_judgements: int
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    mean_latency_s: float | None
    application_version: str | None
    git_commit: str | None
    started_at: datetime
    ended_at: datetime | None

    @property
    def unrecorded(self) -> list[str]:
        """Who may have made model calls that nobody recorded, in words."""
        counts = {"the target": self.unrecorded_answers, "evaluators": self.unrecorded_judgements}
        return [who for who, count in counts.items() if count]

    @property
    def has_unrecorded(self) -> bool:
        """Whether model calls may have been made that nobody recorded, or that only their cost is known of."""
        return bool(self.unrecorded) or (self.calls is None and self.cost_usd is not None)

    @property
    def calls_text(self) -> str:
        """Its model calls and their cost in words, known or not; empty if nothing was recorded yet."""
        parts = []
        if self.calls is not None:
            cost = "cost unknown" if self.cost_usd is None else f"{self.cost_usd:.4f} USD"
            parts.append(f"{self.calls} model calls, {self.calls_cached} from the ledger, {cost}")
        elif self.cost_usd is not None:
            parts.append(f"{self.cost_usd:.4f} USD, as the application reports")
        if self.unrecorded:
            others, whose = f"({self.recorded_calls} others were)", " and ".join(self.unrecorded)
            parts.append(f"model calls of {whose} were not recorded, so their cost is unknown {others}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error of a target or an evaluator, and how often it occurred."""

    experiment: str
    source: str  # `target`, or the evaluator
    error: str
    count: int
    trace: str | None  # the frames of the user's code
    example_id: str | None  # the first with this error


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCheck:
    """What a judge said of the known-answer controls."""

    judge: str
    passed: bool | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedCalls:
    """Calls of unknown price of an experiment with a budget in USD."""

    experiment: str
    calls: int
    budget_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedLimit:
    """A connection whose calls at once were reduced, because some were refused."""

    connection: str
    lowest: int
    highest: int
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentsReport:
    """Everything that is shown about some experiments; of several, the decisions are those on any of them."""

    experiments: Sequence[ExperimentOverview]
    results: Sequence[Result]
    decisions: Sequence[Decision]
    worst: Worst | None
    failures: Sequence[Failure]
    judge_checks: Sequence[JudgeCheck]
    unpriced: Sequence[UnpricedCalls]
    reduced_limits: Sequence[ReducedLimit]

    @property
    def sentences(self) -> list[str]:
        return sentences(self.results)

    @property
    def unmentioned_checks(self) -> list[JudgeCheck]:
        """The checks of judges that the sentences do not report."""
        mentioned = judges_in_sentences(self.results)
        return [check for check in self.judge_checks if check.judge not in mentioned]


def experiments_report(
    store: Store,
    experiments: Iterable[str],
    results: Sequence[Result],
    decisions: Sequence[Decision] = (),
    *,
    with_worst: bool = True,
) -> ExperimentsReport:
    """Return the report of experiments, given by id, with these results and decisions. Some may have no result.

    Without `with_worst`, which examples are worst is not looked for.
    """
    ids = list(experiments)
    failures, reduced, unpriced, checks = ask(
        store,
        *((query, [ids]) for query in (_FAILURES, _REDUCED, _UNPRICED)),
        (_CHECKS, [[controls_batch(group) for group in run_groups(store, ids)]]),
    )
    return ExperimentsReport(
        experiments=overviews(store, _THESE, [ids]),
        results=results,
        decisions=decisions,
        worst=worst_of(store, results, decisions) if with_worst else None,
        failures=_rows(Failure, failures),
        judge_checks=_rows(JudgeCheck, checks),
        unpriced=_rows(UnpricedCalls, unpriced),
        reduced_limits=_rows(ReducedLimit, reduced),
    )


def failures_of(store: Store, experiments: Sequence[str]) -> list[Failure]:
    """Return the errors of targets and evaluators in these experiments, the most frequent first."""
    return _rows(Failure, ask(store, (_FAILURES, [list(experiments)]))[0])


def overviews(store: Store, where: str, values: Sequence[object]) -> list[ExperimentOverview]:
    """Return the experiments for which a condition holds; `where` is SQL from there on, with an order if it matters."""
    (rows,) = ask(store, (f"{_OVERVIEW} where {where}", values))
    return [_counted(store, overview) for overview in _rows(ExperimentOverview, rows)]


def _counted(store: Store, overview: ExperimentOverview) -> ExperimentOverview:
    more = spooled_if_running(store, overview.state, overview.experiment_id, "outputs")
    return replace(overview, answered=overview.answered + more) if more else overview


def _rows(record: type[Row], rows: Sequence[Sequence[Any]]) -> list[Row]:
    names: tuple[str, ...] = record.__slots__  # type: ignore[attr-defined]  # each is a dataclass with slots
    return [record(**dict(zip(names, row, strict=True))) for row in rows]


_THESE = "is_one_of(experiment_id, $1) order by list_position($1, experiment_id)"

_OVERVIEW = """
select experiment_id, name, target, run_group, state, reason, tags, dataset_name, snapshot_id, n_examples, repetitions,
       planned, answered, failed, calls, calls_cached, recorded_calls, unrecorded,
       unrecorded_judgements, tokens_in, tokens_out, cost_usd, mean_latency_s, application_version,
       git_commit, started_at, ended_at
from experiment_overview
"""

_REDUCED = """
select connection, min(width), max(width), count(*) filter (reason in ('refused', 'refused_waiting')) as cuts
from (select distinct connection, process, changed_at, width, reason from limits where is_one_of(experiment_id, $1))
group by connection having cuts > 0 order by connection
"""

_UNPRICED = """
select e.name, count(*), any_value(e.budget_usd) from calls c join experiments e using (experiment_id)
where is_one_of(experiment_id, $1) and e.budget_usd is not null and c.cost_usd is null
group by e.name order by e.name
"""

_CHECKS = """
select subject_id, passed, message from checks
where is_one_of(batch_id, $1) and subject_kind = 'judge' order by subject_id
"""

_FAILURES = """
select e.name, what, error, count(*) as n, min(error_trace), min(example_id) from (
    select experiment_id, 'target' as what, error, error_trace, example_id from outputs where status = 'failed'
    union all
    select experiment_id, evaluator as what, error, error_trace, example_id from scores
    where status = 'failed' and coalesce(error_kind, '') <> 'no_output'
) f join experiments e using (experiment_id)
where is_one_of(experiment_id, $1)
group by all order by n desc, e.name, what, error limit 10
"""
