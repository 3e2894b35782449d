"""Judge the traces that are new."""

from collections.abc import Sequence
from datetime import UTC, timedelta

import click

from evalflows.cli.late_commands import CHANGES, VERBOSE_RUN, one_line_errors
from evalflows.cli.output import Text, console, echo
from evalflows.reports.idle_rules import rules_that_could_not_look
from evalflows.specs import hints
from evalflows.specs.escaping import one_line
from evalflows.specs.moments import moment_in
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.incidents import Incident, incidents
from evalflows.store.queries.traces import LATEST, Window, batch_row, condition, item_keys
from evalflows.store.store import Store
from evalflows.store.trace_records import WatermarkRow

MOST_WAITING = 10_000
"""From how many waiting items on they are not counted."""


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
        from evalflows.cli.running import prepare_runs
        from evalflows.specs.traces import load_trace_evaluation

        loaded = load_trace_evaluation(spec, changes)
        bounds = {"backfill_from": moment_in("--from", since), "backfill_to": moment_in("--to", until)}
        with prepare_runs(verbose) as watch:
            from evalflows import evaluate_traces as run_flow

            batch = run_flow(loaded, **bounds, newest_first=backfill, resume=resume, watch=watch)
        store = Store()
        row = batch_row(store, batch)
        show_batch(row)
        _say_what_waits(store, loaded, row)
        for sentence in rules_that_could_not_look(store, row.name):
            console().print(Text(sentence, "yellow"))
        show_changes(row, incidents(store, row.name))


def _say_what_waits(store: Store, spec: TraceEvaluationSpec, row: WatermarkRow) -> None:
    """Say how many items are too new to be judged, and until when they wait."""
    if row.kind != "schedule" or row.until_id is not None or row.until is None:
        return
    window = Window(moment="recorded_at", since=row.until, until=LATEST)
    waiting = item_keys(store, spec.scope, condition(spec.filter, spec.scope), window, MOST_WAITING)
    if waiting:
        until = waiting[-1].moment + timedelta(seconds=spec.settles_after_s)
        count = f"{len(waiting):,}{' or more' * (len(waiting) == MOST_WAITING)} item{'s' * (len(waiting) != 1)}"
        verb = "waits" if len(waiting) == 1 else "wait"
        after = f"{spec.settles_after_s:g} s without a new span (settle_s)"
        console().print(Text(f"{count} {verb} until {until.astimezone(UTC):%H:%M:%S} UTC: {after}"))


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
    began = [incident for incident in known if incident.alarmed_at >= row.started_at and not incident.is_over]
    for incident in began:
        echo(one_line(f"alarm: {incident.text}"))
    for incident in known:
        if incident.alarmed_at < row.started_at and incident.ended_at and incident.ended_at >= row.started_at:
            echo(one_line(f"ended: {incident.ended}"))
    if began:
        echo(f"next: {hints.list_alerts()}")
    elif row.scores_created:
        echo(f"next: {hints.windows(row.name)}")
