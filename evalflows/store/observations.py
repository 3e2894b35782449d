"""Writing the observations of production, and merging the open parts of owners that are still written.

A span belongs to the UTC day in which it began, so its copies meet in one owner, which keeps the latest. All writers
take one lease for the moment of writing, so any number of receivers and imports may work at once.
"""

# Parts of about the same size are merged, so that a row is rewritten only a few times. The merged part is on disk
# before the parts that it replaces are removed, and queries use each key once, so a crash between loses and doubles
# nothing. The replaced parts stay for a while, for queries that have listed them.

from __future__ import annotations  # types of libraries that are imported when first used

import json
import math
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from evalflows.specs.attribute_aliases import IMPLAUSIBLE
from evalflows.store.arrow import pa, pq
from evalflows.store.file_states import state_of
from evalflows.store.file_systems import known, storage_errors
from evalflows.store.layout import StoredFile
from evalflows.store.leases import hold_lease
from evalflows.store.records import Json, JudgementRow, LabelRow, after, new_id, now, to_json
from evalflows.store.schemas import TABLES
from evalflows.store.store import Store
from evalflows.store.trace_records import ObservationRow

LEASE = "observations"
PATIENCE_S = 10.0
"""Seconds of waiting for the lease before that is printed: writers hold it for a moment each."""
SHORT = 1000
"""Characters of a text that stays among the short attributes, which queries read without the long ones."""
FEEDBACK = "feedback-"
"""How the owners of feedback begin, in the tables of scores and labels; a day follows."""
FIRST_DAY, LAST_DAY = "1970-01-01", "2100-01-01"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""When an observation began of which that is not known."""
EARLIEST, _AHEAD, LONGEST = datetime(2000, 1, 1, tzinfo=UTC), timedelta(days=1), timedelta(seconds=1e8)
"""Plausible times: the first, how far the clock of an application may be ahead, and the longest time between the start
and the end of an observation."""

FAN = 8
"""Parts of one tier that are merged at once."""
SMALLEST, LARGEST = 64 << 10, 64 << 20
"""Bytes of a part below which all are in the first tier, and from which none is merged again."""
GRACE_S = 30.0
"""Seconds that a replaced part stays."""
TABLE = "observations"
LABELS = "labels"
"""The lease of those who merge labels."""


def last_recorded(store: Store, table: str) -> datetime | None:
    """Return when the newest row of a table was recorded; None if it has none.

    Files that are damaged do not count: queries leave them out.
    """
    fs = store.filesystem
    paths = (path for path in fs.glob(f"{store.layout.root}/{table}/*/*/*.parquet") if StoredFile.at(path))
    return max(filter(None, (_newest(store, path) for path in paths)), default=None)


def _newest(store: Store, path: str) -> datetime | None:
    state = state_of(store.layout, store.filesystem, path)
    newest: datetime | None
    before, newest = known(store.filesystem, "newest").get(path, (None, None))
    if state is None or before != state:
        try:
            with store.filesystem.open(path, "rb") as file:
                newest = _newest_in(pq.ParquetFile(file).metadata)
        except (OSError, pa.ArrowException):  # merged with others meanwhile, or damaged
            return None
        known(store.filesystem, "newest")[path] = state, newest
    return newest


def _newest_in(metadata: Any) -> datetime | None:
    index = metadata.schema.names.index("recorded_at")
    groups = (metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups))
    newest = [group.max for group in groups if group is not None and group.has_min_max]
    return max((moment.replace(tzinfo=moment.tzinfo or UTC) for moment in newest), default=None)


def open_owners(store: Store, table: str, prefix: str = "") -> list[str]:
    """Return the owners with open parts whose id begins with a prefix, sorted."""
    return _owners(store, table, "open", prefix)


def last_owner(store: Store, table: str) -> str | None:
    """Return the last owner of a table in the order of their ids, such as the last day; None if it has none."""
    return max((owner for state in ("open", "sealed") for owner in _owners(store, table, state)), default=None)


def _owners(store: Store, table: str, state: str, prefix: str = "") -> list[str]:
    column, fs = TABLES[table].owner, store.filesystem
    paths = fs.glob(f"{store.layout.root}/{table}/{state}/{column}={prefix}*")
    names = (str(path).rstrip("/").rpartition("=")[2] for path in paths)
    return sorted(name for name in names if name and name != "_")


def day_of(started_at: datetime) -> str:
    """Return the UTC day of a moment, which is the owner of what began then."""
    day = started_at.astimezone(UTC).date().isoformat()
    return min(max(day, FIRST_DAY), LAST_DAY)


def latest_start() -> datetime:
    """Return the last plausible time of an observation that arrives now."""
    return now() + _AHEAD


def with_plausible_times(row: ObservationRow, latest: datetime) -> ObservationRow:
    """Return an observation with its times if they are plausible, which those after `latest` are not.

    Those that are not are unknown, as if they had not been sent: one span of the year 2262 would be the newest, and on
    the last day, for ever. They are kept as attributes `evalflows.implausible.…`. An observation that ends before it
    begins is kept as it is.
    """
    started_at, ended_at = row.started_at, row.ended_at
    if ended_at is not None and EARLIEST <= started_at <= ended_at <= latest and ended_at - started_at <= LONGEST:
        return row  # as almost all are
    implausible: dict[str, str] = {}
    if ended_at is not None and not (EARLIEST <= ended_at <= latest):
        implausible["ended_at"], ended_at = ended_at.isoformat(), None
    if started_at != EPOCH and not (EARLIEST <= started_at <= latest):
        implausible["started_at"] = started_at.isoformat()
        started_at, ended_at = ended_at or EPOCH, None
    elif ended_at is not None and ended_at - started_at > LONGEST:
        implausible["ended_at"], ended_at = ended_at.isoformat(), None
    if not implausible:
        return row
    attributes = json.loads(row.attributes) | {IMPLAUSIBLE + name: text for name, text in implausible.items()}
    return replace(
        row, started_at=started_at, ended_at=ended_at, day=day_of(started_at), attributes=to_json(attributes, mend=True)
    )


def split_attributes(attributes: Mapping[str, Any]) -> tuple[Json, Json | None]:
    """Return attributes as two JSON texts: the short ones, and those longer than SHORT characters, if any.

    Text that is no valid UTF-8 is mended. Raise TypeError or ValueError for values that JSON cannot represent.
    """
    short: dict[str, Any] = {}
    contents: dict[str, Any] = {}
    for name, value in attributes.items():
        if isinstance(value, str):
            is_long = len(value) > SHORT
        else:
            is_long = isinstance(value, list | tuple | dict) and len(json.dumps(value)) > SHORT
        (contents if is_long else short)[name] = value
    return to_json(short, mend=True), to_json(contents, mend=True) if contents else None


def write_observations(
    store: Store,
    observations: Iterable[ObservationRow],
    *,
    scores: Iterable[JudgementRow] = (),
    labels: Iterable[LabelRow] = (),
) -> None:
    """Write observations, and the feedback that came with them, whose owner also names its day.

    The rows are on disk when this returns. They are recorded now, later than all rows before, also if the clock was
    set back: what a trace evaluation has not judged is what was recorded after its watermark.

    Times that are not plausible are taken out, as by `with_plausible_times`.

    Raise StorageError if they cannot be written; some days may be written then, and writing all again does no harm.
    """
    by_owner: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    latest = latest_start()
    for observation in (with_plausible_times(row, latest) for row in observations):
        by_owner["observations", observation.day].append(observation)
    for score in scores:
        by_owner["judgements", score.experiment_id or ""].append(score)
    for label in labels:
        by_owner["labels", label.batch_id].append(label)
    if not by_owner:
        return
    with hold_lease(store, LEASE, "writing observations", wait=True, patience_s=PATIENCE_S):
        moment = after(last_recorded(store, "observations"))
        for (table, owner), rows in by_owner.items():
            _add(store, table, owner, [replace(row, recorded_at=moment) for row in rows])


def _add(store: Store, table: str, owner: str, rows: Sequence[object]) -> None:
    if store.is_sealed(table, owner):
        store.reopen(owner, [table])
    store.append(table, owner, new_id("part"), rows)


def seal_past_days(store: Store, today: str) -> None:
    """Merge the files of each day before `today`, and of its feedback, so that queries read them faster."""
    past = [("observations", day) for day in open_owners(store, "observations") if day < today]
    for table in ("judgements", "labels"):
        of_feedback = (owner for owner in open_owners(store, table) if owner.startswith(FEEDBACK))
        past += [(table, owner) for owner in of_feedback if owner.removeprefix(FEEDBACK) < today]
    if past:
        with hold_lease(store, LEASE, "writing observations", wait=True):
            for table, owner in past:
                store.seal(owner, [table])


def feedback_owner(at: datetime) -> str:
    """Return the owner of the feedback that came with observations, by the day on which it was given."""
    return f"{FEEDBACK}{day_of(at)}"


class Compaction:
    """Merges the open days of observations, and knows which parts are to be removed when."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._replaced: deque[tuple[float, str]] = deque()  # when to remove which part

    def step(self) -> None:
        """Merge what is worth it, and remove what was replaced long enough ago."""
        self._remove(time.monotonic())
        for day in open_owners(self._store, TABLE):
            while replaced := merge_similar(
                self._store, TABLE, day, LEASE, without={path for _, path in self._replaced}
            ):
                self._replaced.extend((time.monotonic() + GRACE_S, part) for part in replaced)

    def finish(self) -> None:
        """Remove all that was replaced."""
        self._remove(math.inf)

    def _remove(self, until: float) -> None:
        while self._replaced and self._replaced[0][0] <= until:
            _, path = self._replaced.popleft()
            _remove_part(self._store, path)


