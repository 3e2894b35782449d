"""Production on the command line: traces, their evaluations, windows of metrics, and incidents.

Listing and showing loads no Prefect.
"""

import getpass
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click
from pydantic import ValidationError

from evalflows.analysis.figures import estimate, figure
from evalflows.analysis.monitoring import (
    Changed,
    WindowFigures,
    acknowledge,
    baseline_before,
    what_changed,
    window_figures,
)
from evalflows.cli.late_commands import (
    BAD_INPUT,
    CHANGES,
    FORMAT,
    INCOMPLETE,
    VERBOSE,
    VERBOSE_RUN,
    moment,
    one_line_errors,
    print_json,
)
from evalflows.cli.output import Console, Table, Text, console, echo, echo_error, table
from evalflows.cli.show import links_here, print_next
from evalflows.cli.stores import store_to_list
from evalflows.specs import hints
from evalflows.specs.errors import InputError, first_problem, json_text, one_line
from evalflows.specs.traces import ALL, DIMENSIONS, TraceColumns, TraceEvaluationSpec
from evalflows.store.queries.traces import (
    ListedTrace,
    Verdict,
    Window,
    batch_row,
    condition,
    item_keys,
    listed_traces,
    observations_of_trace,
    verdicts_of_trace,
)
from evalflows.store.queries.windows import Incident, events_of, find_incident, incidents
from evalflows.store.records import now
from evalflows.store.sql import existing_store
from evalflows.store.store import Store
from evalflows.store.trace_records import WatermarkRow
from evalflows.telemetry.views import ObservationView, TraceView, in_depth

if TYPE_CHECKING:
    from evalflows.telemetry.exports import Added


STYLES = {"open": "bold red", "acknowledged": "yellow", "recovered": "green"}
NONE = "no incidents: the watch rules of trace evaluations have found nothing"


@click.group()
def alerts() -> None:
    """List, show and acknowledge the incidents that watch rules found in production."""


@alerts.command("ls")
@click.option("--name", help="Only those of this trace evaluation.")
@click.option("--all", "with_ended", is_flag=True, help="Also those that have recovered or were closed.")
@FORMAT
@VERBOSE
def list_alerts(name: str | None, with_ended: bool, form: str, verbose: bool) -> None:
    """List the incidents that are not over, the last ones first."""
    with one_line_errors(verbose):
        with store_to_list() as store:
            found = incidents(store, name)
        shown = [incident for incident in found if with_ended or not incident.is_over]
        if form == "json":
            print_json({"incidents": shown})
        elif shown:
            console().print(_listed(shown))
        else:
            over = len(found)
            echo(f"no incident is open; {over} are over: {hints.list_all_alerts()}" if over else NONE)


@alerts.command("show")
@click.argument("incident")
@FORMAT
@VERBOSE
def show_alert(incident: str, form: str, verbose: bool) -> None:
    """Show an INCIDENT and its events, given by id or id prefix."""
    with one_line_errors(verbose):
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
    """What changed with an incident, against the week before it."""
    shown = table("slice", "share", f"{metric}", "of the change")
    for one in changed:
        shown.add_row(
            one.slice,
            f"{one.share_before:.0%} → {one.share:.0%}",
            f"{figure(one.mean_before, metric)} → {figure(one.mean, metric)}",
            "-" if one.of_change is None else f"{round(100 * one.of_change)}%",
        )
    return shown


@alerts.command("ack")
@click.argument("incident")
@click.option("--by", help="Who acknowledges it. Default: the current user.")
@click.option("--note", help="What is known, or done.")
@click.option("--close", is_flag=True, help="End the incident: its level is the new normal, and may fall again.")
@FORMAT
@VERBOSE
def ack(incident: str, by: str | None, note: str | None, close: bool, form: str, verbose: bool) -> None:
    """Acknowledge an INCIDENT: until it is over, no alarm of the same metric and slice is sent.

    Its recovery is. Alarms that are not sent are listed all the same.
    """
    with one_line_errors(verbose):
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


