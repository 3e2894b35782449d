"""Automations in Prefect that react to alerts: call a webhook, or run a deployment."""

from datetime import timedelta
from typing import cast
from urllib.parse import urlsplit
from uuid import UUID

from prefect.automations import AutomationCore, EventTrigger
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.actions import ActionTypes, CallWebhook, RunDeployment
from prefect.events.schemas.automations import Posture
from prefect.exceptions import ObjectNotFound

from evalflows.specs.errors import InputError
from evalflows.tasks.watch import ALERT_EVENT

BLOCK = "evalflows-alerts"
"""The Webhook block of the automation for all evaluations; for one, its automation's id follows."""
PAYLOAD = "{{ event.payload | tojson }}"
"""The alert as JSON, rendered by Prefect when the automation fires."""


def automate_webhook(client: SyncPrefectClient, url: str, *, evaluation: str | None = None) -> str:
    """Post each alert to a URL as JSON. Return the automation's name; one of this name is replaced.

    Raise InputError for a URL that is not http or https.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(
            f"--webhook: got {parts.scheme or 'no scheme'!r}, wanted a URL such as https://example.com/alerts"
        )
    name = _name("webhook", evaluation)
    block = Webhook(method="POST", url=url, headers={"Content-Type": "application/json"})
    slug = BLOCK if evaluation is None else f"{BLOCK}-{_slug(evaluation)}"
    identity = cast("UUID", block.save(slug, overwrite=True))
    return _replace(client, name, evaluation, CallWebhook(block_document_id=identity, payload=PAYLOAD))


def automate_deployment(client: SyncPrefectClient, deployment: str, *, evaluation: str | None = None) -> str:
    """Run a deployment for each alert, with the alert as its parameter `alert`. Return the automation's name.

    Raise InputError if there is no such deployment.
    """
    try:
        found = client.read_deployment_by_name(deployment)
    except (ObjectNotFound, ValueError) as error:
        raise InputError(f"--deployment: got {deployment!r}, wanted FLOW/NAME of a deployment") from error
    alert = {"__prefect_kind": "json", "value": {"__prefect_kind": "jinja", "template": PAYLOAD}}
    name = _name(f"run {deployment}", evaluation)
    return _replace(client, name, evaluation, RunDeployment(deployment_id=found.id, parameters={"alert": alert}))


def _replace(client: SyncPrefectClient, name: str, evaluation: str | None, action: ActionTypes) -> str:
    """Create an automation in place of those of the same name."""
    of_one = {"prefect.resource.id": f"evalflows.trace-evaluation.{evaluation}"} if evaluation else {}
    automation = AutomationCore(
        name=name,
        description="Created by `evalflows alerts automate`.",
        trigger=EventTrigger(
            expect={ALERT_EVENT},
            match={"prefect.resource.id": "evalflows.incident.*"},
            match_related=of_one,
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[action],
    )
    earlier = client.read_automations_by_name(name)
    client.create_automation(automation)
    for old in earlier:
        client.delete_automation(old.id)
    return name


def _name(action: str, evaluation: str | None) -> str:
    return f"evalflows alerts{f' of {evaluation}' if evaluation else ''}: {action}"


def _slug(text: str) -> str:
    """Return a name that Prefect accepts for a block: small letters, digits and dashes."""
    return "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in text.lower()).split()) or "alerts"
