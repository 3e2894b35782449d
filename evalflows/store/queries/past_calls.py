"""What earlier runs called and measured, for an estimate of what a run costs and how many examples it needs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from evalflows.specs.frozen import dataclass
from evalflows.store.arrow import np
from evalflows.store.queries.spending import PAID_CALL
from evalflows.store.records import ExperimentRow
from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

if TYPE_CHECKING:
    import numpy.typing as npt

Runs: TypeAlias = "npt.NDArray[np.float64]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCalls:
    """Means over paid calls."""

    calls: int
    tokens_in: float | None  # None if none were reported, as by some applications
    tokens_out: float | None
    tokens_cached: float | None  # of tokens_in
    tokens_reasoning: float | None  # of tokens_out
    usd: float | None  # None if the price of a call is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsEach:
    """How often a model was called, including answers from the ledger."""

    times: int  # runs, or judgements
    calls_each: float


def calls_of_target(store: Store, version: str, other: str | None = None) -> PastCalls | None:
    """Return the calls of a target of this version, or of another in its conversations; None if there are none with
    token counts."""
    condition = """evaluator is not distinct from ?
                   and experiment_id in (select experiment_id from source.experiments where target_version = ?)"""
    return _past(store, condition, other, version)


def calls_of_judge(store: Store, name: str, version: str) -> PastCalls | None:
    """Return the calls of an evaluator of this name and version, pairwise or not."""
    condition = """evaluator = ? and experiment_id in (
                select experiment_id from source.experiments where contains(evaluators, ?)
                union all select comparison_id from source.comparison_sets where contains(evaluators, ?))"""
    return _past(store, condition, name, version, version)


def calls_to_model(store: Store, base_url: str, model: str, *, by_target: bool) -> PastCalls | None:
    """Return the calls of targets, or of evaluators, to a model. `base_url` is in the ledger's form."""
    of_whom = "evaluator is null" if by_target else "evaluator <> 'trial'"
    condition = f"base_url = ? and model = ? and {of_whom}"
    return _past(store, condition, base_url, model)


def asked_by_target(store: Store, version: str) -> CallsEach | None:
    """Return how often a target of this version called a model per run, as far as recorded."""
    query = """select count(*), sum(calls + coalesce(calls_cached, 0)) from source.outputs
               where status in ('ok', 'failed') and reused_from is null and calls is not null
                 and experiment_id in (select experiment_id from source.experiments where target_version = ?)"""
    return _asked(store, query, version)


def asked_in_conversations(store: Store, version: str, other: str) -> CallsEach | None:
    """Return how often another than the target called a model per conversation, each call counted once."""
    query = """with talks as (select experiment_id from source.experiments where target_version = ?)
               select (select count(*) from source.outputs
                       where status in ('ok', 'failed') and reused_from is null and experiment_id in (from talks)),
                      count(distinct (subject_id, call_key))
               from source.calls where evaluator = ? and experiment_id in (from talks) having count(*) > 0"""
    return _asked(store, query, version, other)


def asked_by_judge(store: Store, name: str, version: str) -> CallsEach | None:
    """Return how often an evaluator of this name and version called a model per judgement, as far as recorded."""
    query = """select count(*), sum(calls) from (
                   select sum(calls + coalesce(calls_cached, 0)) as calls, bool_or(calls is null) as is_unknown
                   from staging.scores
                   where evaluator = ? and evaluator_version = ? and status in ('scored', 'failed', 'not_applicable')
                     and coalesce(error_kind, '') <> 'no_output' group by subject_id)
               where not is_unknown"""
    return _asked(store, query, name, version)