def _listed(found: list[Incident]) -> Table:
    out = table("incident", "state", "evaluation", "alarm", headings=3, wrapped=("alarm",))
    for one in found:
        out.add_row(one.incident_id, Text(one.state, STYLES.get(one.state, "")), one.name, one.text)
    return out


@click.command("evaluate-traces")
@click.argument("spec")
@click.option("--from", "since", help="Backfill: items that began since then, such as 2026-11-01 or 2026-11-01T08:00.")
@click.option("--to", "until", help="Backfill: only items that began until then.")
@click.option("--backfill", is_flag=True, help="Judge all items, new or not, newest first.")
@click.option("--resume", help="Judge the rest of this batch, which stopped at max_items or its budget.")
@CHANGES
@VERBOSE_RUN
def evaluate_traces(
    spec: str,
    since: str | None,
    until: str | None,
    backfill: bool,
    resume: str | None,
    changes: tuple[str, ...],
    verbose: bool,
) -> None:
    """Judge the production traces that are new since the last start, as a SPEC file (YAML) describes.

    An item is judged once by each version of an evaluator: a changed evaluator judges old items only in a backfill.
    """
    with one_line_errors(verbose):
        from evalflows.cli.running import prepared
        from evalflows.specs.traces import load_trace_evaluation

        loaded = load_trace_evaluation(spec, changes)
        bounds = {"backfill_from": moment("--from", since), "backfill_to": moment("--to", until)}
        with prepared(verbose) as watch:
            from evalflows import evaluate_traces as run_flow

            batch = run_flow(loaded, **bounds, newest_first=backfill, resume=resume, watch=watch)
        store = Store()
        row = batch_row(store, batch)
        show_batch(row)
        _say_what_waits(store, loaded, row)
        show_changes(row, incidents(store, row.name))


MOST_WAITING = 10_000
"""From how many waiting items on they are not counted."""


def _say_what_waits(store: Store, spec: TraceEvaluationSpec, row: WatermarkRow) -> None:
    """Say how many items are too new to be judged, if that is all that there is."""
    if row.items_fetched or row.kind != "schedule":
        return
    window = Window(moment="recorded_at", since=row.until, until=now())
    waiting = len(item_keys(store, spec.scope, condition(spec.filter, spec.scope), window, MOST_WAITING))
    if waiting:
        until = f"{spec.settles_after_s:g} s have passed since they were last added to (settle_s)"
        count = f"{waiting:,}{' or more' * (waiting == MOST_WAITING)}"
        console().print(Text(f"{count} items wait until {until}"))


def show_batch(row: WatermarkRow) -> None:
    """Print what a batch judged."""
    out = console()
    new = "new items" if row.kind == "schedule" else "items"
    out.print(Text(f"{row.name} ({row.batch_id}): {row.items_fetched} {new}, {row.scores_created} scores"))
    if row.composite_scores_created:
        out.print(Text(f"{row.composite_scores_created} composite scores"))
    if row.items_failed:
        out.print(Text(f"{row.items_failed} items could not be judged by any evaluator: "), end="")
        failed = "select error, count(*) from trace_scores where status = 'failed' group by 1"
        out.print(Text(hints.sql(failed).command))
    if row.until_id is not None:
        following = "the next start" if row.kind == "schedule" else f"--resume {row.batch_id}"
        out.print(Text(f"stopped before the last item; {following} judges the rest"))


def show_changes(row: WatermarkRow, known: Sequence[Incident]) -> None:
    """Print the incidents that began or ended with a batch, and the next command."""
    began = [one for one in known if one.alarmed_at >= row.started_at and not one.is_over]
    for incident in began:
        echo(one_line(f"alarm: {incident.text}"))
    for incident in known:
        if incident.alarmed_at < row.started_at and incident.ended_at and incident.ended_at >= row.started_at:
            echo(one_line(f"ended: {incident.ended}"))
    if began:
        echo(f"next: {hints.list_alerts()}")
    elif row.scores_created:
        echo(f"next: {hints.windows(row.name)}")


