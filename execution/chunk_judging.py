"""Judging a chunk of an experiment: every evaluator judges every answer that it has."""

from collections.abc import Iterator

from evalflows.execution.chunks import Chunk
from evalflows.execution.judging import Judging, Run
from evalflows.execution.progress import tally
from evalflows.execution.running_experiment import RunningExperiment, running_experiment
from evalflows.llm import loop
from evalflows.store.examples import in_blocks, size_of
from evalflows.store.records import OutputRow, ScoreRow
from evalflows.store.schemas import to_rows
from evalflows.store.spool import Spool

OVERHEAD = 2000
"""Bytes of the objects of a run, besides its texts."""


def judge_chunk(chunk: Chunk) -> int:
    """Judge the runs of a chunk that have no judgement yet. Return the number of judgements that a retry may bring."""
    experiment = running_experiment(chunk.experiment_id)
    with Spool(experiment.store, chunk.experiment_id, chunk.part) as spool:
        judging = judging_of(experiment, chunk, spool)
        for runs in in_blocks(_runs(experiment, chunk), _size):
            loop.run(judging.judge(runs))
    return judging.transient


def judging_of(experiment: RunningExperiment, chunk: Chunk, spool: Spool) -> Judging:
    """Return what judges a chunk, with the judgements that it has already."""
    scores: list[ScoreRow] = experiment.store.read("scores", chunk.experiment_id, [chunk.part])
    return Judging(experiment.evaluators, experiment.judging, spool, scores, tally.begin(chunk, "judgements", 0))


def _runs(experiment: RunningExperiment, chunk: Chunk) -> Iterator[Run]:
    """Yield the runs of a chunk that were made, with their examples, as they are read."""
    numbers = dict(zip(experiment.examples.ids[chunk.start : chunk.stop], range(chunk.start, chunk.stop), strict=True))
    for data in experiment.store.scan("outputs", chunk.experiment_id, [chunk.part]):
        outputs: list[OutputRow] = to_rows("outputs", data)
        made = [row for row in outputs if row.repetition == chunk.repetition and row.example_id in numbers]
        yield from zip(experiment.examples.rows([numbers[row.example_id] for row in made]), made, strict=True)


def _size(run: Run) -> int:
    example, output = run
    return size_of(example) + size_of_answer(output.outputs, output.steps)


def size_of_answer(outputs: str | None, steps: str | None) -> int:
    """Return about how many bytes a run takes in memory, without its example."""
    return len(outputs or "") + len(steps or "") + OVERHEAD
