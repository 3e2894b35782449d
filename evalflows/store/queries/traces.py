"""The items of production that a trace evaluation judges: their keys, a part at a time, and their observations."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from evalflows.specs.errors import InputError
from evalflows.specs.trace_evaluation import TraceScope
from evalflows.store.catalog import ask_arrow, select_from, view_text
from evalflows.store.erased import ATTRIBUTE
from evalflows.store.layout import quoted
from evalflows.store.observations import day_of
from evalflows.store.parquet import Store
from evalflows.store.records import ScoreRow, SubjectKind
from evalflows.store.schemas import to_rows
from evalflows.store.trace_records import ObservationRow

Moment = Literal["recorded_at", "started_at"]
"""What a window of items is about: when their last observation was recorded, or when they began."""

RowsOf = Callable[[str], list[tuple[Any, ...]]]
"""Returns the rows of a query."""

_IDS: Mapping[TraceScope, str] = {
    "traces": "trace_id",
    "observations": "trace_id || '/' || span_id",
    "sessions": "session_id",
}
_TRACES: Mapping[TraceScope, str] = {"traces": "[trace_id]", "observations": "[trace_id]", "sessions": "trace_ids"}


_NOT_ERASED = f"attributes::varchar not like '%{ATTRIBUTE}%'"
"""A condition on observations: they still have their texts."""

LATEST = datetime(9999, 1, 1, tzinfo=UTC)
"""Later than every moment of an observation."""


@dataclass(frozen=True, slots=True)
class ItemKey:
    """One trace, observation (`trace/span`) or session, by its id."""

    id: str
    began: datetime
    moment: datetime  # when its last observation was recorded; in a backfill, when it began
    last_day: str  # of its observations
    trace_ids: tuple[str, ...]

    @property
    def day(self) -> str:
        return day_of(self.began)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which items: those with their moment in these bounds, and behind the last item that was taken."""

    moment: Moment
    since: datetime | None = None  # excluded of a recording, included of a beginning
    until: datetime
    behind: tuple[datetime, str] | None = None  # the moment and the id of the last item that was taken
    newest_first: bool = False


def item_keys(
    store: Store,
    scope: TraceScope,
    condition: str | None,
    window: Window,
    limit: int,
    rows: RowsOf | None = None,
) -> list[ItemKey]:
    """Return the first items of a window that meet a condition, in order of their moment and id.

    `rows` runs the query, by default in this process. Raise InputError if DuckDB rejects the condition.
    """
    columns = f"{_IDS[scope]} as id, started_at, {window.moment} as moment, ended_at, {_TRACES[scope]} as traces"
    only = ["true" if condition is None else condition, f"{window.moment} <= {_time(window.until)}"]
    if scope == "observations":
        only.append("kind is distinct from 'log'")
    order = "desc" if window.newest_first else "asc"
    sql = f"""with {_restricted_to(scope, window)}
        items as (select {columns} from {scope} where {" and ".join(only)})
        select id, started_at, moment, coalesce(ended_at, started_at), traces from items
        where {_after(window)} order by moment {order}, id {order} limit {limit}"""
    try:
        found = rows(sql) if rows else store.steady(lambda: select_from(store, sql).fetchall())
    except InputError as error:
        raise InputError(f"filter: {error}") from error
    return [
        ItemKey(identity, began, moment, day_of(max(began, ended)), tuple(traces))
        for identity, began, moment, ended, traces in found
    ]


def observations_of(store: Store, keys: Sequence[ItemKey]) -> dict[str, list[ObservationRow]]:
    """Return the observations of the items' traces, by trace, in order of time."""
    traces = sorted({trace for key in keys for trace in key.trace_ids})
    if not traces:
        return {}
    first = min(key.day for key in keys)
    last = max(key.last_day for key in keys)
    data = ask_arrow(
        store,
        "select * from source.observations where day between ? and ? and trace_id in (select unnest(?))",
        [first, last, traces],
    )
    by_trace: defaultdict[str, list[ObservationRow]] = defaultdict(list)
    for row in to_rows("observations", data):
        by_trace[row.trace_id].append(row)
    return {trace: sorted(rows, key=_in_time) for trace, rows in by_trace.items()}


def _in_time(row: ObservationRow) -> tuple[datetime, str]:
    return row.started_at, row.span_id


