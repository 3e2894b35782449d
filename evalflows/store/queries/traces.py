"""Production in the store: traces as a list, the items that a trace evaluation judges, and filters of traces as
conditions in SQL."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from evalflows.specs import hints
from evalflows.specs.errors import InputError, NotFoundError, short
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.traces import Filter, TraceScope
from evalflows.store.described import from_described
from evalflows.store.layout import quoted
from evalflows.store.observations import FIRST_DAY, day_of, last_owner
from evalflows.store.query_process import RowsOf
from evalflows.store.records import JudgementRow, SubjectKind, from_json
from evalflows.store.schemas import ATTRIBUTE, to_rows
from evalflows.store.sql import ask, ask_arrow, ask_records, fields_of, records_of, rows_from
from evalflows.store.store import Store
from evalflows.store.trace_records import ObservationRow, WatermarkRow
from evalflows.store.views import view_text

Moment = Literal["recorded_at", "started_at"]
"""What a window of items is about: when their last observation was recorded, or when they began."""

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

_SCORES_OF_ITEMS = """
    starts_with(experiment_id, ?) and right(experiment_id, 10) between ? and ? and subject_kind = ?
    and evaluator_version in (select unnest(?)) and mapper_version is not distinct from ?
    and subject_id in (select unnest(?))"""

SHOWN_IDS = 5

_SCORES = """select subject_kind, subject_id, metric, value, label, comment, evaluator, false, coalesce(error, status)
             from trace_scores where trace_id = ?"""
_LABELS = """select subject_kind, subject_id, metric, value, label, comment, labeller, true, null
             from trace_labels where trace_id = ?"""

ITEMS_AT_ONCE = 50_000

_FIELDS = {
    "name": "name",
    "tags": "tags",
    "userid": "user_id",
    "sessionid": "session_id",
    "traceid": "trace_id",
    "tracename": "trace_name",
    "version": "version",
    "release": "version",
    "environment": "environment",
    "timestamp": "started_at",
    "starttime": "started_at",
    "startedat": "started_at",
    "endtime": "ended_at",
    "latency": "latency_s",
    "latencys": "latency_s",
    "totalcost": "cost_usd",
    "costusd": "cost_usd",
    "inputtokens": "tokens_in",
    "outputtokens": "tokens_out",
    "type": "type",
    "model": "model",
    "providedmodelname": "model",
    "status": "status",
    "service": "service",
    "input": "input",
    "output": "output",
}
"""Names of columns in Langfuse's filters and ours, without case and underscores, and the column of the view."""

COLUMNS: Mapping[TraceScope, frozenset[str]] = {
    "traces": frozenset(_FIELDS.values()) - {"type", "trace_name", "model"} | {"models"},
    "observations": frozenset(_FIELDS.values()),
    "sessions": frozenset(
        {"session_id", "started_at", "ended_at", "user_id", "environment", "version", "tags", "cost_usd"}
    )
    | {"tokens_in", "tokens_out"},
}

_COMPARED = {"=": "=", "!=": "<>", "<>": "<>", ">": ">", ">=": ">=", "<": "<", "<=": "<="}
_BOUNDS = {"fromtimestamp": ">=", "totimestamp": "<", "fromstarttime": ">=", "tostarttime": "<"}

