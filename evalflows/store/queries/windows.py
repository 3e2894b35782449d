"""Windows of production: sums of each metric by hour or day and slice, and single scores for statistics.

What comes back does not grow with the number of traces, and neither does the memory: a day is read at once, and only
the columns that are needed.
"""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import numpy as np

from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import ProductionBaseline
from evalflows.specs.grouping import grouped
from evalflows.specs.traces import TraceScope
from evalflows.specs.watch import ALL, DIMENSIONS, MEASURED, OF_METADATA, TRACES, WindowSize
from evalflows.store.described import from_described
from evalflows.store.layout import quoted
from evalflows.store.observations import FIRST_DAY, day_of
from evalflows.store.queries.traces import metadata_sql
from evalflows.store.queries.values import MetricValues, has_two_values
from evalflows.store.sql import ask, records_of, rows_from
from evalflows.store.store import Store
from evalflows.store.views import view_text

Of = Literal["value", "failure"]
"""Whether sums are over the values that were scored, or over 1 for each failed and 0 for each scored item."""

MEASURED_VERSION = "measured"
"""The evaluator version of what needs no evaluator: latency, cost and tokens of traces, and their errors."""

LONGEST_TRACE = timedelta(days=1)
"""Observations are read of so long before and after a day, for traces that go on over midnight."""

_COLUMNS: Mapping[str, str] = {"latency": "latency_s", "cost": "cost_usd::double", "tokens": "tokens::double"}

_WINDOW_VALUES: Mapping[str, str] = {
    "tag": "list_transform(coalesce(tags, []), lambda one: 'tag=' || one)",
    "version": "case when version is null then [] else ['version=' || version] end",
    "model": "list_transform(coalesce(models, []), lambda one: 'model=' || one)",
    "environment": "case when environment is null then [] else ['environment=' || environment] end",
}

JudgeModels = Mapping[str, str]
"""The judge models, by the tier or fallback that decided."""

_SCORES = """
select * from source.judgements
where experiment_id between $1 and $2 and subject_at >= $3 and subject_at < $4 and turn is null
"""


