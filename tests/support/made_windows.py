"""Judged traces of made days, as a trace evaluation leaves them in the store."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from evalflows.store.observations import day_of, write_observations
from evalflows.store.records import derived_id, new_id
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

Make = Callable[..., Any]
START = datetime(2026, 10, 1, tzinfo=UTC)
NAME = "production"
IDENTITY = evaluation_id(NAME)


class Production:
    """Writes scores of traces window by window, the same share of them passed in each part of a window."""

    def __init__(self, store: Store, make: Make, *, n: int = 200, hours: int = 24, version: str = "v1") -> None:
        self.store, self.make, self.n, self.version = store, make, n, version
        self.length = timedelta(hours=hours)
        self.at = START

    def windows(self, *shares: float, failed: int = 0, **fields: Any) -> None:
        """Write one window for each share of passed traces; the last `failed` judgements of each have failed."""
        for share in shares:
            rows = [self._score(place, share, failed, fields) for place in range(self.n)]
            owner = f"{IDENTITY}-{day_of(self.at)}"
            self.store.append("judgements", owner, new_id("part"), rows)
            self.at += self.length

    def nothing(self, windows: int) -> None:
        self.at += windows * self.length

    def judged(self) -> None:
        """Write the batch that judged all that was recorded until two hours after the last window."""
        until = self.at + timedelta(hours=2)
        of = {"batch_id": new_id("batch"), "evaluation_id": IDENTITY, "name": NAME, "kind": "schedule"}
        spec = f'{{"name": "{NAME}", "evaluators": ["exact_match"]}}'
        row = self.make("watermarks", **of, state="completed", spec=spec, until=until, recorded_at=until)
        self.store.append("watermarks", IDENTITY, new_id("part"), [row])

    def _score(self, place: int, share: float, failed: int, fields: dict[str, Any]) -> Any:
        at = self.at + self.length * place / self.n
        trace = derived_id("trace", at.isoformat(), *map(str, fields.values()))
        has_passed = int((place + 1) * share + 1e-9) > int(place * share + 1e-9)
        is_failed = place >= self.n - failed
        return self.make(
            "judgements",
            judgement_id=derived_id(trace, self.version),
            subject_kind="trace",
            subject_id=trace,
            experiment_id=f"{IDENTITY}-{day_of(self.at)}",
            metric="accuracy",
            value=None if is_failed else float(has_passed),
            status="failed" if is_failed else "scored",
            error="boom" if is_failed else None,
            evaluator="accuracy",
            evaluator_version=self.version,
            subject_at=at,
        )


def write_traces(store: Store, make: Make, at: Sequence[datetime], **fields: Any) -> list[str]:
    """Write a trace of one span for each moment; return their ids."""
    ids = [derived_id("trace", moment.isoformat(), *map(str, fields.values())) for moment in at]
    rows = [
        make(
            "observations",
            **{"trace_id": trace, "span_id": trace[:16], "day": day_of(moment), "source": "otlp", "started_at": moment}
            | {"ended_at": moment + timedelta(seconds=2)}
            | fields,
        )
        for trace, moment in zip(ids, at, strict=True)
    ]
    write_observations(store, rows)
    return ids
