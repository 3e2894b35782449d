"""Evaluate traces of production: judge what is new since the last time, and combine the scores."""

from datetime import datetime
from typing import Any

from prefect.task_runners import ThreadPoolTaskRunner

from evalflows.engine.chunks import CHUNKS_AT_ONCE
from evalflows.flows.light_flow import light_flow
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.tasks.evaluate_traces import (
    Backfill,
    finish_batch,
    next_chunks,
    note_progress,
    raise_problem,
    start_batch,
)
from evalflows.tasks.finish import calls_end_with_the_flow
from evalflows.tasks.progress import run_name
from evalflows.tasks.start import lease_of
from evalflows.tasks.take_up import restrict_deployed_run
from evalflows.tasks.watch import watch_windows
from evalflows.tasks.work_through import judge_chunks, work_through

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
        backfill_to: The end of the start times of these items.
        newest_first: Judge all items, those that began last first.
        resume: Judge the rest of this batch, which stopped at its most items or its budget.
    """
    restrict_deployed_run(spec)
    backfill = Backfill(since=backfill_from, until=backfill_to, newest_first=newest_first, resume=resume)
    with lease_of(spec) as lease:
        batch = start_batch(spec, backfill if backfill != Backfill() else None)
        run, work = batch.run, judge_chunks(batch.run)
        with calls_end_with_the_flow(run):
            while chunks := next_chunks(batch):
                done = work_through(run, [batch.row], [chunks], work, batch.planned)
                note_progress(batch, done.steps, done.repeated)
        lease.check()
        problem = finish_batch(batch)
        watch_windows(run, batch.row)
        raise_problem(batch, problem)
        return batch.row.batch_id
