"""Which observations, scores and labels the store does not have yet, and whose traces it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evalflows.specs.frozen import dataclass
from evalflows.store.observations import latest_start, with_plausible_times
from evalflows.store.records import JudgementRow, LabelRow
from evalflows.store.schemas import to_rows
from evalflows.store.sql import ask_arrow
from evalflows.store.store import Store
from evalflows.store.trace_records import ObservationRow

KEY = ("trace_id", "span_id")


@dataclass(frozen=True, slots=True)
class Unknown:
    """Rows that the store has not, or not like this."""

    new: list[Any]
    changed: list[Any]

    @property
    def rows(self) -> list[Any]:
        return self.new + self.changed


def unknown_observations(store: Store, rows: Sequence[ObservationRow]) -> Unknown:
    """Return the observations that are not stored, and those that are stored with other values."""
    latest = latest_start()
    rows = [with_plausible_times(row, latest) for row in rows]  # as they are stored
    by_key = {(row.trace_id, row.span_id): row for row in rows}
    if not by_key:
        return Unknown([], [])
    known = _stored(store, rows, "trace_id, span_id")
    same = [by_key[key] for key in zip(*(known.column(name).to_pylist() for name in KEY), strict=True) if key in by_key]
    # Values are read only of what is known: those of a whole day may not fit in memory.
    stored = to_rows("observations", _stored(store, same, "*")) if same else []
    return _compared(by_key, {(row.trace_id, row.span_id): row for row in stored})


def _stored(store: Store, rows: Sequence[ObservationRow], columns: str) -> Any:
    query = (
        f"select {columns} from source.observations where day in (select unnest(?)) and trace_id in (select unnest(?))"
    )
    return ask_arrow(store, query, [sorted({row.day for row in rows}), sorted({row.trace_id for row in rows})])


def traces_of_spans(store: Store, source: str, spans: Sequence[str]) -> dict[str, tuple[str, bool]]:
    """Return the trace of each of these spans that is stored, and whether the span is its root."""
    query = """select span_id, any_value(trace_id), bool_and(parent_id is null) from source.observations
               where source = ? and span_id in (select unnest(?)) group by span_id"""
    return {span: (trace, is_root) for span, trace, is_root in store.query(query, [source, sorted({*spans})])}


def unknown_scores(store: Store, rows: Sequence[JudgementRow]) -> Unknown:
    """Return the scores that are not stored, and those that are stored with other values."""
    return _unknown(
        store, "judgements", {row.judgement_id: row for row in rows}, [row.experiment_id or "" for row in rows]
    )


def unknown_labels(store: Store, rows: Sequence[LabelRow]) -> Unknown:
    """Return the labels that are not stored, and those that are stored with other values."""
    return _unknown(store, "labels", {row.label_id: row for row in rows}, [row.batch_id for row in rows])


def _unknown(store: Store, table: str, by_id: dict[str, Any], owners: list[str]) -> Unknown:
    if not by_id:
        return Unknown([], [])
    key, owner = ("judgement_id", "experiment_id") if table == "judgements" else ("label_id", "batch_id")
    query = f"select * from source.{table} where {owner} in (select unnest(?)) and {key} in (select unnest(?))"
    data = ask_arrow(store, query, [sorted(set(owners)), sorted(by_id)])
    return _compared(by_id, {getattr(row, key): row for row in to_rows(table, data)})


def _compared(rows: dict[Any, Any], known: dict[Any, Any]) -> Unknown:
    new = [row for key, row in rows.items() if key not in known]
    changed = [
        row for key, row in rows.items() if key in known and row != replace(known[key], recorded_at=row.recorded_at)
    ]
    return Unknown(new, changed)
