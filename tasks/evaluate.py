"""Per-item evaluation: every answer of a chunk is judged by every evaluator."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evaluators.call import offer_run
from llm import loop
from specs.errors import UNREACHABLE
from store.records import ExampleRow, OutputRow, ScoreRow
from store.spool import Spool
from tasks.chunk import Chunk, TransientFailuresError, is_last_attempt, n_chunks, only_transient
from tasks.execute import DEAR_S, MAY_PASS
from tasks.experiment import Experiment, ReadyEvaluator, experiment
from tasks.judge import Fields, judged, run_score, unanswered
from tasks.progress import tally
from tasks.provider_limit import within_provider_limits
from tasks.subject import evaluations_view, example_view, run_view

Run = tuple[ExampleRow, OutputRow]


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="evaluate-{chunk.part}",
)
def evaluate_chunk(chunk: Chunk) -> Chunk:
    """Judge the runs of a chunk that have no judgement yet; composites last, as they ask for the others.

    Raises TransientFailuresError while failures remain that another attempt may cure and Prefect will make one.
    """
    ready, last = experiment(chunk.experiment_id), is_last_attempt()
    examples = {example.example_id: example for example in ready.examples[chunk.start : chunk.stop]}
    outputs: list[OutputRow] = ready.store.read("outputs", chunk.experiment_id, [chunk.part])
    runs = [(examples[row.example_id], row) for row in outputs if in_chunk(row, chunk, examples)]
    scores: list[ScoreRow] = ready.store.read("scores", chunk.experiment_id, [chunk.part])
    with (
        within_provider_limits(ready.judging_on, len(runs) * len(ready.evaluators), n_chunks(ready.row)),
        Spool(ready.store, chunk.experiment_id, chunk.part) as spool,
    ):
        judging = _Judging(ready, chunk, spool, scores)
        loop.run(judging.judge(runs))
    if judging.transient and not last:
        raise TransientFailuresError(f"{judging.transient} judgements of {len(runs)} answers failed for now")
    return chunk


def in_chunk(row: OutputRow, chunk: Chunk, examples: dict[str, ExampleRow]) -> bool:
    return row.repetition == chunk.repetition and row.example_id in examples


def is_settled(row: ScoreRow) -> bool:
    """Whether it is of no use to judge again. A missing answer's score is not settled: the answer may yet come."""
    if row.status == "failed":
        return row.error_kind not in UNREACHABLE and row.error_kind != "no_output"
    return row.status != "not_attempted"


class _Judging:
    """The judgements of one chunk: those from before, and those that come now."""

    def __init__(self, ready: Experiment, chunk: Chunk, spool: Spool, before: Iterable[ScoreRow]) -> None:
        self._ready, self._chunk, self._spool = ready, chunk, spool
        self._of_run: defaultdict[str, list[ScoreRow]] = defaultdict(list)
        for row in before:
            if is_settled(row):
                self._of_run[row.run_id or ""].append(row)
        self._may_pass: list[ReadyEvaluator] = []  # for each judgement that another attempt may bring, who failed

    @property
    def transient(self) -> int:
        """Judgements that another attempt may bring; none of those by whom was found down too often."""
        return sum(not evaluator.breaker.gave_up for evaluator in self._may_pass)

    async def judge(self, runs: list[Run]) -> None:
        tally.begin(self._chunk, "judgements", 0)
        composites = [e for e in self._ready.evaluators if e.bound.asks_for("evaluations", "scores")]
        for evaluators in ([e for e in self._ready.evaluators if e not in composites], composites):
            await asyncio.gather(*(self._judge_with(evaluator, runs) for evaluator in evaluators))

    async def _judge_with(self, evaluator: ReadyEvaluator, runs: list[Run]) -> None:
        wanting = [run for run in runs if not self._is_judged(run[1], evaluator)]
        tally.add(self._chunk, "judgements", len(runs) - len(wanting))
        work, trial = self._work(evaluator), 1 if evaluator.breaker.is_open else 0
        for some in (wanting[:trial], wanting[trial:]):  # where it was down, one judgement tells whether it still is
            await self._ready.judging.run(work, some, is_async=evaluator.bound.is_async)

    def _is_judged(self, output: OutputRow, evaluator: ReadyEvaluator) -> bool:
        return any(row.evaluator == evaluator.bound.name for row in self._of_run[output.run_id])

    def _work(self, evaluator: ReadyEvaluator) -> Callable[[Run], Any]:
        async def work(run: Run) -> None:
            example, output = run
            began = time.perf_counter()
            found = await self._judged(evaluator, example, output) if output.status == "ok" else None
            for fields in unanswered(evaluator, output) if found is None else found:
                self._keep(evaluator, _score(evaluator, output, fields), time.perf_counter() - began)
            tally.add(self._chunk, "judgements")

        return work

    async def _judged(self, evaluator: ReadyEvaluator, example: ExampleRow, output: OutputRow) -> list[Fields]:
        seen = example_view(example)
        offered = offer_run(seen, run_view(output, seen.inputs), evaluations_view(self._of_run[output.run_id]))
        of = {"experiment_id": output.experiment_id, "subject_id": output.run_id}
        return await judged(evaluator, offered, spool=self._spool, **of)

    def _keep(self, evaluator: ReadyEvaluator, row: ScoreRow, elapsed: float) -> None:
        self._may_pass += [evaluator] if row.error_kind in MAY_PASS else []
        self._of_run[row.run_id or ""].append(row)
        self._spool.add("scores", row, dear=elapsed > DEAR_S)


def _score(evaluator: ReadyEvaluator, output: OutputRow, fields: Fields) -> ScoreRow:
    names = {"evaluator": evaluator.bound.name, "version": evaluator.version}
    return run_score(output, **names, declared_version=evaluator.spec.version, **fields)
