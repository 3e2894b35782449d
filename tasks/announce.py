"""Announce gate decisions as events, with links to their pages."""

from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from evalflows.dashboard.links import Links, NoLinks
from evalflows.reports.decisions import Decision, decisions_named, with_limits
from evalflows.reports.markdown_pages import decisions_page
from evalflows.specs.dashboard_address import dashboard_url
from evalflows.store.store import Store

DECISION_EVENT = "evalflows.gate.decided"


@task(cache_policy=NO_CACHE, persist_result=False)
def announce(decisions: list[str]) -> None:
    """Log one line and emit one event per decision, and publish all decisions as the markdown artifact `decision`."""
    store, log = Store(), get_run_logger()
    rows, dashboard = with_limits(store, decisions_named(store, decisions)), links_to_dashboard(store)
    for row in rows:
        log.info(row.sentence)
        emit_event(
            event=DECISION_EVENT,
            resource={"prefect.resource.id": f"evalflows.gate.{row.gate}", "prefect.resource.name": row.gate},
            payload=payload(row),
        )
    create_markdown_artifact(
        key="decision", markdown=decisions_page(rows, dashboard.page), description="Gate decisions"
    )


def links_to_dashboard(store: Store) -> Links:
    """Return links to the dashboard of a store; none if its address is not known."""
    url = dashboard_url(store.layout.root)
    return NoLinks() if url is None else Links(url)


def payload(decision: Decision) -> dict[str, object]:
    """Return the event payload of a decision, for automations."""
    names = ("decision_id", "gate", "conclusion", "summary")
    sides = ("candidate", "candidate_experiment_id", "baseline", "baseline_experiment_id")
    return {name: getattr(decision, name) for name in (*names, *sides)} | {
        outcome: [rule.metric for rule in decision.rules if rule.outcome == outcome] for outcome in ("broken", "open")
    }