def in_slice(sliced: str) -> str | None:
    """Return the condition on traces that a slice means, such as `version=1.4`; None for all traces."""
    dimension, _, value = sliced.partition("=")
    if dimension.startswith(OF_METADATA):
        return f"{metadata_sql(dimension.removeprefix(OF_METADATA))} = {quoted(value)}"
    column = {"tag": "list_contains(tags, {})", "model": "list_contains(models, {})"}.get(
        dimension, f"{dimension} = {{}}"
    )
    return column.format(quoted(value)) if dimension in DIMENSIONS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsWanted:
    """Whose windows: the items that the evaluators of one trace evaluation judged."""

    evaluation_id: str
    scope: TraceScope
    versions: Collection[str]  # of its evaluators and composites
    condition: str | None  # the evaluation's filter, for what is measured of traces
    size: WindowSize
    dimensions: Collection[str] = ()  # slices by tag, version, model, environment or a field of the metadata
    within: str = ALL  # the slice whose items count
    metric: str | None = None  # the only one that counts

    @property
    def sliced_by(self) -> tuple[str, ...]:
        """The columns of traces that slice them."""
        of_metadata = any(name.startswith(OF_METADATA) for name in (*self.dimensions, self.within))
        return ("tags", "version", "models", "environment", *(["attributes"] if of_metadata else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One metric in one window of one slice, as sums for `stats.monitoring.WindowSums`."""

    start: datetime
    slice: str
    metric: str
    evaluator_version: str
    of: Of
    n: int
    missing: int
    clusters: int
    weight: float
    total: float
    total_squares: float
    products: float
    weight_squares: float
    lowest: float | None
    highest: float | None
    is_binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTraces:
    """The traces of one window of one slice."""

    start: datetime
    slice: str
    traces: int
    errors: int
    latency_p50_s: float | None
    latency_p95_s: float | None
    cost_usd: float | None


def windows_of_day(store: Store, wanted: WindowsWanted, day: date, last: date | None = None) -> list[Window]:
    """Return the windows of one UTC day, or until a last one, in order of time. Raise InputError if DuckDB rejects the
    filter."""
    only = [in_slice(wanted.within), wanted.metric and f"metric = {quoted(wanted.metric)}"]
    sql = f"""with {_traces(wanted, day, last)}, {_items(wanted, day, last)},
        sliced as (
            select *, unnest({_slices(wanted)}) as slice from items where {" and ".join(filter(None, only)) or "true"}
        ),
        clustered as (
            select start, slice, metric, evaluator_version, sums, cluster, count(value) as n,
                   count(*) filter (failed) as missing, sum(weight * value) as s,
                   sum(weight) filter (value is not null) as w, min(value) as lowest, max(value) as highest,
                   bool_and(value in (0, 1)) as is_binary
            from sliced group by all
        )
        select epoch_us(start), slice, metric, evaluator_version, sums, sum(n)::bigint, sum(missing)::bigint,
               count(w), coalesce(sum(w), 0), coalesce(sum(s), 0), coalesce(sum(s * s), 0), coalesce(sum(s * w), 0),
               coalesce(sum(w * w), 0), min(lowest), max(highest), coalesce(bool_and(is_binary), false)
        from clustered group by start, slice, metric, evaluator_version, sums order by 1, 2, 3, 4, 5"""
    return records_of(Window, ((_moment(start), *rest) for start, *rest in _rows(store, wanted, sql)))


def days_with_windows(store: Store, evaluation_id: str, first: date, last: date) -> list[date]:
    """Return the UTC days on which a trace began or an evaluation judged something, in order: no other has windows."""
    query = """select distinct day from source.observations where day between $2 and $3
               union
               select distinct right(experiment_id, 10) from staging.scores
               where experiment_id between $1 || '-' || $2 and $1 || '-' || $3
               order by 1"""
    days = store.query(query, [evaluation_id, first.isoformat(), last.isoformat()])
    return [date.fromisoformat(day) for (day,) in days]


def traces_of_day(store: Store, wanted: WindowsWanted, day: date, last: date | None = None) -> list[WindowTraces]:
    """Return what the traces of one UTC day, or until a last one, took, in order of time. Raise InputError if DuckDB
    rejects the filter."""
    sql = f"""with {_traces(wanted, day, last)},
        sliced as (
            select {_start(wanted.size, "started_at")} as start, unnest({_slices(wanted)}) as slice, *
            from measured as t
        )
        select epoch_us(start), slice, count(*), count(*) filter (status = 'error'), quantile_cont(latency_s, 0.5),
               quantile_cont(latency_s, 0.95), sum(cost_usd)
        from sliced group by start, slice order by 1, 2"""
    return records_of(WindowTraces, ((_moment(start), *rest) for start, *rest in _rows(store, wanted, sql)))


def first_day(store: Store, evaluation_id: str) -> date | None:
    """Return the first day of which an evaluation judged something; None if it judged nothing."""
    return _judged_day(store, evaluation_id, "min")


def last_day(store: Store, evaluation_id: str) -> date | None:
    """Return the last day of which an evaluation judged something; None if it judged nothing."""
    return _judged_day(store, evaluation_id, "max")


def _judged_day(store: Store, evaluation_id: str, which: str) -> date | None:
    query = f"""select {which}(right(experiment_id, 10)) from staging.scores
                where starts_with(experiment_id, ?) and right(experiment_id, 10) > '{FIRST_DAY}'
                      and subject_at is not null"""
    ((day,),) = store.query(query, [f"{evaluation_id}-"])
    return None if day is None else date.fromisoformat(day)


def _traces(wanted: WindowsWanted, day: date, last: date | None = None) -> str:
    """Return the views of the days' traces: `about` with what slices them, `measured` those that the filter names."""
    last = last or day
    near = [(day - LONGEST_TRACE).isoformat(), (last + LONGEST_TRACE).isoformat()]
    starts = f"started_at >= {_utc(day)} and started_at < {_utc(last + timedelta(days=1))}"
    is_of_traces = wanted.scope == "traces"
    filtered = f" and {wanted.condition}" if is_of_traces and wanted.condition else ""
    sliced_by = ", ".join(wanted.sliced_by)
    return f"""observations as (select * from staging.observations where day between '{near[0]}' and '{near[1]}'),
        traces as ({view_text("traces")}),
        about as (
            select trace_id, coalesce(session_id, trace_id) as cluster, {sliced_by} from traces
        ),
        measured as (
            select trace_id, started_at, status, latency_s, cost_usd, coalesce(tokens_in, 0) + tokens_out as tokens,
                   coalesce(session_id, trace_id) as cluster, {sliced_by}
            from traces where {starts}{filtered}
        )"""


def _items(wanted: WindowsWanted, day: date, last: date | None = None) -> str:
    """Return the views of the judgements and measures of the days, each with its window, cluster and slices."""
    first, final = (quoted(f"{wanted.evaluation_id}-{end.isoformat()}") for end in (day, last or day))
    versions = ", ".join(map(quoted, sorted(wanted.versions))) or "null"
    joined = {
        "traces": "t.trace_id = s.subject_id",
        "observations": "t.trace_id = split_part(s.subject_id, '/', 1)",
        "sessions": "t.cluster = s.subject_id",
    }[wanted.scope]
    kind = wanted.scope.removesuffix("s")
    measured = ", ".join(f"{{'metric': '{name}', 'value': {_COLUMNS[name]}}}" for name in MEASURED)
    fields = ", ".join(("cluster", *wanted.sliced_by))
    return f"""of_session as (select distinct on (cluster) * from about order by cluster, trace_id),
        judged as (
            select {_start(wanted.size, "s.subject_at")} as start, s.metric, s.evaluator_version,
                   case when s.status = 'scored' then s.value end as value, s.status <> 'scored' as failed,
                   1 / coalesce(s.sampling_rate, 1) as weight, coalesce(t.cluster, s.subject_id) as cluster,
                   {", ".join(f"t.{name}" for name in wanted.sliced_by)}
            from staging.scores s left join {"of_session" if kind == "session" else "about"} t on {joined}
            where s.experiment_id between {first} and {final} and s.turn is null
                  and s.subject_kind = '{kind}' and s.evaluator_version in ({versions})
                  and s.status in ('scored', 'failed', 'not_attempted')
        ),
        taken as (
            select {_start(wanted.size, "started_at")} as start, unnest([{measured}]) as one,
                   {fields} from measured
        ),
        items as (
            select start, metric, evaluator_version, 'value' as sums, value, failed, weight, {fields} from judged
            where failed or value is not null
            union all by name
            select start, metric, evaluator_version, 'failure' as sums, failed::int::double as value, failed, weight,
                   {fields} from judged
            union all by name
            select start, one.metric as metric, '{MEASURED_VERSION}' as evaluator_version, 'value' as sums,
                   one.value::double as value, false as failed, 1.0::double as weight, {fields} from taken
            where one.value is not null
            union all by name
            select {_start(wanted.size, "started_at")} as start, '{TRACES}' as metric,
                   '{MEASURED_VERSION}' as evaluator_version, 'failure' as sums,
                   (status = 'error')::int::double as value, status = 'error' as failed, 1.0::double as weight,
                   {fields} from measured
        )"""


def _slices(wanted: WindowsWanted) -> str:
    """Return SQL for the slices of an item: all, and one for each value of each dimension."""
    parts = [_WINDOW_VALUES[dimension] for dimension in DIMENSIONS if dimension in wanted.dimensions]
    for name in sorted({*wanted.dimensions} - {*DIMENSIONS}):
        value = metadata_sql(name.removeprefix(OF_METADATA))
        parts.append(f"case when {value} is null then [] else [{quoted(name + '=')} || {value}] end")
    return f"flatten([{', '.join([f'[{quoted(ALL)}]', *parts])}])"


def _start(size: WindowSize, column: str) -> str:
    return f"date_trunc('{size}', {column} at time zone 'UTC')"


def _utc(day: date) -> str:
    return f"'{day.isoformat()} 00:00:00+00'::timestamptz"


def _moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def _rows(store: Store, wanted: WindowsWanted, sql: str) -> Sequence[tuple[Any, ...]]:
    """Return the rows of a query. With a filter, which is SQL of others, on a connection that is restricted."""
    if wanted.condition is None:
        return ask(store, (sql, []))[0]
    try:
        return rows_from(store, sql)
    except InputError as error:
        raise InputError(f"windows: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionScores:
    """One metric of the items of a window, by one version of an evaluator."""

    values: MetricValues  # by item
    clusters: Sequence[str]  # the session of each item; else its trace
    noun: str  # what an item is
    judge_models: JudgeModels

    @property
    def n_scored(self) -> int:
        return self.values.scored

    @property
    def n_clusters(self) -> int:
        return len(set(self.clusters))


def known_evaluations(store: Store) -> dict[str, str]:
    """Return the trace evaluations that have run: their ids, by name."""
    rows = store.query("select distinct name, evaluation_id from source.watermarks order by 1")
    return dict(rows)


def composite_definitions(store: Store, evaluation_id: str) -> dict[str, str]:
    """Return the versions of an evaluation's composites, each with that of its definition alone."""
    rows = store.query("select distinct evaluators from source.watermarks where evaluation_id = ?", [evaluation_id])
    judges = [judge for (evaluators,) in rows for judge in from_described(evaluators)]
    return {judge.version: judge.definition for judge in judges if judge.definition is not None}


def versions_in(store: Store, evaluation_id: str, window: ProductionBaseline, metric: str) -> dict[str, list[str]]:
    """Return the evaluators that gave a metric in a window, each with its versions, the newest first."""
    query = f"""select evaluator, evaluator_version from ({_SCORES}) where metric = $5
                group by all order by evaluator, max(recorded_at) desc"""
    (rows,) = ask(store, (query, [*_bounds(evaluation_id, window), metric]))
    return grouped(rows)


def production_scores(
    store: Store, evaluation_id: str, window: ProductionBaseline, metric: str, evaluator_version: str
) -> ProductionScores | None:
    """Return the scores of a metric by one version of an evaluator in a window; None if there are none."""
    values = [*_bounds(evaluation_id, window), metric, evaluator_version, window.version]
    (rows,) = ask(store, (_PRODUCTION_VALUES, values))
    if not rows:
        return None
    kinds, clusters, numbers, missing, rates, evaluators, yes_no, models, deciders = zip(*rows, strict=True)
    array = np.array([np.nan if number is None else number for number in numbers])
    is_missing = np.array(missing, dtype=bool)
    is_yes_no = all(yes_no)
    return ProductionScores(
        values=MetricValues(
            metric=metric,
            evaluator=evaluators[0],
            evaluator_version=evaluator_version,
            is_yes_no=is_yes_no,
            is_binary=is_yes_no or has_two_values(evaluators[0], array),
            values=array,
            missing=is_missing,
            scored=int((~np.isnan(array)).sum()),
            n_missing=int(is_missing.sum()),
            weights=np.array([1.0 if rate is None else 1 / rate for rate in rates]),
            are_0_or_1=bool(np.isin(array[~np.isnan(array)], (0, 1)).all()),
        ),
        clusters=list(clusters),
        noun=f"{kinds[0]}s",
        judge_models=_models(zip(deciders, models, strict=True)),
    )


def _models(pairs: zip[tuple[str | None, str | None]]) -> JudgeModels:
    models: dict[str, set[str]] = {}
    for decider, model in pairs:
        if model is not None:
            models.setdefault(decider or "", set()).add(model)
    return {decider: ", ".join(sorted(names)) for decider, names in models.items()}


def _bounds(evaluation_id: str, window: ProductionBaseline) -> list[object]:
    assert window.since is not None and window.until is not None  # fixed before
    days = [f"{evaluation_id}-{day_of(moment)}" for moment in (window.since, window.until)]
    return [*days, window.since, window.until]


_PRODUCTION_VALUES = f"""
with observations as (
    select * from staging.observations where day >= ($3::timestamptz - interval 1 day)::date::varchar
), traces as ({view_text("traces")}), of_session as (
    select session_id, arg_max(version, started_at) as version from traces where session_id is not null group by all
)
select s.subject_kind,
       case when s.subject_kind = 'session' then s.subject_id
            else coalesce(t.session_id, split_part(s.subject_id, '/', 1)) end,
       case when s.status = 'scored' then s.value end, s.status in ('failed', 'not_attempted'), s.sampling_rate,
       s.evaluator, coalesce(s.data_type, 'BOOLEAN') = 'BOOLEAN', s.judge_model, s.decided_by
from ({_SCORES}) s
left join traces t on s.subject_kind <> 'session' and t.trace_id = split_part(s.subject_id, '/', 1)
left join of_session o on s.subject_kind = 'session' and o.session_id = s.subject_id
where s.metric = $5 and s.evaluator_version = $6 and ($7 is null or coalesce(t.version, o.version) = $7)
      and s.status in ('scored', 'failed', 'not_attempted')
order by s.subject_id
"""
