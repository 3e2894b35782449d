"""Made traces of an application that answers questions, as its instrumentation would have sent them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from evalflows.store.observations import day_of, split_attributes, write_observations
from evalflows.store.records import to_json
from evalflows.store.store import Store
from evalflows.store.trace_records import ObservationRow

BEGAN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""When the first trace began."""


def observation(
    trace: str,
    span: str = "root",
    *,
    parent: str | None = None,
    name: str = "user-query",
    type: str = "chain",  # noqa: A002 OpenInference's word
    input: Any = "question",  # noqa: A002
    output: Any = "answer",
    began: datetime = BEGAN,
    seconds: float | None = 1.5,
    attributes: Mapping[str, Any] | None = None,
    resource: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ObservationRow:
    """One span; an input or an output of None was not captured."""
    captured = {"input.value": input, "output.value": output}
    given = {"openinference.span.kind": type} | {key: value for key, value in captured.items() if value is not None}
    short, contents = split_attributes(given | dict(attributes or {}))
    return ObservationRow(
        trace_id=trace,
        span_id=f"{trace}-{span}",
        parent_id=None if parent is None else f"{trace}-{parent}",
        day=day_of(began),
        source="otlp",
        name=name,
        started_at=began,
        ended_at=None if seconds is None else began + timedelta(seconds=seconds),
        attributes=short,
        contents=contents,
        resource=None if resource is None else to_json(dict(resource)),
        **fields,
    )


def traces(count: int, *, first: int = 0, apart_s: float = 60.0, **fields: Any) -> list[ObservationRow]:
    """Traces `t0`, `t1` and so on, each a minute after the one before, of one span each: `answer 0` to `question 0`."""
    return [
        observation(
            f"t{n}",
            **{"input": f"question {n}", "output": f"answer {n}", "began": BEGAN + timedelta(seconds=n * apart_s)}
            | fields,
        )
        for n in range(first, first + count)
    ]


def write(store: Store, rows: Sequence[ObservationRow]) -> None:
    write_observations(store, rows)
