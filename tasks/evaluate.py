"""Item evaluation: every evaluator judges every answer of a chunk."""

from collections.abc import Iterator

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.execution.chunks import Chunk, n_chunks
from evalflows.execution.judging import Judging, Run
from evalflows.execution.progress import tally
from evalflows.execution.running_experiment import RunningExperiment, running_experiment
from evalflows.execution.workers import in_turn
from evalflows.llm import loop
from evalflows.store.examples import in_blocks, size_of
from evalflows.store.records import OutputRow, ScoreRow
from evalflows.store.schemas import to_rows
from evalflows.store.spool import Spool
from evalflows.tasks.provider_limit import within_provider_limits
from evalflows.tasks.retries import await_breakers, is_last_attempt, only_transient, retry_later
from evalflows.tasks.taken_up import in_any_process

OVERHEAD = 2000
"""Bytes of the objects of a run, besides its texts."""


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="evaluate-{chunk.part}",
)
@in_any_process
def evaluate_chunk(chunk: Chunk) -> Chunk:
    """Judge the runs of a chunk that have no judgement yet. Evaluators that ask for scores run last.

    Raise TransientFailuresError if transient failures remain and Prefect will retry.
    """
    experiment, last = running_experiment(chunk.experiment_id), is_last_attempt()
    await_breakers([chunk], "judgements", [evaluator.breaker for evaluator in experiment.evaluators])
    scores: list[ScoreRow] = experiment.store.read("scores", chunk.experiment_id, [chunk.part])
    n_runs = chunk.stop - chunk.start
    with (
        in_turn(is_quick=all(evaluator.is_rule for evaluator in experiment.evaluators)),
        within_provider_limits(experiment.judging_on, n_runs * len(experiment.evaluators), n_chunks(experiment.row)),
        Spool(experiment.store, chunk.experiment_id, chunk.part) as spool,
    ):
        count = tally.begin(chunk, "judgements", 0)
        judging = Judging(experiment.evaluators, experiment.judging, spool, scores, count)
        for runs in in_blocks(_runs(experiment, chunk), _size):
            loop.run(judging.judge(runs))
    if judging.transient and not last:
        text = f"{judging.transient} judgements of {n_runs} answers failed transiently"
        retry_later([(chunk, judging.transient)], "judgements", text)
    return chunk


def _runs(experiment: RunningExperiment, chunk: Chunk) -> Iterator[Run]:
    """Yield the runs of a chunk that were made, with their examples, as they are read."""
    numbers = dict(zip(experiment.examples.ids[chunk.start : chunk.stop], range(chunk.start, chunk.stop), strict=True))
    for data in experiment.store.scan("outputs", chunk.experiment_id, [chunk.part]):
        outputs: list[OutputRow] = to_rows("outputs", data)
        made = [row for row in outputs if row.repetition == chunk.repetition and row.example_id in numbers]
        yield from zip(experiment.examples.rows(numbers[row.example_id] for row in made), made, strict=True)


def _size(run: Run) -> int:
    example, output = run
    return size_of(example) + len(output.outputs or "") + len(output.steps or "") + OVERHEAD
