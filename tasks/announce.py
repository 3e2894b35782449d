"""Announce gate decisions: an event for automations, a page in Prefect's UI, and a failed flow run on FAIL."""

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from evalflows.reports.decision_limits import with_limits
from evalflows.reports.decisions import Decision, decisions_named
from evalflows.reports.markdown_pages import decisions_page
from evalflows.specs.errors import GateFailedError, IncompleteError
from evalflows.store.parquet import Store
from evalflows.tasks.dashboard import links_to_dashboard

EVENT = "evalflows.gate.decided"


@task(cache_policy=NO_CACHE, persist_result=False)
def announce(decisions: list[str]) -> None:
    """Emit one event per decision, and publish all decisions as the markdown artifact `decision`."""
    store = Store()
    rows, dashboard = with_limits(store, decisions_named(store, decisions)), links_to_dashboard(store)
    for row in rows:
        emit_event(
            event=EVENT,
            resource={"prefect.resource.id": f"evalflows.gate.{row.gate}", "prefect.resource.name": row.gate},
            payload=payload(row),
        )
    create_markdown_artifact(
        key="decision", markdown=decisions_page(rows, dashboard.page), description="Gate decisions"
    )


@task(cache_policy=NO_CACHE, persist_result=False)
def raise_if_failed(decisions: list[str], lacking: IncompleteError | None = None) -> None:
    """Raise GateFailedError if a gate decided FAIL; otherwise raise IncompleteError if the run is incomplete."""
    failed = [row for row in decisions_named(Store(), decisions) if row.conclusion == "FAIL"]
    if failed:
        raise GateFailedError("; ".join(f"{row.title}: FAIL: {row.summary}" for row in failed), decisions)
    if lacking is not None:
        raise IncompleteError(str(lacking), lacking.experiments, decisions)


def payload(decision: Decision) -> dict[str, object]:
    """Return the event payload of a decision, for automations."""
    return {
        "decision_id": decision.decision_id,
        "gate": decision.gate,
        "conclusion": decision.conclusion,
        "summary": decision.summary,
        "candidate": decision.candidate,
        "candidate_experiment_id": decision.candidate_experiment_id,
        "baseline": decision.baseline,
        "baseline_experiment_id": decision.baseline_experiment_id,
        "broken": [rule["metric"] for rule in decision.rules if rule["outcome"] == "broken"],
        "open": [rule["metric"] for rule in decision.rules if rule["outcome"] == "open"],
    }
