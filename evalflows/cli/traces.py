"""Add, list and show traces. Listing and showing loads no Prefect."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from evalflows.analysis.figures import tokens_text
from evalflows.cli.late_commands import BAD_INPUT, FORMAT, INCOMPLETE, print_json, with_one_line_errors
from evalflows.cli.output import Console, Text, console, echo, echo_error, table
from evalflows.cli.stores import store_to_list
from evalflows.specs import hints
from evalflows.specs.columns import TraceColumns
from evalflows.specs.errors import InputError, first_problem
from evalflows.specs.escaping import json_text, one_line
from evalflows.specs.grouping import grouped
from evalflows.store.queries.traces import ListedTrace, Verdict, listed_traces, observations_of_trace, verdicts_of_trace
from evalflows.store.query_process import OF_COMMANDS, QueryProcesses
from evalflows.store.store import Store, existing_store
from evalflows.telemetry.views import ObservationView, TraceView, in_depth

if TYPE_CHECKING:
    from evalflows.telemetry.exports import Added

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
    by_subject = grouped((verdict.subject_id, verdict) for verdict in verdicts)
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
    counted = tokens_text(view.tokens_in, view.tokens_out)
    tokens = counted and f"tokens {counted}"
    cost = None if view.cost_usd is None else f"{view.cost_usd:.4g} USD"
    return "  ".join(part for part in (latency, tokens, cost) if part)


def _fields(trace: TraceView) -> str:
    names = ("session_id", "user_id", "version", "environment", "service")
    shown = [f"{name.removesuffix('_id')} {value}" for name in names if (value := getattr(trace, name)) is not None]
    return "  ".join([*shown, *([f"tags {', '.join(trace.tags)}"] if trace.tags else [])])


def _print_verdicts(out: Console, indent: str, verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        number = None if verdict.value is None else f"{verdict.value:.4g}"
        value = " ".join(part for part in (number, verdict.label) if part is not None)
        said = value or (verdict.problem if verdict.problem else "no value")
        giver = f" by {verdict.given_by}" if verdict.given_by else ""
        comment = f": {verdict.comment}" if verdict.comment else ""
        kind = "label" if verdict.by_person else "score"
        _print(out, indent, f"{kind} {verdict.metric} {said}{giver}{comment}", style="cyan")


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
@with_one_line_errors
def add(files: tuple[str, ...], form: str, columns: str | None) -> None:
    """Add the traces of FILES: OTLP in JSON (as the Collector's file exporter writes it), exports of Langfuse and
    LangSmith, plain rows (JSONL, JSON, CSV, Parquet); also gzipped (.gz).

    Known records are not added again. Unreadable records are named in one line, and the rest is added.
    """
    from evalflows.telemetry.exports import add_traces, add_untraced

    mapped = _columns(columns, form)
    store, code, all_added = Store(), 0, []
    for path in files:
        try:
            added = add_traces(store, path, form=None if form == "auto" else form, columns=mapped)  # type: ignore[arg-type]
        except InputError as error:
            if len(files) == 1:
                raise
            echo_error(str(error))
            code = BAD_INPUT
            continue
        all_added.append(added)
    for added in all_added:  # feedback may be on runs of a later file
        add_untraced(store, added)
        echo(one_line(_summary(added)))
        for line in added.rejected:
            echo_error(line)
        if added.n_rejected > len(added.rejected):
            echo_error(f"{added.path}: {added.n_rejected - len(added.rejected)} more could not be read")
        code = code or (INCOMPLETE if added.n_rejected else 0)
    sys.exit(code)


@traces.command("ls")
@click.option("--where", metavar="SQL", help="Only traces that meet this condition on the columns of the view traces.")
@click.option("--filter", "only", metavar="JSON", help='The same as JSON, as in Langfuse: {"tags": ["production"]}.')
@click.option("--since", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%d %H:%M"]), help="Only those begun since then (UTC).")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number, newest first."
)
@FORMAT
@with_one_line_errors
def list_traces(where: str | None, only: str | None, since: datetime | None, limit: int, form: str) -> None:
    """List traces, newest first."""
    if where is not None and only is not None:
        raise InputError("--where, --filter: got both, wanted one of them")
    wanted = _json_filter(only) if only is not None else where
    with store_to_list() as store, closing(QueryProcesses(store.layout.root, OF_COMMANDS)) as queries:
        found = listed_traces(store, wanted, since.replace(tzinfo=UTC) if since else None, limit, queries.rows)
    if form == "json":
        print_json(found)
    elif not found:
        echo("no such traces" if wanted or since else f"no traces yet: {hints.add_traces().code} adds some")
    else:
        console().print(_listed_trace(found))


@traces.command()
@click.argument("reference", metavar="ID")
@FORMAT
@with_one_line_errors
def show(reference: str, form: str) -> None:
    """Show a trace: its observations as a tree, with scores and labels. ID may be the beginning of an id."""
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
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    try:
        return TraceColumns.model_validate({name.strip(): (column or name).strip() for name, _, column in pairs})
    except ValidationError as error:
        raise InputError(first_problem(error, "--columns", TraceColumns)) from None


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
        tokens = tokens_text(trace.tokens_in, trace.tokens_out) or ""
        name = Text(trace.name, style="red" if trace.status == "error" else "")
        out.add_row(
            *(trace.trace_id, f"{trace.started_at:%Y-%m-%d %H:%M:%S}", name, latency, tokens, str(trace.observations)),
            *(trace.session_id or "", ", ".join(trace.tags or ())),
        )
    return out
