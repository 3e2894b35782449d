"""Names that tell experiments apart: by themselves, else by when they were approved or started, else by their ids."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from evalflows.store.catalog import ask
from evalflows.store.parquet import Store

ID_END = 6
"""Characters of an id's end that are shown."""


def names_apart(store: Store, names: Mapping[str, str], now: datetime | None = None) -> dict[str, str]:
    """Return a name for each experiment id: the given one if no other experiment has it.

    Else with when the experiment was approved as a baseline, if it is one, or started: `support (today 14:02 UTC)`,
    `support (approved 3 days ago)`. If that is the same too, with the end of the id.
    """
    alike = [identity for identity in names if Counter(names.values())[names[identity]] > 1]
    if not alike:
        return dict(names)
    (rows,) = ask(store, (_TIMES, [alike]))
    known = {identity: _since(started, approved, now or datetime.now(UTC)) for identity, started, approved in rows}
    apart = {identity: f"{name} ({known[identity]})" if identity in known else name for identity, name in names.items()}
    counts = Counter(apart.values())
    return {
        identity: f"{names[identity]} (…{identity[-ID_END:]})" if counts[name] > 1 else name
        for identity, name in apart.items()
    }


def _since(started: datetime, approved: datetime | None, now: datetime) -> str:
    return when(started, now) if approved is None else f"approved {when(approved, now)}"


def when(moment: datetime, now: datetime) -> str:
    """Return a time as it is read at another: `today 14:02 UTC`, `yesterday 14:02 UTC`, `3 days ago`, a date."""
    days = (_utc(now).date() - _utc(moment).date()).days
    if 0 <= days <= 1:
        return f"{('today', 'yesterday')[days]} {_utc(moment):%H:%M} UTC"
    return f"{days} days ago" if 0 < days <= 30 else f"{_utc(moment):%Y-%m-%d}"


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_TIMES = """
select e.experiment_id, e.started_at, max(a.recorded_at) filter (a.holds)
from experiments e left join approvals a using (experiment_id)
where is_one_of(e.experiment_id, $1) group by all
"""
