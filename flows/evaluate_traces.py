"""Evaluate traces of production: judge what is new since the last time, and combine the scores."""

from datetime import datetime
from typing import Any

from prefect.task_runners import ThreadPoolTaskRunner

from evalflows.engine.chunks import CHUNKS_AT_ONCE
from evalflows.flows.light_flow import light_flow
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.tasks.budget_parts import chunks_to_repeat, with_budget_parts
from evalflows.tasks.engines import chunk_task, chunks_on
from evalflows.tasks.evaluate_traces import (
    Backfill,
    finish_batch,
    next_chunks,
    note_progress,
    raise_problem,
    start_batch,
)
from evalflows.tasks.finish import calls_end_with_the_flow
from evalflows.tasks.flow_runs import run_name
from evalflows.tasks.judge import judge
from evalflows.tasks.leases import lease_of
from evalflows.tasks.progress import wait_with_progress
from evalflows.tasks.taken_up import restrict_deployed_run
from evalflows.tasks.watch import watch_windows

RUNNER: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=CHUNKS_AT_ONCE)


@light_flow(name="evaluate_traces", flow_run_name=run_name, task_runner=RUNNER)
def evaluate_traces(
    spec: TraceEvaluationSpec,
    backfill_from: datetime | None = None,
    backfill_to: datetime | None = None,
    newest_first: bool = False,
    resume: str | None = None,
) -> str:
    """Judge the traces, observations or sessions that are new since the last start, let the watch rules look at the
    windows that have closed, and return the batch's id.

    Args:
        spec: Which items to judge, and by which evaluators.
        backfill_from: Judge the items that began since then instead, the newest first, as far as no evaluator of the
            same version has.
        backfill_to: Only those that began until then.
        newest_first: Judge all items, those that began last first.
        resume: Judge the rest of this batch, which stopped at its most items or its budget.
    """
    restrict_deployed_run(spec)
    backfill = Backfill(since=backfill_from, until=backfill_to, newest_first=newest_first, resume=resume)
    with lease_of(spec) as lease:
        batch = start_batch(spec, backfill if backfill != Backfill() else None)
        run, judging = batch.run, chunk_task(judge, spec)
        with calls_end_with_the_flow(run):
            while chunks := next_chunks(batch):
                with chunks_on(spec.task_runner):
                    steps = [judging.submit(run, chunk) for chunk in with_budget_parts(run, [batch.row], chunks)]
                    wait_with_progress(run, steps, batch.planned)
                    again: list[Any] = [judging(run, chunk) for chunk in chunks_to_repeat(run, [batch.row], chunks)]
                    note_progress(batch, steps, again)
        lease.check()
        problem = finish_batch(batch)
        watch_windows(run)
        raise_problem(batch, problem)
        return batch.row.batch_id
