"""Open batches of model calls: which runs wait for them, and how to cancel them."""

from typing import Any

import click

from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import echo
from evalflows.llm.batches import Batch, note_cancelled, runs_with_batches
from evalflows.specs import hints
from evalflows.specs.errors import IncompleteError
from evalflows.specs.escaping import one_line
from evalflows.store.store import Store, existing_store


def print_batches(store: Store) -> None:
    """Print a line for each batch that a run of the store waits for."""
    for run, batches in runs_with_batches(store).items():
        for batch in batches:
            done = batch.answered + batch.failed
            state = f"{done} of {batch.rows} answered when last seen" if batch.is_open else "ended, not read yet"
            state += ", being cancelled" if batch.said == "cancelling" else ""
            since = f"since {batch.created_at:%Y-%m-%d %H:%M} UTC"
            who = f"{batch.provider_id or 'not submitted'} ({batch.model}, connection {batch.connection})"
            echo(one_line(f"{'batch':<10}{who}: {state}, {since}; {run} waits for it"))


def batches_document(store: Store) -> list[dict[str, Any]]:
    """Return the open batches as JSON."""
    return [
        {
            "run": run,
            "batch_id": batch.provider_id,
            "connection": batch.connection,
            "model": batch.model,
            "calls": batch.rows,
            "answered": batch.answered,
            "failed": batch.failed,
            "estimated_usd": batch.estimated_usd,
            "created_at": batch.created_at,
            "has_ended": not batch.is_open,
        }
        for run, batches in runs_with_batches(store).items()
        for batch in batches
    ]


@click.command()
@click.argument("run")
@FORMAT
@with_one_line_errors
def cancel(run: str, form: str) -> None:
    """Cancel the open batches of a RUN: an experiment, a comparison or a trace evaluation.

    Resuming the run uses the answers received by then, and submits the other calls again.
    """
    from evalflows.engine.open_batches import waiting_run
    from evalflows.llm import loop
    from evalflows.specs.errors import CallError

    store = existing_store()
    waiting = waiting_run(store, run)
    service_of = waiting.service_of(store)

    async def cancelled(batch: Batch) -> None:
        if batch.provider_id is not None:
            await service_of(batch).cancel(batch.provider_id)

    open_ones = [batch for batch in waiting.batches if batch.is_open]
    for batch in open_ones:
        try:
            loop.run(cancelled(batch))
        except CallError as error:
            raise IncompleteError(f"batch {batch.provider_id}: could not be cancelled: {error}") from None
    note_cancelled(store, waiting.id, open_ones)
    if form == "json":
        print_json({"run": waiting.id, "cancelled": [batch.provider_id for batch in open_ones]})
        return
    for batch in open_ones:
        done = f"{batch.answered} of {batch.rows} calls were answered when last seen"
        was = "it was not submitted" if batch.provider_id is None else done
        echo(one_line(f"cancelled {batch.provider_id or batch.id}: {was}"))
    echo(f"{hints.resume(waiting.id).code} uses these answers and submits the other calls again")