def merge_similar(
    store: Store, table: str, owner: str, lease: str, *, without: Collection[str] = (), removes: bool = False
) -> Sequence[str]:
    """Write parts of about the same size of an open owner as one, each key once, if there are enough of them.

    Return the parts that this replaces: none if there are too few, or if another process has merged or sealed them.
    Parts `without` do not count. The caller is to remove what was replaced, unless this `removes` it.
    """
    sizes = {path: size for path, size in store.open_parts(table, owner).items() if path not in without}
    if not (parts := _mergeable(sizes)):
        return ()
    with hold_lease(store, lease, f"merging {table}", wait=True, patience_s=PATIENCE_S):
        if store.is_sealed(table, owner) or not {*parts} <= store.open_parts(table, owner).keys():
            return ()
        store.merge_parts(table, owner, new_id("part"), parts)
        for part in parts if removes else ():  # with the lease: others merge only parts that stay until they have
            _remove_part(store, part)
    return parts


def _remove_part(store: Store, path: str) -> None:
    """Remove a part that was replaced. Nothing happens if its owner was sealed meanwhile."""
    with storage_errors(path), suppress(FileNotFoundError):
        store.filesystem.rm_file(path)


def _mergeable(sizes: dict[str, int]) -> list[str]:
    """Return the parts of the lowest tier that has enough of them; none if no tier has."""
    tiers: defaultdict[int, list[str]] = defaultdict(list)
    for path, size in sizes.items():
        if size < LARGEST:
            tiers[int(math.log(max(size, SMALLEST) / SMALLEST, FAN))].append(path)
    full = [tier for tier, parts in tiers.items() if len(parts) >= FAN]
    return sorted(tiers[min(full)]) if full else []