STEP = "  "
LEAST = 20
"""Columns that a text has at least, however deep in the tree it stands."""


def print_trace(out: Console, trace: TraceView, verdicts: Sequence[Verdict]) -> None:
    """Print a trace, each text on one line of the console's width."""
    _print(out, "", f"{trace.name}  {_figures(trace)}", style="bold red" if trace.status == "error" else "bold")
    _print(out, STEP, f"{trace.id}  {trace.started_at:%Y-%m-%d %H:%M:%S} UTC")
    if fields := _fields(trace):
        _print(out, STEP, fields)
    for name in ("input", "output"):
        _print_content(out, STEP, name, getattr(trace, name))
    by_subject: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_subject[verdict.subject_id].append(verdict)
    _print_verdicts(out, STEP, by_subject[trace.id])
    out.print()
    for depth, observation in in_depth(trace.observations):
        _print_observation(out, STEP * depth, observation, by_subject[f"{trace.id}/{observation.id}"])


def _print_observation(out: Console, indent: str, view: ObservationView, verdicts: Sequence[Verdict]) -> None:
    style = "red" if view.status == "error" else ""
    model = f" {view.model}" if view.model else ""
    _print(out, indent, f"{view.type} {view.name}{model}  {_figures(view)}", style=style)
    if view.status == "error" and view.status_message:
        _print_content(out, indent + STEP, "error", view.status_message)
    for name in ("input", "output"):
        _print_content(out, indent + STEP, name, getattr(view, name))
    _print_verdicts(out, indent + STEP, verdicts)


def _figures(view: TraceView | ObservationView) -> str:
    latency = None if view.latency_s is None else f"{view.latency_s:.2f} s"
    has_tokens = view.tokens_in is not None or view.tokens_out is not None
    tokens = f"tokens {_number(view.tokens_in)}+{_number(view.tokens_out)}" if has_tokens else None
    cost = None if view.cost_usd is None else f"{view.cost_usd:.4g} USD"
    return "  ".join(part for part in (latency, tokens, cost) if part)


def _number(count: int | None) -> str:
    return "?" if count is None else str(count)


def _fields(trace: TraceView) -> str:
    names = ("session_id", "user_id", "version", "environment", "service")
    shown = [f"{name.removesuffix('_id')} {value}" for name in names if (value := getattr(trace, name)) is not None]
    return "  ".join([*shown, *([f"tags {', '.join(trace.tags)}"] if trace.tags else [])])