_TEXTS: Mapping[str, Callable[[str, str], str]] = {
    "contains": lambda column, text: f"contains({column}, {text})",
    "does not contain": lambda column, text: f"not contains({column}, {text})",
    "starts with": lambda column, text: f"starts_with({column}, {text})",
    "ends with": lambda column, text: f"ends_with({column}, {text})",
}
_LISTS: Mapping[str, Callable[[str, str], str]] = {
    "any of": lambda column, values: f"list_has_any({column}, {values})",
    "none of": lambda column, values: f"not list_has_any({column}, {values})",
    "all of": lambda column, values: f"list_has_all({column}, {values})",
}
_OPERATORS = (*_COMPARED, *_TEXTS, *_LISTS, "is null", "is not null")


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
    store: Store, scope: TraceScope, condition: str | None, window: Window, limit: int, rows: RowsOf | None = None
) -> list[ItemKey]:
    """Return the first items of a window that meet a condition, in order of their moment and id.

    `rows` runs a query with a condition, by default in this process. Raise InputError if DuckDB rejects the condition.
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
        if condition is None:  # no SQL of others: our own connection is there already
            (found,) = ask(store, (sql, []))
        else:
            found = rows(sql) if rows else rows_from(store, sql)
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
        """select * from source.observations
           where (day between ? and ? or day = ?) and trace_id in (select unnest(?))""",
        [first, last, FIRST_DAY, traces],
    )
    by_trace = grouped((row.trace_id, row) for row in to_rows("observations", data))
    return {trace: sorted(rows, key=lambda row: (row.started_at, row.span_id)) for trace, rows in by_trace.items()}


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
        since = f"(select (min(day)::date - 1)::varchar {of_recent} and day > '{FIRST_DAY}')"
        only = f"trace_id in (select trace_id {of_recent}) and (day >= {since} or day = '{FIRST_DAY}')"
    views = "".join(f"{name} as ({view_text(name)}), " for name in ("traces", "sessions"))
    return f"observations as (select * from staging.observations where {only} and {_NOT_ERASED}), {views}"


def _after(window: Window) -> str:
    bounds = []
    if window.since is not None:
        bounds.append(f"moment {'>=' if window.moment == 'started_at' else '>'} {_time(window.since)}")
    if window.behind is not None:
        moment, identity = window.behind
        edge = f"({_time(moment)}, {quoted(identity)})"
        bounds.append(f"(moment, id) {'<' if window.newest_first else '>'} {edge}")
    return " and ".join(bounds) or "true"


def _time(moment: datetime) -> str:
    return f"{quoted(moment.astimezone(UTC).isoformat())}::timestamptz"


def unreached(
    store: Store, evaluation_id: str, versions: Iterable[str], kinds: Iterable[str], since: datetime, limit: int
) -> list[str]:
    """Return the items whose judgements failed since then with an error of these kinds, or were not attempted.

    `versions` are those of the evaluators; what others have failed to judge stays so.
    """
    query = """select distinct subject_id from staging.scores
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
    query = f"select distinct subject_id from staging.scores where {_SCORES_OF_ITEMS}"
    return frozenset(identity for (identity,) in store.query(query, _of_items(keys, by)))


def scores_of_items(store: Store, keys: Sequence[ItemKey], by: JudgedBy) -> list[JudgementRow]:
    """Return the scores of items, of any batch."""
    query = f"select * from source.judgements where {_SCORES_OF_ITEMS}"
    return to_rows("judgements", ask_arrow(store, query, _of_items(keys, by)))


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
class TraceWithTexts(ListedTrace):
    """The same with its texts as they were captured."""

    input: str | None
    output: str | None


@dataclass(frozen=True, slots=True)
class TraceScore:
    """The newest score of a trace, or of one of its observations, in a metric."""

    trace_id: str
    metric: str
    value: float | None
    label: str | None
    comment: str | None
    problem: str | None  # why there is no value


Listed = TypeVar("Listed", bound=ListedTrace)


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
    return _listed(ListedTrace, store, only, since, limit, rows)


def traces_with_texts(
    store: Store, only: Filter | None, since: datetime | None, limit: int, rows: RowsOf | None = None
) -> list[TraceWithTexts]:
    """Return the same with their texts."""
    return _listed(TraceWithTexts, store, only, since, limit, rows)


def _listed(
    of: type[Listed], store: Store, only: Filter | None, since: datetime | None, limit: int, rows: RowsOf | None
) -> list[Listed]:
    window = Window(moment="started_at", since=since, until=LATEST, newest_first=True)
    keys = item_keys(store, "traces", condition(only, "traces"), window, limit, rows)
    if not keys:
        return []
    days = [min(key.day for key in keys), max(key.last_day for key in keys)]
    query = f"""with observations as (select * from staging.observations where day between $2 and $3),
                traces as ({view_text("traces")})
                select {fields_of(of)} from traces where trace_id in (select unnest($1))
                order by started_at desc, trace_id desc"""
    return ask_records(store, of, query, [[key.id for key in keys], *days])


def newest_traces(
    store: Store, only: Filter | None, since: datetime | None, limit: int, rows: RowsOf | None = None
) -> list[str]:
    """Return the ids of the newest traces that meet a filter; `rows` runs it, as in `item_keys`."""
    window = Window(moment="started_at", since=since, until=LATEST, newest_first=True)
    return [key.id for key in item_keys(store, "traces", condition(only, "traces"), window, limit, rows)]


