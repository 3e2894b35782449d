"""Three made days of production, the last of which raised an alarm."""

from collections.abc import Callable
from typing import Any

from made_windows import IDENTITY, NAME, Production

from evalflows.analysis.monitoring import watch
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.windows import write_event, write_looks
from evalflows.store.store import Store

SPEC = TraceEvaluationSpec(name=NAME, evaluators=["exact_match"], watch=[{"threshold": "accuracy", "minimum": 0.75}])


def alarmed_production(store: Store, make: Callable[..., Any]) -> Production:
    """Write three days of scores, watch them, and store the incident that this opens."""
    made = Production(store, make)
    made.windows(0.8, 0.81)
    made.windows(0.6, failed=3)
    made.judged()
    seen = watch(store, IDENTITY, SPEC, ["v1"])
    for event in seen.events:
        write_event(store, event)
    write_looks(store, seen.looks)
    return made
