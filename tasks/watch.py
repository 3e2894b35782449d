"""Apply watch rules to the windows that have closed, and send alerts."""

from uuid import UUID

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from evalflows.analysis.judge_drift import publish_drift
from evalflows.analysis.monitoring import drift_alert, watch
from evalflows.engine.traces import Context
from evalflows.store.queries.incidents import write_event, write_looks
from evalflows.store.trace_records import AlertRow, WatermarkRow, evaluation_id
from evalflows.tasks.progress import enter_stage
from evalflows.tasks.start import flow_run_id

ALERT_EVENT = "evalflows.alert"


@task(cache_policy=NO_CACHE, persist_result=False)
def watch_windows(run: Context, batch: WatermarkRow) -> list[str]:
    """Look at the closed windows of an evaluation, write its alerts, send them, and return the texts of those sent.

    The lease of the evaluation is held. The looks are written last: if this ends before, the next start looks again,
    comes to the same incidents, and sends their events once more, with the same ids.
    """
    spec, store = run.prepared.spec, run.store
    drifted = _watch_judges(run, batch) if any(judge.anchors for judge in spec.evaluators) else []
    if not spec.watch:
        return drifted
    enter_stage(run, "looking at windows")
    identity, versions = evaluation_id(spec.name), [judge.version for judge in run.prepared.described]
    watched = watch(store, identity, spec, versions, flow_run_id())
    for event in watched.events:
        write_event(store, event)
    for event in watched.sent:
        send(event)
    write_looks(store, watched.looks)
    return [*drifted, *(event.text for event in watched.sent)]


def _watch_judges(run: Context, batch: WatermarkRow) -> list[str]:
    """Check whether judges have drifted, and begin an incident for each that has, which a person closes."""
    store, identity = run.store, batch.evaluation_id
    checks = publish_drift(store, batch.batch_id, evaluation=identity, flow_run_id=flow_run_id())
    alerts = [drift_alert(check, identity, batch.name) for check in checks if check.passed is False]
    for alert in alerts:
        write_event(store, alert)
        send(alert)
    return [alert.text for alert in alerts]


def send(alert: AlertRow) -> None:
    """Send an event of an incident to Prefect, for automations."""
    resource = {"prefect.resource.id": f"evalflows.incident.{alert.incident_id}", "prefect.resource.name": alert.rule}
    evaluation = {
        "prefect.resource.id": f"evalflows.trace-evaluation.{alert.name}",
        "prefect.resource.name": alert.name,
        "prefect.resource.role": "trace-evaluation",
    }
    emit_event(
        event=ALERT_EVENT,
        resource=resource,
        related=[evaluation],
        payload=alert_payload(alert),
        id=UUID(hex=alert.event_id),
    )


def alert_payload(alert: AlertRow) -> dict[str, object]:
    """Return the payload of an alert's event, for automations."""
    moments = {
        name: moment.isoformat() if (moment := getattr(alert, name)) else None
        for name in ("window_start", "window_end", "since")
    }
    names = (
        *("event", "text", "incident_id", "name", "rule", "kind", "metric", "slice", "n", "missing", "value"),
        *("ci_low", "ci_high", "confidence_level", "reference", "evidence", "reason_code"),
    )
    return {name: getattr(alert, name) for name in names} | moments