def asked_by_pairwise(store: Store, name: str, version: str) -> CallsEach | None:
    """Return how often a pairwise evaluator called a model per judgement, as far as recorded."""
    query = """select count(*), sum(calls) from (
                   select sum(calls + coalesce(calls_cached, 0)) as calls, bool_or(calls is null) as is_unknown
                   from staging.comparisons where evaluator = ? and evaluator_version = ? and decided_by is null
                     and status in ('scored', 'failed', 'not_applicable')
                   group by left_run_id, right_run_id, shown_first)
               where not is_unknown"""
    return _asked(store, query, name, version)


def in_ledger(store: Store, keys: Iterable[str]) -> set[str]:
    """Return which of these keys are of calls that are in the ledger and reusable."""
    query = """select distinct call_key from source.calls
               where reusable and call_key in (select unnest(?::varchar[]))"""
    return {key for (key,) in store.query(query, [[*keys]])}


def _past(store: Store, condition: str, *values: str | None) -> PastCalls | None:
    query = f"""select count(*), avg(tokens_in), avg(case when tokens_in is not null then coalesce(tokens_out, 0) end),
                       sum(tokens_cached) / count(*), sum(tokens_reasoning) / count(*),
                       case when count(cost_usd) = count(*) then avg(cost_usd) end
                from source.calls where status = 'ok' and (tokens_in is not null or kind = 'application')
                  and {PAID_CALL} and {condition}"""
    (row,) = store.query(query, values)
    return PastCalls(**dict(zip(PastCalls.__dataclass_fields__, row, strict=True))) if row[0] else None


def _asked(store: Store, query: str, *values: str) -> CallsEach | None:
    times, calls = next(iter(store.query(query, values)), (0, 0))
    return CallsEach(times=times, calls_each=float(calls or 0) / times) if times else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBefore:
    """A complete experiment, and one evaluator version of a numeric metric."""

    experiment_id: str
    name: str
    run_group: str
    snapshot_id: str
    dataset_name: str | None
    repetitions: int
    started_at: datetime
    is_baseline: bool  # of its run group
    evaluator_version: str
    is_yes_no: bool
    scored: int  # runs


def measured_before(store: Store, metric: str) -> list[MeasuredBefore]:
    """Return the complete experiments with values of a metric, newest first."""
    return ask_records(store, MeasuredBefore, _MEASURED, [metric])


def run_values(store: Store, experiment: ExperimentRow, metric: str, evaluator_version: str) -> Runs:
    """Return a metric's values, shape (examples, repetitions), in the snapshot's order; NaN if there is none."""
    parameters = [experiment.snapshot_id, experiment.experiment_id, metric, evaluator_version]
    rows = np.array(ask(store, (_VALUES, parameters))[0], dtype=np.float64).reshape(-1, 3)  # Arrow's would load pandas
    runs = np.full((experiment.n_examples, experiment.repetitions), np.nan)
    index, repetition = rows[:, :2].astype(np.intp).T
    runs[index, repetition] = rows[:, 2]
    return runs


_MEASURED = """
with measured as (
    select experiment_id, evaluator_version, bool_and(coalesce(data_type, 'BOOLEAN') = 'BOOLEAN') as is_yes_no,
           count(value) filter (status = 'scored') as scored
    from run_values where metric = $1 group by all
    union all
    select experiment_id, evaluator_version, false, n_runs from resamples where metric = $1 and missing_as = 'known'
)
select experiment_id, e.name, e.run_group, e.snapshot_id, e.dataset_name, e.repetitions, e.started_at,
       coalesce(coalesce(e.spec ->> '$.baseline', e.spec ->> '$.targets[0].name') = e.target, false) as is_baseline,
       m.evaluator_version, m.is_yes_no, m.scored
from experiments e join measured m using (experiment_id)
where e.state = 'completed' and m.scored > 0
order by e.started_at desc, e.experiment_id desc
"""

_VALUES = """
with places as (
    select example_id, row_number() over (order by position) - 1 as place from examples where snapshot_id = $1
)
select place, repetition, value from run_values join places using (example_id)
where experiment_id = $2 and metric = $3 and evaluator_version = $4 and status = 'scored' and value is not null
"""
