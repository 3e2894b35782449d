"""When the newest row of a table was recorded, from the statistics of its files: no row is read."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evalflows.store.file_states import state_of
from evalflows.store.layout import StoredFile
from evalflows.store.parquet import Store

_known: dict[str, tuple[object, datetime | None]] = {}
"""The newest row of each file that this process has looked at, with the state in which the file was."""


def last_recorded(store: Store, table: str) -> datetime | None:
    """Return when the newest row of a table was recorded; None if it has none.

    Files that are damaged do not count: queries leave them out.
    """
    fs = store.filesystem
    paths = (path for path in fs.glob(f"{store.layout.root}/{table}/*/*/*.parquet") if StoredFile.at(path))
    return max(filter(None, (_newest(store, path) for path in paths)), default=None)


def _newest(store: Store, path: str) -> datetime | None:
    state = state_of(store.layout, store.filesystem, path)
    known, newest = _known.get(path, (None, None))
    if state is None or known != state:
        try:
            with store.filesystem.open(path, "rb") as file:
                newest = _newest_in(pq.ParquetFile(file).metadata)
        except (OSError, pa.ArrowException):  # merged with others meanwhile, or damaged
            return None
        _known[path] = state, newest
    return newest


def _newest_in(metadata: Any) -> datetime | None:
    place = metadata.schema.names.index("recorded_at")
    groups = (metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups))
    newest = [group.max for group in groups if group is not None and group.has_min_max]
    return max((moment.replace(tzinfo=moment.tzinfo or UTC) for moment in newest), default=None)
