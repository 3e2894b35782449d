"""The rows of the store about production: what an application did, how far it was judged, and alerts.

The same rules hold as for records.py: missing is None, times are UTC, money is USD, a Json field holds JSON text.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Literal

from evalflows.specs.frozen import dataclass
from evalflows.store.records import ExperimentState, Json, ReasonCode, SubjectKind, now

TraceSource = Literal["otlp", "langfuse", "langsmith", "rows"]
"""Where an observation came from, which decides how its attributes are named: evalflows/specs/attribute_aliases.py."""
SpanStatus = Literal["ok", "error", "unset"]
TraceScope = Literal["traces", "observations", "sessions"]
SUBJECT_KINDS: Mapping[TraceScope, SubjectKind] = {
    "traces": "trace",
    "observations": "observation",
    "sessions": "session",
}
"""The kind of subject of a score of each scope."""
BatchKind = Literal["schedule", "backfill"]
AlertEvent = Literal["alarm", "recovered", "acknowledged", "closed"]
WatchOutcome = Literal["holds", "violated", "not_evaluated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationRow:
    """One observation of a trace, with its attributes as they came: a span, or a log record that points at a span.

    Names are given to attributes when they are read, by evalflows/specs/attribute_aliases.py.
    """

    trace_id: str  # of OpenTelemetry: 32 hex digits
    span_id: str  # of OpenTelemetry: 16 hex digits; of a log record, derived from its content
    parent_id: str | None = None  # of a log record, the span it belongs to
    day: str  # the UTC day of started_at, such as 2026-11-23, so that a span that arrives twice is one row
    source: TraceSource
    name: str
    kind: str | None = None  # of OpenTelemetry: internal, server, client, producer, consumer; log for a log record
    started_at: datetime
    ended_at: datetime | None = None  # before started_at if the application's clock ran backwards
    status: SpanStatus = "unset"
    status_message: str | None = None
    scope: str | None = None  # the instrumentation's name
    resource: Json | None = None  # attributes of the process that sent it
    attributes: Json = "{}"  # of at most SHORT characters each
    contents: Json | None = None  # the longer attributes, such as messages
    events: Json | None = None  # [{name, at, attributes}]
    links: Json | None = None  # [{trace_id, span_id, attributes}]
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkRow:
    """One batch of a trace evaluation: what it judged, and up to where. A later row replaces an earlier one."""

    batch_id: str
    evaluation_id: str  # derived from the name
    name: str  # of the evaluation; the watermark of a name is `until` of its newest completed batch
    kind: BatchKind
    scope: TraceScope
    filter: Json | None = None
    evaluators: Json  # [{name, version, declared_version, use, code, sample}]
    spec: Json
    since: datetime | None = None  # considered: recorded later than this; of a backfill, begun then
    until: datetime | None = None  # and not later than this; None if it did not get that far
    until_id: str | None = None  # the last item, if the batch stopped before the window's end
    resumed_from: str | None = None  # the batch whose rest this one judged
    state: ExperimentState
    reason: str | None = None  # why it is incomplete
    items_fetched: int = 0
    items_processed: int = 0
    items_failed: int = 0  # no evaluator could judge them, or the mapper raised
    scores_created: int = 0
    composite_scores_created: int = 0
    calls: int | None = None
    calls_cached: int | None = None
    cost_usd: float | None = None
    evalflows_version: str
    flow_run_id: str | None = None
    started_at: datetime
    ended_at: datetime | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWindowRow:
    """The look of one watch rule at one closed window of one slice. It is never repeated, whatever arrives later."""

    look_id: str  # derived from evaluation, rule, slice, evaluator version and window
    period: str  # the evaluation's id and the window's month
    evaluation_id: str
    rule: str
    kind: str  # threshold, fall, failure_share or change
    metric: str
    slice: str  # such as version=1.4, or all
    evaluator_version: str
    size: str  # of the window: hour or day
    window_start: datetime
    window_end: datetime
    n: int  # scored traces; of a failure share, all
    missing: int
    n_clusters: int | None = None  # sessions
    value: float | None = None
    standard_error: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    confidence_level: float | None = None
    reference: float | None = None
    evidence: float | None = None
    since: datetime | None = None  # of the change detector: when the most likely change began
    outcome: WatchOutcome
    reason_code: ReasonCode | None = None  # why it is not evaluated
    flow_run_id: str | None = None
    recorded_at: datetime = field(default_factory=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """One event of an incident: an alarm, its end, or that a person acknowledged it."""

    event_id: str
    incident_id: str  # shared by the events of one incident
    evaluation_id: str
    name: str  # of the trace evaluation
    rule: str
    kind: str  # of the rule
    metric: str
    slice: str  # such as version=1.4, or all
    evaluator_version: str | None = None
    event: AlertEvent
    window_start: datetime | None = None  # the window that raised or ended it
    window_end: datetime | None = None
    since: datetime | None = None  # of the change detector: when the change began, as estimated
    n: int | None = None  # scored traces in the window
    missing: int | None = None
    value: float | None = None  # the window's mean, or its failure share; of the change detector, the mean since then
    ci_low: float | None = None
    ci_high: float | None = None
    confidence_level: float | None = None
    reference: float | None = None  # what it was compared with: the threshold, the previous window, the release's mean
    evidence: float | None = None  # of the change detector: its e-value
    text: str
    reason_code: ReasonCode | None = None
    acknowledged_by: str | None = None  # or who closed it
    note: str | None = None
    flow_run_id: str | None = None
    recorded_at: datetime = field(default_factory=now)


def evaluation_id(name: str) -> str:
    """Return the id of all batches of an evaluation's name, which begins the owner of its scores."""
    return f"eval-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