def _print_verdicts(out: Console, indent: str, verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        value = " ".join(str(part) for part in (_value(verdict.value), verdict.label) if part is not None)
        said = value or (verdict.problem if verdict.problem else "no value")
        giver = f" by {verdict.given_by}" if verdict.given_by else ""
        comment = f": {verdict.comment}" if verdict.comment else ""
        kind = "label" if verdict.by_person else "score"
        _print(out, indent, f"{kind} {verdict.metric} {said}{giver}{comment}", style="cyan")


def _value(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _print_content(out: Console, indent: str, name: str, value: Any) -> None:
    if value is not None:
        _print(out, indent, f"{name + ':':<8}{_content(value)}")


def _content(value: Any) -> str:
    """Return a value as text; of messages, the last one."""
    if isinstance(value, dict) and value.keys() == {"messages"} and value["messages"]:
        value = value["messages"][-1]
        if isinstance(value, dict) and isinstance(value.get("content"), str) and not value.get("tool_calls"):
            value = value["content"]
    return value if isinstance(value, str) else json_text(value, default=str)


def _print(out: Console, indent: str, text: str, style: str = "") -> None:
    """Print a text on one line, cut to the width."""
    deep = indent[: max(0, out.width - LEAST)]
    line = Text(one_line(text), style)
    line.truncate(max(1, out.width - len(deep)), overflow="ellipsis")
    out.print(Text(deep) + line, soft_wrap=True)


def _none_yet() -> str:
    return f"no traces yet: {hints.add_traces().code} adds some"


@click.group()
def traces() -> None:
    """Add, list and show the traces of production."""


@traces.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "otlp", "spans", "langfuse", "langsmith", "rows"]),
    default="auto",
    show_default=True,
    help="auto: recognised by the first record.",
)
@click.option(
    "--columns",
    metavar="FIELD=COLUMN,…",
    help="Columns of plain rows: input=question, output=answer, started_at=time, tokens_in=usage.input.",
)
@VERBOSE
def add(files: tuple[str, ...], form: str, columns: str | None, verbose: bool) -> None:
    """Add the traces of FILES: OTLP in JSON (as the Collector's file exporter writes it), exports of Langfuse and
    LangSmith, plain rows (JSONL, JSON, CSV, Parquet); also gzipped (.gz).

    What is known already is not added again. What cannot be read is named in one line, and the rest is added.
    """
    with one_line_errors(verbose):
        from evalflows.telemetry.exports import add_traces

        mapped = _columns(columns, form)
        store, code = Store(), 0
        for path in files:
            try:
                added = add_traces(store, path, form=None if form == "auto" else form, columns=mapped)  # type: ignore[arg-type]
            except InputError as error:
                if len(files) == 1:
                    raise
                echo_error(str(error))
                code = BAD_INPUT
                continue
            echo(one_line(_summary(added)))
            for line in added.rejected:
                echo_error(line)
            if added.n_rejected > len(added.rejected):
                echo_error(f"{path}: {added.n_rejected - len(added.rejected)} more could not be read")
            code = code or (INCOMPLETE if added.n_rejected else 0)
        sys.exit(code)


@traces.command("ls")
@click.option("--where", metavar="SQL", help="Only traces that meet this condition on the columns of the view traces.")
@click.option("--filter", "only", metavar="JSON", help='The same as JSON, as in Langfuse: {"tags": ["production"]}.')
@click.option("--since", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%d %H:%M"]), help="Only those begun since (UTC).")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many, the newest first.")
@FORMAT
@VERBOSE
def list_traces(
    where: str | None, only: str | None, since: datetime | None, limit: int, form: str, verbose: bool
) -> None:
    """List traces, newest first."""
    with one_line_errors(verbose):
        if where is not None and only is not None:
            raise InputError("--where, --filter: got both, wanted one of them")
        wanted = _json_filter(only) if only is not None else where
        with store_to_list() as store:
            found = listed_traces(store, wanted, since.replace(tzinfo=UTC) if since else None, limit)
        if form == "json":
            print_json(found)
        elif not found:
            echo("no such traces" if wanted or since else _none_yet())
        else:
            console().print(_listed_trace(found))


@traces.command()
@click.argument("reference", metavar="ID")
@FORMAT
@VERBOSE
def show(reference: str, form: str, verbose: bool) -> None:
    """Show a trace: its observations as a tree, with scores and labels. ID may be the beginning of an id."""
    with one_line_errors(verbose):
        from evalflows.telemetry.views import trace_view

        store = existing_store()
        trace = trace_view(observations_of_trace(store, reference))
        verdicts = verdicts_of_trace(store, trace.id)
        if form == "json":
            print_json(asdict(trace) | {"scores_and_labels": verdicts})
        else:
            print_trace(console(), trace, verdicts)


def _columns(text: str | None, form: str) -> TraceColumns | None:
    """Return the columns of `field=column,field=column`; `question` alone is no field, so it is refused."""
    if text is None:
        return None
    if form not in ("auto", "rows"):
        raise InputError(f"--columns: got --format {form}, wanted them only for plain rows")
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    try:
        return TraceColumns.model_validate({name.strip(): (column or name).strip() for name, _, column in pairs})
    except ValidationError as error:
        raise InputError(
            f"{first_problem(error, '--columns')}, wanted any of {', '.join(TraceColumns.model_fields)}"
        ) from None


