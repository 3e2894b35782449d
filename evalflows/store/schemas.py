"""The tables: their records, keys, and Arrow schemas derived from the records; the specs that rows hold; and how an
erased text is marked."""

from __future__ import annotations  # types of libraries that are imported when first used

import json
import re
import types
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import repeat
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from evalflows.specs.frozen import dataclass
from evalflows.store import records, trace_records
from evalflows.store.arrow import np, pa
from evalflows.store.records import Json

MARKER = re.compile(r"\(erased \d{4}-\d\d-\d\d(?: #[0-9a-f]{12})?\)")
"""What stands in place of an erased text: when it was erased and, of whole values, what tells them apart."""

FIELD = "erased"
"""The only field of an erased JSON value, and the field that says so where others stayed."""

ATTRIBUTE = "evalflows.erased"
"""The attribute of an observation that says on which day it was erased."""

EXPERIMENT_TABLES = ("outputs", "judgements", "sentinels", "resamples", "classified", "calls", "limits", "experiments")
"""The tables of one experiment, in the order of sealing: the experiment's own row last."""

TRACE_SCORE_TABLES = ("judgements", "sentinels", "calls", "limits")
"""The tables of the scores that one trace evaluation gave to the traces of one day, in the order of sealing."""

COMPARISON_TABLES = ("judgements", "sentinels", "calls", "limits", "comparison_sets")
"""The tables of one comparison, in the order of sealing."""