def _restricted_to(scope: TraceScope, window: Window) -> str:
    """Return SQL that puts views of only the traces of the window before those of all.

    Otherwise each question of what is new would read the attributes of everything.
    """
    if scope == "sessions" or window.since is None:
        only = "true"
    elif window.moment == "started_at":
        only = f"day >= {quoted(day_of(window.since - timedelta(days=1)))}"
    else:
        recent = f"recorded_at >= {_time(window.since)} and recorded_at <= {_time(window.until)}"
        of_recent = f"from source.observations where {recent}"
        only = (
            f"trace_id in (select trace_id {of_recent}) and day >= (select (min(day)::date - 1)::varchar {of_recent})"
        )
    views = "".join(f"{name} as ({view_text(name)}), " for name in ("traces", "sessions"))
    return f"observations as (select * from staging.observations where {only} and {_NOT_ERASED}), {views}"


def _after(window: Window) -> str:
    bounds = []
    if window.since is not None:
        bounds.append(f"moment {'>=' if window.moment == 'started_at' else '>'} {_time(window.since)}")
    if window.behind is not None:
        moment, identity = window.behind
        place = f"({_time(moment)}, {quoted(identity)})"
        bounds.append(f"(moment, id) {'<' if window.newest_first else '>'} {place}")
    return " and ".join(bounds) or "true"


def _time(moment: datetime) -> str:
    return f"{quoted(moment.astimezone(UTC).isoformat())}::timestamptz"


def unreached(
    store: Store, evaluation_id: str, versions: Iterable[str], kinds: Iterable[str], since: datetime, limit: int
) -> list[str]:
    """Return the items whose judgements failed since then with an error of these kinds, or were not attempted.

    `versions` are those of the evaluators; what others have failed to judge stays so.
    """
    query = """select distinct subject_id from source.scores
               where starts_with(experiment_id, ?) and recorded_at >= ?
                     and evaluator_version in (select unnest(?))
                     and (status = 'not_attempted' or error_kind in (select unnest(?)))
               order by 1 limit ?"""
    values = [f"{evaluation_id}-", since, sorted(versions), sorted(kinds), limit]
    return [identity for (identity,) in store.query(query, values)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBy:
    """Whose scores of items: those of one trace evaluation, by these versions of its evaluators and its mapper."""

    evaluation_id: str
    kind: SubjectKind
    versions: Sequence[str]
    mapper_version: str | None


def scored_items(store: Store, keys: Sequence[ItemKey], by: JudgedBy) -> frozenset[str]:
    """Return the ids of the items that have any score of which `scores_of_items` would give the whole row."""
    query = f"select distinct subject_id from source.scores where {_SCORES_OF_ITEMS}"
    return frozenset(identity for (identity,) in store.query(query, _of_items(keys, by)))


def scores_of_items(store: Store, keys: Sequence[ItemKey], by: JudgedBy) -> list[ScoreRow]:
    """Return the scores of items, of any batch."""
    query = f"select * from source.scores where {_SCORES_OF_ITEMS}"
    return to_rows("scores", ask_arrow(store, query, _of_items(keys, by)))


_SCORES_OF_ITEMS = """
    starts_with(experiment_id, ?) and right(experiment_id, 10) between ? and ? and subject_kind = ?
    and evaluator_version in (select unnest(?)) and mapper_version is not distinct from ?
    and subject_id in (select unnest(?))"""


def _of_items(keys: Sequence[ItemKey], by: JudgedBy) -> list[object]:
    """Return the values of _SCORES_OF_ITEMS."""
    ids = [key.id for key in keys]
    first, last = min(key.day for key in keys), max(key.last_day for key in keys)  # the root may have come late
    return [f"{by.evaluation_id}-", first, last, by.kind, sorted(by.versions), by.mapper_version, ids]


def keys_of_items(store: Store, scope: TraceScope, ids: Sequence[str], since: datetime) -> list[ItemKey]:
    """Return the keys of items by their ids, of those that were recorded since then and are still stored."""
    if not ids:
        return []
    listed = f"{_IDS[scope]} in ({', '.join(map(quoted, ids))})"
    return item_keys(store, scope, listed, Window(moment="recorded_at", since=since, until=LATEST), len(ids))
