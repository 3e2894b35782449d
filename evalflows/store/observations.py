"""Writing the observations of production. A span that arrives twice is one row, whoever sends it and when.

A span belongs to the UTC day in which it began, so its copies meet in one owner, which keeps the latest. All writers
take one lease for the moment of writing, so any number of receivers and imports may work at once.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from evalflows.store.last_recorded import last_recorded
from evalflows.store.leases.lease import leased
from evalflows.store.open_owners import open_owners
from evalflows.store.parquet import Store
from evalflows.store.records import Json, LabelRow, ScoreRow, after, new_id, to_json
from evalflows.store.trace_records import ObservationRow

LEASE = "observations"
PATIENCE_S = 10.0
"""Seconds of waiting for the lease before that is printed: writers hold it for a moment each."""
SHORT = 1000
"""Characters of a text that stays among the short attributes, which queries read without the long ones."""
FEEDBACK = "feedback-"
"""How the owners of feedback begin, in the tables of scores and labels; a day follows."""
FIRST_DAY, LAST_DAY = "1970-01-01", "2100-01-01"


def day_of(started_at: datetime) -> str:
    """Return the UTC day of a moment, which is the owner of what began then."""
    day = started_at.astimezone(UTC).date().isoformat()
    return min(max(day, FIRST_DAY), LAST_DAY)


def split_attributes(attributes: Mapping[str, Any]) -> tuple[Json, Json | None]:
    """Return attributes as two JSON texts: the short ones, and those longer than SHORT characters, if any.

    Text that is no valid UTF-8 is mended. Raise TypeError or ValueError for values that JSON cannot represent.
    """
    short: dict[str, Any] = {}
    contents: dict[str, Any] = {}
    for name, value in attributes.items():
        is_long = len(value) > SHORT if isinstance(value, str) else _is_long(value)
        (contents if is_long else short)[name] = value
    return to_json(short, mend=True), to_json(contents, mend=True) if contents else None


def _is_long(value: object) -> bool:
    return isinstance(value, list | tuple | dict) and len(json.dumps(value)) > SHORT


def write_observations(
    store: Store,
    observations: Iterable[ObservationRow],
    *,
    scores: Iterable[ScoreRow] = (),
    labels: Iterable[LabelRow] = (),
) -> None:
    """Write observations, and the feedback that came with them, whose owner also names its day.

    The rows are on disk when this returns. They are recorded now, later than all rows before, also if the clock was
    set back: what a trace evaluation has not judged is what was recorded after its watermark.

    Raise StorageError if they cannot be written; some days may be written then, and writing all again does no harm.
    """
    by_owner: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for observation in observations:
        by_owner["observations", observation.day].append(observation)
    for score in scores:
        by_owner["scores", score.experiment_id or ""].append(score)
    for label in labels:
        by_owner["labels", label.batch_id].append(label)
    if not by_owner:
        return
    with leased(store, LEASE, "writing observations", wait=True, patience_s=PATIENCE_S):
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
    for table in ("scores", "labels"):
        past += [(table, owner) for owner in open_owners(store, table) if _is_past_feedback(owner, today)]
    if past:
        with leased(store, LEASE, "writing observations", wait=True):
            for table, owner in past:
                store.seal(owner, [table])


def feedback_owner(at: datetime) -> str:
    """Return the owner of the feedback that came with observations, by the day on which it was given."""
    return f"{FEEDBACK}{day_of(at)}"


def _is_past_feedback(owner: str, today: str) -> bool:
    return owner.startswith(FEEDBACK) and owner.removeprefix(FEEDBACK) < today