def scores_of_traces(store: Store, traces: Sequence[ListedTrace]) -> list[TraceScore]:
    """Return the newest score of each trace in each metric that a trace evaluation gave it."""
    if not traces:
        return []
    days = [day_of(moment) for moment in (min(one.started_at for one in traces), max(one.started_at for one in traces))]
    return ask_records(store, TraceScore, _SCORES_OF_TRACES, [[one.trace_id for one in traces], *days])


_SCORES_OF_TRACES = """
select split_part(subject_id, '/', 1) as trace_id, metric, arg_max(value, recorded_at), arg_max(label, recorded_at),
       arg_max(comment, recorded_at), arg_max(coalesce(error, status), recorded_at)
from staging.scores
where subject_kind in ('trace', 'observation') and right(experiment_id, 10) between $2 and $3
      and split_part(subject_id, '/', 1) in (select unnest($1))
group by split_part(subject_id, '/', 1), metric order by metric
"""


def observations_of_trace(store: Store, reference: str) -> list[ObservationRow]:
    """Return the observations of the trace with this id, or the only one whose id begins so.

    Raise InputError if there is none, or more than one.
    """
    ids = _matching(store, reference.strip().lower().replace("-", ""))
    if not ids:
        raise NotFoundError(f"{reference}: no such trace, see {hints.list_traces().code}")
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
    for rows in (scores, labels):
        rows.sort(key=lambda row: (row[0] != "trace", row[1], row[2]))
    return records_of(Verdict, [*scores, *labels])


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
        raise InputError(f"resume: got {batch_id!r}, which is not a backfill, wanted a start without resume")
    return until, last


def processed_with_earlier(store: Store, row: WatermarkRow) -> int:
    """Return how many items a batch processed, with those of the batches that it resumed."""
    processed = row.items_processed
    while row.resumed_from is not None:
        row = batch_row(store, row.resumed_from)
        processed += row.items_processed
    return processed


def batch_scores(store: Store, row: WatermarkRow, kind: SubjectKind) -> list[JudgementRow]:
    """Return the scores that the evaluators of a batch have given to its items, which a backfill took newest first.

    Those are the items from where it began to its last one. What has come between them since has no scores.
    """
    judges = from_described(row.evaluators)
    mapper = next((judge.version for judge in judges if judge.scope == "mapper"), None)
    versions = [judge.version for judge in judges if judge.scope != "mapper"]
    by = JudgedBy(evaluation_id=row.evaluation_id, kind=kind, versions=versions, mapper_version=mapper)
    behind = None if row.resumed_from is None else last_item(store, row.resumed_from)
    window = Window(moment="started_at", since=row.since, until=row.started_at, behind=behind, newest_first=True)
    only = condition(from_json(row.filter), row.scope)
    found: list[JudgementRow] = []
    while keys := item_keys(store, row.scope, only, window, ITEMS_AT_ONCE):
        window = replace(window, behind=(keys[-1].moment, keys[-1].id))
        taken = [key for key in keys if row.until_id is None or (key.moment, key.id) >= (row.until, row.until_id)]
        found += scores_of_items(store, taken, by) if taken else []
        if len(taken) < len(keys):
            break
    return found


def condition(given: Filter | None, scope: TraceScope) -> str | None:
    """Return a filter as a condition in SQL on the columns of the scope's view; None without a filter.

    Raise InputError for JSON with an unknown column, operator or value. SQL is checked where it runs.
    """
    if isinstance(given, str) and given.lstrip()[:1] in ("{", "["):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise InputError(f"filter: got {short(given)}, wanted JSON or a condition in SQL: {error}") from error
    if not given:
        return None
    if isinstance(given, str):
        return f"(\n{given}\n)"
    if isinstance(given, Mapping):
        return " and ".join(_equals(name, value, scope) for name, value in given.items())
    return " and ".join(_one(entry, scope) for entry in given)


def _equals(name: str, value: Any, scope: TraceScope) -> str:
    """Return a field of the object form: equal, or for lists, all of them."""
    if bound := _BOUNDS.get(_key(name)):
        return f"started_at {bound} {_literal(value, name)}::timestamptz"
    if _key(name) == "metadata" and isinstance(value, Mapping):
        return " and ".join(
            f"{metadata_sql(str(key))} = {_literal(_text(inner), name)}" for key, inner in value.items()
        )
    column = _column(name, scope)
    value = _cased(column, value)
    if column in ("tags", "models"):
        listed = value if isinstance(value, list) else [value]
        return f"list_has_all(coalesce({column}, []), {_list(listed, name)})"
    if isinstance(value, list):
        return f"list_contains({_list(value, name)}, {column})"
    return f"{column} is null" if value is None else f"{column} = {_literal(value, name)}"


