"""Plain rows of any schema as observations: by default, a row is a trace of one observation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from evalflows.specs.columns import at_path
from evalflows.specs.errors import InputError, short
from evalflows.specs.trace_columns import TraceColumns
from evalflows.store.observations import day_of, split_attributes
from evalflows.store.records import derived_id
from evalflows.store.trace_records import ObservationRow, SpanStatus
from evalflows.telemetry.conventions.openai_messages import parsed as parsed_json
from evalflows.telemetry.exports.identity import ended_at_of, moment_of, span_id_of, trace_id_of
from evalflows.telemetry.parsed import Telemetry

SOURCE: Final = "rows"
LIFTED = ("started_at", "ended_at", "latency_s", "trace_id", "span_id", "parent_id", "name", "status", "error")
"""Fields that are columns of the store; the others are attributes."""
OF_MODELS = ("model", "tokens_in", "tokens_out")
"""Fields that only a call of a model has."""


@dataclass(slots=True)
class Rows:
    """Reads rows. The columns that `columns` names must be in the first one."""

    columns: TraceColumns = field(default_factory=TraceColumns)
    is_checked: bool = False

    def telemetry(self, row: Any) -> Telemetry:
        """Return the observation of a row. Raise InputError if it is none."""
        if not isinstance(row, dict):
            raise InputError(f"got {type(row).__name__}, wanted an object")
        if not self.is_checked:
            for path in self.columns.model_dump(exclude_none=True).values():
                at_path(row, path)
            self.is_checked = True
        return Telemetry(observations=[_observation(*self._fields(row))])

    def _fields(self, row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields of a row, and the columns that are none."""
        paths = {name: getattr(self.columns, name) or name for name in TraceColumns.model_fields}
        found = {name: _value(row, path) for name, path in paths.items()}
        rest = {name: value for name, value in row.items() if name not in paths.values() and value is not None}
        return {name: value for name, value in found.items() if value is not None}, rest


def _value(row: Mapping[str, Any], path: str) -> Any:
    try:
        value = at_path(row, path)
    except InputError:
        return None
    return None if value == "" else value


def _observation(fields: dict[str, Any], rest: dict[str, Any]) -> ObservationRow:
    started_at = moment_of(fields.get("started_at"), "started_at")
    if started_at is None:
        raise InputError("got no started_at, wanted a column with the time, such as --columns started_at=COLUMN")
    attributes = {name: value for name, value in fields.items() if name not in LIFTED}
    attributes |= {"tags": parsed_json(fields["tags"])} if "tags" in fields else {}
    if metadata := _metadata(fields, rest):
        attributes["metadata"] = metadata
    if "type" not in fields and any(name in fields for name in OF_MODELS):
        attributes["type"] = "generation"
    short_ones, contents = split_attributes(attributes | _ids(fields))
    content = derived_id(SOURCE, short_ones, contents, started_at.isoformat(), str(fields.get("name")))
    trace_id = trace_id_of(SOURCE, fields["trace_id"]) if "trace_id" in fields else content
    return ObservationRow(
        trace_id=trace_id,
        span_id=span_id_of(SOURCE, fields["span_id"]) if "span_id" in fields else derived_id(trace_id, content)[:16],
        parent_id=span_id_of(SOURCE, fields["parent_id"]) if "parent_id" in fields else None,
        day=day_of(started_at),
        source=SOURCE,
        name=str(fields.get("name", "row")),
        started_at=started_at,
        ended_at=ended_at_of(started_at, moment_of(fields.get("ended_at"), "ended_at"), fields.get("latency_s")),
        status=_status(fields),
        status_message=str(fields["error"]) if "error" in fields else None,
        attributes=short_ones,
        contents=contents,
    )


def _ids(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids as they came, where the store needs others."""
    given = {"trace_id": trace_id_of, "span_id": span_id_of, "parent_id": span_id_of}
    return {
        name: fields[name]
        for name, made in given.items()
        if name in fields and made(SOURCE, fields[name]) != fields[name]
    }


def _metadata(fields: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    given = parsed_json(fields.get("metadata"))
    if given is not None and not isinstance(given, dict):
        given = {"metadata": given}
    return {**rest, **(given or {})}


def _status(fields: Mapping[str, Any]) -> SpanStatus:
    given = fields.get("status")
    if given is None:
        return "error" if "error" in fields else "unset"
    if given not in ("ok", "error", "unset"):
        raise InputError(f"status: got {short(given)}, wanted ok or error")
    return given  # type: ignore[no-any-return]
