"""The job of a chunk: an experiment, a comparison or a trace evaluation. Each kind is loaded when one is met."""

from typing import Any

from evalflows.engine.chunks import Chunk, ExampleChunk
from evalflows.engine.experiments import experiment_of
from evalflows.engine.job import Job
from evalflows.engine.judge_chunk import Outcome, judge_chunk
from evalflows.engine.pair_trials import PairChunk
from evalflows.engine.run_context import RunContext


def job_of(run: RunContext[Any], chunk: Chunk) -> Job[Any]:
    """Return the job that a chunk belongs to, made on first use in this process."""
    if isinstance(chunk, ExampleChunk):
        return experiment_of(run, chunk.experiment_id)
    if isinstance(chunk, PairChunk):
        from evalflows.engine.pairs import comparison_of  # late: few runs compare

        return comparison_of(run, chunk.comparison_id)
    from evalflows.engine.traces import TraceChunk, trace_evaluation_of  # late: it loads OpenAI's SDK

    assert isinstance(chunk, TraceChunk)
    return trace_evaluation_of(run, chunk.batch_id)


def judge_in_process(run: RunContext[Any], chunk: Chunk) -> Outcome:
    """Judge a chunk in one of the processes for quick chunks."""
    job = job_of(run, chunk)
    return judge_chunk(job, chunk, job.load(chunk))
