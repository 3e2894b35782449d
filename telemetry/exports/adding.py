"""Adding the traces of a file to the store: what is new is written, what is known is left alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from evalflows.specs.errors import InputError, describe
from evalflows.specs.trace_columns import TraceColumns
from evalflows.store.observations import seal_past_days, write_observations
from evalflows.store.parquet import Store
from evalflows.store.queries.known_rows import unknown_labels, unknown_observations, unknown_scores
from evalflows.store.records import now
from evalflows.store.trace_records import ObservationRow
from evalflows.telemetry.exports.formats import Format, Reader, reader_of, recognised
from evalflows.telemetry.exports.records import Record, read_records
from evalflows.telemetry.otlp_json import merged
from evalflows.telemetry.parsed import Telemetry

BATCH_ROWS, BATCH_CHARACTERS = 5_000, 32 << 20
"""How much is in memory at once."""
SHOWN = 20
"""Lines about rejected records that a report has; the others are counted."""


@dataclass(slots=True, kw_only=True)
class Added:
    """What a file had, and what of it was new."""

    path: str
    format: Format | None = None
    records: int = 0
    new: int = 0  # observations
    changed: int = 0  # observations that were known with other values, such as without their output
    known: int = 0
    scores: int = 0  # new or changed
    labels: int = 0
    ignored: int = 0  # about no trace, such as metrics
    n_rejected: int = 0
    rejected: list[str] = field(default_factory=list)  # the first SHOWN, one line each

    def reject(self, line: str) -> None:
        self.n_rejected += 1
        if len(self.rejected) < SHOWN:
            self.rejected.append(line)


def add_traces(store: Store, path: str, *, form: Format | None = None, columns: TraceColumns | None = None) -> Added:
    """Add the traces of a file, and their feedback. Its format is recognised by its first record, if not given.

    What cannot be read is reported, a line each, and everything else is kept. Raise InputError if nothing can be read,
    and StorageError if the store cannot be written; adding the file again writes what is missing.
    """
    added = Added(path=path, format=form)
    for batch in _batches(_parts(added, columns)):
        _write(store, batch, added)
    if not added.records:
        raise InputError(added.rejected[0] if added.rejected else f"{path}: has no records, wanted at least one")
    seal_past_days(store, now().date().isoformat())
    return added


def _parts(added: Added, columns: TraceColumns | None) -> Iterator[Telemetry]:
    """Yield the rows of each record that can be read."""
    read: Reader | None = None
    try:
        for record in read_records(added.path):
            if record.problem is None and read is None:
                added.format = added.format or _recognised(record, added, columns)
                read = reader_of(added.format, columns)
            yield from _part(record, read, added)
    except InputError as error:
        if not added.records:
            raise
        added.reject(str(error))


def _recognised(record: Record, added: Added, columns: TraceColumns | None) -> Format:
    try:
        return recognised(record.value, columns)
    except InputError as error:
        raise InputError(f"{added.path}: {record.place}: {error}") from error


def _part(record: Record, read: Reader | None, added: Added) -> Iterator[Telemetry]:
    if record.problem is not None or read is None:
        added.reject(f"{added.path}: {record.place}: {record.problem}")
        return
    try:
        part = read(record.value)
    except (InputError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        problem = str(error) if isinstance(error, InputError) else describe(error)
        added.reject(f"{added.path}: {record.place}: {problem}")
        return
    added.records += 1
    added.ignored += part.ignored
    for line in part.rejected:
        added.reject(f"{added.path}: {record.place}: {line}")
    yield part


def _batches(parts: Iterator[Telemetry]) -> Iterator[Telemetry]:
    """Yield several parts as one, so that a file of many short records becomes few files of the store."""
    batch: list[Telemetry] = []
    rows = size = 0
    for part in parts:
        batch.append(part)
        rows += len(part.observations) + len(part.scores) + len(part.labels)
        size += sum(map(_size, part.observations))
        if rows >= BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield merged(batch)
            batch, rows, size = [], 0, 0
    if batch:
        yield merged(batch)


def _size(row: ObservationRow) -> int:
    return len(row.attributes) + len(row.contents or "") + len(row.events or "")


def _write(store: Store, batch: Telemetry, added: Added) -> None:
    observations = unknown_observations(store, batch.observations)
    scores, labels = unknown_scores(store, batch.scores), unknown_labels(store, batch.labels)
    write_observations(store, observations.rows, scores=scores.rows, labels=labels.rows)
    added.new += len(observations.new)
    added.changed += len(observations.changed)
    added.known += len(batch.observations) - len(observations.rows)
    added.scores += len(scores.rows)
    added.labels += len(labels.rows)
