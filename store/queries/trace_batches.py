"""Batches of trace evaluations: their rows, and the scores of the items that they judged."""

import json
from dataclasses import replace
from datetime import datetime

from evalflows.specs.errors import InputError
from evalflows.store.catalog import ask_arrow
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_filter import condition
from evalflows.store.queries.trace_items import JudgedBy, Window, item_keys, scores_of_items
from evalflows.store.records import ScoreRow, SubjectKind, from_json
from evalflows.store.schemas import to_rows
from evalflows.store.trace_records import WatermarkRow

ITEMS_AT_ONCE = 50_000


def batch_row(store: Store, batch_id: str) -> WatermarkRow:
    """Return the row of a batch. Raise InputError if there is none."""
    rows = to_rows("watermarks", ask_arrow(store, "select * from source.watermarks where batch_id = ?", [batch_id]))
    if not rows:
        raise InputError(f"batch: got {batch_id!r}, wanted the id of a batch in {store.layout.root}")
    row: WatermarkRow = rows[0]
    return row


def last_item(store: Store, batch_id: str) -> tuple[datetime, str]:
    """Return the moment and the id of the last item of a backfill that stopped before its window's end.

    Raise InputError for another batch.
    """
    query = "select until, until_id, kind from source.watermarks where batch_id = ? and until_id is not null"
    found = store.query(query, [batch_id])
    if not found:
        raise InputError(f"resume: got {batch_id!r}, wanted a batch that stopped before its last item")
    until, last, kind = found[0]
    if kind != "backfill":
        raise InputError(f"resume: got {batch_id!r}, which is no backfill, wanted a start without resume: it goes on")
    return until, last


def processed_with_earlier(store: Store, row: WatermarkRow) -> int:
    """Return how many items a batch processed, with those of the batches that it resumed."""
    processed = row.items_processed
    while row.resumed_from is not None:
        row = batch_row(store, row.resumed_from)
        processed += row.items_processed
    return processed


def batch_scores(store: Store, row: WatermarkRow, kind: SubjectKind) -> list[ScoreRow]:
    """Return the scores that the evaluators of a batch have given to its items, which a backfill took newest first.

    Those are the items from where it began to its last one. What has come between them since has no scores.
    """
    parts = json.loads(row.evaluators)
    mapper = next((described["version"] for described in parts if described.get("scope") == "mapper"), None)
    versions = [described["version"] for described in parts if described.get("scope") != "mapper"]
    by = JudgedBy(evaluation_id=row.evaluation_id, kind=kind, versions=versions, mapper_version=mapper)
    behind = None if row.resumed_from is None else last_item(store, row.resumed_from)
    window = Window(moment="started_at", since=row.since, until=row.started_at, behind=behind, newest_first=True)
    only = condition(from_json(row.filter), row.scope)
    found: list[ScoreRow] = []
    while keys := item_keys(store, row.scope, only, window, ITEMS_AT_ONCE):
        window = replace(window, behind=(keys[-1].moment, keys[-1].id))
        taken = [key for key in keys if row.until_id is None or (key.moment, key.id) >= (row.until, row.until_id)]
        found += scores_of_items(store, taken, by) if taken else []
        if len(taken) < len(keys):
            break
    return found
