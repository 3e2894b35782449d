"""Comparisons: progress, cost, and the metrics of their experiments."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from evalflows.specs.metric_names import MEASURES
from evalflows.store.parquet import Store
from evalflows.store.records import ComparisonRow, ComparisonSetRow, derived_id


def item_metrics(store: Store, experiments: Sequence[str]) -> list[str]:
    """Return the run-level metrics of the experiments, and the built-in measures."""
    query = "select distinct metric from source.scores where list_contains(?, experiment_id) order by metric"
    return [*(metric for (metric,) in store.query(query, [list(experiments)])), *MEASURES]


def paid(store: Store, comparison_id: str) -> tuple[int, float, int]:
    """Return a comparison's paid calls, their cost in USD, and the number of calls with unknown price."""
    query = """select count(*), coalesce(sum(cost_usd), 0), count(*) filter (cost_usd is null)
               from source.calls where experiment_id = ?"""
    calls, usd, unpriced = store.query(query, [comparison_id])[0]
    return int(calls), float(usd), int(unpriced)


def cached_judgements(store: Store, comparison_id: str) -> int:
    """Return the number of calls answered from the ledger."""
    query = "select coalesce(sum(calls_cached), 0) from source.comparisons where comparison_id = ?"
    return int(store.query(query, [comparison_id])[0][0])


def open_judgements(store: Store, comparison_id: str, transient: Collection[str]) -> int:
    """Return the number of judgements that another attempt may complete; `transient` are the retryable error kinds.

    This includes pairs decided by a failed run, if that run has an output by now.
    """
    query = """select count(*) from source.comparisons where comparison_id = $1
               and (status = 'not_attempted' or (status = 'failed' and list_contains($2, error_kind))
                    or (decided_by = 'failed_output' and left_run_id in (select run_id from answered)
                        and right_run_id in (select run_id from answered)))"""
    answered = """with answered as (
                      select run_id from source.outputs where status = 'ok' and experiment_id in (
                          select unnest(experiments) from source.comparison_sets where comparison_id = $1)) """
    return int(store.query(answered + query, [comparison_id, sorted(transient)])[0][0])


def lacking_judgements(store: Store, row: ComparisonSetRow, evaluators: Sequence[str], planned: int) -> str | None:
    """Describe which of the `planned` judgements each evaluator lacks, and why; None if it lacks none.

    A pair with a run that was never made does not count as lacking: the comparison cannot complete it.
    """
    query = """select evaluator, count(distinct (left_run_id, right_run_id, shown_first)) from source.comparisons
               where comparison_id = ? and (status <> 'not_attempted' or error_kind = 'no_output') group by 1"""
    judged = dict(store.query(query, [row.comparison_id]))
    lacking = [f"{planned - judged.get(e, 0)} of {planned} by {e}" for e in evaluators if judged.get(e, 0) < planned]
    query = """select error from source.comparisons
               where comparison_id = ? and status = 'not_attempted' and error_kind <> 'no_output'
               group by error order by count(*) desc, error limit 3"""
    reasons = [error for (error,) in store.query(query, [row.comparison_id])]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return f"not done: {', '.join(lacking)}{why}" if lacking else None


def none_judged(store: Store, row: ComparisonSetRow, kinds: Collection[str]) -> str | None:
    """Describe, with the most frequent error, evaluators whose judgements all failed with these error kinds."""
    query = """select evaluator, count(*), mode(error) from source.comparisons
               where comparison_id = ? and decided_by is null and status not in ('not_applicable', 'not_attempted')
               group by evaluator
               having bool_and(status = 'failed' and list_contains(?, coalesce(error_kind, '')))
               order by evaluator"""
    failed = store.query(query, [row.comparison_id, sorted(kinds)])
    return "; ".join(f"{evaluator} judged none of {n} pairs: {error}" for evaluator, n, error in failed) or None


def given_twice(store: Store, comparison_id: str) -> str | None:
    """Describe metrics that several evaluators gave, which makes their verdicts ambiguous."""
    query = """select metric, string_agg(distinct evaluator, ' and ' order by evaluator) from source.comparisons
               where comparison_id = ? and status = 'scored'
               group by metric having count(distinct evaluator) > 1 order by metric"""
    twice = store.query(query, [comparison_id])
    return "; ".join(f"{who} both give {metric!r}, wanted different metric names" for metric, who in twice) or None


def complete_comparisons(store: Store, comparison_id: str) -> None:
    """Rewrite the judgements, if needed, so that each pair has one row per metric and order.

    An evaluator may give several metrics, or one with a name other than its own. If it failed or was not called for a
    pair, that row becomes one row per metric that it gave elsewhere; if it left a metric out, a row is added.
    """
    rows: list[ComparisonRow] = store.read("comparisons", comparison_id)
    metrics: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.status == "scored" and row.decided_by is None:
            metrics.setdefault(row.evaluator, {})[row.metric] = None
    several = {evaluator: list(names) for evaluator, names in metrics.items() if list(names) != [evaluator]}
    if not several:
        return
    completed = [row for row in rows if row.evaluator not in several]
    of_trial: dict[tuple[str, ...], list[ComparisonRow]] = {}
    for row in rows:
        if row.evaluator in several:
            of_trial.setdefault((row.evaluator, row.left_run_id, row.right_run_id, row.shown_first), []).append(row)
    for (evaluator, *_), judgements in of_trial.items():
        completed += _row_per_metric(judgements, several[evaluator])
    store.publish("comparisons", comparison_id, completed)


def _row_per_metric(rows: Sequence[ComparisonRow], metrics: Sequence[str]) -> list[ComparisonRow]:
    # If a run failed or was never made, no judge was called, and the outcome holds for every metric.
    judged = {
        row.metric: row
        for row in rows
        if row.metric in metrics and row.status in ("scored", "not_applicable") and row.decided_by is None
    }
    if not judged:
        last = max(rows, key=lambda row: row.recorded_at)
        return [_named(last, metrics[0]), *(_named(last, metric, **_UNPAID) for metric in metrics[1:])]
    first = next(iter(judged.values()))
    return [judged.get(metric) or _named(first, metric, **_UNPAID, **_left_out(first, metric)) for metric in metrics]


_UNPAID: dict[str, Any] = {"calls": 0, "calls_cached": 0, "tokens_in": None, "tokens_out": None, "cost_usd": 0.0}
"""The first row has the cost of all, so that sums are right."""


def _left_out(row: ComparisonRow, metric: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("winner", "left_score", "right_score", "metadata", "agreement"))
    return nothing | {"status": "not_applicable", "comment": f"{row.evaluator} gave no {metric} for this pair"}


def _named(row: ComparisonRow, metric: str, **changes: Any) -> ComparisonRow:
    runs = (row.left_run_id, row.right_run_id, row.shown_first)
    identity = judgement_id(row.comparison_id, metric, *runs, row.evaluator_version)
    return replace(row, metric=metric, judgement_id=identity, **changes)


def judgement_id(comparison_id: str, metric: str, left: str, right: str, shown_first: str, version: str) -> str:
    """Return the id of a judgement."""
    return derived_id(comparison_id, metric, left, right, shown_first, version)
