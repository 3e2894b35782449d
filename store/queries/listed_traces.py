"""The traces of the store as a list, and what was said about one of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.trace_evaluation import Filter
from evalflows.store.catalog import ask, ask_arrow, view_text
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_filter import condition
from evalflows.store.queries.trace_items import LATEST, RowsOf, Window, item_keys
from evalflows.store.schemas import to_rows
from evalflows.store.trace_records import ObservationRow

SHOWN_IDS = 5


@dataclass(frozen=True, slots=True)
class ListedTrace:
    """One trace of a list."""

    trace_id: str
    name: str
    started_at: datetime
    latency_s: float | None
    status: str
    observations: int
    errors: int
    session_id: str | None
    user_id: str | None
    tags: list[str] | None
    version: str | None
    environment: str | None
    models: list[str] | None
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A score of an evaluator, or a person's label."""

    subject_kind: str
    subject_id: str
    metric: str
    value: float | None
    label: str | None
    comment: str | None
    given_by: str | None
    by_person: bool
    problem: str | None  # why there is no value


def listed_traces(
    store: Store, only: Filter | None, since: datetime | None, limit: int, rows: RowsOf | None = None
) -> list[ListedTrace]:
    """Return the newest traces that meet a filter; `rows` runs it, as in `item_keys`. Raise InputError if it fails."""
    window = Window(moment="started_at", since=since, until=LATEST, newest_first=True)
    keys = item_keys(store, "traces", condition(only, "traces"), window, limit, rows)
    if not keys:
        return []
    days = [min(key.day for key in keys), max(key.last_day for key in keys)]
    columns = ", ".join(ListedTrace.__slots__)
    query = f"""with observations as (select * from staging.observations where day between $2 and $3),
                traces as ({view_text("traces")})
                select {columns} from traces where trace_id in (select unnest($1))
                order by started_at desc, trace_id desc"""
    (found,) = ask(store, (query, [[key.id for key in keys], *days]))
    return [ListedTrace(*row) for row in found]


def observations_of_trace(store: Store, reference: str) -> list[ObservationRow]:
    """Return the observations of the trace with this id, or the only one whose id begins so.

    Raise InputError if there is none, or more than one.
    """
    ids = _matching(store, reference.strip().lower().replace("-", ""))
    if not ids:
        raise NotFoundError(f"{reference}: no such trace, see `evalflows traces ls`")
    if len(ids) > 1:
        shown = ", ".join(ids[:SHOWN_IDS]) + (", …" if len(ids) > SHOWN_IDS else "")
        raise InputError(f"{reference}: got the beginning of {shown}, wanted one trace")
    return to_rows("observations", ask_arrow(store, "select * from source.observations where trace_id = ?", ids))


def _matching(store: Store, beginning: str) -> Sequence[str]:
    query = """select distinct trace_id from source.observations where starts_with(trace_id, ?)
               order by trace_id <> ?, trace_id limit ?"""
    ids = [identity for (identity,) in store.query(query, [beginning, beginning, SHOWN_IDS + 1])] if beginning else []
    return ids[:1] if ids[:1] == [beginning] else ids


def verdicts_of_trace(store: Store, trace_id: str) -> list[Verdict]:
    """Return the scores and labels of a trace and its observations."""
    scores, labels = ask(store, (_SCORES, [trace_id]), (_LABELS, [trace_id]))
    return [Verdict(*row) for row in (*_plain(scores), *_plain(labels))]


def _plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: (row[0] != "trace", row[1], row[2]))


_SCORES = """select subject_kind, subject_id, metric, value, label, comment, evaluator, false, coalesce(error, status)
             from trace_scores where trace_id = ?"""
_LABELS = """select subject_kind, subject_id, metric, value, label, comment, labeller, true, null
             from trace_labels where trace_id = ?"""