MAX_OFFSET = 2**31 - 1
"""Bytes that the texts of one Arrow array can have."""

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def is_erased(text: Json | None) -> bool:
    """Return whether a JSON value was erased."""
    if text is None or f'"{FIELD}":"(erased ' not in text:
        return False
    value = json.loads(text)
    return isinstance(value, dict) and isinstance(value.get(FIELD), str) and bool(MARKER.fullmatch(value[FIELD]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of the store."""

    name: str
    record: type
    key: tuple[str, ...]
    owner: str  # the column whose value names the file; an owner's rows are sealed and reopened together
    settled: tuple[str, ...] = ()  # statuses that take precedence over others of the same key
    texts: tuple[str, ...] = ()  # columns that may hold long texts


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(name="snapshots", record=records.SnapshotRow, key=("snapshot_id",), owner="snapshot_id"),
        Table(
            name="attachments",
            record=records.AttachmentRow,
            key=("attachment_id",),
            owner="attachment_id",
            texts=("content",),
        ),
        Table(name="examples", record=records.ExampleRow, key=("snapshot_id", "example_id"), owner="snapshot_id"),
        Table(
            name="dataset_versions",
            record=records.DatasetVersionRow,
            key=("dataset_version_id",),
            owner="dataset_version_id",
        ),
        Table(name="experiments", record=records.ExperimentRow, key=("experiment_id",), owner="experiment_id"),
        Table(
            name="outputs",
            record=records.OutputRow,
            key=("run_id",),
            owner="experiment_id",
            settled=("ok",),
            texts=("outputs", "steps"),
        ),
        Table(
            name="judgements",
            record=records.JudgementRow,
            key=("judgement_id",),
            owner="experiment_id",
            settled=("scored", "not_applicable", "sampled_out"),
            texts=("comment", "metadata"),
        ),
        Table(
            name="sentinels",
            record=records.SentinelRow,
            key=("sentinel_id",),
            owner="experiment_id",
            settled=("scored", "not_applicable"),
        ),
        Table(name="resamples", record=records.ResampleRow, key=("resample_id",), owner="experiment_id"),
        Table(name="classified", record=records.ClassifiedRow, key=("classified_id",), owner="experiment_id"),
        Table(name="comparison_sets", record=records.ComparisonSetRow, key=("comparison_id",), owner="comparison_id"),
        Table(name="ratings", record=records.RatingRow, key=("rating_id",), owner="comparison_id"),
        Table(name="estimates", record=records.EstimateRow, key=("estimate_id",), owner="experiment_id"),
        Table(name="verdicts", record=records.VerdictRow, key=("verdict_id",), owner="run_group"),
        Table(name="decisions", record=records.DecisionRow, key=("decision_id",), owner="decision_id"),
        Table(name="baselines", record=records.BaselineRow, key=("baseline_id",), owner="baseline_id"),
        Table(
            name="calls",
            record=records.CallRow,
            key=("call_id",),
            owner="experiment_id",
            settled=("ok",),
            texts=("request", "response"),
        ),
        Table(name="labels", record=records.LabelRow, key=("label_id",), owner="batch_id"),
        Table(name="checks", record=records.CheckRow, key=("check_id",), owner="batch_id"),
        Table(name="limits", record=records.LimitRow, key=("limit_id",), owner="experiment_id"),
        Table(
            name="observations",
            record=trace_records.ObservationRow,
            key=("trace_id", "span_id"),
            owner="day",
            texts=("contents", "events"),
        ),
        Table(name="watermarks", record=trace_records.WatermarkRow, key=("batch_id",), owner="evaluation_id"),
        Table(name="watched_windows", record=trace_records.WatchedWindowRow, key=("look_id",), owner="period"),
        Table(name="alerts", record=trace_records.AlertRow, key=("event_id",), owner="incident_id"),
        Table(name="erasures", record=records.ErasureRow, key=("erasure_id",), owner="erasure_id"),
    )
}


@cache
def schema_of(record: type) -> pa.Schema:
    """Return the Arrow schema of a record: one column per field, in order. Json columns have `json` metadata."""
    hints = get_type_hints(record, include_extras=True)
    return pa.schema([_field(f.name, hints[f.name]) for f in fields(record)])


def columns_of(table: str, *, texts: bool = True) -> list[str]:
    """Return the columns of a table, in order; without `texts`, those that hold no long texts."""
    left_out = () if texts else TABLES[table].texts
    return [field.name for field in fields(TABLES[table].record) if field.name not in left_out]


@cache
def text_columns(table: str) -> tuple[str, ...]:
    """Return the columns that hold one text, JSON included."""
    hints = get_type_hints(TABLES[table].record, include_extras=True)
    return tuple(name for name, hint in hints.items() if _is_text(_type(hint)[0]))


def to_arrow(table: str, rows: Iterable[object]) -> pa.Table:
    """Convert records to an Arrow table. Raise TypeError for a row of another record."""
    record, rows = TABLES[table].record, list(rows)
    for row in rows:
        if type(row) is not record:
            raise TypeError(f"{table}: got {type(row).__name__}, wanted {record.__name__}")
    return from_columns(table, {name: [*map(vars(record)[name].__get__, rows)] for name in schema_of(record).names})


def from_columns(table: str, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Convert columns of equal length to an Arrow table. Columns that are left out are null."""
    schema, count = schema_of(TABLES[table].record), len(next(iter(columns.values())))
    arrays = [
        to_column(columns[name], kind) if name in columns else pa.nulls(count, kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def to_rows(table: str, data: pa.Table) -> list[Any]:
    """Convert an Arrow table to records. Columns that it lacks have their defaults, which are null."""
    columns = {name: _values(column) for name, column in zip(data.column_names, data.columns, strict=True)}
    return records_of(table, columns, data.num_rows)


def records_of(table: str, columns: Mapping[str, Sequence[Any]], count: int) -> list[Any]:
    """Convert so many values of each column to records. Columns that are left out have their defaults, which are null.

    The fields are set column by column: the constructor of a frozen record takes three times as long.
    """
    record = TABLES[table].record
    rows: list[Any] = [object.__new__(record) for _ in range(count)]
    for each in fields(record):
        values = columns[each.name] if each.name in columns else repeat(_default(each), count)
        deque(map(vars(record)[each.name].__set__, rows, values), maxlen=0)
    return rows


def _default(of: Field[Any]) -> Any:
    """Return a field's default. Raise TypeError if it has none."""
    if of.default is MISSING:
        raise TypeError(f"{of.name}: got no column, wanted one")
    return of.default


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the column's values in Python. Of times, pyarrow makes such values too, but imports pandas first."""
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    microseconds = [value for chunk in column.chunks for value in chunk.view(pa.int64()).to_pylist()]
    times = {value: None if value is None else _EPOCH + timedelta(microseconds=value) for value in {*microseconds}}
    return [times[value] for value in microseconds]  # rows of a block often have the same time


def recorded_after(data: pa.Table, newest: datetime | None) -> pa.Table:
    """Return rows with `recorded_at` at least a microsecond after `newest`; later ones are left as they are."""
    if newest is None:
        return data

    index = data.schema.get_field_index("recorded_at")
    column = data.column(index).combine_chunks()
    floor = (newest - _EPOCH) // timedelta(microseconds=1) + 1
    times = np.maximum(column.view(pa.int64()).to_numpy(), floor)  # pyarrow.compute takes longer to load
    return data.set_column(index, data.schema.field(index), pa.array(times).view(column.type))


def to_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Convert values, or None, to Arrow: in several chunks if texts are beyond the 2 GB of one.

    pyarrow's own conversion imports pandas, which takes as long as 5,000 rows. Raise TypeError or AttributeError for a
    value of another type.
    """
    first = values[0] if values else None
    if len(values) > 1 and values[-1] is first and values.count(first) == len(values):  # takes a tenth of the time
        if first is None:
            return pa.nulls(len(values), kind)
        return pa.repeat(to_column([first], kind)[0], len(values))
    if pa.types.is_string(kind):
        texts = [b"" if value is None else _utf8(value) for value in values]
        if sum(map(len, texts)) > MAX_OFFSET and len(values) > 1:
            half = len(values) // 2
            return pa.chunked_array([to_column(values[:half], kind), to_column(values[half:], kind)])
        return _array(values, kind, _offsets(texts), pa.py_buffer(b"".join(texts)))
    if pa.types.is_list(kind):
        within = to_column([item for value in values for item in value or ()], kind.value_type)
        return _array(values, kind, _offsets([value or () for value in values]), children=[within])
    if pa.types.is_boolean(kind):
        return _array(values, kind, _bits([bool(value) for value in values]))
    if pa.types.is_timestamp(kind):
        numbers = [0 if value is None else (value - _EPOCH) // _MICROSECOND for value in values]
    else:
        numbers = [0 if value is None else value for value in values]
    return _array(values, kind, pa.py_buffer(array("d" if pa.types.is_floating(kind) else "q", numbers)))


def _array(values: Sequence[Any], kind: pa.DataType, *buffers: pa.Buffer, children: Any = None) -> pa.Array:
    """Return an array of these buffers, null where a value is None."""
    present = [value is not None for value in values]
    validity = None if all(present) else _bits(present)
    return pa.Array.from_buffers(kind, len(values), [validity, *buffers], children=children)


def _bits(flags: Sequence[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(flags, dtype=bool), bitorder="little"))


def _offsets(values: Sequence[Sized]) -> pa.Buffer:
    """Return where each value begins, and where the last ends."""
    return pa.py_buffer(np.cumsum([0, *map(len, values)], dtype=np.int32))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # for example in a comment: no reason to lose the whole part
        return records.mended(text).encode()


def _field(name: str, hint: Any) -> pa.Field:
    kind, nullable = _type(hint)
    metadata = {"json": "1"} if kind == records.Json else None
    return pa.field(name, _arrow_type(kind), nullable=nullable, metadata=metadata)


def _type(hint: Any) -> tuple[Any, bool]:
    """Return the type of a hint without None, and whether None was in it."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    (kind,) = (arg for arg in get_args(hint) if arg is not type(None))
    return kind, True


def _is_text(kind: Any) -> bool:
    return kind in (str, records.Json) or get_origin(kind) is Literal


def _arrow_type(kind: Any) -> pa.DataType:
    if _is_text(kind):
        return pa.string()
    if get_origin(kind) is list:
        return pa.list_(_arrow_type(_type(get_args(kind)[0])[0]))
    kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), datetime: pa.timestamp("us", tz="UTC")}
    return kinds[kind]


def check_owner(table: str, owner: str, rows: Iterable[object] | pa.Table) -> pa.Table:
    """Return rows after checking that their owner matches their folder, which DuckDB relies on."""
    data = as_arrow(table, rows)
    column = data.column(TABLES[table].owner)
    same = to_column([owner] * len(column), column.type)
    if column.equals(pa.chunked_array([same])):  # `unique` loads pyarrow.compute
        return data
    if others := {*column.to_pylist()} - {owner}:
        raise ValueError(f"{table}: got a row of {TABLES[table].owner} {others.pop()!r}, wanted only {owner!r}")
    return data


def as_arrow(table: str, rows: Iterable[object] | pa.Table) -> pa.Table:
    if not isinstance(rows, pa.Table):
        return to_arrow(table, rows)
    schema = schema_of(TABLES[table].record)
    return as_schema(rows.select(schema.names), schema)


def as_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the types of a schema, unchanged if they have them: casting loads pyarrow.compute."""
    return rows if rows.schema.equals(schema) else rows.cast(schema)
