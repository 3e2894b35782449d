"""Judge production traces from the command line."""

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.moments import moment
from evalflows.cli.show import CHANGES, VERBOSE_RUN
from evalflows.cli.terminal import Text, console
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_batches import batch_row
from evalflows.store.trace_records import WatermarkRow


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
        from evalflows.specs.trace_evaluation import load_trace_evaluation

        loaded = load_trace_evaluation(spec, changes)
        bounds = {"backfill_from": moment("--from", since), "backfill_to": moment("--to", until)}
        with prepared(verbose, loaded.name) as watch:
            from evalflows import evaluate_traces as run_flow

            batch = run_flow(loaded, **bounds, newest_first=backfill, resume=resume, watch=watch)
        show_batch(batch_row(Store(), batch))


def show_batch(row: WatermarkRow) -> None:
    """Print what a batch judged."""
    out = console()
    new = "new items" if row.kind == "schedule" else "items"
    out.print(Text(f"{row.name} ({row.batch_id}): {row.items_fetched} {new}, {row.scores_created} scores"))
    if row.composite_scores_created:
        out.print(Text(f"{row.composite_scores_created} composite scores"))
    if row.items_failed:
        out.print(Text(f"{row.items_failed} items could not be judged by any evaluator: "), end="")
        out.print(Text("evalflows sql \"select error, count(*) from trace_scores where status = 'failed' group by 1\""))
    if row.until_id is not None:
        out.print(Text(f"stopped before the last item; --resume {row.batch_id} judges the rest, or the next start"))
