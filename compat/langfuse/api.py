"""Reading stored traces: `langfuse.api.trace.get` and `.list`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from evalflows.compat.langfuse.absent import ABSENT
from evalflows.compat.langfuse.items import Item
from evalflows.compat.refusal import refusing
from evalflows.execution.trace_items import items_of
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_filter import condition
from evalflows.store.queries.trace_items import LATEST, ItemKey, Window, item_keys

_NEWEST_FIRST = Window(moment="started_at", until=LATEST, newest_first=True)


@dataclass(slots=True, kw_only=True)
class Traces:
    """A page of traces."""

    data: list[Item]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise ABSENT.method("Traces", name)


class TraceApi:
    """Reads traces of the store."""

    def get(self, trace_id: str) -> Item:
        """Return a trace with its observations. Raise InputError if it is not in the store."""
        store = Store()
        found = _items(store, item_keys(store, "traces", condition({"traceId": trace_id}, "traces"), _NEWEST_FIRST, 1))
        if not found:
            raise InputError(f"trace {trace_id!r}: not in the store {store.layout.root}")
        return found[0]

    @refusing(order_by="traces that began last come first")
    def list(
        self,
        *,
        page: int | None = 1,
        limit: int | None = 50,
        user_id: str | None = None,
        name: str | None = None,
        session_id: str | None = None,
        from_timestamp: datetime | None = None,
        to_timestamp: datetime | None = None,
        order_by: str | None = None,
        tags: str | Sequence[str] | None = None,
        version: str | None = None,
        release: str | None = None,
        environment: str | Sequence[str] | None = None,
    ) -> Traces:
        """Return a page of the traces that meet every condition, those that began last first."""
        page, limit = page or 1, limit or 50
        if page < 1 or limit < 1:
            raise InputError(f"trace.list: got page {page} of {limit}, wanted positive numbers")
        given: dict[str, Any] = {"user_id": user_id, "name": name, "session_id": session_id}
        given |= {"version": version, "release": release}
        given |= {"tags": _listed(tags), "environment": _listed(environment)}
        given |= {"from_timestamp": _text(from_timestamp), "to_timestamp": _text(to_timestamp)}
        only = condition({field: value for field, value in given.items() if value is not None}, "traces")
        store = Store()
        keys = item_keys(store, "traces", only, _NEWEST_FIRST, page * limit)
        return Traces(data=_items(store, keys[(page - 1) * limit :]))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise ABSENT.method("api.trace", name)


@dataclass(slots=True)
class Api:
    """The part of Langfuse's API that is supported here."""

    trace: TraceApi = field(default_factory=TraceApi)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise ABSENT.method("api", name)


def _items(store: Store, keys: Sequence[ItemKey]) -> "list[Item]":
    return [Item(view) for view in items_of(store, "traces", keys)] if keys else []


def _listed(values: str | Sequence[str] | None) -> "list[str] | None":
    return [values] if isinstance(values, str) else None if values is None else [*values]


def _text(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