def _json_filter(text: str) -> str:
    if text.lstrip()[:1] not in ("{", "["):
        raise InputError(f'--filter: got {text!r}, wanted JSON such as {{"name": "answer"}}; --where takes SQL')
    return text


def _summary(added: "Added") -> str:
    more = [
        *((f"{added.changed:,} changed", added.changed), (f"{added.known:,} known", added.known)),
        *((_counted(added.scores, "score"), added.scores), (_counted(added.labels, "label"), added.labels)),
        *((f"{added.ignored:,} ignored", added.ignored), (f"{added.n_rejected:,} rejected", added.n_rejected)),
    ]
    counts = [f"{_counted(added.new, 'new observation')}", *(text for text, count in more if count)]
    return f"{added.path}: {added.format}, {_counted(added.records, 'record')}: {', '.join(counts)}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _listed_trace(found: list[ListedTrace]) -> object:
    out = table("trace", "started (UTC)", "name", "latency", "tokens", "spans", "session", "tags", headings=2)
    for trace in found:
        latency = "" if trace.latency_s is None else f"{trace.latency_s:.2f} s"
        name = Text(trace.name, style="red" if trace.status == "error" else "")
        tokens = (
            ""
            if trace.tokens_in is None and trace.tokens_out is None
            else f"{_n(trace.tokens_in)}+{_n(trace.tokens_out)}"
        )
        out.add_row(
            *(trace.trace_id, f"{trace.started_at:%Y-%m-%d %H:%M:%S}", name, latency, tokens, str(trace.observations)),
            *(trace.session_id or "", ", ".join(trace.tags or ())),
        )
    return out


def _n(count: int | None) -> str:
    return "?" if count is None else str(count)


DAYS = {"day": 28, "hour": 2}
"""Days that are shown unless --days says otherwise."""


@click.command()
@click.argument("evaluation")
@click.option("--window", type=click.Choice(["hour", "day"]), default="day", help="Length of the windows, in UTC.")
@click.option(
    "--slice",
    "dimensions",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    help="Also one row for each value of this. Repeatable.",
)
@click.option("--metric", "metrics", multiple=True, help="Only this metric. Repeatable.")
@click.option("--days", type=click.IntRange(1), help="How many days, up to the last judged. Default: 28; of hours, 2.")
@FORMAT
@VERBOSE
def windows(
    evaluation: str,
    window: Literal["hour", "day"],
    dimensions: tuple[str, ...],
    metrics: tuple[str, ...],
    days: int | None,
    form: str,
    verbose: bool,
) -> None:
    """Show the metrics of a trace EVALUATION by hour or day, and by slice.

    What was judged late is included, so a window can differ from what a watch rule looked at.
    """
    with one_line_errors(verbose):
        found = window_figures(
            existing_store(), evaluation, size=window, dimensions=dimensions, metrics=metrics, days=days or DAYS[window]
        )
        if form == "json":
            print_json({"evaluation": evaluation, "window": window, "windows": found})
        elif found:
            console().print(_listed_window(found, window))
        else:
            echo(one_line(f"no windows of {evaluation!r} with such a metric"))


def _listed_window(found: list[WindowFigures], window: str) -> Table:
    out = table("metric", "slice", "window (UTC)", "n", "mean", "failed", "p50/p95 s", "cost USD", headings=2)
    for one in found:
        mean = " ".join(filter(None, estimate(one.mean, one.ci_low, one.ci_high, one.metric)))
        when = f"{one.window_start:%Y-%m-%d}" if window == "day" else f"{one.window_start:%Y-%m-%d %H:%M}"
        failed = "" if one.failure_share is None else f"{one.failure_share:.1%}"
        latency = "" if one.latency_p50_s is None else f"{one.latency_p50_s:.2f}/{one.latency_p95_s:.2f}"
        cost = "" if one.cost_usd is None else figure(one.cost_usd, "cost", digits=4)
        out.add_row(one.metric, "" if one.slice == ALL else one.slice, when, str(one.n), mean, failed, latency, cost)
    return out
