"""Incidents: list, show and acknowledge them."""

import getpass
from collections.abc import Sequence
from dataclasses import asdict

import click

from evalflows.analysis.figures import figure
from evalflows.analysis.monitoring import Changed, acknowledge, baseline_before, what_changed
from evalflows.cli.late_commands import FORMAT, VERBOSE_RUN, one_line_errors, print_json, with_one_line_errors
from evalflows.cli.output import Table, Text, console, echo, table
from evalflows.cli.show import links_here, print_next, print_page
from evalflows.cli.stores import store_to_list
from evalflows.reports.idle_rules import evaluations, rules_that_could_not_look
from evalflows.specs import hints
from evalflows.specs.escaping import one_line
from evalflows.store.queries.incidents import Episode, episodes, events_of, find_incident, incidents
from evalflows.store.store import existing_store

STYLES = {"open": "bold red", "acknowledged": "yellow", "recovered": "green"}
NONE = "no incidents: the watch rules of trace evaluations have found nothing"


@click.group()
def alerts() -> None:
    """List, show and acknowledge the incidents that watch rules found in production."""


@alerts.command("ls")
@click.option("--name", help="Only those of this trace evaluation.")
@click.option("--all", "with_ended", is_flag=True, help="Also recovered and closed incidents.")
@FORMAT
@with_one_line_errors
def list_alerts(name: str | None, with_ended: bool, form: str) -> None:
    """List the incidents that are not over, newest first; alarms of one event are one line, as on the page."""
    with store_to_list() as store:
        found = incidents(store, name)
    shown = [incident for incident in found if with_ended or not incident.is_over]
    if form == "json":
        print_json({"incidents": shown})
    elif shown:
        console().print(_listed([episode for episode in episodes(found) if with_ended or not episode.is_over]))
        print_page(links_here().page("production"))
    else:
        idle = [
            one_line(f"{evaluation}: {sentence}")
            for evaluation in ([name] if name else evaluations(store))
            for sentence in rules_that_could_not_look(store, evaluation)
        ]
        over = len(found)
        none = "no incidents" if idle else NONE
        echo("\n".join([f"no incident is open; {over} are over: {hints.list_all_alerts()}" if over else none, *idle]))


@alerts.command("show")
@click.argument("incident")
@FORMAT
@with_one_line_errors
def show_alert(incident: str, form: str) -> None:
    """Show an INCIDENT and its events, given by id or id prefix."""
    store = existing_store()
    found = find_incident(store, incident)
    events = events_of(store, found.incident_id)
    if form == "json":
        print_json(asdict(found) | {"events": events})
        return
    out = console()
    out.print(Text(f"{found.incident_id}  ").append(found.state, STYLES.get(found.state, "")))
    out.print(Text(f"{found.name}, rule {found.rule!r}"))
    for event in events:
        out.print(Text(f"{event.recorded_at:%Y-%m-%d %H:%M}  {event.event}: {event.text}"))
    if not found.is_over:
        changed = what_changed(store, found)
        if changed:
            out.print(_changes(changed, found.metric))
        is_known = found.state == "acknowledged"
        fix = hints.gate_against(baseline_before(found, changed).text)
        page = links_here().incident(found.incident_id)
        print_next(out, fix if is_known else hints.acknowledge(found.incident_id), page)


def _changes(changed: Sequence[Changed], metric: str) -> Table:
    """Return what changed with an incident, against the week before it."""
    shown = table("slice", "share", f"{metric}", "of the change")
    for row in changed:
        shown.add_row(
            row.slice,
            f"{row.share_before:.0%} → {row.share:.0%}",
            f"{figure(row.mean_before, metric)} → {figure(row.mean, metric)}",
            "-" if row.of_change is None else f"{round(100 * row.of_change)}%",
        )
    return shown


@alerts.command("ack")
@click.argument("incident")
@click.option("--by", help="Who acknowledges it. Default: the current user.")
@click.option("--note", help="What is known, or has been done.")
@click.option("--close", is_flag=True, help="End the incident: its level is the new normal, and may fall again.")
@FORMAT
@with_one_line_errors
def ack(incident: str, by: str | None, note: str | None, close: bool, form: str) -> None:
    """Acknowledge an INCIDENT: until it is over, no alarm of the same metric and slice is sent.

    Its recovery is sent. All alarms are listed.
    """
    store = existing_store()
    found = find_incident(store, incident)
    row = acknowledge(store, found, by=by or getpass.getuser(), note=note, close=close)
    if form == "json":
        print_json(row)
    else:
        echo(one_line(f"{found.incident_id}: {row.text}"))


@alerts.command("automate")
@click.option("--webhook", metavar="URL", help="Post each alert to this URL, as JSON.")
@click.option("--deployment", metavar="FLOW/NAME", help="Run this deployment, with the alert as its parameter `alert`.")
@click.option("--name", help="Only alerts of this trace evaluation.")
@VERBOSE_RUN
def automate(webhook: str | None, deployment: str | None, name: str | None, verbose: bool) -> None:
    """Create or replace the automation in Prefect that reacts to alerts.

    It is created on the local server, or on the API at PREFECT_API_URL. The URL is stored there as a Webhook block.
    """
    if (webhook is None) == (deployment is None):
        raise click.UsageError("wanted one of --webhook and --deployment")
    with one_line_errors(verbose):
        from evalflows.flows.alert_automation import automate_deployment, automate_webhook
        from evalflows.flows.deployments import api_url, client_of
        from evalflows.prefect_server import local_server

        with client_of(api_url() or local_server().api) as client:
            if webhook is not None:
                made = automate_webhook(client, webhook, evaluation=name)
            else:
                made = automate_deployment(client, str(deployment), evaluation=name)
        echo(one_line(f"automation {made!r} reacts to alerts"))


def _listed(found: Sequence[Episode]) -> Table:
    out = table("incident", "state", "evaluation", "alarm", headings=3, wrapped=("alarm",))
    for episode in found:
        head, n = episode.first, len(episode.incidents)
        more = (f" ({n} alarms)" if n > 1 else "") + _acknowledged(episode)
        out.add_row(head.incident_id, Text(episode.state, STYLES.get(episode.state, "")), head.name, head.text + more)
    return out


def _acknowledged(episode: Episode) -> str:
    """Return who has acknowledged an episode, with the note, and how many of its alarms if not all; empty if nobody."""
    if not (known := episode.acknowledged):
        return ""
    n = len(episode.incidents)
    which = f"{len(known)} of {n} alarms acknowledged" if len(known) < n else "acknowledged"
    note = f": {known[0].note}" if known[0].note else ""
    return f"; {which} by {known[0].acknowledged_by}{note}"
