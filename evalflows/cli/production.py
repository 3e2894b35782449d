"""Production traces: add files of them, list them, and show one. No command here loads Prefect."""

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from evalflows.cli.documents import FORMAT, print_json
from evalflows.cli.errors import BAD_INPUT, INCOMPLETE, one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.stores import store_to_list
from evalflows.cli.tables import table
from evalflows.cli.terminal import Text, console, echo, echo_error
from evalflows.specs.errors import InputError, first_problem
from evalflows.specs.safe_text import json_text, one_line
from evalflows.specs.trace_columns import TraceColumns
from evalflows.store.existing import existing_store
from evalflows.store.parquet import Store
from evalflows.store.queries.listed_traces import (
    ListedTrace,
    listed_traces,
    observations_of_trace,
    verdicts_of_trace,
)

if TYPE_CHECKING:
    from evalflows.telemetry.exports.adding import Added

NONE_YET = "no traces yet: `evalflows traces add FILE` adds some"


@click.group()
def traces() -> None:
    """Add, list and show the traces of production."""


@traces.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "otlp", "langfuse", "langsmith", "rows"]),
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
        from evalflows.telemetry.exports.adding import add_traces

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
def list_(where: str | None, only: str | None, since: datetime | None, limit: int, form: str, verbose: bool) -> None:
    """List traces, newest first."""
    with one_line_errors(verbose):
        if where is not None and only is not None:
            raise InputError("--where, --filter: got both, wanted one of them")
        wanted = _json_filter(only) if only is not None else where
        with store_to_list() as store:
            found = listed_traces(store, wanted, since.replace(tzinfo=UTC) if since else None, limit)
        if form == "json":
            print_json([_document(trace) for trace in found])
        elif not found:
            echo("no such traces" if wanted or since else NONE_YET)
        else:
            console().print(_listed(found))


@traces.command()
@click.argument("reference", metavar="ID")
@FORMAT
@VERBOSE
def show(reference: str, form: str, verbose: bool) -> None:
    """Show a trace: its observations as a tree, with scores and labels. ID may be the beginning of an id."""
    with one_line_errors(verbose):
        from evalflows.cli.trace_tree import print_trace
        from evalflows.telemetry.reading import trace_view

        store = existing_store()
        trace = trace_view(observations_of_trace(store, reference))
        verdicts = verdicts_of_trace(store, trace.id)
        if form == "json":
            document = asdict(trace) | {"scores_and_labels": [asdict(verdict) for verdict in verdicts]}
            echo(json_text(document, indent=2, default=str))
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


def _document(trace: ListedTrace) -> dict[str, object]:
    return asdict(trace) | {"started_at": trace.started_at.isoformat()}


def _listed(found: list[ListedTrace]) -> object:
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
