"""Rows that an experiment or a comparison lacks when it ends, each with the reason."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evalflows.store.records import JudgementRow, derived_id
from evalflows.store.store import Store

FAILED_OUTPUT = "failed_output"
"""`decided_by` of a pair with a failed answer, for which no evaluator was called."""

_UNPAID: dict[str, Any] = {"calls": 0, "calls_cached": 0, "tokens_in": None, "tokens_out": None, "cost_usd": 0.0}
"""The first row has the cost of all, so that sums are right."""


def complete_judgements(store: Store, owner: str) -> None:
    """Rewrite the judgements of an experiment or a comparison, if needed, so that each subject has one row per metric.

    An evaluator may give several metrics, or one with a name other than its own. If it failed, did not apply or was not
    called, that row becomes one row per metric that it gave elsewhere; if it left a metric out, a row is added. Scores
    of turns are left unchanged, because only an evaluation knows the number of turns.
    """
    if not _gave_others(store, owner):
        return
    rows: list[JudgementRow] = store.read("judgements", owner)
    metrics: dict[tuple[str, str], dict[str, None]] = {}
    whole = [row for row in rows if row.turn is None]
    for row in whole:
        is_given = row.status == "scored" or row.metric != row.evaluator  # a failure may be that of one metric
        if is_given and row.decided_by != FAILED_OUTPUT:
            metrics.setdefault((row.evaluator, row.evaluator_version), {})[row.metric] = None
    several = {key: list(names) for key, names in metrics.items() if list(names) != [key[0]]}
    completed = [row for row in rows if row.turn is not None or (row.evaluator, row.evaluator_version) not in several]
    of_subject: dict[tuple[str, str, str], list[JudgementRow]] = {}
    for row in whole:
        if (row.evaluator, row.evaluator_version) in several:
            of_subject.setdefault((row.subject_id, row.evaluator, row.evaluator_version), []).append(row)
    for (_, *by), judgements in of_subject.items():
        completed += _row_per_metric(judgements, several[by[0], by[1]])
    store.publish("judgements", owner, completed)


def _gave_others(store: Store, owner: str) -> bool:
    """Return whether an evaluator gave anything but one metric of its own name: few do, and this is faster than reading
    all rows."""
    query = "select count(*) from source.judgements where experiment_id = ? and turn is null and metric <> evaluator"
    return bool(store.query(query, [owner])[0][0])


def _row_per_metric(rows: Sequence[JudgementRow], metrics: Sequence[str]) -> list[JudgementRow]:
    judged = {
        row.metric: row
        for row in rows
        if row.metric in metrics and row.status in ("scored", "not_applicable") and row.decided_by != FAILED_OUTPUT
    }
    if judged:
        first = next(iter(judged.values()))
        # A failure of one metric beside others; an older one is of an attempt that was repeated.
        failed = {r.metric: r for r in rows if r.status == "failed" and r.recorded_at >= first.recorded_at}
        return [judged.get(metric) or failed.get(metric) or _left_out(first, metric) for metric in metrics]
    last = max(rows, key=lambda row: (row.status != "failed", row.recorded_at))  # it holds for every metric
    return [_named(last, metrics[0]), *(_named(last, metric, **_UNPAID) for metric in metrics[1:])]


def _left_out(row: JudgementRow, metric: str) -> JudgementRow:
    values = ("value", "label", "data_type", "winner", "left_score", "right_score", "metadata", "agreement")
    comment = f"{row.evaluator} gave no {metric} for this {'pair' if row.subject_kind == 'pair' else 'run'}"
    nothing = dict.fromkeys(values) | {"status": "not_applicable", "comment": comment}
    return _named(row, metric, **_UNPAID, **nothing)


def _named(row: JudgementRow, metric: str, **changes: Any) -> JudgementRow:
    if row.subject_kind == "pair":
        pair = row.left_run_id or "", row.right_run_id or "", row.shown_first or ""
        identity = judgement_id(row.experiment_id or "", metric, *pair, row.evaluator_version)
    else:
        identity = derived_id(row.subject_id, row.turn, metric, row.evaluator_version)
    return replace(row, metric=metric, judgement_id=identity, **changes)


def judgement_id(comparison_id: str, metric: str, left: str, right: str, shown_first: str, version: str) -> str:
    """Return the id of a judgement of a pair."""
    return derived_id(comparison_id, metric, left, right, shown_first, version)


def pair_id(left: str, right: str, shown_first: str) -> str:
    """Return the id of a pair of answers in one order, as a subject of judgements."""
    return derived_id(left, right, shown_first)
