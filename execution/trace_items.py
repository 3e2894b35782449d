"""Production items as objects, read from the store by their keys."""

from collections.abc import Sequence

from evalflows.execution.trace_runs import Item
from evalflows.specs.trace_evaluation import TraceScope
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_items import ItemKey, observations_of
from evalflows.telemetry.reading import observation_view, session_view, trace_view


def items_of(store: Store, scope: TraceScope, keys: Sequence[ItemKey]) -> list[Item]:
    """Return the items as mappers get them, in the order of their keys."""
    by_trace = observations_of(store, keys)
    traces = {identity: rows for identity, rows in by_trace.items() if rows}
    match scope:
        case "observations":
            spans = {f"{row.trace_id}/{row.span_id}": row for rows in traces.values() for row in rows}
            return [observation_view(spans[key.id]) for key in keys if key.id in spans]
        case "sessions":
            of_session = [[trace_view(traces[one]) for one in key.trace_ids if one in traces] for key in keys]
            return [session_view(found) for found in of_session if found]
        case "traces":
            return [trace_view(traces[key.id]) for key in keys if key.id in traces]
