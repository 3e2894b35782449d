"""Three made days of production, the last of which raised an alarm."""

import json
from collections.abc import Callable
from typing import Any

from made_windows import IDENTITY, NAME, Production, write_traces

from evalflows.analysis.monitoring import watch
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.incidents import write_event, write_looks
from evalflows.store.store import Store

SPEC = TraceEvaluationSpec(name=NAME, evaluators=["exact_match"], watch=[{"threshold": "accuracy", "minimum": 0.75}])


def alarmed_production(store: Store, make: Callable[..., Any], before: str = "", after: str = "") -> Production:
    """Write three days of scores, watch them, and store the incident that this opens. With versions of the application
    `before` and `after`, there are traces too."""
    made = Production(store, make)
    for shares, failed, version in (((0.8, 0.81), 0, before), ((0.6,), 3, after)):
        of = {"resource": json.dumps({"service.version": version})} if version else {}
        began = made.at
        made.windows(*shares, failed=failed, **of)
        if of:
            write_traces(store, make, [began + made.length * n / made.n for n in range(made.n * len(shares))], **of)
    made.judged()
    seen = watch(store, IDENTITY, SPEC, ["v1"])
    for event in seen.events:
        write_event(store, event)
    write_looks(store, seen.looks)
    return made
