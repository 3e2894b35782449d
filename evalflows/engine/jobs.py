"""The job of a chunk: an experiment, a comparison or a trace evaluation."""

from typing import Any

from evalflows.engine.chunks import Chunk, PairChunk
from evalflows.engine.experiments import experiment_of
from evalflows.engine.job import Job
from evalflows.engine.judge import Outcome, judge_chunk
from evalflows.engine.pairs import comparison_of
from evalflows.engine.traces import TraceChunk, trace_evaluation_of

AnyChunk = Chunk | PairChunk | TraceChunk


def job_of(chunk: AnyChunk) -> Job[Any, Any]:
    """Return the job that a chunk belongs to, made on first use in this process."""
    match chunk:
        case Chunk():
            return experiment_of(chunk.experiment_id)
        case PairChunk():
            return comparison_of(chunk.comparison_id)
        case TraceChunk():
            return trace_evaluation_of(chunk.batch)


def judge_in_process(chunk: AnyChunk) -> Outcome:
    """Judge a chunk in one of the processes for quick chunks."""
    job = job_of(chunk)
    return judge_chunk(job, chunk, job.load(chunk))
