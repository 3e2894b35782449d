"""Ending a comparison: one that is complete is sealed, another stays open to be resumed."""

from dataclasses import replace

from prefect import task
from prefect.cache_policies import NO_CACHE

from specs.comparison import ComparisonSpec
from specs.errors import UNREACHABLE
from store.comparisons import cached_judgements, complete_comparisons, given_twice, lacking_judgements, none_judged
from store.parquet import Store
from store.progress import spent
from store.records import ComparisonSetRow, LimitRow, now
from store.schemas import COMPARISON_TABLES
from tasks.comparison import Comparison, forget_comparison
from tasks.limits import limit_rows
from tasks.pairs import bouts_in
from tasks.progress import tally


@task(cache_policy=NO_CACHE, persist_result=False)
def finish_comparison(row: ComparisonSetRow) -> list[str]:
    """Write a comparison's last row, and seal it if no row lacks. Returns what is wrong with it, in words."""
    store = Store()
    tally.forget(frozenset({row.comparison_id}))
    limits = _limits(forget_comparison(row.comparison_id))
    if not store.is_sealed("comparison_sets", row.comparison_id):
        row = store.steady(lambda: _ended(store, row))
        store.append("limits", row.comparison_id, "limits", limits)
        store.append("comparison_sets", row.comparison_id, "end", [row])
        if row.state == "completed":
            complete_comparisons(store, row.comparison_id)
            store.seal(row.comparison_id, COMPARISON_TABLES)
    return [f"comparison {row.name!r} ({row.comparison_id}): {row.reason}"] if row.reason else []


def _ended(store: Store, row: ComparisonSetRow) -> ComparisonSetRow:
    """Whether it is done, what it lacks, what it cost."""
    spec = ComparisonSpec.model_validate_json(row.spec)
    lacking = lacking_judgements(store, row, [evaluator.metric for evaluator in spec.evaluators], bouts_in(row))
    sums = spent(store, row.comparison_id)
    return replace(
        row,
        state="incomplete" if lacking else "completed",
        reason=lacking or none_judged(store, row, UNREACHABLE) or given_twice(store, row.comparison_id),
        calls=sums.calls,
        calls_cached=cached_judgements(store, row.comparison_id),
        tokens_in=sums.tokens_in,
        tokens_out=sums.tokens_out,
        cost_usd=sums.cost_usd,
        ended_at=now(),
        recorded_at=now(),
    )


def _limits(ready: Comparison | None) -> list[LimitRow]:
    """How wide the limiters were; none where this process has made no call for the comparison."""
    if ready is None:
        return []
    return limit_rows(ready.row.comparison_id, [*ready.judging_on], ready.made_at)
