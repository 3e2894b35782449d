"""How far a comparison is, what it cost, and what its experiments were judged by."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from specs.metric import MEASURES
from store.parquet import Store
from store.records import ComparisonRow, ComparisonSetRow, derived_id


def item_metrics(store: Store, experiments: Sequence[str]) -> list[str]:
    """The metrics by which the answers of some experiments were judged one by one, and those measured of every run."""
    query = "select distinct metric from source.scores where list_contains(?, experiment_id) order by metric"
    return [*(metric for (metric,) in store.query(query, [list(experiments)])), *MEASURES]


def paid(store: Store, comparison_id: str) -> tuple[int, float, int]:
    """What a comparison has paid: calls, USD, and how many of the calls have no known price."""
    query = """select count(*), coalesce(sum(cost_usd), 0), count(*) filter (cost_usd is null)
               from source.calls where experiment_id = ?"""
    calls, usd, unpriced = store.query(query, [comparison_id])[0]
    return int(calls), float(usd), int(unpriced)


def cached_judgements(store: Store, comparison_id: str) -> int:
    """How many answers came from the ledger."""
    query = "select coalesce(sum(calls_cached), 0) from source.comparisons where comparison_id = ?"
    return int(store.query(query, [comparison_id])[0][0])


def open_judgements(store: Store, comparison_id: str, transient: Collection[str]) -> int:
    """How many rows stand for something that another attempt may yet bring; `transient` are kinds that may pass.

    So do pairs that were settled as a run had failed, if it has its output by now.
    """
    query = """select count(*) from source.comparisons where comparison_id = $1
               and (status = 'not_attempted' or (status = 'failed' and list_contains($2, error_kind))
                    or (decided_by = 'failed output' and left_run_id in (select run_id from answered)
                        and right_run_id in (select run_id from answered)))"""
    answered = """with answered as (
                      select run_id from source.outputs where status = 'ok' and experiment_id in (
                          select unnest(experiments) from source.comparison_sets where comparison_id = $1)) """
    return int(store.query(answered + query, [comparison_id, sorted(transient)])[0][0])


def lacking_judgements(store: Store, row: ComparisonSetRow, evaluators: Sequence[str], planned: int) -> str | None:
    """What lacks for each evaluator to have judged all `planned` pairs, in words with the reasons; None for nothing.

    A pair of which a run was never made lacks nothing that a comparison could bring.
    """
    query = """select evaluator, count(distinct (left_run_id, right_run_id, shown_first)) from source.comparisons
               where comparison_id = ? and (status <> 'not_attempted' or error_kind = 'no_output') group by 1"""
    judged = dict(store.query(query, [row.comparison_id]))
    lacking = [f"{planned - judged.get(e, 0)} of {planned} by {e}" for e in evaluators if judged.get(e, 0) < planned]
    query = """select error from source.comparisons
               where comparison_id = ? and status = 'not_attempted' and error_kind <> 'no_output'
               group by error order by count(*) desc, error limit 3"""
    reasons = [error.removeprefix("not attempted: ") for (error,) in store.query(query, [row.comparison_id])]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return f"not done: {', '.join(lacking)}{why}" if lacking else None


def none_judged(store: Store, row: ComparisonSetRow, kinds: Collection[str]) -> str | None:
    """Says so, with the most frequent error, if every judgement of an evaluator failed by an error of these kinds."""
    query = """select evaluator, count(*), mode(error) from source.comparisons
               where comparison_id = ? and decided_by is null and status not in ('not_applicable', 'not_attempted')
               group by evaluator
               having bool_and(status = 'failed' and list_contains(?, coalesce(error_kind, '')))
               order by evaluator"""
    lost = store.query(query, [row.comparison_id, sorted(kinds)])
    return "; ".join(f"{evaluator} judged none of {n} pairs: {error}" for evaluator, n, error in lost) or None


def given_twice(store: Store, comparison_id: str) -> str | None:
    """Says so, if several evaluators gave a metric of one name: of their verdicts there is no saying which is meant."""
    query = """select metric, string_agg(distinct evaluator, ' and ' order by evaluator) from source.comparisons
               where comparison_id = ? and status = 'scored'
               group by metric having count(distinct evaluator) > 1 order by metric"""
    twice = store.query(query, [comparison_id])
    return "; ".join(f"{who} both give {metric!r}, wanted a key of its own for each" for metric, who in twice) or None


def complete_comparisons(store: Store, comparison_id: str) -> None:
    """Publish the judgements anew, where they need it, so that each pair has its row for every metric in each order.

    An evaluator may give several metrics, or one by another name than its own. Where it failed or was not asked, the
    row that says so becomes one for each metric that it gave elsewhere; where it left a metric out, a row says so.
    """
    rows: list[ComparisonRow] = store.read("comparisons", comparison_id)
    given: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.status == "scored" and row.decided_by is None:
            given.setdefault(row.evaluator, {})[row.metric] = None
    several = {evaluator: list(names) for evaluator, names in given.items() if list(names) != [evaluator]}
    if not several:
        return
    kept = [row for row in rows if row.evaluator not in several]
    of_bout: dict[tuple[str, ...], list[ComparisonRow]] = {}
    for row in rows:
        if row.evaluator in several:
            of_bout.setdefault((row.evaluator, row.left_run_id, row.right_run_id, row.shown_first), []).append(row)
    for (evaluator, *_), found in of_bout.items():
        kept += _one_a_metric(found, several[evaluator])
    store.publish("comparisons", comparison_id, kept)


def _one_a_metric(rows: Sequence[ComparisonRow], metrics: Sequence[str]) -> list[ComparisonRow]:
    # Where a run failed or was never made, nobody was asked, and what was settled holds for every metric.
    said = {
        row.metric: row
        for row in rows
        if row.metric in metrics and row.status in ("scored", "not_applicable") and row.decided_by is None
    }
    if not said:
        last = max(rows, key=lambda row: row.recorded_at)
        return [_named(last, metrics[0]), *(_named(last, metric, **_UNPAID) for metric in metrics[1:])]
    first = next(iter(said.values()))
    return [said.get(metric) or _named(first, metric, **_UNPAID, **_left_out(first, metric)) for metric in metrics]


_UNPAID: dict[str, Any] = {"calls": 0, "calls_cached": 0, "tokens_in": None, "tokens_out": None, "cost_usd": 0.0}
"""What several rows cost together stands at the first, so that sums are right."""


def _left_out(row: ComparisonRow, metric: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("winner", "left_score", "right_score", "metadata", "agreement"))
    return nothing | {"status": "not_applicable", "comment": f"{row.evaluator} gave no {metric} for this pair"}


def _named(row: ComparisonRow, metric: str, **changes: Any) -> ComparisonRow:
    runs = (row.left_run_id, row.right_run_id, row.shown_first)
    identity = judgement_id(row.comparison_id, metric, *runs, row.evaluator_version)
    return replace(row, metric=metric, judgement_id=identity, **changes)


def judgement_id(comparison_id: str, metric: str, left: str, right: str, shown_first: str, version: str) -> str:
    """The key of one judgement."""
    return derived_id(comparison_id, metric, left, right, shown_first, version)