def _one(entry: Any, scope: TraceScope) -> str:
    """Return one condition of the list form: {column, operator, value, type, key}."""
    if not isinstance(entry, Mapping) or not {"column", "operator"} <= entry.keys():
        raise InputError(f"filter: got {short(entry)}, wanted {{column, operator, value, type}}")
    name, operator, value = str(entry["column"]), str(entry["operator"]).lower(), entry.get("value")
    is_metadata = _key(name) == "metadata"
    column = metadata_sql(str(entry.get("key", ""))) if is_metadata else _column(name, scope)
    value = _cased(column, value)
    if operator in ("is null", "is not null"):
        return f"{column} {operator}"
    if operator in _TEXTS:
        return _TEXTS[operator](column, _literal(_text(value), name))
    if operator in _LISTS:
        listed = value if isinstance(value, list) else [value]
        found = column if column in ("tags", "models") else f"[{column}]"
        return _LISTS[operator](f"coalesce({found}, [])", _list(listed, name))
    if operator not in _COMPARED:
        raise InputError(f"filter: {name}: got the operator {operator!r}, wanted one of {', '.join(_OPERATORS)}")
    if column in ("tags", "models"):
        raise InputError(f"filter: {name}: got the operator {operator!r}, wanted one of {', '.join(_LISTS)}")
    kind = "::timestamptz" if column in ("started_at", "ended_at") else ""
    return f"{column} {_COMPARED[operator]} {_literal(_text(value) if is_metadata else value, name)}{kind}"


def _cased(column: str, value: Any) -> Any:
    """Return types in lower case, as the views have them; Langfuse's are in upper case."""
    if column != "type":
        return value
    if isinstance(value, list):
        return [_cased(column, item) for item in value]
    return value.lower() if isinstance(value, str) else value


def _column(name: str, scope: TraceScope) -> str:
    column = _FIELDS.get(_key(name), name if name in COLUMNS[scope] else "")
    column = "models" if column == "model" and scope == "traces" else column
    column = "name" if column == "trace_name" and scope == "traces" else column
    if column == "trace_id" or column in COLUMNS[scope]:
        return column
    known = ", ".join(sorted(COLUMNS[scope] | {"metadata"}))
    raise InputError(f"filter: got the column {name!r} for {scope}, wanted one of {known}")


def metadata_sql(key: str) -> str:
    """Return SQL for a field of the attributes, also as Langfuse's SDK calls it."""
    names = (key, f"langfuse.trace.metadata.{key}", f"langfuse.observation.metadata.{key}", f"metadata.{key}")
    paths = ", ".join(quoted('$."' + name.replace('"', "") + '"') for name in names)
    nested = quoted('$.metadata."' + key.replace('"', "") + '"')
    return f"list_any_value(json_extract_string(attributes, [{paths}, {nested}]))"


def metadata_keys(store: Store) -> list[str]:
    """Return the fields of the metadata of some of the newest traces, by which windows can be sliced."""
    (rows,) = ask(store, (_METADATA_KEYS, [last_owner(store, "observations")]))
    return [key for (key,) in rows]


_METADATA_KEYS = """
with newest as (select attributes::json as attributes from source.observations where day = $1 limit 2000), keys as (
    select regexp_extract(key, '^(?:langfuse\\.(?:trace|observation)\\.)?metadata\\.(.+)$', 1) as key
    from (select unnest(json_keys(attributes)) as key from newest)
    union all
    select unnest(json_keys(attributes, '$.metadata')) from newest where json_type(attributes, '$.metadata') = 'OBJECT'
)
select distinct key from keys where key <> '' and not contains(key, '"') order by key limit 50
"""


def _key(name: str) -> str:
    return name.replace("_", "").lower()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _list(values: list[Any], name: str) -> str:
    return f"[{', '.join(_literal(value, name) for value in values)}]"


def _literal(value: Any, name: str) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return quoted(value)
    raise InputError(f"filter: {name}: got {short(value)}, wanted a text, a number, or a list of these")
