"""Work through the chunks of a run, wave by wave, on its engine.

A wave ends before the next begins, so that gates may look at what it brought. Other processes get a part of the budget
with each chunk; those whose part was too small are repeated in this process if some of the budget is left.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from prefect.futures import PrefectFuture

from evalflows.engine.budget_parts import Started
from evalflows.engine.chunks import Rounds
from evalflows.engine.run_context import RunContext
from evalflows.engine.sent_chunks import chunks_to_repeat, items_of, with_budget_parts
from evalflows.engine.tally import Planned
from evalflows.tasks.engines import Steps, chunk_task, chunks_on
from evalflows.tasks.execute import execute_rounds
from evalflows.tasks.judge import judge
from evalflows.tasks.progress import wait_with_progress


@dataclass(frozen=True)
class ChunkWork:
    """What is done with each chunk of a run, or with the chunks of a round."""

    submit: Callable[[Any], Iterable[PrefectFuture[Any]]]
    repeat: Callable[[Any], Any]  # in this process


@dataclass
class Worked:
    """What became of the chunks of a run."""

    steps: list[PrefectFuture[Any]]
    repeated: list[Any] = field(default_factory=list)
    stopped: str | None = None  # why the run ended after a wave, if one was left


def work_through(
    run: RunContext[Any],
    rows: Sequence[Started],
    waves: Sequence[Sequence[Any]],
    work: ChunkWork,
    planned: Planned,
    *,
    begun: Steps = (),
    why_stop: Callable[[], str | None] | None = None,
) -> Worked:
    """Do the work of all chunks, or of those up to the wave after which there is a reason to stop.

    Args:
        run: The flow run.
        rows: Its experiments, its comparison or its batch.
        waves: Chunks, or rounds of them, each wave with the same examples of all systems.
        work: What is done with each.
        planned: How much work that is, for its progress.
        begun: Steps that the run has begun before. What they spend is known before other processes get their parts.
        why_stop: Asked after each wave whether the run stops, and why.
    """
    run.warm_up()
    done = Worked([*begun])
    with chunks_on(run.prepared.spec.task_runner, after=done.steps):
        for number, wave in enumerate(waves):
            for chunk in with_budget_parts(run, rows, wave, items_of(chain(*waves[number:]))):
                done.steps += work.submit(chunk)
            wait_with_progress(run, done.steps, planned)
            done.repeated += [work.repeat(chunk) for chunk in chunks_to_repeat(run, rows, wave)]
            if why_stop is not None and (reason := why_stop()):
                done.stopped = reason
                break
    return done


def judge_chunks(run: RunContext[Any]) -> ChunkWork:
    """Return the work on pairs and on items of production: they are judged."""
    task = chunk_task(judge, run.prepared.spec)
    return ChunkWork(lambda chunk: [task.submit(run, chunk)], lambda chunk: task(run, chunk))


def answer_and_judge(run: RunContext[Any]) -> ChunkWork:
    """Return the work on the examples of experiments: every target answers them, and the answers are judged."""
    spec = run.prepared.spec
    execute, evaluate = chunk_task(execute_rounds, spec), chunk_task(judge, spec)

    def submit(rounds: Rounds) -> Iterable[PrefectFuture[Any]]:
        answered = execute.submit(run, rounds)
        yield answered
        for chunk in rounds.chunks:
            yield evaluate.submit(run, chunk, return_state=False, wait_for=[answered])

    def repeat(rounds: Rounds) -> list[Any]:
        return [evaluate(run, chunk) for chunk in execute(run, rounds).chunks]

    return ChunkWork(submit, repeat)
