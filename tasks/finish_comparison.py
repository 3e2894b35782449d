"""Finish a comparison: seal it if it is complete; otherwise it stays open to be resumed."""

from dataclasses import replace

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.execution.limiter_history import limit_rows
from evalflows.execution.pair_chunks import n_trials
from evalflows.execution.prepared import prepared_comparisons
from evalflows.execution.progress import tally
from evalflows.execution.running_comparison import RunningComparison, forget_comparison
from evalflows.specs.errors import UNREACHABLE
from evalflows.store.parquet import Store
from evalflows.store.queries.comparisons import (
    cached_judgements,
    complete_comparisons,
    given_twice,
    lacking_judgements,
    none_judged,
)
from evalflows.store.queries.progress import spent
from evalflows.store.records import ComparisonSetRow, LimitRow, after
from evalflows.store.row_specs import comparison_spec
from evalflows.store.schemas import COMPARISON_TABLES


@task(cache_policy=NO_CACHE, persist_result=False)
def finish_comparison(row: ComparisonSetRow) -> list[str]:
    """Write a comparison's last row, seal it if it is complete, and return what is wrong with it, in words."""
    store = Store()
    tally.forget(frozenset({row.comparison_id}))
    limits = _limits(forget_comparison(row.comparison_id))
    prepared_comparisons.forget(comparison_spec(row))
    if not store.is_sealed("comparison_sets", row.comparison_id):
        row = store.steady(lambda: _ended(store, row))
        store.append("limits", row.comparison_id, "limits", limits)
        store.append("comparison_sets", row.comparison_id, "end", [row])
        if row.state == "completed":
            complete_comparisons(store, row.comparison_id)
            store.seal(row.comparison_id, COMPARISON_TABLES)
    return [f"comparison {row.name!r} ({row.comparison_id}): {row.reason}"] if row.reason else []


def _ended(store: Store, row: ComparisonSetRow) -> ComparisonSetRow:
    """Return a comparison's last row: its state, what it lacks, and what it cost."""
    judges = [evaluator.metric for evaluator in comparison_spec(row).evaluators]  # none of votes, which are whole
    lacking = lacking_judgements(store, row, judges, n_trials(row))
    sums, ended_at = spent(store, row.comparison_id), after(row.recorded_at)
    return replace(
        row,
        state="incomplete" if lacking else "completed",
        reason=lacking or none_judged(store, row, UNREACHABLE) or given_twice(store, row.comparison_id),
        calls=sums.calls,
        calls_cached=cached_judgements(store, row.comparison_id),
        tokens_in=sums.tokens_in,
        tokens_out=sums.tokens_out,
        cost_usd=sums.cost_usd,
        ended_at=ended_at,
        recorded_at=ended_at,
    )


def _limits(comparison: RunningComparison | None) -> list[LimitRow]:
    """Return the history of the limiters; empty if this process made no call for the comparison."""
    if comparison is None:
        return []
    return limit_rows(comparison.row.comparison_id, [*comparison.judging_on], comparison.made_at)
